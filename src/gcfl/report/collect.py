"""From paths to runs: which folders hold one, what is in them, and which had to be left out and
why.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gcfl import experiment as config
from gcfl.base.errors import GcflError, RunError, one_line
from gcfl.base.files import owner, read_json
from gcfl.results.folder import RunFolder
from gcfl.results.measures import keeps, kept, total_cost

KINDS = ("select", "train", "aggregate", "evaluate")
_SET_ASIDE = re.compile(r"\.old\d+$")  # what --fresh moved out of the way
_PATHS = ("data.source", "data.owners", "data.noise_file")
_NUMBERS_OR_NONE = ("accuracy", "loss", "train_loss", "validation_loss")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One run, read from its folder. settings: by dotted name. sizes: samples of each client, where
    known.
    """

    name: str
    folder: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    records: list[dict[str, Any]]
    finished: bool
    running: bool
    sizes: list[int] | None
    energy: dict[str, Any] | None

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    @property
    def planned(self) -> int:
        return int(self.settings["rounds"])

    @property
    def state(self) -> str:
        """'finished', or how far it came."""
        if self.finished:
            return "finished"
        now = "running" if self.running else "unfinished"
        return f"{now}: {len(self.records)} of {self.planned} rounds"

    @property
    def scored(self) -> list[dict[str, Any]]:
        """The rounds that were evaluated."""
        return [record for record in self.records if record["accuracy"] is not None]

    @cached_property
    def accuracy(self) -> float | None:
        """Of the model that the run keeps, as in summary.json; None where no round was
        evaluated.
        """
        server = {
            name.removeprefix("server."): value
            for name, value in self.settings.items()
            if name.startswith("server.")
        }
        return float(kept(self.records, keeps(server))["accuracy"]) if self.scored else None

    @cached_property
    def cost(self) -> dict[str, Any]:
        return total_cost(self.records)

    @property
    def clean_share(self) -> float | None:
        return self.records[-1]["coreset"]["clean_share"] if self.records else None


@dataclass(frozen=True)
class Collected:
    """The runs, sorted by name, and the folders that were left out, each with a sentence."""

    runs: list[Run]
    left_out: list[tuple[str, str]]


def collect(paths: Sequence[str | os.PathLike[str]]) -> Collected:
    """All runs in these folders, at any depth. A damaged one is named, not fatal; no run at all is
    an error.
    """
    if not paths:
        raise RunError("name at least one run folder, or a folder that contains some")
    found: dict[Path, str] = {}
    left_out: list[tuple[str, str]] = []
    for path in map(Path, paths):
        if not path.exists():
            raise RunError(f"{path} does not exist")
        if not path.is_dir():
            raise RunError(f"{path} is a file; name a run folder, or a folder that contains some")
        for folder in _below(path, left_out):
            inside = folder.relative_to(path)
            found.setdefault(
                folder.resolve(), str(inside) if inside.parts else folder.resolve().name
            )
    runs = []
    for folder, name in found.items():
        try:
            runs.append(read(folder, name))
        except GcflError as error:
            # A report goes to others, who need not know where it was made.
            left_out.append(
                (name, str(error).replace(f"{folder}{os.sep}", "").replace(str(folder), "it"))
            )
    runs, twice = _without_copies(runs)
    if not runs:
        more = f"; {left_out[0][0]}: {left_out[0][1]}" if left_out else ""
        raise RunError(f"no run that can be read in {', '.join(str(path) for path in paths)}{more}")
    return Collected(sorted(runs, key=lambda run: run.name), sorted(left_out + twice))


def _below(path: Path, left_out: list[tuple[str, str]]) -> Iterable[Path]:
    """Run folders at or below a path. What was set aside counts only when it is named itself."""

    def refuse(error: OSError) -> None:
        left_out.append(
            (os.path.relpath(error.filename, path), f"it cannot be read: {error.strerror}")
        )

    for here, folders, files in os.walk(path, onerror=refuse):
        named = Path(here) == path
        if {"environment.json", "rounds.jsonl"} & set(files):
            folders.clear()
            if named or not _SET_ASIDE.search(here):
                yield Path(here)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def read(folder: Path, name: str | None = None) -> Run:
    """One run folder; anything wrong with it is one sentence."""
    try:
        return _read(folder, name or folder.resolve().name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{folder} is damaged: {one_line(error)}") from error


def _read(folder: Path, name: str) -> Run:
    files = RunFolder.open(folder)
    settings = config.flat(config.read_settings(files.config))
    for wanted, kind in (("method", str), ("seed", int), ("rounds", int)):
        if not isinstance(settings.get(wanted), kind):
            raise RunError(f"config.toml lacks {wanted}, or has something else there")
    for path in _PATHS:  # where files lie says nothing about a run, and may say who made it
        if Path(str(settings.get(path, ""))).is_absolute():
            settings[path] = Path(settings[path]).name
    records = files.records()
    for place, record in enumerate(records):
        _check(record, place)
    return Run(
        name=name,
        folder=folder,
        settings=settings,
        environment=_json_table(files.environment),
        records=records,
        finished=files.finished,
        running=not files.finished and _is_written(folder),
        sizes=_json_table(files.clients).get("sizes"),
        energy=_json_table(folder / "energy.json") or None,
    )


def _json_table(path: Path) -> dict[str, Any]:
    """What is in a JSON file, which older runs may lack."""
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise RunError(f"{path} is not a table")
    return found


def _is_written(folder: Path) -> bool:
    try:
        return owner(folder) is not None
    except OSError:  # a folder that we may only read
        return False


def _check(record: Record, place: int) -> None:
    """Every number that the report uses is one."""
    if record["round"] != place:
        raise RunError(f"line {place + 1} of rounds.jsonl is round {record['round']}, not {place}")
    loose = {name: record[name] for name in _NUMBERS_OR_NONE if record[name] is not None}
    loose |= {name: value for name, value in record["coreset"].items() if value is not None}
    times = {kind: record["time"][kind]["cpu"] for kind in KINDS} | {
        "round": record["time"]["round"]["wall"]
    }
    parts = {
        **loose,
        **times,
        **record["samples"],
        "steps": record["steps"],
        "left_out": len(record["left_out"]),
    }
    for direction in ("down", "up"):
        parts |= {
            f"{direction} {name}": value for name, value in record["bytes"][direction].items()
        }
    for name, value in parts.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise RunError(f"{name} in line {place + 1} of rounds.jsonl is not a number")


def _without_copies(runs: list[Run]) -> tuple[list[Run], list[tuple[str, str]]]:
    """A copy of a run would count a seed twice: of runs with the same settings, the one that came
    furthest stays.
    """
    best: dict[str, Run] = {}
    twice = []
    for run in sorted(runs, key=lambda run: (not run.finished, -len(run.records), run.name)):
        first = best.setdefault(repr(sorted(_identity(run).items())), run)
        if first is not run:
            twice.append((run.name, f"the same settings and seed as {first.name}"))
    return list(best.values()), twice


def _identity(run: Run) -> dict[str, Any]:
    return {
        name: value
        for name, value in run.settings.items()
        if name not in ("engine.workers", "engine.checkpoint_every")
    }
