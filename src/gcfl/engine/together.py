"""What many clients' selections share, so that it is computed once: their samples when needed, one
forward pass for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Shard, Tree
from gcfl.coreset import Pool
from gcfl.data import ClientData
from gcfl.engine.client import ClientSide
from gcfl.methods import ClientView
from gcfl.methods.parts import pool_of
from gcfl.models.network import Output


class Later(Shard):
    """A client's samples, fetched when somebody looks at them: most clients keep the coreset that
    they have.
    """

    def __init__(self, data: ClientData, client: int) -> None:
        self.__dict__.update(_data=data, _client=client)

    def __getattribute__(self, name: str) -> Any:
        if name not in ("x", "y", "ids", "whole"):
            return object.__getattribute__(self, name)
        held = self.__dict__
        data, client = held["_data"], held["_client"]
        if name == "whole" and data.whole is None:
            return None
        if name == "y" and "_own" not in held:
            return data.y.index_select(0, torch.from_numpy(data.partition[client]))
        if "_own" not in held:
            held["_own"] = data.shard(client)
        return getattr(held["_own"], name)

    def __len__(self) -> int:
        return int(self.__dict__["_data"].partition.sizes[self.__dict__["_client"]])


class Together:
    """Features, logits and probabilities of all clients that choose now, computed in one pass when
    the first of them asks.
    """

    def __init__(self, side: ClientSide, due: list[int], model: Tree) -> None:
        self._side, self._due, self._model = side, due, model
        self._parts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def __getitem__(self, client: int) -> tuple[Tensor, Tensor, Tensor]:
        if not self._parts:
            data = self._side.data
            rows = torch.from_numpy(np.concatenate([data.partition[one] for one in self._due]))
            whole = self._side.setting.network.outputs(self._model, data.x.index_select(0, rows))
            sizes = data.partition.sizes[self._due].tolist()
            tensors = (whole.features, whole.logits, torch.softmax(whole.logits, dim=1))
            parts = zip(*(torch.split(tensor, sizes) for tensor in tensors), strict=True)
            self._parts = dict(zip(self._due, parts, strict=True))
        return self._parts[client]


@dataclass(frozen=True)
class View(ClientView):
    """A client's view whose outputs come from the pass for all."""

    together: Together | None = None

    @cached_property
    def outputs(self) -> Output:
        self.meter.forward += len(self.shard)
        if self.together is None:
            return self.setting.network.outputs(self.model, self.shard.x)
        return Output(*self.together[self.client][:2])

    @cached_property
    def pool(self) -> Pool:
        if self.together is None:
            return pool_of(self.outputs, self.shard, self.setting.network.bias)
        self.meter.forward += len(self.shard) if "outputs" not in self.__dict__ else 0
        features, _, probabilities = self.together[self.client]
        return Pool(features.cpu(), probabilities.cpu(), self.shard.y, self.setting.network.bias)
