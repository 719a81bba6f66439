"""An audit in a few lines per site: how many labels are wrong, what becomes of them, and, in a
simulation, how well they were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from gcfl.base.data_types import IntArray
from gcfl.report.audit_samples import class_names, coded
from gcfl.report.markup import html_table
from gcfl.results.findings import CORRECT, DROP, EVIDENCE, STRANGE, Findings, detection

_MEANS = {
    "unused": "by models of several rounds, none of which trained on the sample",
    "looks": "by models of several rounds, some of which trained on the sample",
    "final": "by the final model alone",
}
_SCORES = {
    "AUROC": "how often a wrong label gets a higher probability than a right one",
    "average precision": "the mean share of wrong labels among the worst samples, down the list",
    "precision": "the share of wrong labels among those above the threshold",
    "recall": "the share of all wrong labels that are above the threshold",
}
_CHANGES = (CORRECT, DROP)
_HELPED = "how much it helped the model"
NOT_HELPED = (
    "How much each site helped the model was not recorded: clean.contribution = true does that."
)
Row = list[tuple[str, str]]


def summary(sites: Sequence[Findings], threshold: float, correct: float) -> list[str]:
    """A line per fact where there is one site, else a line per site and one for all of them."""
    rows = [_row(site.site, [site], threshold, correct) for site in sites]
    if len(sites) > 1:
        rows.append(_row("all sites", sites, threshold, correct))
    if not any(site.contribution for site in sites):
        rows = [[pair for pair in row if pair[0] != _HELPED] for row in rows]
    parts = ["<h2>Summary</h2>", *_facts(rows)]
    notes = [f"{site.site}: {note}" for site in sites for note in site.notes]
    parts += [f'<p class="warn">{escape(note)}</p>' for note in notes]
    parts += [f'<p class="note">{escape(line)}</p>' for line in _legend(sites, threshold, correct)]
    if any(site.truth is not None for site in sites):
        scores = [_scores(site.site, [site], threshold) for site in sites]
        if len(sites) > 1:
            scores.append(_scores("all sites", sites, threshold))
        parts += ["<h3>Against the truth of this simulation</h3>", *_facts(scores)]
        means = "; ".join(f"{name}: {text}" for name, text in _SCORES.items())
        parts.append(f'<p class="note">{escape(means)}.</p>')
    return parts


def _facts(rows: Sequence[Row]) -> list[str]:
    if len(rows) == 1:
        return [html_table(["", ""], [list(pair) for pair in rows[0]], kind="facts")]
    heads = [head for head, _ in rows[0]] if rows else []
    marks = [*("" for _ in rows[1:]), "total"]
    return [html_table(heads, [[text for _, text in row] for row in rows], marks, "sites")]


def _row(name: str, sites: Sequence[Findings], threshold: float, correct: float) -> Row:
    """One site, or several taken together, as heads and texts."""
    size = sum(map(len, sites))
    above = sum(int((site.wrong > threshold).sum()) for site in sites)
    actions = [site.actions(correct, threshold) for site in sites]
    shares = [site.rate * len(site) for site in sites if len(site)]
    rate = percent(sum(shares) / size) if size else "-"
    if len(sites) == 1 and size and not any(map(math.isnan, sites[0].interval)):
        low, high = sites[0].interval
        rate += f" ({percent(low)} to {percent(high)})"
    return [
        ("site", name),
        ("samples", f"{size:,}"),
        ("wrong labels, estimated (95% interval)", rate),
        ("strange inputs", _strange(sites)),
        (f"taken for wrong, above {percent(threshold)}", f"{above:,}"),
        *((f"to {one}", f"{sum(int((a == one).sum()) for a in actions):,}") for one in _CHANGES),
        ("commonest mistake", _commonest(sites)),
        ("judged", _evidence(sites)),
        (_HELPED, helped(sites)),
    ]


def helped(sites: Sequence[Findings]) -> str:
    """Of one site: the gain with its interval where rounds left clients out, else the cosine."""
    found = sites[0].contribution if len(sites) == 1 else {}
    if not found:
        return "-"
    if found["gain"] is None:
        return f"cosine {found['cosine']:+.3f}"
    between = found["interval"] and " ({:+.4f} to {:+.4f})".format(*found["interval"])
    return f"gain {found['gain']:+.4f}{between or ''}"


def _scores(name: str, sites: Sequence[Findings], threshold: float) -> Row:
    known = [(site.truth, site.wrong) for site in sites if site.truth is not None]
    truth = np.concatenate([np.zeros(0, dtype=bool), *(truth for truth, _ in known)])
    wrong = np.concatenate([np.zeros(0), *(wrong for _, wrong in known)])
    scores = detection(truth, wrong, threshold)
    return [
        ("site", name),
        ("wrong labels", f"{int(truth.sum()):,}" if known else "-"),
        *((head, "-" if score is None else f"{score:.3f}") for head, score in scores.items()),
    ]


def _strange(sites: Sequence[Findings]) -> str:
    """How many; '-' where nobody looked."""
    looked = [site.strange for site in sites if not np.isnan(site.strange).all()]
    return f"{sum(int((one >= STRANGE).sum()) for one in looked):,}" if looked else "-"


def _commonest(sites: Sequence[Findings]) -> str:
    pairs = commonest_pairs(label_counts(sites), 1)
    if not pairs:
        return "-"
    label, suggested, times = pairs[0]
    names = class_names(sites)
    return f"{names[label]} looks like {names[suggested]}: {times:,}"


def _evidence(sites: Sequence[Findings]) -> str:
    counts = np.bincount(
        np.concatenate([np.zeros(0, dtype=np.int64), *(site.evidence for site in sites)]),
        minlength=len(EVIDENCE),
    )
    used = [f"{name} {times:,}" for name, times in zip(EVIDENCE, counts, strict=True) if times]
    return ", ".join(used) or "-"


def _legend(sites: Sequence[Findings], threshold: float, correct: float) -> list[str]:
    """What the words of the table mean, those that are used."""
    lines = [
        f"A label is taken for wrong where that is likelier than {percent(threshold)}. It is "
        f"corrected where another class is at least {percent(correct)} likely, kept where it is "
        "still the likeliest and likelier than not, else dropped."
    ]
    if _strange(sites) != "-":
        lines.append(
            f"An input is strange where it is stranger than {percent(STRANGE)} of the clean set."
        )
    if any(site.contribution for site in sites):
        lines.append(
            "Gain: what leaving the site out of the mean costs on clean samples, in loss; cosine: "
            "of its updates with the server's own step on those, which rare classes lower too."
        )
    elif len(sites) > 1:
        lines.append(NOT_HELPED)
    used = {EVIDENCE[place] for site in sites for place in set(site.evidence.tolist())}
    means = "; ".join(f"{name}, {text}" for name, text in _MEANS.items() if name in used)
    return [*lines, f"Judged: {means}."] if used else lines


def label_counts(sites: Sequence[Findings]) -> IntArray:
    """(C, C) samples of all sites by label and suggested class, in the page's classes."""
    classes = class_names(sites)
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for site in sites:
        mine = coded(site, classes, np.arange(len(site.classes)))
        np.add.at(table, (mine[:, None], mine[None, :]), site.confusion)
    return table


def commonest_pairs(table: IntArray, most: int) -> list[tuple[int, int, int]]:
    """(label, suggested class, samples), the commonest first, of those that differ."""
    apart = np.where(np.eye(len(table), dtype=bool), 0, table)
    order = np.argsort(-apart, axis=None, kind="stable")[:most]
    found = [(*divmod(int(place), len(table)), int(apart.flat[place])) for place in order]
    return [pair for pair in found if pair[2]]


def percent(share: float) -> str:
    """0.123 -> 12.3%, 0.5 -> 50%."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}".removesuffix(".0") + "%"
