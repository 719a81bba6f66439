"""What an audit found at one site, and the files that it writes there.

    audit.csv      a line per sample, worst first; or audit.parquet
    audit.json     the site as a whole: its rate with an interval, its confusion matrix, its classes
    cleaned.csv    id and label of every sample that is worth keeping, labels corrected

All of it stays at the site.
"""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import ConfigError
from gcfl.base.files import write_atomic, write_json
from gcfl.base.text import csv_bytes, visible
from gcfl.results.run import from_above

# How a sample's label was judged, best first: by models of several rounds, none of which trained on
# it; by models of several rounds, some of which did; by the final model alone.
EVIDENCE = ("unused", "looks", "final")
HEADS = ["site", "samples", "wrong labels, %", "called wrong", "strange inputs"]
KEEP, CORRECT, DROP = "keep", "correct", "drop"
_LIKELY = 0.5  # of a label


@dataclass(frozen=True, repr=False)
class Findings:
    """One site. Of each of its n samples: ids (n,) as its owner knows them, labels (n,) observed,
    wrong (n,) the probability that the label is wrong, suggested (n,) the likeliest class and
    confidence (n,) its probability, strange (n,) the share of clean samples that are less strange
    (NaN where that was not asked), evidence (n,) places in `EVIDENCE`.

    Of the site: rate and its 95% interval, transition (C, C) estimated P(label | class), prior (C,)
    estimated class shares. truth: (n,) which labels are wrong, and odd: (n,) which inputs belong to
    no class or were spoiled, right: (n,) the right classes, where a simulation knows. contribution:
    how much it helped, as `results.contribution` has it, where the run recorded that.
    """

    site: str
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    labels: IntArray
    wrong: FloatArray
    suggested: IntArray
    confidence: FloatArray
    strange: FloatArray
    evidence: IntArray
    rate: float
    interval: tuple[float, float]
    transition: FloatArray
    prior: FloatArray
    truth: npt.NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()
    contribution: dict[str, Any] = field(default_factory=dict)
    odd: npt.NDArray[np.bool_] | None = None
    right: IntArray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, threshold: float = 0.5) -> list[str]:
        """The site as texts, below `HEADS`."""
        low, high = (100 * bound for bound in self.interval)
        return [
            visible(self.site),
            f"{len(self):,}",
            f"{100 * self.rate:.1f} ({low:.1f} to {high:.1f})",
            f"{int((self.wrong > threshold).sum()):,}",
            f"{self.summary()['strange']:,}",
        ]

    def __repr__(self) -> str:
        site, *numbers = self.row()
        pairs = zip(HEADS[1:], numbers, strict=True)
        return f"{site}: {', '.join(f'{name} {text}' for name, text in pairs)}"

    def _repr_html_(self) -> str:
        return str(from_above("report.notebook", "sites", [self]))

    @property
    def worst_first(self) -> IntArray:
        """(n,) places, the likeliest wrong label first."""
        return np.argsort(-self.wrong, kind="stable")

    @property
    def confusion(self) -> IntArray:
        """(C, C) samples by observed label and suggested class."""
        table = np.zeros((len(self.classes), len(self.classes)), dtype=np.int64)
        np.add.at(table, (self.labels, self.suggested), 1)
        return table

    def action(self, place: int, correct: float = 0.9, drop: float = 0.5) -> str:
        """What becomes of a sample: kept where its label is wrong with at most `drop`; corrected
        where another label is at least as likely as `correct`; dropped where no label is likely.
        One whose own label is the likeliest, and likelier than not, is kept whatever is asked.
        """
        if self.wrong[place] <= drop:
            return KEEP
        likely = self.confidence[place]
        if self.suggested[place] == self.labels[place]:
            return KEEP if likely >= min(correct, _LIKELY) else DROP
        return CORRECT if likely >= correct else DROP

    def line(self, place: int, correct: float = 0.9, drop: float = 0.5) -> dict[str, Any]:
        """One sample, as audit.csv has it."""
        strange = float(self.strange[place])
        found: dict[str, Any] = {
            "id": self.ids[place],
            "label": self.classes[int(self.labels[place])],
            "wrong": round(float(self.wrong[place]), 4),
            "suggested": self.classes[int(self.suggested[place])],
            "confidence": round(float(self.confidence[place]), 4),
            "strange": None if math.isnan(strange) else round(strange, 4),
            "evidence": EVIDENCE[int(self.evidence[place])],
            "action": self.action(place, correct, drop),
        }
        return found if self.truth is None else {**found, "truth": int(self.truth[place])}

    def lines(
        self, correct: float = 0.9, drop: float = 0.5, named: bool = False
    ) -> list[dict[str, Any]]:
        """All samples, worst first. named: each with its site."""
        lines = (self.line(int(place), correct, drop) for place in self.worst_first)
        return [{"site": self.site, **line} if named else line for line in lines]

    def summary(self) -> dict[str, Any]:
        """The site as a whole, as audit.json has it."""
        counts = np.bincount(self.labels, minlength=len(self.classes))
        return {
            "site": self.site,
            "samples": len(self),
            "rate": self.rate,
            "interval": list(self.interval),
            "strange": int((self.strange >= STRANGE).sum()),
            "classes": {
                name: {"labelled": int(count), "estimated": round(float(share) * len(self), 1)}
                for name, count, share in zip(self.classes, counts, self.prior, strict=True)
            },
            "transition": np.round(self.transition, 4).tolist(),
            "evidence": {
                name: int((self.evidence == place).sum()) for place, name in enumerate(EVIDENCE)
            },
            "contribution": self.contribution,
            "notes": list(self.notes),
        }

    def cleaned(self, correct: float = 0.9, drop: float = 0.5) -> Iterator[tuple[str, str]]:
        """(id, label) of what is worth keeping, with the suggested label where it is corrected."""
        for place in range(len(self)):
            if (action := self.action(place, correct, drop)) != DROP:
                label = (self.labels if action == KEEP else self.suggested)[place]
                yield self.ids[place], self.classes[int(label)]

    def actions(self, correct: float = 0.9, drop: float = 0.5) -> npt.NDArray[np.str_]:
        """(n,) what becomes of each sample."""
        return np.array(
            [self.action(place, correct, drop) for place in range(len(self))], dtype=str
        )

    def corrected(self, correct: float = 0.9, drop: float = 0.5) -> tuple[int, int] | None:
        """How many labels are corrected, and how many of those rightly; None where nobody knows."""
        if self.right is None:
            return None
        changed = self.actions(correct, drop) == CORRECT
        return int(changed.sum()), int((self.suggested == self.right)[changed].sum())


STRANGE = 0.99  # stranger than this share of the clean set


def detection(
    truth: npt.NDArray[np.bool_], wrong: FloatArray, threshold: float
) -> dict[str, float | None]:
    """How well the probabilities `wrong` tell wrong labels from right ones; None where that is not
    defined: with wrong labels alone or none, or none above the threshold.
    """
    from sklearn import metrics

    found, bad = wrong > threshold, np.asarray(truth, dtype=bool)
    hits = int((found & bad).sum())
    return {
        "AUROC": float(metrics.roc_auc_score(bad, wrong)) if 0 < bad.sum() < len(bad) else None,
        "average precision": (
            float(metrics.average_precision_score(bad, wrong)) if bad.any() else None
        ),
        "precision": hits / int(found.sum()) if found.any() else None,
        "recall": hits / int(bad.sum()) if bad.any() else None,
    }


def scores(
    sites: Sequence[Findings], threshold: float = 0.5, correct: float = 0.9
) -> dict[str, float] | None:
    """Against the truth, where a simulation knows it: AUROC, average precision, precision and
    recall at the threshold; the share of corrected labels that are right; AUROC of strange inputs,
    where some belong to no class or were spoiled; the mean absolute error of the sites' rates, and
    how many of their intervals hold the truth. NaN where a number is not defined.
    """
    known = [(site, site.truth) for site in sites if site.truth is not None]
    if not known:
        return None
    truth = np.concatenate([bad for _, bad in known])
    wrong = np.concatenate([site.wrong for site, _ in known])
    strange = np.concatenate([site.strange for site, _ in known])
    odd = np.concatenate([np.zeros(0, bool) if site.odd is None else site.odd for site, _ in known])
    found = detection(truth, wrong, threshold) | {
        "strange_auroc": detection(odd, strange, threshold)["AUROC"]
    }
    rates = [(site, float(np.mean(bad))) for site, bad in known]
    changes = [site.corrected(correct, threshold) or (0, 0) for site, _ in known]
    corrected, rightly = (sum(column) for column in zip(*changes, strict=True))
    return {
        **{
            name.lower().replace(" ", "_"): math.nan if value is None else value
            for name, value in found.items()
        },
        "corrected_right": rightly / corrected if corrected else math.nan,
        "rate_error": float(np.mean([abs(site.rate - rate) for site, rate in rates])),
        "covered": float(
            np.mean([site.interval[0] <= rate <= site.interval[1] for site, rate in rates])
        ),
    }


def write_findings(
    findings: Findings,
    folder: Path,
    correct: float = 0.9,
    drop: float = 0.5,
    format: Literal["csv", "parquet"] = "csv",
) -> None:
    """audit.csv (or audit.parquet), audit.json and cleaned.csv below the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = findings.lines(correct, drop)
    names = list(lines[0]) if lines else ["id"]
    blob = csv_bytes(lines, names) if format == "csv" else parquet(names, lines)
    write_atomic(folder / f"audit.{format}", blob)
    write_json(folder / "audit.json", findings.summary())
    kept = [{"id": id, "label": label} for id, label in findings.cleaned(correct, drop)]
    write_atomic(folder / "cleaned.csv", csv_bytes(kept, ["id", "label"]))


def need_parquet() -> None:
    """A sentence before any work where it cannot be written."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("parquet files need pyarrow: pip install 'gcfl[tables]'")


def parquet(names: list[str], rows: list[dict[str, Any]]) -> bytes:
    """The same table, of typed columns, as it stands: nothing runs its cells."""
    need_parquet()
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    columns = {name: [row[name] for row in rows] for name in names}
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()
