"""The paper's figures next to ours: {"title", "rows": [{"label", "paper", "ours"}]}, checked before
any work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError
from gcfl.base.files import read_json


@dataclass(frozen=True)
class Row:
    label: str
    paper: str
    ours: str
    difference: str


@dataclass(frozen=True)
class Beside:
    """One table. Values are numbers, text such as '47.4 ± 0.3', or None where one side has
    nothing.
    """

    title: str
    rows: list[Row]
    note: str = ""


def beside(given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[Beside]:
    """One mapping or several to tables."""
    if given is None:
        return []
    several = [given] if isinstance(given, Mapping) else given
    if isinstance(several, str) or not isinstance(several, Sequence):
        raise ConfigError(
            f"the paper's figures must be a mapping with title and rows, got {several!r}"
        )
    return [_one(mapping) for mapping in several]


def left_by_sweeps(folders: Iterable[Path]) -> list[Any]:
    """What sweeps left for reports: sweep.json of these folders, and of the folders in them."""
    files = [
        file
        for folder in folders
        for pattern in ("sweep.json", "*/sweep.json")
        for file in sorted(folder.glob(pattern))
    ]
    return [read_json(file) for file in dict.fromkeys(files)]


def _one(mapping: Any) -> Beside:
    rows = mapping.get("rows") if isinstance(mapping, Mapping) else None
    if (
        not isinstance(rows, Sequence)
        or isinstance(rows, str)
        or not isinstance(mapping.get("title"), str)
    ):
        raise ConfigError(
            "the paper's figures must be a mapping with a title and a list of rows, got "
            f"{mapping!r}"
        )
    return Beside(mapping["title"], [_row(row) for row in rows], str(mapping.get("note", "")))


def _row(row: Any) -> Row:
    if not isinstance(row, Mapping) or set(row) != {"label", "paper", "ours"}:
        raise ConfigError(f"a row of the paper's figures has label, paper and ours, got {row!r}")
    paper, ours = row["paper"], row["ours"]
    numbers = all(isinstance(value, int | float) for value in (paper, ours))
    return Row(
        str(row["label"]), _text(paper), _text(ours), f"{ours - paper:+.3g}" if numbers else "-"
    )


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
