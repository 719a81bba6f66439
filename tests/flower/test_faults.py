"""Faults really made in a real deployment: processes killed by pid, clients that raise, lie and
dawdle. Nothing is lost.

The oracle is our own engine in one process, in which the same clients are left out of the same
rounds: the model must have the same bits, which it only has if coresets and control variates
survived every fault.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

import psutil

from flower_deployment import LIMIT_SECONDS, finish, online, start_run, states, wait_until
from gcfl import experiment as config
from gcfl.base.codec import decode
from gcfl.engine import ClientSide, InProcess, one_thread
from gcfl.engine.prepare import Given, prepare
from gcfl.flower import export, local
from gcfl.methods import Replies
from helpers import tiny

pytestmark = pytest.mark.slow
ROUNDS = 11
DEADLINE = 90.0
# (client, round): waits there until the file of that name is in the folder of marks.
GATES = {(0, 2): "late", (1, 4): "never", (2, 6): "back", (2, 8): "go"}
SETTINGS = tiny(
    method="scaffold+gcfl", rounds=ROUNDS, data={"clients": 3}, coreset={"every": 4, "budget": 0.2}
)
FAULTY = """
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp

honest, app = app, ClientApp()
marks = Path({marks!r})


@app.query()
def query(message, context):
    return honest(message, context)


@app.train()
def train(message, context):
    client, round = context.node_config["partition-id"], message.content["gcfl"]["round"]
    mark = marks / f"{{client}}-{{round}}"
    if (client, round) == (1, 1):
        raise RuntimeError("the disk is on fire")
    gate = {gates!r}.get((client, round))
    if gate is not None and not mark.exists():
        mark.touch()
        while not (marks / gate).exists():
            time.sleep(0.2)
    reply = honest(message, context)
    if (client, round) == (2, 1):
        arrays = reply.content["delta"]
        name = next(iter(arrays))
        spoiled = Array(np.full_like(arrays[name].numpy(), np.nan))
        reply.content["delta"] = ArrayRecord({{**arrays, name: spoiled}})
    return reply
"""


def kill(started, name):
    """SIGKILL to a process of the federation and to what it started; waits until it is gone."""
    process = psutil.Process(started["pids"][name])
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(LIMIT_SECONDS)


def records(folder):
    files = list(folder.glob("*/rounds.jsonl"))
    return [json.loads(line) for line in files[0].read_text().splitlines()] if files else []


def replayed(left_out):
    """Our engine in this process, with those clients left out of those rounds."""
    ready = prepare(config.build(SETTINGS)[0], Given())
    transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    exchange = transport.exchange

    def failing(broadcasts):
        answers = exchange(broadcasts)
        gone = {
            int(client): "as there" for client in left_out[next(iter(broadcasts.values())).round]
        }
        heard = {client: update for client, update in answers.items() if client not in gone}
        return Replies(heard, gone, answers.observed)

    transport.exchange = failing
    rounds = ready.rounds(transport)
    state, accuracies = rounds.begin(), []
    for _ in range(ROUNDS):
        played = rounds.play(state)
        transport.commit(played.accepted)
        state = played.state
        accuracies.append(played.scores.accuracy)
    return state.model, accuracies


def test_every_fault_is_survived_and_told(tmp_path):
    app, place, marks, out = (tmp_path / name for name in ("app", "federation", "marks", "runs"))
    marks.mkdir()
    export(config.build(SETTINGS)[0], app)
    with (app / "client_app.py").open("a") as file:
        file.write(FAULTY.format(marks=str(marks), gates=GATES))
    started = local.up(place, 3)
    try:
        wait_until(lambda: online(place) == ["online"] * 3, "three nodes are online")
        run = {"out": str(out), "wait-seconds": LIMIT_SECONDS, "round-seconds": DEADLINE}
        start_run(place, app, **run)
        # Round 1: client 1 raises, client 2 sends NaN. Round 2: client 0 is late, and may miss
        # round 3 for it.
        wait_until(lambda: len(records(out)) > 2, "round 2 ends without client 0")
        (marks / "late").touch()
        # Round 4: client 1's node is killed while it trains. It is started again while client 2
        # keeps round 6 open.
        wait_until(lambda: (marks / "1-4").exists(), "client 1 trains in round 4")
        kill(started, "node1")
        wait_until(lambda: (marks / "2-6").exists(), "rounds go on without client 1")
        wait_until(
            lambda: online(place) == ["offline", "online", "online"],
            "the SuperLink knows that the node is gone",
        )
        local.start_node(place, started, 1)
        wait_until(lambda: online(place) == ["online"] * 3, "the node is back")
        (marks / "back").touch()
        # Round 8: the SuperLink is killed while client 2 trains; the run is started again and goes
        # on.
        wait_until(lambda: (marks / "2-8").exists(), "client 2 trains in round 8")
        kill(started, "superlink")
        played = len(records(out))
        (marks / "go").touch()
        local.start_link(place, started)
        wait_until(lambda: online(place) == ["online"] * 3, "the nodes are back")
        start_run(place, app, **run)
        assert finish(place) == "finished:completed"
        assert states(place)[1] != "finished:completed"
    finally:
        (marks / "never").touch()
        local.down(place)
    (folder,) = out.iterdir()
    log = (folder / "log.txt").read_text()
    found = records(out)
    assert [record["round"] for record in found] == list(range(ROUNDS))
    assert played == 8
    left_out = [record["left_out"] for record in found]
    assert set(left_out[1]) == {"1", "2"}
    assert left_out[1]["1"] == "RuntimeError: the disk is on fire"
    assert "NaN" in left_out[1]["2"]
    assert left_out[2] == {"0": f"no answer within {DEADLINE:g} seconds"}
    assert "1" in left_out[4]  # by the SuperLink's word that the node is gone, or by the deadline
    assert [left_out[round] for round in (0, 7, 8, 9, 10)] == [{}] * 5
    for round, client in ((1, 1), (1, 2), (2, 0), (4, 1)):
        assert f"round {round}: client {client} is left out" in log
    with one_thread():
        model, accuracies = replayed(left_out)
    assert [record["accuracy"] for record in found] == accuracies
    theirs = decode((folder / "model.safetensors").read_bytes())[0]["model"]
    assert all((model[name] == tensor).all() for name, tensor in theirs.items())
