"""Which labels are right? From a model's logits and observed labels, by a client alone.

The true class of sample j is c with probability p_jc = softmax(z_j / τ)_c, re-weighted by the
client's class prior π, and is seen as ỹ_j with probability T[c, ỹ_j]:

    J_jc = π_c · p_jc · T[c, ỹ_j]                  (π_c / ρ_c where p was trained under a prior ρ)
    E step   q_jc = J_jc / Σ_c J_jc
    M step   π_c = (Σ_j q_jc + 1) / (n + C)
             ε = (Σ_j (1 - q_j[ỹ_j]) + k r) / (n + k)      (k pseudo-samples at a rate r; k = 0)
             T[c, k] ∝ Σ_j q_jc [ỹ_j = k] + m · T_sym[c, k]      (the full matrix only)

What never falls is Σ_j log Σ_c J_jc + Σ_c log π_c + k (r log ε + (1-r) log(1-ε)), for the full
matrix with m Σ_ck T_sym log T in place of the last term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gcfl.base.errors import ConfigError, DataError, one_of
from gcfl.labels import em
from gcfl.labels.checks import Given, checked_logits, distribution, stochastic, tensor

Transition = Literal["uniform", "full", "auto"]
Skew = Literal["auto", "classes", "labels"]
GRID = (0.7, 1.0, 1.4, 2.0, 3.0, 4.5)
_FEW = 1.0  # pseudo-counts of a full matrix that has to earn its place


@dataclass(frozen=True)
class NoiseModel:
    """What is assumed of the labels' noise, and how it is fitted.

    transition: `uniform` has one rate ε, `full` a matrix with `pseudo_counts` per class towards the
    uniform one; `auto` is uniform unless the samples carry a matrix: one with a single pseudo-count
    per class, where its Bayes factor speaks for it (`em.worth`). temperature: τ, or None for the
    best of `temperatures` by the objective. train_prior: (C,) the class prior ρ that the model was
    trained under, None for a uniform one. prior_rate: a rate r to shrink towards with the weight of
    `rate_weight` samples; an infinite weight holds ε = r. skew: what the client's samples came to
    it by: their true `classes`, of which it then has a prior of its own, or their `labels`; auto is
    whichever explains its samples better.
    The fit starts at ε = `start` and π uniform, and ends after `iterations` steps, or when no
    parameter moves by more than `tolerance`.
    """

    transition: Transition = "uniform"
    pseudo_counts: float = 20.0
    temperature: float | None = None
    train_prior: Given | None = None
    prior_rate: float | None = None
    rate_weight: float = 0.0
    skew: Skew = "auto"
    start: float = 0.3
    iterations: int = 25
    tolerance: float = 1e-6
    temperatures: tuple[float, ...] = GRID

    def __post_init__(self) -> None:
        # Each is written so that NaN fails.
        if self.transition not in get_args(Transition):
            kinds = one_of(get_args(Transition))
            raise ConfigError(f"transition must be {kinds}, got {self.transition!r}")
        if self.skew not in get_args(Skew):
            raise ConfigError(f"skew must be {one_of(get_args(Skew))}, got {self.skew!r}")
        for name in ("pseudo_counts", "temperature"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} must be in (0, inf), got {value!r}")
        for name in ("prior_rate", "start"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"{name} must be in [0, 1), got {value!r}")
        if not self.rate_weight >= 0:
            raise ConfigError(f"rate_weight must be in [0, inf], got {self.rate_weight!r}")
        if (self.rate_weight > 0) != (self.prior_rate is not None):
            raise ConfigError("prior_rate and rate_weight have no effect without each other")
        if not 0 <= self.tolerance < math.inf:
            raise ConfigError(f"tolerance must be in [0, inf), got {self.tolerance!r}")
        if not self.temperatures or not all(0 < one < math.inf for one in self.temperatures):
            raise ConfigError(f"temperatures must be in (0, inf), got {self.temperatures!r}")
        if self.iterations < 1:
            raise ConfigError(f"iterations must be at least 1, got {self.iterations!r}")


@dataclass(frozen=True)
class LabelPosterior:
    """What a client's labels look like to the model.

    rate: ε. prior: (C,) π. transition: (C, C) T[c, k] = P(label k | class c). temperature: τ.
    posterior: (n, C) q over the true class. right: (n,) q_j[ỹ_j]. suggested: (n,) the likeliest
    class. trace: (steps + 1,) the objective, from the start to these values.
    """

    rate: float
    prior: Tensor
    transition: Tensor
    temperature: float
    posterior: Tensor
    right: Tensor
    suggested: Tensor
    trace: Tensor

    @property
    def uniform(self) -> bool:
        """Whether T has one rate for all classes."""
        return torch.equal(self.transition, symmetric_transition(self.rate, len(self.prior)))


def label_posterior(
    logits: Given, labels: Given, model: NoiseModel | None = None
) -> LabelPosterior:
    """Noise rate, class prior and the posterior of each sample, from logits (n, C) and observed
    labels (n,) of one client: tensors, arrays of numpy's or lists. All results are tensors in
    float64.
    """
    labels = tensor(labels, "labels")
    return label_posteriors(logits, labels, [labels.numel()], model)[0]


def label_posteriors(
    logits: Given, labels: Given, sizes: Sequence[int], model: NoiseModel | None = None
) -> list[LabelPosterior]:
    """`label_posterior` of many clients at once: their samples one after the other, `sizes` of
    them each. The numbers are those of one call per client.
    """
    model = model or NoiseModel()
    logits, labels = checked_logits(logits, labels)
    sizes = [int(size) for size in sizes]
    if sum(sizes) != len(labels) or min(sizes) < 1:
        raise DataError(
            f"sizes must be at least 1 and add up to {len(labels)} samples, got {sizes[:10]}"
        )
    rule = rule_of(model, logits.shape[1])
    ends = np.cumsum(sizes).tolist()
    alike: dict[int, list[int]] = {}  # by size: padding at most doubles what a client costs
    for client, size in enumerate(sizes):
        alike.setdefault(size.bit_length(), []).append(client)
    found: dict[int, LabelPosterior] = {}
    for clients in alike.values():
        rows = [slice(ends[client] - sizes[client], ends[client]) for client in clients]
        samples = em.Samples(
            _padded([logits[row] for row in rows]),
            _padded([labels[row] for row in rows]),
            _padded([torch.ones_like(logits[row, 0]) for row in rows]),
        )
        fit = fit_samples(samples, model, rule)
        found.update(zip(clients, _unpack(samples, fit, rule), strict=True))
    return [found[client] for client in range(len(sizes))]


def posterior_given(
    logits: Given,
    labels: Given,
    prior: Given,
    transition: Given,
    temperature: float = 1.0,
    train_prior: Given | None = None,
) -> Tensor:
    """(n, C) the posterior q of the true class under a given π (C,), T (C, C) and τ: one E step.

    Computed in log space. Where T and π call a label impossible, q is the model's own belief.
    """
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature must be in (0, inf), got {temperature!r}")
    logits, labels = checked_logits(logits, labels)
    classes = logits.shape[1]
    scaled = distribution(prior, classes, "prior").log()
    if train_prior is not None:
        scaled = scaled - distribution(train_prior, classes, "train_prior").log()
    columns = stochastic(transition, classes, "transition").log().T[labels]
    logits = logits - logits.amax(1, keepdim=True)  # so that no division overflows
    belief = torch.log_softmax(logits / temperature, dim=1) + scaled
    joint = belief + columns
    impossible = torch.isneginf(joint.amax(1, keepdim=True))
    return torch.where(impossible, belief, joint).softmax(1)


def symmetric_transition(rate: float, classes: int) -> Tensor:
    """(C, C) T = (1-ε) I + ε/(C-1) (1-I), in float64."""
    if not 0 <= rate <= 1:
        raise ConfigError(f"rate must be in [0, 1], got {rate!r}")
    if classes < 2:
        raise ConfigError(f"classes must be at least 2, got {classes!r}")
    return em.symmetric(torch.tensor(rate, dtype=torch.float64), classes)


def rule_of(model: NoiseModel, classes: int) -> em.Rule:
    """The fixed side of the M step; rates stay where labels still say something."""
    prior = model.train_prior
    if prior is not None:
        prior = distribution(prior, classes, "train_prior")
    rate = min(max(model.prior_rate or 0.0, em.LOWEST), em.highest(classes))
    return em.Rule(model.iterations, model.tolerance, model.start, prior, rate, model.rate_weight)


def fit_samples(samples: em.Samples, model: NoiseModel, rule: em.Rule) -> em.Fit:
    """Each client keeps the temperature, and the skew, whose uniform fit has the largest
    objective; and that fit, or a full matrix where the model has one.
    """
    tried = model.temperatures if model.temperature is None else (model.temperature,)
    auto = model.skew == "auto"
    given = samples.twice() if auto else samples
    by_label = torch.full_like(given.weights[:, 0], model.skew == "labels", dtype=torch.bool)
    if auto:
        by_label[len(samples.weights) :] = True
    fits = (em.fit_uniform(given, rule, one, by_label) for one in tried)
    fit = reduce(em.Fit.or_better, fits)
    by_class = fit
    if auto:
        by_class, by_name = fit.halves()
        fit = by_class.or_better(by_name)
    if model.transition == "uniform":
        return fit
    if model.transition == "full":
        return em.fit_full(samples, rule, fit, model.pseudo_counts)
    full = em.fit_full(samples, rule, by_class, _FEW)
    gain = em.worth(samples, rule, full, by_class, _FEW)
    return fit.but(full, by_class.objective + gain > fit.objective)


def _padded(parts: list[Tensor]) -> Tensor:
    return parts[0][None] if len(parts) == 1 else pad_sequence(parts, batch_first=True)


def _unpack(samples: em.Samples, fit: em.Fit, rule: em.Rule) -> list[LabelPosterior]:
    """One result per client, without the padding."""
    q = em.posterior(samples, rule, fit)
    right = q.gather(2, samples.labels[..., None])[..., 0]
    suggested = q.argmax(2)
    sizes = samples.weights.sum(1).long().tolist()
    return [
        LabelPosterior(
            rate=float(fit.rate[i]),
            prior=fit.prior[i],
            transition=fit.transition[i],
            temperature=float(fit.temperature[i]),
            posterior=q[i, :size],
            right=right[i, :size],
            suggested=suggested[i, :size],
            trace=fit.trace[i, : int(fit.steps[i]) + 1],
        )
        for i, size in enumerate(sizes)
    ]
