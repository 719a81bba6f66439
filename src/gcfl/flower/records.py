"""Our messages as Flower's records: one ArrayRecord per tree, one ConfigRecord for what is not a
tensor. Bits survive.

Down: the model, what each part adds, the round, the client, and the last round of which the server
accepted this client's answer. Up: the update, what each part adds, how many samples it used, plain
numbers. Nothing else travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from gcfl.base.data_types import Broadcast, Groups, Tree, Update
from gcfl.base.errors import RunError

FACTS = "gcfl"
_PAYLOAD = "payload."


def from_broadcast(broadcast: Broadcast, client: int, accepted: int) -> RecordDict:
    """What the server sends one client."""
    facts = {
        "round": broadcast.round,
        "client": client,
        "accepted": accepted,
        "told": list(broadcast.payload),
    }
    return _records({"model": broadcast.model, **_named(broadcast.payload)}, facts)


def to_broadcast(records: RecordDict) -> tuple[Broadcast, int, int]:
    """(the broadcast, the client, the last round that was accepted)."""
    facts = _facts(records)
    payload = {name: _tree(records, _PAYLOAD + name) for name in facts["told"]}
    return (
        Broadcast(int(facts["round"]), _tree(records, "model"), payload),
        int(facts["client"]),
        int(facts["accepted"]),
    )


def from_update(update: Update, client: int) -> RecordDict:
    """What a client sends back."""
    facts = {"client": client, "examples": update.examples, "told": list(update.payload)}
    records = _records({"delta": update.delta, **_named(update.payload)}, facts)
    records["metrics"] = MetricRecord(
        {name: float(value) for name, value in update.metrics.items()}
    )
    return records


def to_update(records: RecordDict) -> Update:
    facts = _facts(records)
    payload = {name: _tree(records, _PAYLOAD + name) for name in facts["told"]}
    told = records.metric_records.get("metrics", MetricRecord())
    metrics = {name: float(value) for name, value in told.items()}  # type: ignore[arg-type]
    return Update(_tree(records, "delta"), payload, int(facts["examples"]), metrics)


def _named(payload: Mapping[str, Tree]) -> Groups:
    return {_PAYLOAD + name: tree for name, tree in payload.items()}


def _records(groups: Groups, facts: dict[str, Any]) -> RecordDict:
    records = RecordDict({FACTS: ConfigRecord(facts)})
    for name, tree in groups.items():
        if tree:
            records[name] = ArrayRecord(
                {leaf: Array(tensor.detach().cpu().numpy()) for leaf, tensor in tree.items()}
            )
    return records


def _facts(records: RecordDict) -> dict[str, Any]:
    if FACTS not in records.config_records:
        raise RunError("a message without gcfl's facts in it: is another app answering?")
    return dict(records.config_records[FACTS])


def _tree(records: RecordDict, name: str) -> Tree:
    if name not in records.array_records:
        return {}  # a tree without tensors has no record
    return {
        leaf: torch.from_numpy(np.array(array.numpy()))
        for leaf, array in records.array_records[name].items()
    }
