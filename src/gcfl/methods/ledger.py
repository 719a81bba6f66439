"""What leaves the server's clean set D_S, where one sample is added or removed: sums, clipped and
with Gaussian noise of z times what one sample can add, each counted.

    counts   Σ onehot(y_j)                      once; a sample adds 1
    target   Σ clip(g_j, S) into row y_j        once per K rounds, whoever is due
    steps    Σ clip(∇l_j, S)                    a step of DP-SGD on all of D_S: warm start, ...

All else is a function of these and of public numbers. Each kind gets an equal share of the budget:
n_k releases with z_k = z √(n_k · kinds), z being that of a single release at ε.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gcfl.base.data_types import Tree
from gcfl.coreset import Pool
from gcfl.coreset.gradients import Gradients
from gcfl.methods.accounting import gaussian_epsilon, gaussian_noise
from gcfl.methods.noise import noised
from gcfl.methods.options import PrivacyOptions

log = logging.getLogger("gcfl")
COUNTS, TARGET, STEPS = "counts", "target", "steps"
_SLACK = 1 + 1e-9  # what rounding may add to a budget that is spent to the end


@dataclass(frozen=True)
class CleanPlan:
    """The budget of the clean set. most: releases of a whole run, and noise: their multiplier, by
    kind.
    """

    options: PrivacyOptions
    most: Mapping[str, int]
    noise: Mapping[str, float]

    @classmethod
    def of(cls, options: PrivacyOptions, most: Mapping[str, int]) -> CleanPlan:
        """most: releases of a whole run besides the counts, by kind."""
        most = {kind: count for kind, count in most.items() if count}
        most = {COUNTS: 1, **most} if most else {}
        if options.clean_noise is not None:
            return cls(options, most, dict.fromkeys(most, options.clean_noise))
        once = gaussian_noise(options.clean_epsilon or 0.0, options.delta)
        return cls(options, most, {k: once * (n * len(most)) ** 0.5 for k, n in most.items()})

    def spent(self, made: Mapping[str, int]) -> float:
        """ε of so many releases by kind."""
        releases: dict[float, int] = {}
        for kind, count in made.items():
            releases[self.noise[kind]] = releases.get(self.noise[kind], 0) + count
        return gaussian_epsilon(releases, self.options.delta)


class Ledger:
    """What of the clean set leaves in one round: every release is counted, and none is made that
    the budget does not allow. `state` is the server's; it is as it was until `after` is asked for.
    """

    def __init__(self, plan: CleanPlan, state: Tree, seed: int) -> None:
        self._plan, self._state, self._seed = plan, dict(state), seed

    @property
    def made(self) -> dict[str, int]:
        """Releases so far, by kind."""
        return {kind: int(self._state.get(f"made.{kind}", 0)) for kind in self._plan.most}

    @property
    def after(self) -> Tree:
        return self._state

    def release(self, kind: str, sums: Tensor, clip: float) -> Tensor | None:
        """sums, to which a sample adds at most `clip`, with noise; None: the budget is spent."""
        made = self.made
        count = made[kind]
        budget = (self._plan.options.clean_epsilon or 0.0) * _SLACK
        if count >= self._plan.most[kind] or self._plan.spent({**made, kind: count + 1}) > budget:
            if "over" not in self._state:
                log.warning(
                    "privacy.clean_epsilon is spent: nothing more of the clean set leaves, and "
                    "clients go on with what they have"
                )
            self._state["over"] = torch.tensor(True)
            return None
        self._state[f"made.{kind}"] = torch.tensor(count + 1)
        return noised(sums, clip * self._plan.noise[kind], self._seed, kind, count)

    def counts(self, labels: Tensor, classes: int) -> Tensor | None:
        """(C,) samples of each class, about, and at least 1: released once and kept."""
        if COUNTS not in self._state:
            exact = torch.bincount(labels, minlength=classes)
            found = self.release(COUNTS, exact, 1.0)
            if found is None:
                return None
            self._state[COUNTS] = found.clamp(min=1.0)
        return self._state[COUNTS]

    def target(
        self, look: Callable[[], Pool], whole: bool, round: int, every: int
    ) -> Tensor | None:
        """(C, d + 1) the target of the last K rounds, or a new one; None where the budget is
        spent.
        """
        known = TARGET in self._state
        if not known or round - int(self._state["target.round"]) >= every:
            found = self._fresh_target(look(), whole)
            if found is None:
                return None
            self._state |= {TARGET: found, "target.round": torch.tensor(round)}
        return self._state[TARGET]

    def _fresh_target(self, pool: Pool, whole: bool) -> Tensor | None:
        counts = self.counts(pool.labels, pool.classes)
        sums = clipped_sums(pool, whole, self._plan.options.clean_clip)
        found = (
            None if counts is None else self.release(TARGET, sums, self._plan.options.clean_clip)
        )
        if found is None or counts is None:
            return None
        return (found / (counts.sum() if whole else counts[:, None])).to(pool.features.dtype)

    def step(self, slopes: Tensor) -> Tensor | None:
        """(P,) a noisy sum of clipped gradients, for DP-SGD."""
        return self.release(STEPS, slopes, self._plan.options.clean_clip)

    @property
    def clip(self) -> float:
        return self._plan.options.clean_clip


def clipped_sums(pool: Pool, whole: bool, most: float) -> Tensor:
    """(C, d + 1) sums of shortened last-layer gradients: each in the row of its label, or whole."""
    gradients = pool.whole() if whole else pool.own_label()
    coefficients, features = (
        torch.nan_to_num(part.double(), nan=0.0, posinf=0.0, neginf=0.0)
        for part in (gradients.coefficients, gradients.features)
    )
    norms = Gradients(coefficients, features, pool.bias).squared_norms().sqrt()
    coefficients = coefficients * (most / norms.clamp(min=most))[:, None]
    if not whole:
        own = torch.nn.functional.one_hot(pool.labels, pool.classes).double()
        coefficients = own * coefficients
    return Gradients(coefficients, features, pool.bias).mean() * max(1, len(features))
