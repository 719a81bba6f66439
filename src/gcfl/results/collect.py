"""The runs below folders, for reports, tables and trackers."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gcfl import experiment
from gcfl.base.errors import GcflError, RunError, one_line
from gcfl.base.text import count
from gcfl.results.run import NO_DIGESTS, Run

log = logging.getLogger("gcfl")
_SET_ASIDE = re.compile(r"\.old\d+$")  # what --fresh moved out of the way


@dataclass(frozen=True)
class Collected:
    """The runs, sorted by name, and the folders that were left out, each with a sentence."""

    runs: list[Run]
    left_out: list[tuple[str, str]]


def collect(paths: Sequence[str | os.PathLike[str]]) -> Collected:
    """All runs below these folders. A damaged one is named, not fatal; none is an error."""
    if not paths:
        raise RunError("name at least one run folder, or a folder that contains some")
    found: dict[Path, str] = {}
    left_out: list[tuple[str, str]] = []
    for path in folders_of(map(Path, paths)):
        if not path.exists():
            raise RunError(f"{path} does not exist")
        if not path.is_dir():
            raise RunError(f"{path} is a file; name a run folder, or a folder that contains some")
        for folder in _below(path, left_out):
            inside = folder.relative_to(path)
            name = str(inside) if inside.parts else folder.resolve().name
            found.setdefault(folder.resolve(), name)
    runs = []
    for folder, name in found.items():
        try:
            runs.append(read(folder, name))
        except GcflError as error:
            # A report goes to others, who need not know where it was made.
            why = str(error).replace(f"{folder}{os.sep}", "").replace(str(folder), "it")
            left_out.append((name, why))
    runs, twice = _without_copies(runs)
    if not runs:
        more = f"; {left_out[0][0]}: {left_out[0][1]}" if left_out else ""
        raise RunError(f"no run that can be read in {', '.join(str(path) for path in paths)}{more}")
    if without := sum(not run.has_digests for run in runs):
        log.warning("%d of %d runs: %s", without, len(runs), NO_DIGESTS)
    return Collected(sorted(runs, key=lambda run: run.name), sorted(left_out + twice))


def folders_of(paths: Iterable[Path]) -> list[Path]:
    """Without the files that a shell's * takes along (pages of comparisons lie beside runs), where
    there is a folder too; a note says how many.
    """
    named = list(paths)
    files = [path for path in named if path.is_file()]
    if not files or len(files) == len(named):
        return named
    log.warning("passed over %s, which is no run folder: %s", count(len(files), "file"), files[0])
    return [path for path in named if path not in files]


def below(path: Path) -> list[Path]:
    """The folder itself where a run lies in it, else those of all runs below; none is an error."""
    if not path.is_dir() or (path / "config.toml").exists():
        return [path]
    found = list(_below(path, []))
    if not found:
        raise RunError(f"{path} is no run folder, and there is none in it")
    return found


def read(folder: str | os.PathLike[str], name: str | None = None) -> Run:
    """One run, with all that a report needs read now; anything wrong is one sentence."""
    run = Run(folder, name=name)
    try:
        for wanted, kind in (("method", str), ("seed", int), ("rounds", int)):
            if not isinstance(run.settings.get(wanted), kind):
                raise RunError(f"config.toml lacks {wanted}, or has something else there")
        _ = run.rounds, run.environment, run.clients, run.energy, run.sites
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"{folder} is damaged: {one_line(error)}") from error
    return run


def _below(path: Path, left_out: list[tuple[str, str]]) -> Iterable[Path]:
    """Run folders at or below a path. What was set aside counts only when it is named itself."""

    def refuse(error: OSError) -> None:
        where = os.path.relpath(error.filename, path)
        left_out.append((where, f"it cannot be read: {error.strerror}"))

    for here, folders, files in os.walk(path, onerror=refuse):
        if {"environment.json", "rounds.jsonl"} & set(files):
            folders.clear()
            if Path(here) == path or not _SET_ASIDE.search(here):
                yield Path(here)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _without_copies(runs: list[Run]) -> tuple[list[Run], list[tuple[str, str]]]:
    """Copies would count a seed twice: of equal settings, the run that came furthest stays."""
    best: dict[str, Run] = {}
    twice = []
    for run in sorted(runs, key=lambda run: (not run.finished, -len(run.rounds), run.name)):
        settings = {
            name: value for name, value in run.settings.items() if name not in experiment.NEUTRAL
        }
        first = best.setdefault(repr(sorted(settings.items())), run)
        if first is not run:
            twice.append((run.name, f"the same settings and seed as {first.name}"))
    return list(best.values()), twice
