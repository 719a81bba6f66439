"""Every method gives our engine's bits through Flower's messages, over the in-process Grid."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ArrayRecord, Error, Message

from flower_grid import federation, over_grid, rounds, same
from gcfl.engine import ClientSide, InProcess
from gcfl.methods import WORDS, guard, parse
from helpers import prepared

METHODS = [word for word in WORDS if parse(word).server.uses_clients] + [
    "scaffold+gcfl",
    "moon+random",
    "fedadam+scaffold+gcfl",
    "scaffold+robust",
]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_as_in_process(method):
    _the_same_bits(prepared(method=method, cohort=1.0 if parse(method).pooled else 3))


@pytest.mark.parametrize("fallen_back", [False, True])
def test_clients_that_are_compared_and_that_fell_back(fallen_back, monkeypatch):
    """Comparisons in rounds 1 and 2, and 5 and 6; in between labels are judged, or not."""
    for name in ("_HARM", "_CLEAR"):  # what was found does not matter here
        monkeypatch.setattr(guard, name, 99.0 if fallen_back else -99.0)
    ready = prepared(
        method="robust", cohort=1.0, labels={"guard": 4}, clean={"warm_start": 2, "lr": None}
    )
    records = _the_same_bits(ready, 7)
    told = [record.guard["plain"] for record in records if record.guard]
    assert told == [float(fallen_back)] * 2


def _the_same_bits(ready, count=6):
    ours, records = rounds(
        ready, InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients)), count
    )
    grid = federation(ready)
    flowers, again = rounds(ready, over_grid(ready, grid), count)
    same(ours, flowers)
    for one, other in zip(records, again, strict=True):
        assert (one.bytes, one.samples, one.steps, one.accuracy) == (
            other.bytes,
            other.samples,
            other.steps,
            other.accuracy,
        )
    return records


def test_messages_hold_tensors_and_numbers_of_the_sizes_that_are_accounted():
    """No sample, no label list, no index list, nothing of the server's set: every array in every
    message is a known one.
    """
    ready = prepared(method="scaffold+gcfl", cohort=3)
    grid = federation(ready)
    _, records = rounds(ready, over_grid(ready, grid), 3)
    network = ready.setting.network
    shapes = {tuple(tensor.shape) for tensor in network.tree().values()} | {
        (10, network.width + 1),
        (),
    }
    total = {"down": 0, "up": 0}
    for message in grid.seen:
        up = bool(message.metadata.reply_to_message_id)
        for record in message.content.values():
            if isinstance(record, ArrayRecord):
                assert all(tuple(array.shape) in shapes for array in record.values())
                total["up" if up else "down"] += sum(
                    array.numpy().nbytes for array in record.values()
                )
            else:
                values = [value for value in record.values() if isinstance(value, list)]
                assert all(all(isinstance(one, str) for one in value) for value in values)
    for direction in ("down", "up"):
        counted = sum(
            sum(v for k, v in getattr(record.bytes, direction).items() if k != "metrics")
            for record in records
        )
        assert total[direction] == counted


def test_a_client_that_fails_one_that_is_silent_and_one_that_lies():
    ready = prepared(method="fedavg", cohort=1.0)
    grid = federation(ready)

    def meddle(message, reply):
        client = (message.metadata.dst_node_id - 1000) // 7
        if client == 1:
            return Message(Error(4, "the node is gone"), reply_to=message)
        if client == 2:
            return None
        if client == 3:
            array = reply.content.array_records["delta"]
            name = next(iter(array))
            spoiled = array[name].numpy().copy()
            spoiled.flat[0] = float("nan")
            reply.content["delta"] = ArrayRecord({**array, name: type(array[name])(spoiled)})
        return reply

    grid.meddle = meddle
    state, records = rounds(ready, over_grid(ready, grid, timeout=5.0), 1)
    assert records[0].left_out["1"] == "the node is gone"
    assert records[0].left_out["2"] == "no answer within 5 seconds"
    assert "NaN" in records[0].left_out["3"]
    assert all(torch.isfinite(tensor).all() for tensor in state.model.values())
