"""Every method through Flower's messages gives the bits of our own engine: a Grid that calls the
ClientApp in this process.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ArrayRecord, Error, Message
from flwr.supercore.task_identity import TaskIdentity

from flower_grid import InMemory, federation, over_grid, rounds
from gcfl.engine import ClientSide, InProcess
from gcfl.flower import OverGrid
from gcfl.flower.client import InFolder, propose, recall
from gcfl.methods import WORDS, Replies, parse
from helpers import prepared

METHODS = [word for word in WORDS if parse(word).server.uses_clients] + [
    "scaffold+gcfl",
    "moon+random",
    "fedadam+scaffold+gcfl",
]


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """What a process of Flower's knows of itself."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def same(first, second):
    for name, tensor in first.model.items():
        assert torch.equal(tensor, second.model[name]), name
    for part, tree in first.parts.items():
        assert all(
            torch.equal(tensor, second.parts[part][name]) for name, tensor in tree.items()
        ), part


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_as_in_process(method):
    ready = prepared(method=method, cohort=1.0 if parse(method).pooled else 3)
    ours, records = rounds(
        ready, InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients)), 6
    )
    grid = federation(ready)
    flowers, again = rounds(ready, over_grid(ready, grid), 6)
    same(ours, flowers)
    for one, other in zip(records, again, strict=True):
        assert (one.bytes, one.samples, one.steps, one.accuracy) == (
            other.bytes,
            other.samples,
            other.steps,
            other.accuracy,
        )


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


def test_an_answer_that_was_not_accepted_is_forgotten_and_folders_survive_a_restart(tmp_path):
    """Client 3's second answer is lost on the way: it must go on from its first, as in process, and
    so after a restart.
    """
    changes = {"method": "scaffold+gcfl", "cohort": 1.0}
    ready = prepared(**changes)
    lost = []

    def meddle(message, reply):
        if (
            message.metadata.dst_node_id == 1021
            and message.content.config_records["gcfl"]["round"] == 1
        ):
            lost.append(message)
            return None
        return reply

    ours = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    exchange = ours.exchange

    def forget(broadcasts):
        answers = exchange(broadcasts)
        if next(iter(broadcasts.values())).round != 1:
            return answers
        heard = {client: update for client, update in answers.items() if client != 3}
        return Replies(heard, {3: "lost"}, answers.observed)

    ours.exchange = forget
    expected, _ = rounds(ready, ours, 4)
    stores = {client: InFolder(tmp_path / str(client)) for client in range(5)}
    grid = federation(ready, stores)
    grid.meddle = meddle
    first = over_grid(ready, grid)
    middle, _ = rounds(ready, first, 2)
    assert len(lost) == 1
    # Everything anew but the folders and the server's checkpoint.
    again = prepared(**changes)
    grid = federation(again, {client: InFolder(tmp_path / str(client)) for client in range(5)})
    second = over_grid(again, grid)
    second.restore(first.remembered())
    found, _ = rounds(again, second, 2, middle)
    same(expected, found)


def test_an_answer_that_is_ready_late_does_not_push_out_a_later_one():
    """A site that is late with round 2 may be done with round 3 before: what the server accepted
    must be there.
    """
    store = InMemory()
    for round in (1, 3, 2):
        recall(store, 1)
        propose(store, round, {"local": {"c": torch.tensor(float(round))}})
    assert float(recall(store, 3)["local"]["c"]) == 3
    assert float(recall(store, 1)["local"]["c"]) == 3  # what was accepted last stays


def test_a_message_for_somebody_else_is_refused():
    ready = prepared(method="fedavg", cohort=1.0)
    grid = federation(ready)
    swapped = OverGrid(grid, {0: 1007, 1: 1000, 2: 1014, 3: 1021, 4: 1028})
    _, records = rounds(ready, swapped, 1)
    assert set(records[0].left_out) == {"0", "1"}
    assert "a message for client 0 came to client 1" in records[0].left_out["0"]
