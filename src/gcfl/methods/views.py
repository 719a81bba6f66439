"""What each party of a run may see: there is no way from a view to the truth, and none from a
client's view to the server's data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from gcfl.base.data_types import Shard, Tree
from gcfl.coreset import Pool
from gcfl.methods.ledger import Ledger
from gcfl.methods.noise import LocalNoise
from gcfl.methods.options import TrainOptions
from gcfl.models.network import Network

NEVER = -1  # the round of something that a client has not done


@dataclass
class Meter:
    """What a party's work has cost, in samples and steps."""

    forward: int = 0
    backward: int = 0
    steps: int = 0

    def add(self, other: Meter) -> None:
        self.forward += other.forward
        self.backward += other.backward
        self.steps += other.steps


@dataclass(frozen=True)
class Setting:
    """What every party of a run knows: the architecture, the seed, the length, how to train."""

    network: Network
    seed: int
    rounds: int
    train: TrainOptions
    local_noise: LocalNoise | None = None  # what each client adds to its update

    def pool(self, model: Tree, shard: Shard) -> Pool:
        """Samples as a model sees them: one forward pass without autograd."""
        outputs = self.network.outputs(model, shard.x)
        probabilities = torch.softmax(outputs.logits, dim=1)
        columns = outputs.features.cpu(), probabilities.cpu(), shard.y
        return Pool(*columns, self.network.bias, head=self.network.head_weights(model))


@dataclass(frozen=True)
class ServerView:
    """What a server half may see. `validation` is D_S: it never leaves the server. `clients` is the
    cohort, `population` the number of all clients, the server too where it takes part. held_out:
    clean samples that nothing trains on. selecting: who is asked to select in this round; None
    where the method never asks. ledger: what of D_S may leave, where that is limited.
    """

    setting: Setting
    round: int
    model: Tree
    validation: Shard
    clients: tuple[int, ...]
    meter: Meter = field(default_factory=Meter)
    population: int = 0
    held_out: Shard | None = None
    selecting: tuple[int, ...] | None = None
    ledger: Ledger | None = None

    @cached_property
    def pool(self) -> Pool:
        """D_S as the current model sees it; counted."""
        self.meter.forward += len(self.validation)
        return self.setting.pool(self.model, self.validation)


class Labelled(Protocol):
    """What it takes to judge labels: in which round, how many, and as the model sees them."""

    @property
    def round(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def pool(self) -> Pool: ...
    def seen_by(self, weights: Tree) -> Pool: ...


@dataclass(frozen=True)
class ClientView:
    """What a client half may see: its own samples and the model it was sent.

    load: its samples, of which there are `size`, fetched when somebody looks at them. whole: how
    many samples a budget is a share of. look: its samples as the model sees them, where one pass
    serves many clients. right (n,): each label's probability of being right, once judged. plain:
    whether it is to draw among all its samples, whatever it knows of them.
    """

    setting: Setting
    round: int
    client: int
    model: Tree
    size: int
    whole: int
    load: Callable[[], Shard]
    meter: Meter = field(default_factory=Meter)
    look: Callable[[], Pool] | None = None
    right: Tensor | None = None
    plain: bool = False

    @classmethod
    def of(cls, setting: Setting, round: int, client: int, model: Tree, shard: Shard) -> ClientView:
        """Of samples that are here."""
        size = len(shard)
        return cls(setting, round, client, model, size, shard.whole or size, lambda: shard)

    @cached_property
    def shard(self) -> Shard:
        return self.load()

    @cached_property
    def pool(self) -> Pool:
        """Its samples as the model sees them: features, probabilities, observed labels; counted."""
        if self.look is None:
            return self.seen_by({})
        self.meter.forward += self.size
        return replace(self.look(), right=self.right)

    def seen_by(self, weights: Tree) -> Pool:
        """Its samples as the model with these weights in place of its own sees them; counted."""
        self.meter.forward += self.size
        pool = self.setting.pool({**self.model, **weights}, self.shard)
        return replace(pool, right=self.right)

    def relabelled(self, labels: Tensor) -> ClientView:
        """The same, with these labels (n,) in place of the observed ones."""
        other = replace(self, load=lambda: replace(self.shard, y=labels), look=None)
        if "pool" in self.__dict__:  # looked at already: not counted twice
            other.__dict__["pool"] = replace(self.pool, labels=labels)
        return other

    def judged(self, right: Tensor) -> ClientView:
        """The same, with each label's probability of being right (n,)."""
        other = replace(self, right=right)
        if "pool" in self.__dict__:  # looked at already: not counted twice
            other.__dict__["pool"] = replace(self.pool, right=right)
        return other
