"""Clipping, Gaussian noise, and the secrets that it comes from.

Noise comes from a secret, and from what it is added to: a round that is played again with other
answers gets other noise, so that no difference shows what is below it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Tree
from gcfl.methods.accounting import gaussian_noise
from gcfl.methods.options import PrivacyOptions

SECRET = "secret"  # noqa: S105 (a name)


def fresh_secret() -> Tensor:
    """(32,) bytes that nobody can guess."""
    return torch.frombuffer(bytearray(os.urandom(32)), dtype=torch.uint8)


def number(secret: Tensor) -> int:
    """A secret as the seed of a stream."""
    return int.from_bytes(secret.numpy().tobytes(), "little")


def noised(sums: Tensor, deviation: float, seed: int, *names: rng.Name) -> Tensor:
    """sums + N(0, deviation²), in float64, from a stream named by the sums themselves too."""
    values = sums.detach().cpu().double().contiguous()
    digest = hashlib.blake2b(values.numpy().tobytes(), digest_size=16).hexdigest()
    drawn = rng.stream(seed, "privacy", *names, digest).standard_normal(values.shape)
    return values + deviation * torch.from_numpy(drawn)


def shortened(rows: Tensor, most: float) -> Tensor:
    """rows (n, d), none longer than `most`; what is not finite counts as 0."""
    rows = torch.nan_to_num(rows.double(), nan=0.0, posinf=0.0, neginf=0.0)
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    found: Tensor = rows * (most / norms.clamp(min=most))
    return found


def flat(tree: Tree) -> Tensor:
    """(P,) all numbers of a tree, in the order of its names."""
    return torch.cat([tree[name].detach().cpu().flatten().double() for name in sorted(tree)])


def shaped(row: Tensor, like: Tree) -> Tree:
    """The inverse of `flat`."""
    names = sorted(like)
    parts = torch.split(row, [like[name].numel() for name in names])
    return {
        name: part.reshape(like[name].shape).to(like[name].dtype)
        for name, part in zip(names, parts, strict=True)
    }


@dataclass(frozen=True)
class LocalNoise:
    """What a client adds to its own update, where the server is not trusted. seed: a public one, in
    simulations alone.
    """

    clip: float
    noise: float
    seed: int | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: PrivacyOptions, rounds: int, seed: int) -> LocalNoise | None:
        """As if the client were asked in every round: nothing is gained by drawing."""
        if options.client_epsilon is None or options.client_where != "local":
            return None
        noise = options.client_noise
        if noise is None:
            noise = 2 * gaussian_noise(options.client_epsilon, options.delta) * rounds**0.5
        return cls(options.client_clip, noise, seed if options.simulated_seed else None)

    def applied(self, delta: Tree, memory: Tree, client: int, round: int) -> tuple[Tree, Tree]:
        """(the noisy update, what the client remembers: its secret)."""
        memory = memory or ({SECRET: fresh_secret()} if self.seed is None else {})
        seed = number(memory[SECRET]) if self.seed is None else self.seed
        row = shortened(flat(delta)[None], self.clip)[0]
        noisy = noised(row, self.clip * self.noise, seed, "client", client, round)
        return shaped(noisy, delta), memory
