"""A run as it shows itself: printed, in a notebook, as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import Any

from matplotlib.figure import Figure

from gcfl.api.recommendation import Recommendation
from gcfl.base.errors import RunError
from gcfl.base.text import visible
from gcfl.report.markup import html_table
from gcfl.report.matplotlib_ import names_as_they_are
from gcfl.report.terminal import one_line
from gcfl.results.findings import HEADS, Findings
from gcfl.results.measures import measure, seen_in
from gcfl.results.run import Run

_SIZE = (5.0, 3.0)


def text(run: Run) -> str:
    """What came out, what it cost, its state and folder."""
    what = one_line(run) if run.rounds else f"{visible(run.label)}: no round finished yet"
    return f"{what}\n{visible(run.state)}, {visible(str(run.folder))}"


def html(run: Run) -> str:
    """The same as a table, with the curve."""
    rows = [
        [one.head.strip(), one.text(one.of(run))]
        for one in seen_in("table")
        if run.rounds and one.of(run) is not None
    ]
    rows += [["rounds", str(len(run.rounds))], ["state", run.state], ["folder", str(run.folder)]]
    title = f"{run.label} on {run.settings.get('data.source', 'data')}"
    return f"<h4>{escape(title)}</h4>{html_table(['', ''], rows)}{_curve(run) if run.curve else ''}"


def recommendation(found: Recommendation) -> str:
    """The table of the trials, why, and what to run."""
    table = html_table(*found.table)
    said = "".join(f"<p>{escape(text)}</p>" for text in str(found).splitlines())
    return f"<h4>{escape(found.title)}</h4>{table}{said}"


def sites(found: Sequence[Findings]) -> str:
    """What an audit found, site by site."""
    return html_table(HEADS, [site.row() for site in found])


def _curve(run: Run) -> str:
    figure = Figure(figsize=_SIZE, layout="constrained")
    plot(run, figure.subplots())
    drawn = StringIO()
    with names_as_they_are():
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def plot(run: Run, axes: Any = None) -> Any:
    """Accuracy and, where it is known, the clean share over the rounds; returns the axes."""
    if not run.curve:
        raise RunError(f"{run.folder} has no evaluated round yet: nothing to draw")
    with names_as_they_are():
        if axes is None:
            from matplotlib import pyplot  # so that pyplot.show() shows it

            axes = pyplot.subplots(figsize=_SIZE, layout="constrained")[1]
        for name, style in (("accuracy", "-"), ("clean_share", ":")):
            one = measure(name)
            values = [(r.round + 1, one.of_round(r)) for r in run.rounds if one.of_round]
            known = [(at, 100 * value) for at, value in values if value is not None]
            if known:
                mark = "o" if len(known) == 1 else None
                axes.plot(*zip(*known, strict=True), style, marker=mark, label=one.title)
        axes.set(xlabel="rounds", ylabel="%", title=run.label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    return axes
