"""What many clients at once choose: one forward pass for all of them, and each one's choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gcfl.base.data_types import Groups, Tree
from gcfl.coreset import Pool
from gcfl.engine.client import ClientSide
from gcfl.methods import Estimate, Selection

_NOTHING: Tree = {}


@dataclass(frozen=True)
class SharedPass:
    """One forward pass for all clients that choose now, when the first of them asks."""

    side: ClientSide
    due: list[int]
    model: Tree

    @cached_property
    def _pools(self) -> dict[int, Pool]:
        data, network = self.side.data, self.side.setting.network
        rows = torch.from_numpy(np.concatenate([data.partition[client] for client in self.due]))
        outputs = network.outputs(self.model, data.x.index_select(0, rows))
        probabilities = torch.softmax(outputs.logits, dim=1)
        columns = (outputs.features.cpu(), probabilities.cpu(), data.y.index_select(0, rows))
        sizes = data.partition.sizes[self.due].tolist()
        parts = zip(*(torch.split(column, sizes) for column in columns), strict=True)
        head = network.head_weights(self.model)
        pools = (Pool(h, p, y, network.bias, head=head) for h, p, y in parts)
        return dict(zip(self.due, pools, strict=True))

    def pool(self, client: int) -> Pool:
        return self._pools[client]


@dataclass(frozen=True)
class Chosen:
    """One client's selection, how many samples went forward for it, and what it thinks of its
    labels.
    """

    selection: Selection
    forward: int
    labels: Estimate

    def is_of(self, memory: Groups) -> bool:
        """Whether the client still remembers just what it chose by."""
        return memory.get("select") is self.selection.memory and memory.get("labels", _NOTHING) is (
            self.labels.memory or _NOTHING
        )
