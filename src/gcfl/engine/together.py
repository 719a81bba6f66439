"""What many clients' selections share, so that it is computed once: their samples when needed, one forward pass for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gcfl.data import ClientData
from gcfl.engine.client import ClientSide
from gcfl.methods import ClientView
from gcfl.network import Output
from gcfl.types import Shard, Tree


class Later(Shard):
    """A client's samples, fetched when somebody looks at them: most clients keep the coreset that they have."""

    def __init__(self, data: ClientData, client: int) -> None:
        self.__dict__.update(_data=data, _client=client)

    def __getattribute__(self, name: str) -> Any:
        if name not in ("x", "y", "ids", "whole"):
            return object.__getattribute__(self, name)
        held = self.__dict__
        if name == "whole" and held["_data"].whole is None:
            return None
        if "_own" not in held:
            held["_own"] = held["_data"].shard(held["_client"])
        return getattr(held["_own"], name)

    def __len__(self) -> int:
        return int(self.__dict__["_data"].partition.sizes[self.__dict__["_client"]])


class Together:
    """The outputs of all clients that choose now, computed in one forward pass when the first of them asks."""

    def __init__(self, side: ClientSide, due: list[int], model: Tree) -> None:
        self._side, self._due, self._model = side, due, model
        self._parts: dict[int, Output] = {}

    def __getitem__(self, client: int) -> Output:
        if not self._parts:
            data = self._side.data
            rows = np.concatenate([data.partition[one] for one in self._due])
            whole = self._side.setting.network.outputs(self._model, data.x.take(rows))
            sizes = data.partition.sizes[self._due].tolist()
            parts = zip(torch.split(whole.features, sizes), torch.split(whole.logits, sizes), strict=True)
            self._parts = {one: Output(*part) for one, part in zip(self._due, parts, strict=True)}
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
        return self.together[self.client]
