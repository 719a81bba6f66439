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
class Beside:
    """One table. rows: label, the paper's value, ours, their difference, as texts."""

    title: str
    rows: list[list[str]]
    note: str = ""


def beside(given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[Beside]:
    """One mapping or several to tables. Values are numbers, text such as '47.4 ± 0.3', or None
    where one side has nothing.
    """
    if given is None:
        return []
    several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    tables = []
    for one in several:
        rows = one.get("rows") if isinstance(one, Mapping) else None
        if not isinstance(rows, list | tuple) or not isinstance(one.get("title"), str):
            raise ConfigError(
                "the paper's figures must be a mapping with a title and a list of rows, or several "
                f"of these, got {one!r}"
            )
        tables.append(Beside(one["title"], [_row(row) for row in rows], str(one.get("note", ""))))
    return tables


def left_by_sweeps(folders: Iterable[Path]) -> list[Any]:
    """What sweeps left for reports: sweep.json of these folders, and of the folders in them."""
    files = [
        file
        for folder in folders
        for pattern in ("sweep.json", "*/sweep.json")
        for file in sorted(folder.glob(pattern))
    ]
    return [read_json(file) for file in dict.fromkeys(files)]


def _row(row: Any) -> list[str]:
    if not isinstance(row, Mapping) or set(row) != {"label", "paper", "ours"}:
        raise ConfigError(f"a row of the paper's figures has label, paper and ours, got {row!r}")
    paper, ours = row["paper"], row["ours"]
    numbers = isinstance(paper, int | float) and isinstance(ours, int | float)
    difference = f"{ours - paper:+.3g}" if numbers else "-"
    return [str(row["label"]), _text(paper), _text(ours), difference]


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
