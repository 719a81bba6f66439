"""Lies in Flower's messages: each is left out with its reason, none stops the run; and nobody takes
another's place.
"""

from __future__ import annotations

import json
import logging
import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from damage import spoiled
from flower_grid import exported, federation, over_grid, play, rounds, same, sites
from gcfl.flower.nodes import NodeRegistry
from gcfl.flower.transport import FACTS, to_update
from helpers import prepared
from lies import LIAR, LIES, METHOD


def records_of(update):
    """As a lying site would write them; raises where Flower's own records cannot hold the lie."""
    facts = {"client": LIAR, "examples": update.examples, "told": list(update.payload)}
    found = RecordDict({FACTS: ConfigRecord(facts)})
    trees = {"delta": update.delta, **{f"payload.{k}": v for k, v in update.payload.items()}}
    for name, tree in trees.items():
        found[name] = ArrayRecord(tree)
    found["metrics"] = MetricRecord(dict(update.metrics))
    return found


def _message(**records):
    def lie(found):
        for name, record in records.items():
            del found[name]
            if record is not None:
                found[name] = record
        return found

    return lie


def _facts(**facts):
    def lie(found):
        known = {**found[FACTS], **facts}
        found[FACTS] = ConfigRecord({k: v for k, v in known.items() if v is not None})
        return found

    return lie


def _array(**fields):
    def lie(found):
        array = found["delta"]["1.weight"]
        known = {name: getattr(array, name) for name in ("dtype", "shape", "stype", "data")}
        forged = Array(**{**known, **fields})
        found["delta"] = ArrayRecord({**found["delta"], "1.weight": forged})
        return found

    return lie


def _npy(array):
    """numpy's own file format, pickles included."""
    import io

    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


CANNOT = "its answer cannot be read"
# What Flower's own records refuse to hold: lies for the engine alone.
NO_MESSAGE_HOLDS = {
    *("delta bfloat16", "delta of lists", "delta of arrays", "payload None"),
    *("examples None", "metrics None", "loss text", "steps None", "steps true"),
}
MESSAGES = {
    "no facts": (lambda _: RecordDict({"other": ConfigRecord({"a": 1})}), CANNOT),
    "nothing": (lambda _: RecordDict(), CANNOT),
    "facts without examples": (_facts(examples=None), CANNOT),
    "facts without parts": (_facts(told=None), CANNOT),
    "parts a number": (_facts(told=5), CANNOT),
    "parts text": (_facts(told="select"), "no part of the method asks for"),
    "examples bytes": (_facts(examples=b"9"), "trained on"),
    "no arrays": (_message(delta=None), "model's tensors"),
    "no metrics": (_message(metrics=None), "its numbers are not"),
    "metrics as arrays": (_message(metrics=ArrayRecord({})), "its numbers are not"),
    "metrics of lists": (_message(metrics=MetricRecord({"loss": [1.0, 2.0]})), CANNOT),
    "array of junk": (_array(data=b"junk"), CANNOT),
    "array cut short": (_array(data=_npy(np.zeros((16, 64), np.float32))[:200]), CANNOT),
    "array pickled": (_array(data=_npy(np.array([{}], dtype=object))), CANNOT),
    "array of text": (_array(data=_npy(np.array(["a"]))), CANNOT),
    "array of dates": (_array(data=_npy(np.array(["2020-01-01"], "datetime64[s]"))), CANNOT),
    "array of records": (_array(data=_npy(np.zeros(2, [("a", "f4")]))), CANNOT),
}


_MADE = {}


@pytest.fixture
def scene():
    """(a prepared run, its state after a round without client 3), made once."""
    if not _MADE:
        ready = prepared(**METHOD)
        grid = federation(ready)
        grid.meddle = lambda message, reply: None if client_of(message) == LIAR else reply
        without, _ = rounds(ready, over_grid(ready, grid), 1)
        _MADE["scene"] = ready, without
    return _MADE["scene"]


def client_of(message):
    return (message.metadata.dst_node_id - 1000) // 7


def lied(scene, lie):
    """The record of a round in which client 3's records are changed, and what it leaves."""
    ready, without = scene
    grid = federation(ready)

    def meddle(message, reply):
        if client_of(message) == LIAR:
            reply.content = lie(reply.content)
        return reply

    grid.meddle = meddle
    sizes = ready.federation.clients.partition.sizes.tolist()
    transport = over_grid(ready, grid, samples=dict(enumerate(sizes)))
    state, (record,) = rounds(ready, transport, 1)
    return state, record, without


def travelling(change):
    """The lie as a change of records."""

    def lie(found):
        honest, update = found, change(to_update(found))
        try:
            return records_of(update)
        except (TypeError, AttributeError, ValueError):
            return honest

    return lie


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_an_update(lie, scene):
    change, reason = LIES[lie]
    state, record, without = lied(scene, travelling(change))
    if not record.left_out:
        assert lie in NO_MESSAGE_HOLDS
        return
    assert list(record.left_out) == [str(LIAR)]
    # No tree becomes an empty record.
    reasons = {reason, CANNOT} | ({"model's tensors"} if lie == "delta None" else set())
    assert any(one in record.left_out[str(LIAR)] for one in reasons)
    same(state, without)


@pytest.mark.parametrize("lie", MESSAGES)
def test_a_lie_in_a_message(lie, scene):
    change, reason = MESSAGES[lie]
    state, record, without = lied(scene, change)
    assert list(record.left_out) == [str(LIAR)]
    assert reason in record.left_out[str(LIAR)]
    same(state, without)


def damaged(found, draw):
    """The message with something of it broken, as lines and strangers do."""
    names = sorted(found.array_records)
    where, what = names[int(draw.integers(len(names)))], int(draw.integers(5))
    if what == 0:
        facts = dict(found[FACTS])
        key = sorted(facts)[int(draw.integers(len(facts)))]
        facts[key] = [b"\0", "", -1, 10**30, 0.5, [], [1, 2], ["select", "x"]][draw.integers(8)]
        with suppress(TypeError, ValueError):  # what Flower's own records cannot hold
            found[FACTS] = ConfigRecord(facts)
    elif what == 1:
        numbers = dict(found["metrics"])
        key = sorted(numbers)[int(draw.integers(len(numbers)))]
        numbers[key] = [math.nan, -1e300, 10**18, -1, 1e308][draw.integers(5)]
        found["metrics"] = MetricRecord(numbers)
    else:
        arrays = dict(found[where])
        key = sorted(arrays)[int(draw.integers(len(arrays)))]
        known = {name: getattr(arrays[key], name) for name in ("dtype", "shape", "stype", "data")}
        if what == 2:
            known["data"] = spoiled(known["data"], draw)
        elif what == 3:
            known["dtype"] = ["object", "float64", "<U3", "nonsense", "V8"][draw.integers(5)]
            known["data"] = spoiled(known["data"], draw)
        else:
            known["shape"] = [(), (0,), (-1, 3), (10**12, 10**12), (2, 2)][draw.integers(5)]
        found[where] = ArrayRecord({**arrays, key: Array(**known)})
    return found


@pytest.mark.slow
def test_damaged_messages_are_left_out_or_do_no_harm(scene):
    """Seeded. Never an exception; what is left out changes nothing."""
    draw, left_out = np.random.default_rng(0), 0
    for _ in range(60):
        state, record, without = lied(scene, lambda found: damaged(found, draw))
        assert list(record.left_out) in ([], [str(LIAR)])
        assert all(torch.isfinite(tensor).all() for tensor in state.model.values())
        if record.left_out:
            left_out += 1
            same(state, without)
    assert left_out > 30


def test_an_answer_in_anothers_name_does_not_count(scene):
    ready, _ = scene
    grid = federation(ready)

    def meddle(message, reply):
        if client_of(message) == LIAR:
            reply.metadata.__dict__["_src_node_id"] = 1000  # client 0's
        return reply

    grid.meddle = meddle
    _, (record,) = rounds(ready, over_grid(ready, grid), 1)
    assert record.left_out == {str(LIAR): "no answer"}


# ---- who is who

QUERIES = {
    "client x": {"client": "x"},
    "no client": {"client": None},
    "client 1.0": {"client": 1.0},
    "client true": {"client": True},
    "client -1": {"client": -1},
    "client 5": {"client": 5},
    "client 10^30": {"client": 10**30},
    "samples many": {"samples": "many"},
    "no samples": {"samples": None},
    "samples 0": {"samples": 0},
    "samples -1": {"samples": -1},
    "samples 10^30": {"samples": 10**30},
    "samples 2.5": {"samples": 2.5},
    "a problem of two lines": {"problem": "no\nERROR all is lost"},
    "a problem of three megabytes": {"problem": "x" * 3_000_000},
}


@pytest.mark.parametrize("lie", QUERIES)
def test_a_lie_at_the_start_is_refused_and_the_others_are_not(lie, scene, caplog):
    ready, _ = scene
    grid = federation(ready)
    grid.contexts[9] = Context(1, 9, {"client": LIAR}, RecordDict(), {})  # asked first

    def meddle(message, reply):
        if message.metadata.dst_node_id == 9:
            facts = {**reply.content[FACTS], **QUERIES[lie]}
            known = {name: value for name, value in facts.items() if value is not None}
            reply.content = RecordDict({FACTS: ConfigRecord(known)})
        return reply

    grid.meddle = meddle
    registry = NodeRegistry(grid, tuple("01234"))
    with caplog.at_level(logging.WARNING, "gcfl"):
        assert registry.wait(1.0) == {client: 1000 + 7 * client for client in range(5)}
        registry.ask()
    assert all(1 <= samples <= 300 for samples in registry.samples.values())
    (warning,) = caplog.messages
    assert warning.startswith("a site cannot take part: ")
    assert "\n" not in warning


def test_nobody_takes_a_live_clients_place_and_the_run_goes_on(tmp_path, caplog):
    """A node that claims a taken number, from the start; the true one's answer is lost in round 1,
    so the server asks again who is there.
    """
    _, app = exported(tmp_path, method="fedavg", cohort=1.0)
    grid = sites(app, 5)
    thief = 5000
    grid.contexts[thief] = Context(1, thief, {"partition-id": 2}, RecordDict(), {})
    asked = []

    def meddle(message, reply):
        node = message.metadata.dst_node_id
        if message.metadata.message_type == "train":
            asked.append(node)
            if node == 1014 and message.content[FACTS]["round"] == 1:
                return None
        elif node == thief and not asked:
            return None  # slow: the true one comes first
        return reply

    grid.meddle = meddle
    with caplog.at_level(logging.WARNING, "gcfl"):
        play(app, grid, tmp_path / "flower")
    assert thief not in asked
    assert asked.count(1014) == 6
    refusals = [text for text in caplog.messages if "two sites say that they are" in text]
    assert len(refusals) == 1
    assert "node 5000 is refused" in refusals[0]
    (folder,) = (tmp_path / "flower").iterdir()
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    left_out = [json.loads(line)["left_out"] for line in lines]
    assert left_out == [{}, {"2": "no answer"}, {}, {}, {}, {}]


def test_more_samples_than_it_said_it_has(tmp_path):
    """Over the whole server: what a site said at the start bounds what counts later."""
    _, app = exported(tmp_path, method="fedavg", cohort=1.0, server={"weighting": "examples"})
    grid = sites(app, 5)

    def meddle(message, reply):
        if message.metadata.message_type == "train" and client_of(message) == LIAR:
            update = replace(to_update(reply.content), examples=10**9)
            reply = Message(records_of(update), reply_to=message)
        return reply

    grid.meddle = meddle
    play(app, grid, tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    for line in (folder / "rounds.jsonl").read_text().splitlines():
        assert "1000000000 samples, but that it holds" in json.loads(line)["left_out"]["3"]
