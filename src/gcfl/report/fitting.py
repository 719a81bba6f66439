"""Tables that fit a terminal: no cell is cut; columns without room are left out and named."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from gcfl.base.text import visible
from gcfl.report.progress import escape

_HEAD = 11  # letters of a line of a head
_AROUND = 3  # of a column: a space on either side, and a rule


def room_of(console: Console) -> int | None:
    """The columns of a terminal; None where nobody looks, and a table may be as wide as it is."""
    return console.width if console.is_terminal else None


def that_fit(
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    room: int | None,
    least_first: Sequence[str],
) -> list[int]:
    """The places of the columns that fit. least_first: those that may go, the least important one
    first.
    """
    kept = list(range(len(heads)))
    for name in least_first:
        if room is None or _width(heads, lines, kept) <= room:
            break
        kept = [place for place in kept if heads[place] != name]
    return kept


def print_fitting(
    console: Console,
    title: str,
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    least_first: Sequence[str] = (),
    texts: int = 1,
) -> list[str]:
    """Print it, and say which columns had no room; those come back. texts: so many columns at the
    left hold text, which goes on in the next line where it still does not fit.
    """
    room = room_of(console)
    kept = that_fit(heads, lines, room, least_first)
    whole = _width(heads, lines, kept)
    table = Table(title=escape(title), title_justify="left")
    for place in kept:
        text = place < texts
        head = "\n".join(map(escape, _folded(heads[place])))
        side = "left" if text else "right"
        # whatever is no text keeps its room: shortened, a number would be another one
        least = None if text else _column(heads, lines, place)
        table.add_column(head, justify=side, no_wrap=not text, overflow="fold", min_width=least)  # type: ignore[arg-type]
    for line in lines:
        table.add_row(*(escape(line[place]) for place in kept))
    if room is None and whole > console.width:
        console = Console(
            file=console.file, width=whole, highlight=False, color_system=None, force_terminal=False
        )
    console.print(table)
    gone = [head for place, head in enumerate(heads) if place not in kept]
    if gone:
        needed = _width(heads, lines, range(len(heads)))
        names = "; ".join(map(visible, gone))
        console.print(
            f"no room for: {names}. A terminal of {needed} columns shows them, and so does a file "
            "or a pipe (| cat).",
            soft_wrap=True,
            markup=False,
        )
    return gone


def _folded(head: str) -> list[str]:
    return textwrap.wrap(head, _HEAD) or [""]


def _column(heads: Sequence[str], lines: Sequence[Sequence[str]], place: int) -> int:
    texts = [*_folded(heads[place]), *(visible(line[place]) for line in lines)]
    return max(map(cell_len, texts))


def _width(heads: Sequence[str], lines: Sequence[Sequence[str]], places: Sequence[int]) -> int:
    return 1 + sum(_column(heads, lines, place) + _AROUND for place in places)
