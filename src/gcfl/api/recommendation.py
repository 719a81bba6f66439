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

from gcfl.api.candidates import SERVER_ONLY, Candidate, Wanted
from gcfl.api.running import DEFAULT_OUT, execute
from gcfl.base.data_types import FloatArray
from gcfl.base.options import nested
from gcfl.base.record import RoundRecord
from gcfl.base.text import count
from gcfl.data import Federation
from gcfl.engine import Given, OnRound, OnStart
from gcfl.experiment import Experiment
from gcfl.results.outcome import total_cost
from gcfl.results.run import Run, from_above

# Standard errors, within which experience decides: of few samples and several rivals, two are
# passed by chance. The trial without clients is at its end where the others have just begun: it has
# to be far ahead.
DOUBT, DOUBT_ALONE = 2.5, 4.0
WHAT = "what it is"  # a column of the table
_CHOOSING = 9  # what choosing the warm start costs, in warm starts, with the last one


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


@dataclass(frozen=True, repr=False)
class Trial:
    """A candidate after a few rounds. losses (n,): of the held-out samples, in nats, after the best
    temperature. accuracy: on them. full: what the whole run would cost.
    """

    candidate: Candidate
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

    def __repr__(self) -> str:
        return f"{self.name}: loss {self.loss:.3f}, accuracy {self.accuracy:.3f}"


def chosen(trials: Sequence[Trial]) -> Trial:
    """The first, in the order of experience, unless another is better beyond doubt: then the best
    of those.
    """
    first = trials[0]

    def better(trial: Trial) -> bool:
        ahead, error = first.worse_than(trial)
        doubt = DOUBT_ALONE if trial.name == SERVER_ONLY else DOUBT
        return ahead > doubt * error

    return min([first, *filter(better, trials)], key=lambda trial: trial.loss)


def expected_cost(
    records: Sequence[RoundRecord], full: Experiment, start: Mapping[str, Any]
) -> Cost:
    """Of the full run, from a trial's few rounds: rounds as those after the first, selections as in
    the first, and where it is asked for a warm start as `start`, with the choice of it.
    """
    rest = records[1:] or records
    first, later = total_cost(records[:1]), total_cost(rest)
    every = getattr(full.coreset, "every", full.rounds)
    selections = -(-full.rounds // every) if every > 1 else 0
    warm = _CHOOSING if full.clean.warm_start == "auto" else 0
    samples = full.rounds / len(rest) * later["samples"]["backward"]
    cpu = full.rounds / len(rest) * later["cpu"] + selections * first["cpu_seconds"]["select"]
    return Cost(cpu + warm * start["cpu"], round(samples + warm * start["samples"]["backward"]))


@dataclass(frozen=True, repr=False)
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
        rival = min(others, key=lambda trial: trial.loss)
        ahead, error = rival.worse_than(self.choice)
        where = f"on {len(self.choice.losses)} held-out clean samples"
        if ahead >= 0:
            return (
                f"{self.choice.name} has the lowest loss {where}, {ahead:.3f} ± {error:.3f} nats "
                f"below {rival.name}"
            )
        return (
            f"{self.choice.name} was best or near it in what was measured before, and {rival.name} "
            f"is not ahead of it beyond doubt {where} (by {-ahead:.3f} ± {error:.3f} nats)"
        )

    @property
    def title(self) -> str:
        """Of the table."""
        judged = f"{len(self.choice.losses)} held-out clean samples"
        return f"After {count(self.rounds, 'round')}, on {judged}"

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads, and a line of texts for each trial, lowest loss first; the choice by an arrow."""
        best = min(self.trials, key=lambda trial: trial.loss)
        lines = []
        for trial in sorted(self.trials, key=lambda trial: trial.loss):
            behind, error = trial.worse_than(best)
            above = "-" if trial is best else f"{behind:.3f} ± {error:.3f}"
            name = f"{'→' if trial is self.choice else ' '} {trial.name}"
            numbers = f"{trial.loss:.3f}", above, f"{trial.accuracy:.3f}", f"{trial.full.cpu:.3g}"
            lines.append([name, trial.candidate.what, *numbers])
        heads = ["method", WHAT, "loss", "above the best", "accuracy", "full run, CPU-s"]
        return heads, lines

    @property
    def command(self) -> str:
        """What to run; with things from Python, the call."""
        if self.given.source is not None or self.given.model is not None:
            return self._call
        words = ["gcfl", "run", *([str(self.wanted.file)] if self.wanted.file else [])]
        flags = self.wanted.flags or {}
        for name, value in {**self.wanted.explicit, **self.settings}.items():
            words += [flags.get(name) or f"--{name}", _text(value)]
        return shlex.join(words)

    @property
    def _call(self) -> str:
        """gcfl.run(...), with ... for what came from Python."""
        tables = nested({**self.wanted.explicit, **self.settings})
        for name in self.wanted.brought:
            tables.get("data", {}).pop(name, None)
        given = {"data": self.given.source, "model": self.given.model}
        calls = []
        for room, name in (("data", "source"), ("model", "name")):
            own = tables.pop(room, {})
            word = own.pop(name, None)
            first = "..." if given[room] is not None else word and repr(word)
            if own:
                texts = {name: first} if first else {}
                texts |= {key: repr(value) for key, value in own.items()}
                first = f"{{{', '.join(f'{key!r}: {text}' for key, text in texts.items())}}}"
            calls += [f"{room}={first}"] if first else []
        calls += [f"{name}=..." for name in self.wanted.brought]
        calls += [f"{name}={value!r}" for name, value in tables.items()]
        if self.wanted.file is not None:
            calls.append(f"config_file={str(self.wanted.file)!r}")
        return f"gcfl.run({', '.join(calls)})"

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
            f"samples for {count(self.experiment.rounds, 'round')}\n{self.command}"
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(from_above("report.notebook", "recommendation", self))


def _text(value: Any) -> str:
    """A value as the command line reads it."""
    return value if isinstance(value, str) else json.dumps(value)
