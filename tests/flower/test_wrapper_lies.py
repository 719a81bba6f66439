"""GCFL around Flower's strategies: an answer that cannot be added up is left out and named, and the
round goes on as if that node had not answered.
"""

from __future__ import annotations

import math
import random

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import strategy as flowers

from flower_grid import Here
from gcfl.methods import NEVER
from wrapped_app import NODES, SAMPLES, asked, client, dp, first_arrays, play, wrapped


def _arrays(change):
    def lie(content):
        found = change(content["arrays"].to_torch_state_dict())
        return {**content, "arrays": ArrayRecord(found)}

    return lie


def _metrics(**numbers):
    def lie(content):
        known = {**content["metrics"], **numbers}
        kept = {name: value for name, value in known.items() if value is not None}
        return {**content, "metrics": MetricRecord(kept)}

    return lie


def _facts(**facts):
    return lambda content: {**content, "gcfl": ConfigRecord({**content["gcfl"], **facts})}


def _junk(content):
    array = content["arrays"]["head.bias"]
    forged = Array(dtype=array.dtype, shape=array.shape, stype=array.stype, data=b"junk")
    return {**content, "arrays": ArrayRecord({**content["arrays"], "head.bias": forged})}


def _without(*names):
    return lambda content: {name: one for name, one in content.items() if name not in names}


LIES = {
    "NaN": (_arrays(lambda w: {n: t * math.nan for n, t in w.items()}), "NaN or infinite"),
    "infinite": (_arrays(lambda w: {n: t + math.inf for n, t in w.items()}), "NaN or infinite"),
    "a shape": (_arrays(lambda w: {**w, "head.bias": w["head.bias"][:1]}), "lacks arrays: head"),
    "turned": (_arrays(lambda w: {**w, "head.weight": w["head.weight"].T}), "lacks arrays: head"),
    "a type": (_arrays(lambda w: {n: t.double() for n, t in w.items()}), "lacks arrays: body"),
    "a name less": (_arrays(lambda w: {"head.bias": w["head.bias"]}), "lacks arrays: body"),
    "a name more": (_arrays(lambda w: {**w, "x": torch.zeros(1)}), "has arrays: x"),
    "no arrays": (_without("arrays"), "lacks arrays: body"),
    "two records": (lambda c: {**c, "more": c["arrays"]}, "has more: body"),
    "junk": (_junk, "cannot be read"),
    "nothing": (lambda _: {}, "its num-examples is None"),
    "no metrics": (_without("metrics"), "its num-examples is None"),
    "a metric less": (_metrics(loss=None), "lacks metrics: loss"),
    "a metric more": (_metrics(zeal=1.0), "has metrics: zeal"),
    "a list": (_metrics(loss=[1.0, 2.0]), "lacks metrics: loss"),
    "loss NaN": (_metrics(loss=math.nan), "its loss is nan"),
    "weight NaN": (_metrics(**{"num-examples": math.nan}), "its num-examples is nan"),
    "weight below zero": (_metrics(**{"num-examples": -8}), "its num-examples is -8"),
    "weight of all": (_metrics(**{"num-examples": 10**15}), "its num-examples is 2^50"),
    "weights": (_metrics(**{"num-examples": [8, 8]}), "its num-examples is [8, 8]"),
}


def liar(grid, lie):
    """The first node lies from now on, or does not answer."""
    node = sorted(grid.contexts)[0]

    def meddle(message, reply):
        if message.metadata.dst_node_id == node:
            if lie is None:
                return None
            reply.content = RecordDict(lie(dict(reply.content)))
        return reply

    grid.meddle = meddle
    return node


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_left_out_with_its_reason(lie, caplog):
    change, reason = LIES[lie]
    found = []
    for told in (change, None):
        random.seed(0)
        grid = Here(client([]), NODES)
        node = liar(grid, told)
        found.append(play(wrapped(), grid, 1, first_arrays()))
    assert found[0] == found[1]
    (line,) = [one for one in caplog.messages if f"node {node} failed" in one][:-1]
    assert reason in line
    assert len(line) < 260


@pytest.mark.parametrize("lie", ["NaN", "a shape", "no metrics", "nothing"])
def test_of_two_nodes_the_one_that_fits_counts(lie):
    grid = Here(client([]), 2)
    liar(grid, LIES[lie][0])
    inner = flowers.FedAvg(min_train_nodes=2, min_available_nodes=2)
    assert play(wrapped(inner), grid, 1, first_arrays()) is not None


def test_inside_a_privacy_wrapper_too(caplog):
    grid = Here(client([]), NODES)
    node = liar(grid, LIES["weight of all"][0])
    inner = dp("ServerSideFixed", flowers.FedAvg(), clipping_norm=1.0)
    assert play(wrapped(inner), grid, 1, first_arrays()) is not None
    assert f"node {node} failed: its num-examples is 2^50" in caplog.text


def test_an_app_may_answer_otherwise_than_it_was_sent():
    """What most answer is the form: here half of the model, under another name, without metrics."""

    class Half(flowers.FedAvg):
        def aggregate_train(self, server_round, replies):
            self.heard = [dict(reply.content) for reply in replies]
            return first_arrays(), None

    grid, inner = Here(client([]), NODES), Half()

    def meddle(message, reply):
        half = ArrayRecord({"head.bias": reply.content["arrays"]["head.bias"]})
        reply.content = RecordDict({"half": half, "gcfl": reply.content["gcfl"]})
        return reply

    grid.meddle = meddle
    play(wrapped(inner), grid, 1, first_arrays())
    assert [set(one) for one in inner.heard] == [{"half"}] * NODES


def test_evaluation_goes_on_without_a_liar(caplog):
    grid, strategy = Here(client([]), NODES), wrapped()
    node = liar(grid, lambda _: {"metrics": MetricRecord({"num-examples": math.nan})})
    messages = strategy.configure_evaluate(1, first_arrays(), ConfigRecord(), grid)
    metrics = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    assert metrics["acc"] == 1.0
    assert f"evaluation at node {node} failed: its num-examples is nan" in caplog.text


@pytest.mark.parametrize("selected", [NEVER, -(2**63), 2**62, True])
def test_a_node_is_not_told_the_target_twice_in_a_row_whatever_it_says(selected):
    grid, strategy = Here(client([]), NODES), wrapped(every=3)
    node = liar(grid, _facts(selected=selected))
    arrays, told = first_arrays(), []
    for server_round in (1, 2):
        arrays = play(strategy, grid, server_round, arrays)
        told.append(node in asked(grid))
    assert told == [True, False]


def test_a_lie_about_labels_takes_over_no_pooled_rate(caplog):
    def pooled(strategy):
        records = strategy._records(2, first_arrays())
        return records["gcfl.labels"]["pooled"].numpy()[0]

    found = []
    for size in (10 * SAMPLES, 2**31 - 1, 2**63 - 1, True):
        grid, strategy = Here(client([]), NODES), wrapped(labels={})
        liar(grid, _facts(**{"labels.size": size, "labels.rate": 0.9}))
        play(strategy, grid, 1, first_arrays())
        found.append(pooled(strategy))
    ten_times, most, too_many, no_number = found
    assert most == ten_times  # the weight of ten others, and no more
    assert too_many == no_number < most
    assert "tells no rate of label noise that can be used" in caplog.text
