"""Methods never see the truth, and no client half touches the server's data: spies that raise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcfl import experiment as config
from gcfl.base.data_types import Shard
from gcfl.data import Truth
from gcfl.engine import ClientSide, InProcess
from gcfl.engine.prepare import Given, federate
from gcfl.engine.rounds import Rounds
from helpers import prepared, spy, tiny
from peeking import Guard, Peeked, guarded, play_watched


@pytest.mark.parametrize("method", ["gcfl", "fedavg", "random", "skyline", "server-only"])
def test_guards_are_never_passed(tmp_path, monkeypatch, method):
    records = play_watched(prepared(method=method, rounds=3), tmp_path / "run", monkeypatch)
    assert [record.round for record in records] == [0, 1, 2]
    assert not any(record.left_out for record in records)


def test_one_peeking_client_is_enough_to_fail(tmp_path, monkeypatch):
    """A client that looks at the server's samples is not left out as one that failed."""
    ready = prepared(method="fedavg", rounds=1)
    work, seen = ClientSide.work, {}

    def peeking(self, client, broadcast, memory):
        if client == 3:
            _ = seen["validation"].x
        return work(self, client, broadcast, memory)

    monkeypatch.setattr(ClientSide, "work", peeking)
    start = Rounds.begin
    monkeypatch.setattr(
        Rounds, "begin", lambda self: seen.update(validation=self.validation) or start(self)
    )
    with pytest.raises(Peeked, match="D_S"):
        play_watched(ready, tmp_path / "run", monkeypatch)


def test_the_guards_work():
    guard = Guard()
    truth = guarded(Truth(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int8)), guard, "truth")
    assert truth.labels.shape == (1,)
    guard.up = True
    with pytest.raises(Peeked):
        _ = truth.noisy


def reachable(thing, seen):
    """Every tensor and array that can be reached from an object."""
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, torch.nn.Module):
        children = list(thing.state_dict().values())
    elif isinstance(thing, dict):
        children = list(thing.values())
    elif isinstance(thing, list | tuple | set):
        children = list(thing)
    elif isinstance(thing, torch.Tensor | np.ndarray):
        children = []
    else:
        children = list(getattr(thing, "__dict__", {}).values())
    for child in children:
        reachable(child, seen)


@pytest.mark.parametrize("kind", ["uniform", "attribute"])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("method", ["gcfl", "fedavg", "skyline"])
def test_nothing_of_the_server_or_the_truth_is_reachable_from_the_clients_side(
    tmp_path, monkeypatch, method, mapped, kind
):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    source, _ = federate(config.build(tiny())[0], Given())
    data = {"noise_kind": kind}
    if mapped:
        np.save(tmp_path / "x.npy", source.x)
        np.save(tmp_path / "y.npy", source.y)
        data |= {"source": str(tmp_path), "samples": None}
    ready = prepared(method=method, data=data)
    seen: dict[int, object] = {}
    reachable(ClientSide(ready.setting, ready.method, ready.federation.clients), seen)
    assert not any(isinstance(thing, Truth) for thing in seen.values())
    assert not any(isinstance(thing, Shard) for thing in seen.values())
    # By content: no sample of the server's set or the test set is among what the clients hold, and
    # no clean label of theirs.
    held = [thing for thing in seen.values() if isinstance(thing, torch.Tensor | np.ndarray)]
    clients = ready.federation.clients
    for shard in (ready.federation.validation, ready.federation.test):
        assert not set(clients.ids) & set(shard.ids)
        for sample in shard.x[:10]:
            for thing in held:
                if thing.shape[1:] == sample.shape:
                    assert not any(np.array_equal(np.asarray(row), sample.numpy()) for row in thing)
    truth = ready.federation.truth
    assert np.array_equal(
        clients.y.numpy() != truth.labels[clients.ids],
        truth.noisy[clients.ids] & ~truth.hit_by("attribute")[clients.ids],
    )
    # Nor what a spoiled sample was before.
    for row in np.flatnonzero(truth.hit_by("attribute"))[:10]:
        for thing in held:
            if thing.shape[1:] == source.x.shape[1:]:
                assert not any(np.array_equal(np.asarray(one), source.x[row]) for one in thing)
    assert not any(thing.shape == truth.noisy.shape for thing in held)


def test_what_leaves_a_client_is_the_update_counts_and_metrics():
    ready = prepared(method="gcfl")
    transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    seen = spy(transport)
    rounds = ready.rounds(transport)
    rounds.play(rounds.begin())
    ((down, up),) = seen
    shapes = {name: value.shape for name, value in ready.setting.network.tree().items()}
    for broadcast in down.values():
        assert {name: value.shape for name, value in broadcast.model.items()} == shapes
        assert {group: list(tree) for group, tree in broadcast.payload.items()} == {
            "select": ["target"]
        }
    for update in up.values():
        assert {name: value.shape for name, value in update.delta.items()} == shapes
        assert {
            group: {name: value.numel() for name, value in tree.items()}
            for group, tree in update.payload.items()
        } == {"select": {"round": 1}}
        assert all(isinstance(value, int | float) for value in update.metrics.values())
