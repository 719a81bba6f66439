"""What `gcfl.recommend` found: trials, the choice among them, what the full run will cost."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcfl.api.candidates import Candidate, Wanted
from gcfl.api.running import DEFAULT_OUT, execute
from gcfl.base.data_types import FloatArray
from gcfl.base.options import nested
from gcfl.base.record import RoundRecord
from gcfl.data import Federation
from gcfl.engine import Given, OnRound, OnStart
from gcfl.experiment import Experiment
from gcfl.results.outcome import total_cost
from gcfl.results.run import Run

DOUBT = 1.0  # standard errors, within which experience decides


@dataclass(frozen=True)
class Facts:
    """What a federation looks like. sizes: of the smallest, the middle and the largest client.
    skew: how far a client's class shares are from all clients', in total variation, on average.
    """

    clients: int
    sizes: tuple[int, int, int]
    clean: int
    classes: int
    skew: float

    @classmethod
    def of(cls, federation: Federation) -> Facts:
        clients, classes = federation.clients, len(federation.classes)
        owners = clients.partition.owners
        labels = clients.y.numpy()[clients.partition.order]
        counts = np.zeros((len(clients), classes))
        np.add.at(counts, (owners, labels), 1)
        held = counts[counts.sum(1) > 0]
        apart = held / held.sum(1, keepdims=True) - counts.sum(0) / counts.sum()
        sizes = np.sort(clients.partition.sizes)
        of_them = int(sizes[0]), int(sizes[len(sizes) // 2]), int(sizes[-1])
        skew = float(np.abs(apart).sum(1).mean() / 2)
        return cls(len(clients), of_them, len(federation.validation), classes, skew)

    def __str__(self) -> str:
        smallest, middle, largest = self.sizes
        return (
            f"{self.clients} clients of {smallest} to {largest} samples (the middle one "
            f"{middle}), {self.classes} classes, skew {self.skew:.2f} (0: all alike, 1: no class "
            f"in common), {self.clean} clean samples at the server"
        )


@dataclass(frozen=True)
class Cost:
    """CPU-seconds, and samples trained on."""

    cpu: float
    samples: int


@dataclass(frozen=True)
class Trial:
    """A candidate after a few rounds. losses (n,): of the held-out samples, in nats, after the best
    temperature. accuracy: on them. full: what the whole run would cost.
    """

    candidate: Candidate
    settings: Mapping[str, Any]
    run: Run
    losses: FloatArray
    accuracy: float
    full: Cost

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    def worse_than(self, other: Trial) -> tuple[float, float]:
        """How much higher the loss is, and the standard error of that: the same samples."""
        differences = self.losses - other.losses
        error = differences.std(ddof=1) / np.sqrt(len(differences))
        return float(differences.mean()), float(error)


def chosen(trials: Sequence[Trial]) -> Trial:
    """The first, in the order of experience, that is not worse than the best beyond doubt."""
    best = min(trials, key=lambda trial: trial.loss)
    for trial in trials:
        worse, error = trial.worse_than(best)
        if worse <= DOUBT * error:
            return trial
    return best


def expected_cost(records: Sequence[RoundRecord], full: Experiment, clean: int) -> Cost:
    """Of the full run, from a trial's few rounds on so many clean samples: the first as it was,
    with its warm start; the others as those after it; a selection as in the first each time.
    """
    rest = records[1:] or records
    first, later = total_cost(records[:1]), total_cost(rest)
    per_round = later["samples"]["backward"] / len(rest)
    samples, cpu = first["samples"]["backward"], first["cpu"]
    if records[0].chosen is not None:  # without cross-validation, whose outcome is known by then
        without = int(records[0].chosen["epochs"]) * clean + per_round
        samples, cpu = without, cpu * without / max(samples, 1)
    every = getattr(full.coreset, "every", full.rounds)
    selections = (full.rounds - 1) // every if every > 1 else 0
    more = full.rounds - 1
    cpu += more * later["cpu"] / len(rest) + selections * first["cpu_seconds"]["select"]
    return Cost(cpu, round(samples + more * per_round))


@dataclass(frozen=True)
class Recommendation:
    """Which method and settings, why, and at what cost. settings: by dotted name, what to add to
    those that were given. rounds: of a trial. cost: of all trials.
    """

    wanted: Wanted
    given: Given
    facts: Facts
    trials: Sequence[Trial]
    choice: Trial
    rounds: int
    settings: Mapping[str, Any]
    experiment: Experiment
    cost: Cost
    folder: Path

    @property
    def method(self) -> str:
        return self.experiment.method

    @property
    def expected(self) -> Cost:
        """Of the full run."""
        return self.choice.full

    @property
    def why(self) -> str:
        """One sentence."""
        others = [trial for trial in self.trials if trial is not self.choice]
        best = min(self.trials, key=lambda trial: trial.loss)
        n = len(best.losses)
        if best is self.choice:
            rival = min(others, key=lambda trial: trial.loss)
            ahead, error = rival.worse_than(best)
            return (
                f"{best.name} has the lowest loss on {n} held-out clean samples, {ahead:.3f} ± "
                f"{error:.3f} nats below {rival.name}"
            )
        behind, error = self.choice.worse_than(best)
        return (
            f"{best.name} has the lowest loss on {n} held-out clean samples, but only {behind:.3f} "
            f"± {error:.3f} nats below {self.choice.name}, which did better in what was measured"
        )

    @property
    def command(self) -> str:
        """What to run; with things from Python, the call."""
        if self.given.source is not None or self.given.model is not None:
            tables = nested({**self.wanted.explicit, **self.settings})
            tables.get("data", {}).pop("source", None)
            tables.get("model", {}).pop("name", None)
            arguments = [f"{name}={value!r}" for name, value in tables.items() if value != {}]
            return f"gcfl.run(data=..., {', '.join(arguments)})"
        words = ["gcfl", "run", *([str(self.wanted.file)] if self.wanted.file else [])]
        flags = self.wanted.flags or {}
        for name, value in {**self.wanted.explicit, **self.settings}.items():
            words += [flags.get(name) or f"--{name}", _text(value)]
        return shlex.join(words)

    def run(
        self,
        out: str | os.PathLike[str] = DEFAULT_OUT,
        on_start: OnStart | None = None,
        on_round: OnRound | None = None,
    ) -> Run:
        """The full run of what is recommended."""
        return execute(self.experiment, self.given, Path(out), False, on_start, on_round)

    def __str__(self) -> str:
        full = self.expected
        return (
            f"{self.method}: {self.why}; about {full.cpu:.3g} CPU-seconds and {full.samples:,} "
            f"samples for {self.experiment.rounds} rounds\n{self.command}"
        )


def _text(value: Any) -> str:
    """A value as the command line reads it."""
    return value if isinstance(value, str) else json.dumps(value)
