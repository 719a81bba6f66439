"""What a site remembers, and what it refuses."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flower_grid import InMemory, federation, over_grid, rounds, same
from gcfl.engine import ClientSide, InProcess
from gcfl.flower import OverGrid
from gcfl.flower.client import InFolder, propose, recall
from gcfl.labels.evidence import looked
from gcfl.methods import Replies
from helpers import prepared


def test_an_answer_that_was_not_accepted_is_forgotten_and_folders_survive_a_restart(tmp_path):
    """Client 3's second answer is lost: it must go on from its first, also after a restart."""
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
    """A site may be done with round 3 before it is with round 2: what was accepted is there."""
    store = InMemory()
    for round in (1, 3, 2):
        recall(store, 1)
        propose(store, round, {"local": {"c": torch.tensor(float(round))}})
    assert float(recall(store, 3)["local"]["c"]) == 3
    assert float(recall(store, 1)["local"]["c"]) == 3  # what was accepted last stays


def test_evidence_of_other_samples_is_forgotten():
    """What a client thinks of its noise stays; what it kept of each sample means nothing any more,
    also where there are as many samples as before.
    """
    store, memory = InMemory(), {"rate": torch.tensor(0.3), **looked({}, torch.ones(4, 2) / 2)}
    propose(store, 1, {"labels": memory, "select": {"indices": torch.arange(2)}}, "these")
    assert recall(store, 1, "these")["labels"].keys() == memory.keys()
    assert recall(store, 1, "others") == {"labels": {"rate": torch.tensor(0.3)}}


def test_a_message_for_somebody_else_is_refused(caplog):
    ready = prepared(method="fedavg", cohort=1.0)
    grid = federation(ready)
    swapped = OverGrid(grid, {0: 1007, 1: 1000, 2: 1014, 3: 1021, 4: 1028})
    _, records = rounds(ready, swapped, 1)
    assert set(records[0].left_out) == {"0", "1"}
    assert "what it was sent" in records[0].left_out["0"]
    assert "a message for client 0 came to client 1" in caplog.text
