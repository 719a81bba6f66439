"""The words of the system. No logic.

A client is a whole number from 0 to N - 1. A round is a whole number from 0 to T - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

# Named tensors: a model, a part's state and a message are all this one shape, so one codec serves
# disk, processes and wire.
Tree = dict[str, Tensor]
# Trees by the name of the part that they belong to ("select", "local", "server"); what a local rule
# keeps of each sample is "kept".
Groups = dict[str, Tree]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shard:
    """Samples that one party may see: x (n, ...), observed labels y (n,), ids (n,) = rows of the
    source. No truth in it.

    whole: how many samples a budget is a share of, where that is not n.
    """

    x: Tensor
    y: Tensor
    ids: IntArray
    whole: int | None = None

    def __len__(self) -> int:
        return int(self.y.shape[0])


@dataclass(frozen=True)
class Coreset:
    """Positions in a shard (b,), in the order chosen, and weights (b,), 0 for mere fillers."""

    indices: IntArray
    weights: FloatArray

    def __len__(self) -> int:
        return int(self.indices.shape[0])


@dataclass(frozen=True)
class Broadcast:
    """What the server sends one client: the model, and what each part adds."""

    round: int
    model: Tree
    payload: Mapping[str, Tree] = field(default_factory=dict)


@dataclass(frozen=True)
class Update:
    """What a client sends: delta = local - global, what each part adds, samples used, numbers."""

    delta: Tree
    payload: Mapping[str, Tree]
    examples: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Observed:
    """What an onlooker of a simulation sees of a client's round. Never sent, never in a message.

    coreset: what it trained on (None: everything); fresh: whether that was chosen or drawn in this
    round; rate: its estimate of the share of wrong labels, where it made one.
    """

    coreset: Coreset | None
    fresh: bool
    rate: float | None = None
