"""Methods never see the truth, and no client half touches the server's data: spies that raise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from gcfl import experiment as config
from gcfl.base.data_types import Shard
from gcfl.data import Truth
from gcfl.engine import ClientSide, InProcess, Observer, drive
from gcfl.engine.prepare import Given, federate
from gcfl.engine.rounds import Rounds
from gcfl.results.folder import RunFolder
from helpers import prepared, tiny


class Peeked(AssertionError):
    pass


class Guard:
    """Something that may only be touched while the guard is down."""

    def __init__(self) -> None:
        self.up = False

    def check(self, what: str) -> None:
        if self.up:
            raise Peeked(what)


def guarded(value, guard: Guard, what: str):
    """The same dataclass, whose fields raise while the guard is up."""

    class Spy(type(value)):
        def __getattribute__(self, name):
            if not name.startswith("__"):
                guard.check(f"{what}.{name}")
            return object.__getattribute__(self, name)

    return Spy(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})


@pytest.mark.parametrize("method", ["gcfl", "fedavg", "random", "skyline", "server-only"])
def test_guards_are_never_passed(tmp_path, monkeypatch, method):
    ready = prepared(method=method, rounds=3)
    of_truth, of_server = Guard(), Guard()
    truth = guarded(ready.federation.truth, of_truth, "truth")
    validation = guarded(ready.federation.validation, of_server, "D_S")
    play, work = Rounds.play, ClientSide.work

    def guarded_play(self, state):
        of_truth.up = True
        try:
            return play(self, state)
        finally:
            of_truth.up = False

    def guarded_work(self, *arguments):
        of_server.up = True
        try:
            return work(self, *arguments)
        finally:
            of_server.up = False

    monkeypatch.setattr(Rounds, "play", guarded_play)
    monkeypatch.setattr(ClientSide, "work", guarded_work)
    side = ClientSide(ready.setting, ready.method, ready.federation.clients)
    rounds = dataclasses.replace(ready.rounds(InProcess(side)), validation=validation)
    folder = RunFolder(tmp_path / "run")
    folder.create("", {})
    done = []
    drive(
        rounds,
        folder,
        Observer(truth, ready.federation.clients.source_rows),
        1,
        lambda _: None,
        done.append,
    )
    assert [state.round for state in done] == [3]


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
    captured = {}
    exchange = transport.exchange

    def spy(broadcasts):
        captured["down"] = broadcasts
        captured["up"] = exchange(broadcasts)
        return captured["up"]

    transport.exchange = spy
    rounds = ready.rounds(transport)
    rounds.play(rounds.begin())
    shapes = {name: value.shape for name, value in ready.setting.network.tree().items()}
    for broadcast in captured["down"].values():
        assert {name: value.shape for name, value in broadcast.model.items()} == shapes
        assert {group: list(tree) for group, tree in broadcast.payload.items()} == {
            "select": ["target"]
        }
    for update in captured["up"].values():
        assert {name: value.shape for name, value in update.delta.items()} == shapes
        assert {
            group: {name: value.numel() for name, value in tree.items()}
            for group, tree in update.payload.items()
        } == {"select": {"round": 1}}
        assert all(isinstance(value, int | float) for value in update.metrics.values())
