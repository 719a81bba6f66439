"""`gcfl.recommend(...)`: a few methods tried for a few rounds, and which of them to take.

Each trial is an ordinary run of few rounds, in which a part of the server's clean set takes the
place of the test set (`engine.evaluate_on`): no trial has anything of the test set in reach. The
trial without clients comes first, and the others start from its model. All are judged on the same
held-out samples, so their losses are compared sample by sample.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.nn.functional import cross_entropy

from gcfl.api.candidates import (
    BASELINES,
    FIRST,
    SERVER_ONLY,
    Candidate,
    Wanted,
    candidates,
)
from gcfl.api.inputs import Size
from gcfl.api.recommendation import Cost, Facts, Recommendation, Trial, chosen, expected_cost
from gcfl.api.running import brought, execute
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError, GcflError, Interrupted, RunError
from gcfl.data import Federation, Source
from gcfl.engine import Given, OnRound, federate, one_thread, prepare
from gcfl.experiment import Experiment
from gcfl.labels import fit_temperature
from gcfl.models.code import ModelGiven
from gcfl.results.run import Run

log = logging.getLogger("gcfl")
OnTrial = Callable[[str, int], None]
DEFAULT_OUT = "recommend"
HELD_OUT = 0.3
_APART = {"clean.hold_out": HELD_OUT, "engine.evaluate_on": "held-out"}
FEWEST = 10  # held-out samples, below which nothing can be told
SHARE, SHORTEST = 0.1, 6  # of the full run's rounds that a trial has, and the fewest
STEPS = 300  # of the trial without clients, about


def recommend(
    data: Any = None,
    model: str | ModelGiven | Mapping[str, Any] | None = None,
    *,
    validation: tuple[Any, Any] | Size | None = None,
    test: tuple[Any, Any] | Size | None = None,
    classes: Sequence[str | int] | None = None,
    config_file: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    on_trial: OnTrial | None = None,
    on_round: OnRound | None = None,
    **settings: Any,
) -> Recommendation:
    """Which method to take for this federation, from short trials that are judged on held-out clean
    samples; the test set is not looked at. Takes what `gcfl.run` takes.

    A method that is named is tried beside the others. on_trial(name, rounds) is called before each
    trial. What comes back says what to run and why, and runs it: `recommend(...).run()`.
    """
    explicit, given = brought(
        data,
        model,
        validation=validation,
        test=test,
        classes=classes,
        config_file=Path(config_file) if config_file else None,
        **settings,
    )
    beside = {
        "validation": validation,
        "test": test,
        "classes": classes,
        "groups": settings.get("groups"),
    }
    things = [
        name
        for name, one in beside.items()
        if not (one is None or isinstance(one, int | float | str | os.PathLike))
    ]
    file = Path(config_file) if config_file else None
    wanted = Wanted(file, explicit, brought=tuple(things))
    return recommended(wanted, given, Path(out), on_trial, on_round)


def recommended(
    wanted: Wanted,
    given: Given,
    out: Path,
    on_trial: OnTrial | None = None,
    on_round: OnRound | None = None,
) -> Recommendation:
    """The same for settings of a file and a command line."""
    base = wanted.experiment({"method": FIRST})
    if base.privacy.clean_epsilon is not None or base.privacy.client_epsilon is not None:
        raise ConfigError(
            "gcfl recommend cannot keep a privacy budget: every trial would spend some of it"
        )
    with one_thread():
        # A table's encoding may not know what the trials are measured on.
        source, federation = federate(wanted.experiment({"method": FIRST, **_APART}), given)
        facts = Facts.of(federation)
        _check(facts)
        # From here on nobody has the test set.
        nothing = Shard(federation.test.x[:0], federation.test.y[:0], federation.test.ids[:0])
        ready = source, replace(federation, test=nothing)
        settled = prepare(base, given, ready).experiment
    folder = out / f"{settled.folder_name().rsplit('-', 1)[0]}-{settled.identity()}"
    rounds = min(base.rounds, max(SHORTEST, round(SHARE * base.rounds)))
    trials = _Trials(wanted, given, ready, folder, rounds, on_trial, on_round)
    try:
        found = trials.played()
    except Interrupted as stop:
        again = "what was finished is kept, and the same call goes on from there"
        raise Interrupted(f"stopped; {again}", stop.signal) from None
    choice = chosen(found)
    costs = [trial.run.cost for trial in found]
    return Recommendation(
        wanted=wanted,
        given=given,
        facts=facts,
        trials=found,
        choice=choice,
        rounds=rounds,
        settings=_needed(wanted, choice.candidate.settings),
        experiment=wanted.experiment(choice.candidate.settings),
        cost=Cost(
            sum(cost["cpu"] for cost in costs), sum(cost["samples"]["backward"] for cost in costs)
        ),
        folder=folder,
    )


def _check(facts: Facts) -> None:
    least = round(FEWEST / HELD_OUT)
    if facts.clean < least:
        raise ConfigError(
            f"the server's clean set has {facts.clean} samples, too few to hold some back and "
            f"compare methods by them (at least {least}): take method {FIRST}, or hand over a "
            "larger set (data.validation)"
        )


@dataclass(frozen=True)
class _Trials:
    """Short runs of all candidates in one folder."""

    wanted: Wanted
    given: Given
    ready: tuple[Source, Federation]
    folder: Path
    rounds: int
    on_trial: OnTrial | None
    on_round: OnRound | None

    def played(self) -> list[Trial]:
        """In the order of the candidates."""
        tried, held_out = self._possible(candidates(self.wanted))
        found: dict[str, Trial] = {}
        start: Run | None = None
        for candidate in sorted(tried, key=lambda one: one.name != SERVER_ONLY):
            try:
                run = self._play(candidate, start)
            except RunError as error:  # its numbers grew beyond all bounds
                log.warning("%s is left out: %s", candidate.name, error)
                continue
            start = start or run
            found[candidate.name] = self._judged(candidate, run, start, held_out)
        if not found:
            raise RunError("no candidate came through its trial; lower train.lr")
        return [found[one.name] for one in tried if one.name in found]

    def _possible(self, tried: Sequence[Candidate]) -> tuple[list[Candidate], Shard]:
        """The candidates that go with the user's settings, and what all are judged on; every check
        is made before any work starts.
        """
        possible, held_out = [], None
        for candidate in tried:
            try:
                prepared = prepare(self._short(candidate), self.given, self.ready)
            except GcflError as error:
                if candidate.name in BASELINES:
                    raise
                log.warning("%s is not tried: %s", candidate.name, error)
                continue
            possible.append(candidate)
            held_out = prepared.federation.test
        if held_out is None:
            raise ConfigError("none of the candidates goes with these settings")
        return possible, held_out

    def _short(self, candidate: Candidate, start: Run | None = None) -> Experiment:
        """A trial: few rounds, over which the learning rate falls as it will over all of them."""
        full = self.wanted.experiment(candidate.settings)
        rounds, alone = self.rounds, candidate.name == SERVER_ONLY
        if alone:
            batches = -(-round((1 - HELD_OUT) * self.clean) // full.train.batch)
            steps = full.train.steps or full.train.passes(batches) * batches
            rounds = max(1, round(STEPS / steps))
        trial: dict[str, Any] = {
            "rounds": rounds,
            **_APART,
            "engine.evaluate_every": rounds,
        }
        if start is not None:  # its model is the warm start
            trial |= {"clean.warm_start": 0, "model.weights": str(start.folder.absolute())}
        if full.clean.lr == "auto":
            trial["clean.lr"] = full.train.lr
        return self.wanted.experiment({**candidate.settings, **trial})

    def _play(self, candidate: Candidate, start: Run | None) -> Run:
        short = self._short(candidate, start)
        if self.on_trial:
            self.on_trial(candidate.name, short.rounds)
        return execute(short, self.given, self.folder, on_round=self.on_round, federated=self.ready)

    def _judged(self, candidate: Candidate, run: Run, start: Run, held_out: Shard) -> Trial:
        model = run.model
        logits = model.network.outputs(model.tree, held_out.x).logits.cpu()
        scaled = logits.double() / fit_temperature(logits, held_out.y)
        losses = cross_entropy(scaled, held_out.y, reduction="none").numpy()
        full = self.wanted.experiment(candidate.settings)
        cost = expected_cost(run.rounds, full, start.cost)
        return Trial(candidate, run, losses, run.accuracy, cost)

    @property
    def clean(self) -> int:
        return len(self.ready[1].validation)


def _needed(wanted: Wanted, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that would be so anyway."""
    needed = wanted.usual | dict(settings)
    same = wanted.experiment(needed).resolved()
    for name in list(needed):
        fewer = {other: value for other, value in needed.items() if other != name}
        if wanted.experiment(fewer).resolved() == same:
            needed = fewer
    return needed
