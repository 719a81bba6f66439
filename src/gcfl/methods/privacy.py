"""Differential privacy of a run: its two budgets, the server's secret, and noise on the clients'
updates. (What leaves the clean set is in `ledger.py`.)

Where one client's data is replaced by any other, a sum of clipped updates changes by 2 S at most.

    central   θ + (Σ clip(Δ_i, S) + N(0, (z S)²)) / m     m: the clients that were drawn, secretly
    local     each client sends clip(Δ_i, S) + N(0, (z S)²)

The server's secret comes from the operating system and is nowhere but in the checkpoint; it is gone
when the run is finished.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from gcfl.base.data_types import Groups, Observed, Tree, Update
from gcfl.base.errors import ConfigError
from gcfl.methods.accounting import cohort_epsilon, cohort_noise
from gcfl.methods.base import Method
from gcfl.methods.ledger import STEPS, TARGET, CleanPlan, Ledger
from gcfl.methods.noise import SECRET, flat, fresh_secret, noised, number, shaped, shortened
from gcfl.methods.options import CleanOptions, PrivacyOptions, TrainOptions
from gcfl.methods.replies import Replies
from gcfl.methods.views import Setting

log = logging.getLogger("gcfl")
STATE = "privacy"  # the entry of the server's state, and of a client's memory


def releases(
    method: Method, rounds: int, train: TrainOptions, clean: CleanOptions
) -> Mapping[str, int]:
    """How often something of the clean set leaves in a whole run, by kind."""
    warm = clean.warm_start if isinstance(clean.warm_start, int) else 0
    tuned = {"never": 0, "each": rounds, "end": 1}[clean.fine_tune] * clean.fine_tune_epochs
    alone = 0 if method.server.uses_clients else rounds * (train.steps or train.epochs)
    rule = method.select
    matches = bool(getattr(rule, "needs_target", False)) and method.server.uses_clients
    targets = 1 + (rounds - 1) // int(getattr(rule, "every", 1)) if matches else 0
    return {TARGET: targets, STEPS: warm + tuned + alone}


@dataclass(frozen=True)
class ClientPlan:
    """The budget of the clients' updates. noise: in multiples of the clip. rounds: how many the
    budget allows, of those that are to be played.
    """

    options: PrivacyOptions
    clients: int
    cohort: int
    noise: float
    rounds: int

    @classmethod
    def of(cls, options: PrivacyOptions, rounds: int, clients: int, cohort: int) -> ClientPlan:
        # Without amplification it is as if all were asked in every round.
        drawn = clients if options.client_where == "local" else cohort
        epsilon, delta = options.client_epsilon or 0.0, options.delta
        if options.client_noise is None:
            noise = 2 * cohort_noise(epsilon, rounds, clients, drawn, delta)
            return cls(options, clients, drawn, noise, rounds)
        low, high = 0, rounds
        while low < high:
            middle = (low + high + 1) // 2
            cost = cohort_epsilon(options.client_noise / 2, middle, clients, drawn, delta)
            low, high = (middle, high) if cost <= epsilon else (low, middle - 1)
        if low == 0:
            raise ConfigError(
                f"with privacy.client_noise = {options.client_noise:g} a single round costs more "
                f"than privacy.client_epsilon = {epsilon:g}: raise one of them"
            )
        if low < rounds:
            log.warning(
                "with this privacy.client_noise, privacy.client_epsilon is spent after %d of %d "
                "rounds: the run ends there",
                low,
                rounds,
            )
        return cls(options, clients, drawn, options.client_noise, low)

    def spent(self, rounds: int) -> float:
        """ε after so many rounds. A sum changes by twice the clip where a client is replaced."""
        return cohort_epsilon(self.noise / 2, rounds, self.clients, self.cohort, self.options.delta)


@dataclass(frozen=True)
class Privacy:
    """What a run keeps private, by which plan. seed: a public one, in simulations alone."""

    clean: CleanPlan | None = None
    clients: ClientPlan | None = None
    seed: int | None = None

    @classmethod
    def of(
        cls,
        method: Method,
        setting: Setting,
        clean: CleanOptions,
        options: PrivacyOptions,
        clients: int,
        cohort: int,
    ) -> Privacy | None:
        """None: nothing is kept private."""
        of_clean = of_clients = None
        if options.clean_epsilon is not None:
            most = releases(method, setting.rounds, setting.train, clean)
            of_clean = CleanPlan.of(options, most)
        if options.client_epsilon is not None:
            of_clients = ClientPlan.of(options, setting.rounds, clients, cohort)
        if of_clean is None and of_clients is None:
            return None
        return cls(of_clean, of_clients, setting.seed if options.simulated_seed else None)

    def begin(self) -> Tree:
        """The server's state before the first round."""
        return {SECRET: fresh_secret()} if self.seed is None else {}

    def key(self, parts: Groups) -> int:
        """The seed of noise and cohorts."""
        return number(parts[STATE][SECRET]) if self.seed is None else self.seed

    def ledger(self, parts: Groups) -> Ledger | None:
        return None if self.clean is None else Ledger(self.clean, parts[STATE], self.key(parts))

    @property
    def central(self) -> bool:
        return self.clients is not None and self.clients.options.client_where == "central"

    def merged(self, replies: Replies, cohort: int, round: int, key: int) -> Replies:
        """In place of all updates a single one, their noisy mean."""
        plan = self.clients
        if plan is None or not self.central or not len(replies):
            return replies
        first = next(iter(replies.values())).delta
        rows = torch.stack([flat(update.delta) for update in replies.values()])
        clip = plan.options.client_clip
        total = noised(shortened(rows, clip).sum(0), clip * plan.noise, key, "clients", round)
        return Replies({0: Update(shaped(total / cohort, first), {}, 1, {})})

    def over(self, rounds: int) -> bool:
        """Whether the clients' budget is spent after so many rounds."""
        return self.clients is not None and rounds >= self.clients.rounds

    def told(self, parts: Groups, rounds: int) -> dict[str, float]:
        """What is spent after so many rounds, for the record."""
        found = {}
        if self.clean is not None:
            made = Ledger(self.clean, parts[STATE], 0).made
            found["clean_epsilon"] = self.clean.spent(made)
        if self.clients is not None:
            found["client_epsilon"] = self.clients.spent(rounds)
        return found


def withheld(observed: Mapping[int, Observed]) -> dict[int, Observed]:
    """What clients trained on, without what they estimated."""
    return {client: replace(one, rate=None) for client, one in observed.items()}


def without_secret(parts: Groups) -> Groups:
    """A server's or a client's state that makes no more noise: what a finished run keeps."""
    if STATE not in parts:
        return parts
    kept = {name: tensor for name, tensor in parts[STATE].items() if name != SECRET}
    return {**parts, STATE: kept}
