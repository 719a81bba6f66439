"""`report`: from run folders to a file to send to a colleague."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError, RunError, one_of
from gcfl.base.files import write_atomic
from gcfl.report import tables
from gcfl.report.charts import sections
from gcfl.report.page import page
from gcfl.report.tables import beside, left_by_sweeps
from gcfl.results.collect import collect
from gcfl.results.groups import study

FORMATS = ("html", "csv", "json", "md", "png", "svg")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def report(
    runs: Paths,
    out: str | os.PathLike[str] | None = None,
    format: str | None = None,
    *,
    title: str | None = None,
    paper: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    data: bool = True,
) -> list[Path]:
    """Write a report about run folders, or folders that contain some; returns the files written.

    format: html (all in one file), csv, json or md (the summary table), png or svg (the figures:
    one file where `out` ends so, else a folder). Unset, the ending of `out` says it. paper: figures
    to show next to ours, {"title", "rows": [{"label", "paper", "ours"}]}, or several of these.
    data: rebuild who holds what from the data, where it is there. What a sweep has left in its
    folder gives the title, the paper's figures and the runs' labels, where they are unset.
    """
    kind, target = _target(out, format)
    folders = [Path(runs)] if isinstance(runs, str | os.PathLike) else [Path(path) for path in runs]
    sweeps = left_by_sweeps(folders)
    given = [one for sweep in sweeps for one in sweep["paper"]] if paper is None else paper
    compared = beside(given)
    titles = [str(sweep["title"]) for sweep in sweeps]
    title = title or (titles[0] if len(titles) == 1 else "Runs compared")
    found = collect(folders)
    labels = {run: str(label) for sweep in sweeps for run, label in sweep["labels"].items()}
    made = study(found.runs, labels)
    try:
        if kind == "csv":
            return [_written(target, tables.as_csv(made))]
        if kind == "json":
            return [_written(target, tables.as_json(made, found.left_out))]
        if kind == "md":
            return [_written(target, tables.as_md(made, found.left_out))]
        parts = sections(made)
        if data:
            from gcfl.report.partition import partition

            parts.append(partition(found.runs))
        if kind == "html":
            return [_written(target, page(title, found, made, parts, compared))]
        from gcfl.report.matplotlib_ import save

        return save(parts, target, kind, made.lines)
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error


def _target(out: str | os.PathLike[str] | None, format: str | None) -> tuple[str, Path]:
    """What to write, and where; told before any folder is read."""
    ending = Path(out).suffix.lower().lstrip(".") if out is not None else ""
    kind = format or (ending if ending in FORMATS else "html")
    if kind not in FORMATS:
        raise ConfigError(f"format must be {one_of(FORMATS)}, got {kind!r}")
    if out is None:
        return kind, Path("report" if kind in ("png", "svg") else f"report.{kind}")
    target = Path(out)
    if kind not in ("png", "svg") and target.is_dir():
        target = target / f"report.{kind}"
    elif ending in FORMATS and ending != kind:
        raise ConfigError(f"{target} ends in .{ending}, but the format is {kind}")
    elif kind in ("png", "svg") and ending != kind and target.is_file():
        raise ConfigError(
            f"{target} is a file; figures go into a folder, or into one file that ends in .{kind}"
        )
    return kind, target


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode(errors="backslashreplace"))
    return path
