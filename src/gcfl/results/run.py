"""A run, as its folder tells it: what `gcfl.run`, `gcfl.load` and `gcfl.resume` return, and what
tables, figures and trackers are made of.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gcfl import experiment
from gcfl.base.data_types import Coreset
from gcfl.base.errors import RunError
from gcfl.base.files import owner
from gcfl.base.options import flat
from gcfl.base.record import RoundRecord
from gcfl.base.text import count
from gcfl.models.code import ModelGiven
from gcfl.models.trained import TrainedModel, unpack
from gcfl.results.folder import RunFolder
from gcfl.results.names import called
from gcfl.results.outcome import keeps, kept, summarise, total_cost
from gcfl.results.privacy import statement

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
    def label(self) -> str:
        """The method, and in brackets what its name does not tell: 'fedavg (gce)'."""
        return called(self.settings)

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
        return f"{now}: {len(self.rounds)} of {count(int(self.config['rounds']), 'round')}"

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

    @property
    def client_test(self) -> dict[str, list[Any]]:
        """By client, on what each kept for testing (data.client_test): samples, accuracy, and
        true_accuracy where the truth is known; empty where nobody did.
        """
        return self._files.client_test

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
        found = {**summarise(self.rounds, keeps(self.config)), "privacy": self.privacy}
        return found | ({"clients": self.client_test} if self.client_test else {})

    @property
    def privacy(self) -> list[str]:
        """What left the clean set and the clients, and which ε covers it, in sentences."""
        return statement(self.config, self.rounds, self._files.encoded_by)

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

    @property
    def classes(self) -> tuple[str | int, ...]:
        """Their names, in the order of all that is told by class; none without a model."""
        if not self._files.model.exists():
            return ()
        return tuple(self._files.read_model()[1].get("classes", ()))

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Class names for raw inputs."""
        return self.model.predict(x)

    def predict_proba(self, x: Any) -> npt.NDArray[Any]:
        """(n, C) probabilities for raw inputs, in the order of `model.classes`."""
        return self.model.predict_proba(x)

    def to_frame(self, kind: str = "rounds") -> Any:
        """A pandas DataFrame of the rounds, the clients, the classes, or the confusion matrix."""
        return from_above("report.frames", "frame_of", self, kind)

    def plot(self, axes: Any = None) -> Any:
        """The accuracy over the rounds, on these matplotlib axes or new ones, which come back."""
        return from_above("report.notebook", "plot", self, axes)

    def confusion(self, x: Any = None, y: Any = None) -> npt.NDArray[Any]:
        """(C, C) samples of the test set by class and by what the model says, in the order of
        `model.classes`; or of samples x with classes y.
        """
        found: npt.NDArray[Any] = from_above("api.testing", "confusion", self, x, y)
        return found

    def __repr__(self) -> str:
        return str(from_above("report.notebook", "text", self))

    def _repr_html_(self) -> str:
        return str(from_above("report.notebook", "html", self))


def from_above(module: str, function: str, *arguments: Any) -> Any:
    """Rooms above this one show a run and rebuild its data: they are found by name, when asked."""
    return getattr(import_module(f"gcfl.{module}"), function)(*arguments)


def how_to_continue(folder: Path, given: Mapping[Any, str] | None) -> str:
    """The command, or, for a run on things from Python, the call that has to be made again."""
    from_python = [name for name in given or () if name not in experiment.IN_FILES]
    if from_python:
        return f"call gcfl.run again with the same {' and '.join(from_python)}"
    return f"gcfl resume {shlex.quote(str(folder))}"
