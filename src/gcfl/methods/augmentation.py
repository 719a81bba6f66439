"""What becomes of a batch before the model sees it: augmentation, a second view, mixup.

Every draw follows from a client's key for the round and the number of the step alone, so it is the
same for any number of workers, and for clients drawn alone or many at once.

mixup (Zhang et al., 2018, "mixup: Beyond Empirical Risk Minimization"): λ ~ Beta(α, α), one for a
batch, and a random order π of it:

    x_j ← λ x_j + (1 - λ) x_π(j),   loss_j = λ l(f(x_j), y_j) + (1 - λ) l(f(x_j), y_π(j))

for whatever l is; where samples have weights, each label counts by its own sample's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import betaincinv, ndtri
from torch import Tensor
from torch.nn.functional import pad

from gcfl.base import rng
from gcfl.base.data_types import FloatArray, IntArray, Tree
from gcfl.methods.options import TrainOptions

JITTER = 0.1  # standard deviation of the noise in a second view; inputs have 1 where normalised


def margin(side: int) -> int:
    """Pixels that augmentation may shift an image of this side."""
    return min(4, max(1, round(side / 8)))


def augmented(x: Tensor, base: int, step: int, mirror: bool) -> Tensor:
    """Images x (n, C, H, W), each shifted by an eighth of its side at most, and mirrored at random.

    The draws follow from (base, step) alone.
    """
    return shifted(x, rng.words(base, np.array(step), 2 * len(x)).reshape(-1, 2), mirror)


def shifted(x: Tensor, words: npt.NDArray[np.uint64], mirror: bool) -> Tensor:
    """`augmented` by words (n, 2): each image's shift, and whether to mirror it.

    What comes in from outside is 0: the mean of the server's set where inputs are normalised.
    """
    n, _, height, width = x.shape
    most = margin(min(height, width))
    span = np.uint64(2 * most + 1)
    down, across = (
        (words[:, 0] % span).astype(np.int64),
        (words[:, 0] // span % span).astype(np.int64),
    )
    columns = np.broadcast_to(np.arange(width), (n, width))
    if mirror:
        columns = np.where(
            (words[:, 1] & np.uint64(1)).astype(bool)[:, None], columns[:, ::-1], columns
        )
    rows = torch.from_numpy(down[:, None] + np.arange(height)).to(x.device)
    places = torch.from_numpy(across[:, None] + columns).to(x.device)
    # Channels last: one gather then moves whole pixels.
    padded = pad(x, (most,) * 4).permute(0, 2, 3, 1)
    samples = torch.arange(n, device=x.device)[:, None, None]
    return padded[samples, rows[:, :, None], places[:, None, :]].permute(0, 3, 1, 2)


def many_augmented(x: Tensor, bases: list[int], step: int, mirror: bool) -> Tensor:
    """`augmented` of each client's batch, x (m, b, C, H, W)."""
    words = rng.words_of(bases, step, 2 * x.shape[1]).reshape(-1, 2)
    return shifted(x.flatten(0, 1), words, mirror).reshape(x.shape)


def mixes(
    bases: list[int], step: int, sizes: IntArray, alpha: float
) -> tuple[FloatArray, IntArray]:
    """(m,) each client's λ in a step, and (m, longest) whom each sample of its batch is mixed with.

    sizes (m,): of the batches.
    """
    shares = betaincinv(alpha, alpha, rng.uniform(rng.words_of(bases, 2 * step, 1)))[:, 0]
    return shares, rng.orders(bases, 2 * step + 1, sizes)


def jitter(bases: list[int], step: int, shape: tuple[int, ...]) -> Tensor:
    """(m, *shape) Gaussian noise for the second views of each client's batch in a step."""
    drawn = ndtri(rng.uniform(rng.words_of(bases, 2 * step, int(np.prod(shape)))))
    return torch.from_numpy(JITTER * drawn.reshape(len(bases), *shape)).float()


def view_shares(bases: list[int], step: int) -> Tensor:
    """(m,) uniform in (0, 1): by how much each client mixes what it sees in its two views."""
    return torch.from_numpy(rng.uniform(rng.words_of(bases, 2 * step + 1, 1))[:, 0]).float()


@dataclass(frozen=True)
class Mix:
    """λ of a batch, and each sample's partner (n,)."""

    share: float
    partners: Tensor

    def of(self, x: Tensor) -> Tensor:
        return self.share * x + (1 - self.share) * x[self.partners]


@dataclass(frozen=True)
class Inputs:
    """A client's batches in one round as the model gets them. views: how many of each sample."""

    options: TrainOptions
    seed: int
    round: int
    client: int
    views: int

    def _key(self, purpose: str) -> int:
        return rng.key(self.seed, purpose, self.round, self.client)

    def of(self, x: Tensor, step: int) -> tuple[Tensor, Tree, Mix | None]:
        """(x, what a second view adds for the rule, mixup if so set) of a step's samples x."""
        first, extra, mix = x, {}, None
        augment, mirror = self.options.augment != "none", self.options.augment == "flip+crop"
        if augment:
            first = augmented(x, self._key("augment"), step, mirror)
        if self.views == 2:
            base = self._key("view")
            second = (
                augmented(x, base, 2 * step, mirror)
                if augment
                else x + jitter([base], step, tuple(x.shape))[0].to(x)
            )
            extra = {"second": second, "share": view_shares([base], step)[0].to(x)}
        if self.options.mixup:
            sizes = np.array([len(x)])
            shares, partners = mixes([self._key("mixup")], step, sizes, self.options.mixup)
            mix = Mix(float(shares[0]), torch.from_numpy(partners[0]).to(x.device))
            first = mix.of(first)
            if extra:
                extra["second"] = mix.of(extra["second"])
        return first, extra, mix


@dataclass(frozen=True)
class StackedMix:
    """λ (m, 1) of each client's batch, and each sample's partner in it (m, b)."""

    shares: Tensor
    partners: Tensor

    def of(self, x: Tensor) -> Tensor:
        """Of samples (m, b, ...)."""
        clients = torch.arange(len(x), device=x.device)[:, None]
        share = self.shares.reshape(-1, *(1,) * (x.ndim - 1))
        return share * x + (1 - share) * x[clients, self.partners]

    def targets(self, y: Tensor, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Both labels of each sample (m, b), and by how much each counts."""
        other_y, others = (own.gather(1, self.partners) for own in (y, weights))
        return [(y, self.shares * weights), (other_y, (1 - self.shares) * others)]


@dataclass(frozen=True)
class StackInputs:
    """`Inputs` for many clients at once."""

    options: TrainOptions
    seed: int
    round: int
    clients: list[int]
    views: int

    def _keys(self, purpose: str, active: int) -> list[int]:
        return rng.keys(self.clients[:active], self.seed, purpose, self.round)

    def of(self, x: Tensor, real: Tensor, step: int) -> tuple[Tensor, Tree, StackedMix | None]:
        """As there, for x (m, b, ...) of the first m clients. real (m, b): what is no filling, from
        the left.
        """
        first, extra = x, {}
        augment, mirror = self.options.augment != "none", self.options.augment == "flip+crop"
        if augment:
            first = many_augmented(x, self._keys("augment", len(x)), step, mirror)
        if self.views == 2:
            bases = self._keys("view", len(x))
            second = (
                many_augmented(x, bases, 2 * step, mirror)
                if augment
                else x + jitter(bases, step, tuple(x.shape[1:])).to(x)
            )
            extra = {"second": second, "share": view_shares(bases, step).to(x)}
        if not self.options.mixup:
            return first, extra, None
        sizes, bases = real.sum(dim=1).numpy(), self._keys("mixup", len(x))
        shares, found = mixes(bases, step, sizes, self.options.mixup)
        partners = torch.arange(x.shape[1]).repeat(len(x), 1)
        partners[:, : found.shape[1]] = torch.from_numpy(found)  # filling is its own partner
        mix = StackedMix(torch.from_numpy(shares)[:, None].to(x), partners.to(x.device))
        if extra:
            extra["second"] = mix.of(extra["second"])
        return mix.of(first), extra, mix
