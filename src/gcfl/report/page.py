"""The report as one HTML file that asks for nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from gcfl import __version__
from gcfl.base.text import count
from gcfl.report import tables
from gcfl.report.figures import curves
from gcfl.report.markup import document, html_table
from gcfl.report.plots import Section, line_names
from gcfl.report.sites import MEANING, sites_of
from gcfl.report.tables import Beside
from gcfl.report.track import energy_note
from gcfl.results.collect import Collected
from gcfl.results.groups import Group, Study, order, shown
from gcfl.results.measures import measure, seen_in
from gcfl.results.run import Run
from gcfl.results.styles import human
from gcfl.results.verdict import headline, verdicts

_MOST_NAMED = 5
# The set-up in a sentence, by setting.
_SETUP = {
    "model.name": "{}",
    "data.source": "on {}",
    "data.clients": "clients {}",
    "data.noise": "noise {}",
    "rounds": "rounds {}",
    "train.epochs": "local epochs {}",
    "coreset.budget": "budget {}",
    "data.validation": "the server's clean set {}",
    "data.test": "test set {}",
}


def page(
    title: str,
    collected: Collected,
    study: Study,
    sections: Sequence[Section],
    paper: Sequence[Beside] = (),
) -> str:
    lines = list(dict.fromkeys([*study.lines, *line_names(sections)]))
    body = [f"<h1>{escape(title)}</h1>", *_opening(collected, study), *_results(study)]
    body += [_paper(one) for one in paper]
    body += curves(sections, lines)
    body += [*_sites(study.runs), *_contributions(study.runs), *_privacy(study)]
    body += [*_settings(study), *_environments(study.runs), *_runs(study.runs)]
    return document(title, body, ["page.css"], ["tables.js", "page.js"])


def _opening(collected: Collected, study: Study) -> list[str]:
    runs = collected.runs
    seeds = sorted({run.seed for run in runs})
    several = (
        f"{len(seeds)} seeds ({', '.join(map(str, seeds[:8]))}{', ...' if len(seeds) > 8 else ''})"
    )
    which = several if len(seeds) > 1 else f"seed {seeds[0]}"
    what = f"{count(len(runs), 'run')} in {count(len(study.groups), 'group')}, {which}."
    said = headline(study)
    parts = [f'<p class="verdict">{escape(said)}</p>'] if said else []
    about = f"{escape(_setup(study))}{what} Accuracy is that on the test set."
    parts.append(f'<p class="note">{about}</p>')
    open_ = [run for run in runs if not run.finished]
    if open_:
        names = "; ".join(f"{run.name} ({run.state})" for run in open_[:_MOST_NAMED])
        names += f"; and {len(open_) - _MOST_NAMED} more" if len(open_) > _MOST_NAMED else ""
        parts.append(
            f'<p class="warn">{count(len(open_), "run")} not finished: {escape(names)}. '
            "Means are over finished runs; where a group has none, they show what there is so "
            "far.</p>"
        )
    for name, why in collected.left_out:
        parts.append(f'<p class="warn">Left out: {escape(name)}: {escape(why)}</p>')
    return parts


def _setup(study: Study) -> str:
    """What all runs share, in a sentence; what differs stands in the table."""
    shared = {name: study.common[name] for name in _SETUP if name in study.common}
    words = [
        text.format(shown(value, name))
        for name, value in shared.items()
        if (text := _SETUP[name]) and value
    ]
    return f"{', '.join(words)}. " if words else ""


def _results(study: Study) -> list[str]:
    heads, lines = tables.cells(study)
    marks = []
    before: str | None = None
    for group in study.groups:
        kinds = ["best"] if group in study.best else []
        kinds += ["scene"] if before not in (None, group.scene) else []
        marks.append(" ".join(kinds))
        before = group.scene
    # The first sentence of the page has told it where there is one problem only.
    said = [f"<li>{escape(line)}</li>" for line in verdicts(study)]
    scenes = [f"<ul>{''.join(said)}</ul>"] if len(said) > 1 else []
    notes = [tables.best_note(study), *energy_note(study.runs)]
    paragraphs = [f'<p class="note">{escape(note)}</p>' for note in notes if note]
    table = html_table(heads, lines, marks)
    return ["<h2>Results</h2>", *scenes, table, *paragraphs, _meanings(heads)]


def _meanings(heads: Sequence[str]) -> str:
    """What the columns that are there mean."""
    known = [one for one in seen_in("table") if one.note and one.head in heads]
    items = [f"<dt>{escape(one.title)}</dt><dd>{escape(one.note)}</dd>" for one in known]
    what = "<summary>What the columns mean</summary>"
    return f"<details>{what}<dl>{''.join(items)}</dl></details>" if items else ""


def _paper(beside: Beside) -> str:
    note = f'<p class="note">{escape(beside.note)}</p>' if beside.note else ""
    table = html_table(["", "paper", "ours", "difference"], beside.rows)
    return f"<section><h2>{escape(beside.title)}</h2>{note}{table}</section>"


def _sites(runs: Sequence[Run]) -> list[str]:
    """Run by run, what sites told of their labels."""
    parts = []
    for run in runs:
        if (found := sites_of(run)) is not None:
            table = html_table(found.heads, found.lines)
            parts.append(f"<details open><summary>{escape(run.name)}</summary>{table}</details>")
    note = f'<p class="note">{escape(MEANING)}</p>'
    return ["<h2>Sites</h2>", note, *parts] if parts else []


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f" ({', '.join(names[:_MOST_NAMED])}{more})"


def _privacy(study: Study) -> list[str]:
    """What left, and which ε covers it: each sentence once, with the methods that it is true of; of
    a method that it is true of in some problems alone, with those.
    """
    said: dict[str, list[Group]] = {}
    for group in study.groups:
        for line in dict.fromkeys(line for run in group.runs for line in run.privacy):
            said.setdefault(line, []).append(group)
    items = []
    for line, groups in said.items():
        others = {group.line for group in study.groups if group not in groups}
        names = [group.label if group.line in others else group.line for group in groups]
        who = _named(list(dict.fromkeys(names))) if others else ""
        items.append(f"<li>{escape(line)}{escape(who)}</li>")
    return ["<h2>Privacy</h2>", f"<ul>{''.join(items)}</ul>"]


def _contributions(runs: Sequence[Run]) -> list[str]:
    """How much each client helped, run by run: with another seed, a number is another client."""
    parts = []
    for run in runs:
        found = tables.contribution_of(run)
        if found is not None:
            more = f'<p class="note">And {found.more} more clients.</p>' if found.more else ""
            summary = f"<summary>{escape(f'{run.name}: {found.title}, {found.on}')}</summary>"
            parts.append(
                f"<details>{summary}{html_table(found.heads, found.lines)}{more}</details>"
            )
    if not parts:
        return []
    note = (
        "Means over rounds. Cosine: of the client's update with the server's own step on clean "
        "samples. Gain: what leaving the client out costs there, in loss; below 0 it does harm. "
        f"{tables.RARE}"
    )
    return ["<h2>Contribution</h2>", f'<p class="note">{escape(note)}</p>', *parts]


def _settings(study: Study) -> list[str]:
    parts = ["<h2>Settings</h2>"]
    if study.columns:
        parts += ["<h3>What differs</h3>", _values(study, study.columns)]
    if study.implied:
        more = len(study.implied)
        along = f"{more} more setting{'s differ' if more > 1 else ' differs'} along with these"
        parts.append(
            f"<details><summary>{along}</summary>{_values(study, study.implied)}</details>"
        )
    common = [[name, shown(value)] for name, value in study.common.items()]
    shared = f"Common to all runs: {count(len(common), 'setting')}"
    table = html_table(["setting", "value"], common, kind="text")
    parts.append(f"<details><summary>{shared}</summary>{table}</details>")
    return parts


def _values(study: Study, names: Sequence[str]) -> str:
    """By setting: all its values; '-' where a method does not have it."""
    found = {
        name: sorted((run.settings.get(name) for run in study.runs), key=order) for name in names
    }
    rows = [
        [name, "; ".join(dict.fromkeys(shown(value, name) for value in values))]
        for name, values in found.items()
    ]
    return html_table(["setting", "values"], rows, kind="text")


def _environments(runs: Sequence[Run]) -> list[str]:
    """Versions and hardware; where runs had several, all of them."""
    rows: dict[str, list[str]] = {}
    for run in runs:
        flat = {name: value for name, value in run.environment.items() if name != "packages"}
        if "memory_bytes" in flat:
            memory = flat.pop("memory_bytes")
            flat["memory"] = human(memory) if isinstance(memory, int | float) else memory
        packages = run.environment.get("packages")
        flat |= packages if isinstance(packages, Mapping) else {}
        for name, value in flat.items():
            rows.setdefault(str(name), []).append(shown(value))
    texts = [[name, "; ".join(dict.fromkeys(values))] for name, values in rows.items()]
    made = f'<p class="note">Report made by gcfl {escape(__version__)}.</p>'
    return [
        "<h2>Versions and hardware</h2>",
        html_table(["what", "value"], texts, kind="text") if texts else "<p>Not recorded.</p>",
        made,
    ]


def _runs(runs: Sequence[Run]) -> list[str]:
    columns = [measure(name) for name in ("accuracy", "cpu_seconds", "left_out")]
    rows = [
        [run.name, str(run.seed), run.state, str(len(run.rounds))]
        + [one.text(one.of(run)) for one in columns]
        for run in runs
    ]
    heads = ["run", "seed", "state", "rounds", *(one.head for one in columns)]
    return [
        "<h2>Runs</h2>",
        f"<details><summary>{count(len(rows), 'run')}</summary>{html_table(heads, rows)}</details>",
    ]
