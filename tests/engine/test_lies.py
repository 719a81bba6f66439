"""A client that lies, in every way that we could think of, is left out and named; the round goes on
as if it had not answered.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch

from gcfl.base.data_types import Update
from gcfl.engine import ClientSide, InProcess
from gcfl.methods import LocalRule, Replies, register
from gcfl.methods.answers import Form, Like
from helpers import equal_trees, prepared, run
from lies import LIAR, LIES, METHOD


class Recorded(InProcess):
    """Honest answers, made once, of which one client's is replaced."""

    def __init__(self, side):
        super().__init__(side)
        self.honest = None
        self.lie = None

    def exchange(self, broadcasts):
        self.honest = self.honest or dict(super().exchange(broadcasts))
        answers = dict(self.honest)
        mine = answers.pop(LIAR)
        return Replies(answers if self.lie is None else {**answers, LIAR: self.lie(mine)})


@pytest.fixture(scope="module")
def scene():
    ready = prepared(**METHOD)
    transport = Recorded(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop = ready.rounds(transport)
    assert loop.transport.holds(LIAR) < 61
    return loop, transport, loop.play(loop.begin())


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_left_out_with_its_reason(lie, scene, caplog):
    loop, transport, without = scene
    change, reason = LIES[lie]
    transport.lie = change
    with caplog.at_level(logging.WARNING, "gcfl"):
        played = loop.play(loop.begin())
    assert played.accepted == without.accepted
    assert list(played.left_out) == [LIAR]
    assert reason in played.left_out[LIAR]
    assert len(played.left_out[LIAR]) < 200
    assert f"round 0: client {LIAR} is left out: {played.left_out[LIAR]}" in caplog.text
    assert equal_trees(played.state.model, without.state.model)
    for part, tree in played.state.parts.items():
        assert equal_trees(tree, without.state.parts[part])
    assert played.train_loss == without.train_loss
    assert played.steps < 10**6
    assert abs(played.time.train.cpu) < 10**6


def test_there_are_enough_lies():
    assert len(LIES) >= 60


def test_the_truth_is_no_lie(scene):
    loop, transport, _ = scene
    transport.lie = lambda update: update
    assert not loop.play(loop.begin()).left_out


def test_what_a_part_does_not_declare_is_named(tmp_path):
    class Talkative(LocalRule):
        name = "talkative"
        summary = "sends what it does not declare"

        def finish(self, local, fixed, steps, lr):
            return {"news": torch.zeros(2)}, {}

    register(Talkative)
    with pytest.raises(Exception, match="the part local does not hold what it must: nothing"):
        run(tmp_path, method="talkative")


def test_seconds_are_no_more_than_went_by():
    ready = prepared(method="fedavg")
    names = ("loss", "forward", "backward", "steps")
    seconds = ("select_cpu", "select_wall", "train_cpu", "train_wall")
    metrics = dict.fromkeys((*names, *seconds), 1.0)
    update = Update({"w": torch.zeros(2)}, {}, 5, metrics)
    form = Form({"w": Like((2,), torch.float32)}, {}, ready.setting.train, lambda _: 5, 1.0)
    assert form.told(0, update) is None
    assert form.problem(0, update) is None
    slow = replace(update, metrics={**metrics, "train_cpu": 1024 * 61.0 + 1})
    assert "its train_cpu is" in form.told(0, slow)
    # 5 samples are one step of a batch of 32: a hundred times that is beyond any rule.
    assert form.told(0, replace(update, metrics={**metrics, "forward": 3700.0})) is None
    assert form.told(0, replace(update, metrics={**metrics, "forward": 3701.0}))


def test_what_a_client_says_of_its_failure_is_cut_short(scene, caplog):
    loop, transport, without = scene

    class Loud(Recorded):
        def exchange(self, broadcasts):
            answers = dict(transport.honest)
            answers.pop(LIAR)
            return Replies(answers, {LIAR: "y" * 3_000_000})

    loud = replace(loop, transport=Loud(transport._side))
    played = loud.play(loud.begin())
    assert played.left_out == {LIAR: "y" * 197 + "..."}
    assert equal_trees(played.state.model, without.state.model)
