"""A run, as its folder tells it: what `gcfl.run`, `gcfl.load` and `gcfl.resume` return, and what
tables, figures and trackers are made of.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gcfl import experiment
from gcfl.base.data_types import Coreset
from gcfl.base.errors import GcflError, RunError, one_line
from gcfl.base.files import owner
from gcfl.base.options import flat
from gcfl.base.record import RoundRecord
from gcfl.models.trained import ModelGiven, TrainedModel, unpack
from gcfl.results.folder import RunFolder
from gcfl.results.outcome import keeps, kept, summarise, total_cost
from gcfl.results.privacy import statement

log = logging.getLogger("gcfl")
NO_DIGESTS = "written before run folders had digests: damage to its files would not be noticed"


class Run:
    """Read from the folder when it is asked for. Works on unfinished runs too, except for the
    model. Rounds count from 0.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: ModelGiven | None = None,
        name: str | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.name = name or self.folder.resolve().name
        self._files = RunFolder.open(self.folder)
        self._given = model
        self.given: object = None  # what came from Python, where it was run just now

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved settings, as tables."""
        return experiment.read_settings(self._files.config)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The same by dotted name. Of a path the last name only: where files lie says nothing
        about a run, and may say who made it.
        """
        found = flat(self.config)
        for name in experiment.PATHS:
            if Path(str(found.get(name, ""))).is_absolute():
                found[name] = Path(found[name]).name
        return found

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def finished(self) -> bool:
        return self._files.finished

    @property
    def has_digests(self) -> bool:
        """Whether damage to its files would be noticed; a run of an older version has none."""
        return not self.finished or self._files.digests is not None

    @property
    def writer(self) -> str | None:
        """The process that is writing the run now, if any."""
        try:
            return None if self.finished else owner(self.folder)
        except OSError:  # a folder that we may only read
            return None

    @property
    def running(self) -> bool:
        return self.writer is not None

    @property
    def state(self) -> str:
        """'finished', or how far it came."""
        if self.finished:
            return "finished"
        now = "running" if self.running else "unfinished"
        return f"{now}: {len(self.rounds)} of {self.config['rounds']} rounds"

    @cached_property
    def rounds(self) -> list[RoundRecord]:
        """One record per round: accuracy, loss, samples, steps, bytes, seconds, coreset."""
        return self._files.records()

    @cached_property
    def coresets(self) -> dict[int, dict[int, Coreset]]:
        """By round, then client: the samples chosen (rows of the data), their weights."""
        return self._files.read_coresets()

    @cached_property
    def clients(self) -> list[dict[str, Any]]:
        """Each client's name and how many samples it holds; empty where that is not known."""
        return self._files.read_clients()

    @cached_property
    def sites(self) -> dict[str, Any]:
        """What sites.json says: what sites told of their labels; empty where none was asked."""
        found = self._files.read_later(self._files.sites)
        sites, classes = (found.get(name, []) for name in ("sites", "classes"))
        if not isinstance(classes, list) or not all("name" in one for one in sites):
            raise RunError(f"{self._files.sites} does not tell of sites")
        return found

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions and hardware."""
        return self._files.read_table(self._files.environment)

    @cached_property
    def energy(self) -> dict[str, Any]:
        """What energy.json says; empty where nothing was measured."""
        return self._files.read_later(self._files.energy)

    @property
    def energy_kwh(self) -> float | None:
        """The energy, where all of a finished run was measured."""
        kwh = self.energy.get("kwh")
        whole = self.finished and self.energy.get("rounds") == len(self.rounds)
        return float(kwh) if whole and isinstance(kwh, int | float) and math.isfinite(kwh) else None

    @cached_property
    def cost(self) -> dict[str, Any]:
        """Samples, steps, bytes and CPU-seconds over all rounds."""
        return total_cost(self.rounds)

    @cached_property
    def final(self) -> RoundRecord | None:
        """The record of the model that the run keeps, which is that of the last round that was
        evaluated unless server.keep says otherwise; None where no round was.
        """
        return kept(self.rounds, keeps(self.config))

    @property
    def accuracy(self) -> float:
        """On the test set, of the model that the run keeps."""
        if self.final is None or self.final.accuracy is None:
            raise RunError(f"{self.folder} has no evaluated round yet")
        return self.final.accuracy

    @property
    def curve(self) -> list[float]:
        """The accuracy after each round that was evaluated."""
        return [record.accuracy for record in self.rounds if record.accuracy is not None]

    @property
    def clean_share(self) -> float | None:
        """Of the samples that were trained on last; None where nobody knows the truth."""
        return self.rounds[-1].coreset.clean_share if self.rounds else None

    def summary(self) -> dict[str, Any]:
        """What summary.json says of a finished run."""
        return {**summarise(self.rounds, keeps(self.config)), "privacy": self.privacy}

    @property
    def privacy(self) -> list[str]:
        """What left the clean set and the clients, and which ε covers it, in sentences."""
        return statement(self.config, self.rounds)

    @property
    def how_to_continue(self) -> str:
        """What to do with a run that is not finished."""
        return how_to_continue(self.folder, self.config.get("given"))

    @cached_property
    def model(self) -> TrainedModel:
        """The trained model: `predict`, `predict_proba`, `module`. One of somebody's own code is
        made by running that code, when it is first asked for.
        """
        return unpack(*self._files.read_model(), self._given, self.folder)

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Class names for raw inputs."""
        return self.model.predict(x)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, rounds={len(self.rounds)}, finished={self.finished})"


def how_to_continue(folder: Path, given: Mapping[Any, str] | None) -> str:
    """The command, or, for a run on things from Python, the call that has to be made again."""
    from_python = [name for name in given or () if name not in experiment.IN_FILES]
    if from_python:
        return f"call gcfl.run again with the same {' and '.join(from_python)}"
    return f"gcfl resume {shlex.quote(str(folder))}"


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
    for path in map(Path, paths):
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
