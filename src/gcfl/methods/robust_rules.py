"""Server rules that hold when some of the clients lie or are broken. Of updates Δ_1, ..., Δ_m:

    median             per number, the median                         (Yin et al., ICML 2018)
    trimmed-mean       per number, the mean without the k largest and (Yin et al., ICML 2018)
                       the k smallest
    krum               the update with the smallest sum of squared    (Blanchard et al., NeurIPS
                       distances to its m - f - 2 nearest others;      2017)
                       multi-krum: the mean of the best q
    geometric-median   argmin_z Σ ‖Δ_i - z‖, by Weiszfeld's steps     (Pillutla et al., IEEE TSP
                                                                       2022: "RFA")
    fltrust            Σ s_i Δ_i ‖Δ_0‖ / ‖Δ_i‖ / Σ s_i                (Cao et al., NDSS 2021)
                       with s_i = max(0, cos(Δ_i, Δ_0)), and Δ_0 what training on the server's
                       clean set does

Where clients hold different kinds of samples, their honest updates lie far apart, and all but the
last rule suffer. With `server.mix` = f each update is first replaced by the mean of the m - f
nearest to it, itself among them ("Fixing by Mixing", Allouah et al., AISTATS 2023).

Clients weigh equally: by numbers of samples, a liar would choose its own weight. Distances and
cosines are over the trained weights, so they say nothing of the statistics of normalisation layers,
of which each is the median of all clients'; trimmed-mean takes its own mean of them, fltrust the
median of those that it trusts and of the server's own. Where a momentum β is set, v ← β v + Δ and
θ ← θ + η_g v, as in FedAvgM.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import FloatArray, Tree, Update
from gcfl.base.options import Count, at_least, within
from gcfl.methods.averaging import Clipping, Decay, at_rest, step
from gcfl.methods.base import ServerRule
from gcfl.methods.replies import Replies
from gcfl.methods.server_training import SERVER, this_round, train_on_clean
from gcfl.methods.views import ServerView

_STEPS = 1000  # of Weiszfeld's, at most
_TOLERANCE = 1e-10  # largest change of a weight at the end
_NEAREST = 1e-9  # smaller shares of a typical distance count as it: no division by 0
_FARTHEST = 1e6  # times the distance of most from the most central: farther points do not count
_SHORTEST = 1e-12  # of the server's own update: one that short has no direction


class Robust(ServerRule):
    """A step along what the rule makes of the updates."""

    wary: ClassVar[bool] = True

    momentum: Decay = 0.0
    """β, of the server's momentum"""

    @property
    def fewest(self) -> int:
        return 3

    @abstractmethod
    def combined(self, view: ServerView, replies: Replies) -> Tree:
        """One update of all."""

    def server_init(self, model: Tree) -> Tree:
        return at_rest(model) if self.momentum else {}

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        delta, after = self.combined(view, replies), dict(state)
        for name in view.setting.network.trained if self.momentum else ():
            before = state[f"speed.{name}"]
            delta[name] = after[f"speed.{name}"] = self.momentum * before + delta[name].to(before)
        return after, step(view, delta, self.rate)


def statistics(view: ServerView, replies: Replies) -> Tree:
    """What is sent but not trained: the median, number by number."""
    network, cut = view.setting.network, (len(replies) - 1) // 2
    others = [name for name in network.sent if name not in network.trained]
    return {name: middle(_floats(replies.rows(name)), cut) for name in others}


def _floats(rows: Tensor) -> Tensor:
    return rows if rows.is_floating_point() else rows.double()


def middle(rows: Tensor, cut: int) -> Tensor:
    """The mean over the first dimension (m, ...) without the `cut` largest and smallest of each
    number.
    """
    ordered = rows.sort(dim=0).values
    return ordered[cut : len(rows) - cut].mean(dim=0)


class Comparing(Robust, Clipping):
    """A rule that compares updates with each other, after mixing them where that is asked for."""

    mix: Annotated[int, AfterValidator(at_least(0))] = 0
    """f: each update becomes the mean of the m - f nearest to it before the rule, for clients that
    hold different kinds of samples; 0: it stays as it is
    """

    @property
    def fewest(self) -> int:
        return 2 * self.mix + 3

    def mixture(self, view: ServerView, replies: Replies) -> tuple[FloatArray, FloatArray]:
        """(W (m, m), row i: the shares of all updates in what stands for the i-th; (m, m) squared
        distances of W Δ).
        """
        squared, m = squared_distances(view, replies), len(replies)
        if not self.mix:
            return np.eye(m), squared
        nearest = np.argsort(squared, axis=1, kind="stable")[:, : max(1, m - self.mix)]
        shares = np.zeros((m, m))
        np.put_along_axis(shares, nearest, 1 / nearest.shape[1], axis=1)
        return shares, _mixed_distances(shares, squared)

    def rows(self, view: ServerView, replies: Replies) -> Iterator[tuple[str, Tensor]]:
        """Each tensor's name, and its (m, ...); of weights after mixing."""
        shares = torch.from_numpy(self.mixture(view, replies)[0]) if self.mix else None
        for name in view.setting.network.sent:
            rows = _floats(replies.rows(name))
            if shares is not None and name in view.setting.network.trained:
                rows = torch.tensordot(shares.to(rows), rows, dims=1)
            yield name, rows


def _mixed_distances(shares: FloatArray, squared: FloatArray) -> FloatArray:
    """Of mixtures with shares W, each row's sum 1: ‖Σ_k (W_ik - W_jk) x_k‖² = -u' D u / 2, with
    u = W_i - W_j.
    """
    inner = -shares @ squared @ shares.T / 2
    own = np.diag(inner)
    found: FloatArray = np.maximum(own[:, None] + own[None, :] - 2 * inner, 0.0)
    return found


class Median(Comparing):
    """The coordinate-wise median: "Byzantine-Robust Distributed Learning" (Yin et al., 2018)."""

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "the median of the clients' updates, number by number"

    def combined(self, view: ServerView, replies: Replies) -> Tree:
        cut = (len(replies) - 1) // 2
        return {name: middle(rows, cut) for name, rows in self.rows(view, replies)}


class TrimmedMean(Comparing):
    """The coordinate-wise trimmed mean, of the same paper (Yin et al., 2018)."""

    name: ClassVar[str] = "trimmed-mean"
    summary: ClassVar[str] = "the mean of the updates without the extremes, number by number"

    trim: Annotated[float, AfterValidator(within(0, 0.5, low_open=True, high_open=True))] = 0.2
    """share of the clients whose values are cut at each end, rounded down, but at least one"""

    def combined(self, view: ServerView, replies: Replies) -> Tree:
        m = len(replies)
        cut = min(max(1, int(self.trim * m)), (m - 1) // 2)
        return {name: middle(rows, cut) for name, rows in self.rows(view, replies)}


class Krum(Comparing):
    """Krum and Multi-Krum: "Machine Learning with Adversaries" (Blanchard et al., 2017)."""

    name: ClassVar[str] = "krum"
    summary: ClassVar[str] = "the update that is nearest to most others, or the mean of the best"

    byzantine: Annotated[int, AfterValidator(at_least(0))] | None = None
    """f, clients of a round that may lie, fewer than m / 2 - 1; unset: as many as that allows"""
    multi: Count = 1
    """updates with the best scores whose mean is taken; above 1 this is Multi-Krum"""

    @property
    def fewest(self) -> int:
        if self.byzantine is None:  # q ≤ m - f with f = (m - 3) // 2
            return max(super().fewest, 2 * self.multi - 4)
        return max(super().fewest, 2 * self.byzantine + 3, self.multi + self.byzantine)

    def combined(self, view: ServerView, replies: Replies) -> Tree:
        m = len(replies)
        liars = max(0, (m - 3) // 2) if self.byzantine is None else self.byzantine
        # Where answers are missing, somebody is compared with somebody as long as there are two.
        shares, squared = self.mixture(view, replies)
        scores = krum_scores(squared, max(1, m - liars - 2))
        best = np.argsort(scores, kind="stable")[: max(1, min(self.multi, m - liars))]
        weights = np.zeros(m)
        weights[best] = 1 / len(best)
        return replies.combination(weights @ shares) | statistics(view, replies)


def squared_distances(view: ServerView, replies: Replies) -> FloatArray:
    """(m, m) ‖Δ_i - Δ_j‖² over the trained weights."""
    gram = replies.gram(view.setting.network.trained)
    own = np.diag(gram)
    found: FloatArray = np.maximum(own[:, None] + own[None, :] - 2 * gram, 0.0)
    return found


def krum_scores(squared: FloatArray, nearest: int) -> FloatArray:
    """(m,) each one's sum of squared distances to its nearest others."""
    others = squared + np.diag(np.full(len(squared), np.inf))
    found: FloatArray = np.sort(others, axis=1)[:, : min(nearest, len(squared) - 1)].sum(axis=1)
    return found


class GeometricMedian(Comparing):
    """The geometric median: "Robust Aggregation for Federated Learning" (Pillutla et al., 2022)."""

    name: ClassVar[str] = "geometric-median"
    summary: ClassVar[str] = "the point with the smallest sum of distances to the updates"

    def combined(self, view: ServerView, replies: Replies) -> Tree:
        shares, squared = self.mixture(view, replies)
        found = replies.combination(geometric_weights(squared) @ shares)
        return found | statistics(view, replies)


def geometric_weights(squared: FloatArray) -> FloatArray:
    """(m,) weights of the geometric median; 0 for points beyond what float64 can weigh.

    More than m / 2 points are within s of the most central one: where liars are fewer, an honest
    one is. What is farther than 1e6 s moves the median by a few s at most, and is left out.
    """
    reach = np.sort(squared, axis=1)[:, len(squared) // 2]
    centre = int(reach.argmin())
    near = np.flatnonzero(squared[centre] <= _FARTHEST**2 * reach[centre])
    weights = np.zeros(len(squared))
    weights[near] = weiszfeld(squared[np.ix_(near, near)])
    return weights


def weiszfeld(squared: FloatArray) -> FloatArray:
    """(m,) weights w, Σ w = 1, with which Σ w_i x_i is the geometric median of points x_i with
    these squared distances D (m, m).

    w_i ∝ 1 / ‖x_i - z‖, in which ‖x_i - Σ w_j x_j‖² = (D w)_i - w' D w / 2.
    """
    m = len(squared)
    weights: FloatArray = np.full(m, 1 / m)
    apart = squared[squared > 0]
    # Of a typical distance: that of a liar may be any number. Where all are alike it is the mean.
    smallest = _NEAREST * float(np.sqrt(np.median(apart))) if len(apart) else 0.0
    for _ in range(_STEPS if smallest else 0):
        spread = squared @ weights
        far = np.sqrt(np.maximum(spread - weights @ spread / 2, 0.0))
        after = 1 / np.maximum(far, smallest)
        after /= after.sum()
        change, weights = np.abs(after - weights).max(), after
        if change < _TOLERANCE:
            break
    return weights


class Trust(Robust):
    """FLTrust: "Byzantine-robust Federated Learning via Trust Bootstrapping" (Cao et al., 2021)."""

    name: ClassVar[str] = "fltrust"
    summary: ClassVar[str] = "updates count by their cosine with the server's own on its clean set"
    trains: ClassVar[bool] = True

    @property
    def fewest(self) -> int:
        return 1

    def combined(self, view: ServerView, replies: Replies) -> Tree:
        trained = view.setting.network.trained
        mine = replies[SERVER] if SERVER in replies else _own_update(view)
        own = {name: mine.delta[name] for name in trained}
        length = float(torch.stack([part.double().norm() for part in own.values()]).norm())
        if not 0 < length < math.inf:  # the model stays; or the round says that training diverged
            return own
        inner, norms = replies.products(own)
        long = np.isfinite(norms) & (norms > _SHORTEST * length)
        cosine = np.divide(inner, norms * length, out=np.zeros_like(inner), where=long)
        trust = np.maximum(cosine, 0.0)
        if not trust.any():  # nobody goes the server's way: the model stays
            return {name: torch.zeros_like(part) for name, part in own.items()}
        shares = trust / trust.sum()
        matched = np.divide(length, norms, out=np.zeros_like(norms), where=long)
        found = replies.scaled(matched, trained).combination(shares)
        if len(trained) == len(view.setting.network.sent):
            return found
        believed = replies.among(replies.clients[trust > 0].tolist())
        return found | statistics(view, believed.plus(SERVER, mine))


def _own_update(view: ServerView) -> Update:
    """What training on D_S, as long as a client trains, does to the model."""
    trained = train_on_clean(view, view.model, this_round(view))
    names = view.setting.network.sent
    delta = {name: (trained.model[name] - view.model[name]).cpu() for name in names}
    return Update(delta, {}, trained.examples, {})
