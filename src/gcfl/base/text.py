"""Text of strangers (names of classes, sites and columns; what a client answers) on its way out:
shown, never obeyed by a terminal, a log, a spreadsheet or a page.
"""

from __future__ import annotations

import csv
import io
import logging
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# control, format (also: from right to left), lone surrogates, line and paragraph separators
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """One line of what can be seen: terminal codes, line breaks and lone surrogates as escapes."""
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if unicodedata.category(one) in _HIDDEN else one
        for one in text
    )


def brief(text: str, most: int = 200) -> str:
    """The beginning of what a stranger says, for a record and a log that it cannot fill."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def count(number: int, what: str) -> str:
    """1 run, 2 runs."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def markdown(text: str) -> str:
    """A cell of a table or a piece of a line, without markup of its own."""
    for mark, plain in (("\\", "\\\\"), ("|", "\\|"), ("&", "&amp;"), ("<", "&lt;")):
        text = text.replace(mark, plain)
    return visible(text.replace("\n", " "))


def csv_bytes(lines: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> bytes:
    """A line for each mapping, below the names given, or those of all lines. A cell that a
    spreadsheet would run as a formula starts with an apostrophe.
    """
    text = io.StringIO()
    heads = list(dict.fromkeys(name for line in lines for name in line)) if names is None else names
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_defused(name) for name in heads])
    for line in lines:
        writer.writerow([_defused(line.get(name, "")) for name in heads])
    return text.getvalue().encode(errors="backslashreplace")


def _defused(value: Any) -> Any:
    runs = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if runs and not _is_number(str(value)) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Visible(logging.Filter):
    """Nothing that is logged can start a line of its own, or steer a terminal."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                visible(str(one)) if isinstance(one, str | Path | BaseException) else one
                for one in record.args
            )
        return True


for _name in ("gcfl", "gcfl.data"):  # a filter serves the records of its own logger alone
    logging.getLogger(_name).addFilter(_Visible())
