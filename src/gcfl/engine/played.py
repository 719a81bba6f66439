"""What a round leaves: the state after it, and what its record tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gcfl.base.data_types import Groups, Observed, Tree
from gcfl.base.record import CoresetUse, RoundRecord, Samples, Times, Traffic
from gcfl.engine.measurement import Scores


@dataclass(frozen=True)
class State:
    """Everything the server carries from one round to the next. `round` is the next one to play."""

    round: int
    model: Tree
    parts: Groups


@dataclass(frozen=True)
class Played:
    """A round that was played: the state after it, what happened, and what it cost.

    accepted: whose answers it used. observed: what those clients trained on, for the observer.
    """

    state: State
    cohort: int
    accepted: tuple[int, ...]
    left_out: dict[int, str]
    observed: Mapping[int, Observed]
    lr: float
    train_loss: float | None
    scores: Scores | None
    validation_loss: float | None
    examples: int
    selected: int
    samples: Samples
    steps: int
    traffic: Traffic
    time: Times
    chosen: dict[str, float] | None = None
    guard: dict[str, float] | None = None
    contribution: dict[str, dict[str, float]] | None = None
    contribution_on: str | None = None
    privacy: dict[str, float] | None = None

    def record(self, clean_share: float | None, rate_error: float | None = None) -> RoundRecord:
        """clean_share, rate_error: what the observer says, who knows the truth."""
        scores = self.scores
        rates = [one.rate for one in self.observed.values() if one.rate is not None]
        return RoundRecord(
            round=self.state.round - 1,
            cohort=self.cohort,
            left_out={str(client): reason for client, reason in self.left_out.items()},
            lr=self.lr,
            train_loss=self.train_loss,
            accuracy=scores.accuracy if scores else None,
            loss=scores.loss if scores else None,
            per_class=scores.per_class if scores else None,
            validation_loss=self.validation_loss,
            samples=self.samples,
            steps=self.steps,
            bytes=self.traffic,
            coreset=CoresetUse(self.examples, self.selected, clean_share),
            time=self.time,
            noise_rate=sum(rates) / len(rates) if rates else None,
            noise_rate_error=rate_error,
            chosen=self.chosen,
            guard=self.guard,
            contribution=self.contribution,
            contribution_on=self.contribution_on,
            privacy=self.privacy,
        )
