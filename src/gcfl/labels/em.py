"""Expectation maximisation for one or many clients at once, on weighted samples.

Everything is padded to (m, l, C) for m clients of at most l samples. A sample of weight 0 is
padding; whole weights are resampled samples. So clients, resamples and a single client are the same
computation, and no client sees another's numbers.

    J_jc = w_c · p_jc · T[c, ỹ_j],   w_c = π_c, or π_c / ρ_c with a training prior ρ

A client whose samples came to it by their labels (a folder per class, sent to where such folders
are) has no prior of its own: a label k is seen with probability λ_k, whatever its class, and

    J_jc = λ_ỹ · p_jc · T[c, ỹ_j]  (over ρ_c with a training prior),  λ_k = (n_k + 1) / (n + C)

Both are densities of input and label, so their objectives can be compared.

With the uniform T, Σ_c J_jc = ε/(C-1) Σ_c w_c p_jc + (1 - ε - ε/(C-1)) w_ỹ p_jỹ: one product with
the matrix [p, p ∘ onehot(ỹ)] gives all evidences, one with its transpose all expected counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import one_hot

LOWEST = 1e-6  # a rate of 0 could never rise again
_GAP = 1e-3  # below (C-1)/C, where labels say nothing of the class


def highest(classes: int) -> float:
    """The largest rate: a bit below (C-1)/C."""
    return (classes - 1) / classes - _GAP


def symmetric(rate: Tensor, classes: int) -> Tensor:
    """(..., C, C) T = (1-ε) I + ε/(C-1) (1-I) for rates (...)."""
    same = torch.eye(classes, dtype=rate.dtype, device=rate.device)
    rate = rate[..., None, None]
    return (1 - rate) * same + rate / (classes - 1) * (1 - same)


@dataclass(frozen=True)
class Samples:
    """logits: (m, l, C), labels: (m, l), weights: (m, l), 0 for padding. One row of logits and
    labels may serve many of weights.
    """

    logits: Tensor
    labels: Tensor
    weights: Tensor

    @property
    def classes(self) -> int:
        return self.logits.shape[-1]

    def twice(self) -> Samples:
        """All clients, and all of them once more."""
        weights = torch.cat([self.weights, self.weights])
        if len(self.logits) == 1:  # one row for all
            return Samples(self.logits, self.labels, weights)
        logits, labels = (torch.cat([one, one]) for one in (self.logits, self.labels))
        return Samples(logits, labels, weights)

    def p(self, temperature: Tensor) -> Tensor:
        """(m, l, C) softmax(z / τ) for τ (m,). The largest logit is taken off first, so that no
        division overflows.
        """
        logits = self.logits - self.logits.amax(-1, keepdim=True)
        return (logits / temperature[:, None, None]).softmax(-1)


@dataclass(frozen=True)
class Rule:
    """What the M step holds on to. train_prior: (C,) ρ. rate: r0 with `weight` pseudo-samples,
    infinite for a rate held fixed.
    """

    iterations: int
    tolerance: float
    start: float
    train_prior: Tensor | None
    rate: float
    weight: float

    def scaled(self, prior: Tensor) -> Tensor:
        """(m, C) w = π, or π / ρ."""
        return prior if self.train_prior is None else prior / self.train_prior


@dataclass(frozen=True)
class Fit:
    """rate, temperature: (m,). prior: (m, C). transition: (m, C, C). trace: (m, iterations + 1)
    of the penalised objective. steps: (m,) how many were taken before the parameters stood still.
    """

    rate: Tensor
    prior: Tensor
    transition: Tensor
    temperature: Tensor
    trace: Tensor
    steps: Tensor

    @property
    def objective(self) -> Tensor:
        return self.trace[:, -1]

    def halves(self) -> tuple[Fit, Fit]:
        """Of clients that were fitted in two ways."""
        pairs = [getattr(self, field.name).chunk(2) for field in fields(Fit)]
        return Fit(*(one for one, _ in pairs)), Fit(*(other for _, other in pairs))

    def or_better(self, other: Fit) -> Fit:
        """Client by client the one with the larger objective, this one where they are equal."""
        return self.but(other, other.objective > self.objective)

    def but(self, other: Fit, where: Tensor) -> Fit:
        """The other's for the clients that `where` (m,) names, this one's for the rest."""
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(Fit)]
        return Fit(*(torch.where(_along(where, mine), theirs, mine) for mine, theirs in pairs))


# what is fitted, each (m, ...)
_Parameters = tuple[Tensor, ...]
# -> the next ones, and the objective (m,) of the given ones
_Step = Callable[[_Parameters], tuple[_Parameters, Tensor]]


def fit_uniform(samples: Samples, rule: Rule, temperature: float, by_label: Tensor) -> Fit:
    """ε and π under the uniform T, from ε = `start` and π uniform. by_label: (m,) whether samples
    came by their labels, and π stays as it is.
    """
    weights, classes, total = samples.weights, samples.classes, samples.weights.sum(1)
    p = samples.p(torch.full_like(samples.logits[:, 0, 0], temperature))
    both = torch.cat([p, p * one_hot(samples.labels, classes)], dim=-1)
    turned = both.transpose(1, 2)
    limit = highest(classes)
    fixed = math.isinf(rule.weight)
    pull = 0.0 if fixed else rule.weight
    labelled = by_label[:, None]
    seen = _shares((weights[..., None] * one_hot(samples.labels, classes)).sum(1), total)  # λ
    by_chance = torch.where(by_label, _by_label(samples, seen), 0.0)

    def step(now: _Parameters) -> tuple[_Parameters, Tensor]:
        rate, prior = now
        others = (rate / (classes - 1))[:, None]
        scaled = rule.scaled(prior)
        mix = torch.cat([others * scaled, (1 - rate[:, None] - others) * scaled], dim=1)
        evidence = _times(mix, turned)
        sums = _times(weights / evidence, both)
        value = _objective(weights, evidence, torch.where(labelled, seen, prior)) + by_chance
        if pull:
            value = value + pull * (rule.rate * rate.log() + (1 - rule.rate) * (1 - rate).log())
        expected = (mix * sums)[:, :classes] + (mix * sums)[:, classes:]
        right = (1 - rate) * (scaled * sums[:, classes:]).sum(1)
        if not fixed:
            wrong = (total - right + pull * rule.rate) / (total + pull)
            rate = wrong.clamp(LOWEST, limit)
        return (rate, torch.where(labelled, prior, _shares(expected, total))), value

    first = min(max(rule.rate if fixed else rule.start, LOWEST), limit)
    prior = torch.full_like(total[:, None].expand(-1, classes), 1 / classes)
    (rate, prior), trace, steps = _climb(step, rule, (torch.full_like(total, first), prior))
    warmth = torch.full_like(rate, temperature)
    return Fit(rate, prior, symmetric(rate, classes), warmth, trace, steps)


def fit_full(samples: Samples, rule: Rule, start: Fit, pseudo_counts: float) -> Fit:
    """All of T and π, from a uniform fit whose T is also what the pseudo-counts pull towards. The
    rate is the share of labels expected to be wrong.
    """
    weights, classes, total = samples.weights, samples.classes, samples.weights.sum(1)
    p = samples.p(start.temperature)
    same = one_hot(samples.labels, classes).to(p.dtype)
    centre = start.transition

    def step(now: _Parameters) -> tuple[_Parameters, Tensor]:
        _, prior, transition = now
        mix = rule.scaled(prior)[..., None] * transition
        evidence = (p * (same @ mix.transpose(1, 2))).sum(-1)
        # (m, C, C): Σ_j q_jc [ỹ_j = k]
        counts = mix * (p.transpose(1, 2) @ (same * (weights / evidence)[..., None]))
        value = _objective(weights, evidence, prior)
        value = value + pseudo_counts * (centre * transition.log()).sum((1, 2))
        wrong = 1 - counts.diagonal(dim1=1, dim2=2).sum(1) / total
        prior = _shares(counts.sum(2), total)
        counts = counts + pseudo_counts * centre
        transition = counts / counts.sum(2, keepdim=True)
        return (wrong.clamp(LOWEST, highest(classes)), prior, transition), value

    found, trace, steps = _climb(step, rule, (start.rate, start.prior, centre))
    rate, prior, transition = found
    return Fit(rate, prior, transition, start.temperature, trace, steps)


def worth(samples: Samples, rule: Rule, full: Fit, uniform: Fit, pseudo_counts: float) -> Tensor:
    """(m,) log of the Bayes factor of a full matrix against the uniform one T: with the expected
    counts N of the full fit, and each of its rows drawn from a Dirichlet of m T[c],

        Σ_c log Γ(m) / Γ(m + N_c) + Σ_ck log Γ(m T_ck + N_ck) / Γ(m T_ck) - Σ_ck N_ck log T_ck

    A matrix that merely fits better pays for its C (C-1) numbers.
    """
    same = one_hot(samples.labels, samples.classes).to(full.rate.dtype)
    q = posterior(samples, rule, full) * samples.weights[..., None]
    counts = q.transpose(1, 2) @ same
    pull = pseudo_counts * uniform.transition
    drawn = torch.lgamma(pull + counts) - torch.lgamma(pull)
    rows = torch.lgamma(pull.sum(2)) - torch.lgamma(pull.sum(2) + counts.sum(2))
    return rows.sum(1) + (drawn - counts * uniform.transition.log()).sum((1, 2))


def posterior(samples: Samples, rule: Rule, fit: Fit) -> Tensor:
    """(m, l, C) q = J / ΣJ."""
    columns = (rule.scaled(fit.prior)[..., None] * fit.transition).transpose(1, 2)
    index = samples.labels[..., None].expand(-1, -1, samples.classes)
    joint = samples.p(fit.temperature) * columns.gather(1, index)
    return joint / joint.sum(-1, keepdim=True)


def _by_label(samples: Samples, seen: Tensor) -> Tensor:
    """(m,) Σ_j log λ_ỹ, with C for the prior 1/C that stands in the evidence instead."""
    index = samples.labels.expand(len(seen), -1)
    return (samples.weights * (samples.classes * seen).log().gather(1, index)).sum(1)


def _times(rows: Tensor, matrices: Tensor) -> Tensor:
    """(m, b) each row (m, a) times its own matrix (m, a, b), or all times one (1, a, b)."""
    if len(matrices) == 1:
        return rows @ matrices[0]
    return torch.bmm(rows[:, None], matrices)[:, 0]


def _objective(weights: Tensor, evidence: Tensor, prior: Tensor) -> Tensor:
    """(m,) Σ_j log Σ_c J_jc + Σ_c log π_c."""
    return (weights * evidence.log()).sum(1) + prior.log().sum(1)


def _shares(expected: Tensor, total: Tensor) -> Tensor:
    """π_c = (Σ_j q_jc + 1) / (n + C)."""
    return (expected + 1) / (total[:, None] + expected.shape[1])


def _along(clients: Tensor, values: Tensor) -> Tensor:
    """(m,) with as many trailing dimensions of one as the values (m, ...) have."""
    return clients.reshape(-1, *[1] * (values.ndim - 1))


def _climb(step: _Step, rule: Rule, now: _Parameters) -> tuple[_Parameters, Tensor, Tensor]:
    """Repeat the step until nothing moves by more than the tolerance: parameters, trace, steps.

    A client that stands still is left there, so that it ends where it would have ended alone.
    """
    moving = torch.ones_like(now[0], dtype=torch.bool)
    steps = torch.zeros_like(now[0], dtype=torch.int64)
    trace = []
    for _ in range(rule.iterations):
        following, value = step(now)
        trace.append(value)
        moves = [
            (new - old).abs().reshape(len(new), -1).amax(1)
            for new, old in zip(following, now, strict=True)
        ]
        now = tuple(
            torch.where(_along(moving, new), new, old)
            for new, old in zip(following, now, strict=True)
        )
        steps += moving
        moving = moving & (torch.stack(moves).amax(0) > rule.tolerance)
        if not bool(moving.any()):
            break
    _, last = step(now)
    trace += [last] * (rule.iterations + 1 - len(trace))
    return now, torch.stack(trace, dim=1), steps
