"""Many clients at once: the same rules, the same results to 1e-5, for clients of any sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gcfl.data
import gcfl.methods.base
from gcfl.base import rng
from gcfl.base.data_types import Update
from gcfl.base.errors import ConfigError, ModelError, RunError
from gcfl.engine import ClientSide, InProcess, Vectorised
from gcfl.engine.prepare import Given
from gcfl.methods import WORDS, Replies, Stacked, TrainOptions
from gcfl.methods.catalogue import Word
from gcfl.methods.schedule import schedule
from gcfl.methods.training import orders
from helpers import prepared, run, same_bits, tiny

SIZES = {
    "clients": 7,
    "samples": 260,
    "validation": 60,
    "test": 30,
    "min_size": 3,
    "alpha": 0.3,
    "noise": 0.3,
}


def ends(rounds: int, given: Given | None = None, **changes):
    """The states, records and memories after so many rounds, by the loop and vectorised."""
    found = []
    for kind in (InProcess, Vectorised):
        ready = prepared(given, **{**changes, "data": {**SIZES, **changes.get("data", {})}})
        transport = kind(ClientSide(ready.setting, ready.method, ready.federation.clients))
        loop = ready.rounds(transport)
        state, records = loop.begin(), []
        for _ in range(rounds):
            played = loop.play(state)
            transport.commit(played.accepted)
            state = played.state
            records.append(played.record(None))
        found.append((state, records, transport))
    return found


def close(loop, many, tolerance=1e-5):
    for name, tensor in loop[0].model.items():
        assert torch.allclose(tensor, many[0].model[name], atol=tolerance, rtol=tolerance), name
    for part, tree in loop[0].parts.items():
        for name, tensor in tree.items():
            assert torch.allclose(
                tensor.double(), many[0].parts[part][name].double(), atol=1e-3, rtol=1e-3
            ), (part, name)
    for one, other in zip(loop[1], many[1], strict=True):
        for entry in ("samples", "steps", "bytes", "cohort", "left_out"):
            assert getattr(one, entry) == getattr(other, entry), entry
        assert one.train_loss == pytest.approx(other.train_loss, abs=1e-4)
        assert one.coreset.size == other.coreset.size


@pytest.mark.parametrize(
    "local", ["fedavg", "fedprox", "scaffold", "moon", "elr", "fedlsr", "local-only"]
)
@pytest.mark.parametrize("select", [None, "gcfl", "random"])
def test_the_same_as_the_loop(local, select):
    method = local if select is None else f"{local}+{select}"
    loop, many = ends(
        4, method=method, cohort=5, train={"batch": 8, "epochs": 2}, local={"mu": 0.5}
    )
    close(loop, many)


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"steps": 5, "batch": 8}},
        {"train": {"clip": 0.3, "batch": 16}},
        {"train": {"loss": "gce"}},
        {"train": {"loss": "sce", "momentum": 0.0}},
        {"train": {"smoothing": 0.2, "weight_decay": 0.0}},
        {"train": {"augment": "flip+crop", "batch": 8, "epochs": 2}},
        {"train": {"augment": "crop", "batch": 500, "epochs": 2}, "method": "moon"},
        {"train": {"augment": "flip+crop", "batch": 8}, "model": {"name": "cnn"}},
        {
            "train": {"augment": "flip+crop", "batch": 3, "steps": 4},
            "method": "gcfl",
            "coreset": {"weighted": True, "budget": 0.4},
        },
        {"train": {"mixup": 0.3, "batch": 8}},
        {"train": {"mixup": 1.0, "batch": 1000, "loss": "corrected"}},
        {"method": "moon+gcfl", "train": {"mixup": 2.0}, "coreset": {"weighted": True, "every": 2}},
        {"method": "elr+gcfl", "coreset": {"weighted": True, "budget": 0.3, "every": 2}},
        {"method": "fedlsr", "train": {"mixup": 1.0, "loss": "gce", "batch": 1000}},
        {"model": {"name": "cnn"}, "method": "fedlsr", "train": {"mixup": 1.0}},
        {"model": {"name": "cnn"}},
        {"model": {"name": "logistic"}},
        {"method": "gcfl", "coreset": {"weighted": True, "budget": 0.3, "every": 2}},
        {"method": "fedadam+glister"},
        {"method": "skyline+crust", "server": {"weighting": "examples"}},
        {"method": "server-only"},
        {"method": "centralised"},
    ],
    ids=str,
)
def test_with_every_option(changes):
    base = {"method": "fedavg", "train": {"batch": 8}}
    close(*ends(3, **{**base, **changes}))


@pytest.mark.parametrize("word", [word for word in WORDS if "select" in WORDS[word].decides])
def test_every_selector_chooses_the_same_samples(word):
    loop, many = ends(1, method=word)
    for client in range(7):
        first, second = (side[2].of(client)["select"]["indices"] for side in (loop, many))
        assert torch.equal(first, second)


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 9),
    st.booleans(),
)
def test_the_schedule_is_the_loops(sizes, batch, epochs, seed, fixed):
    options = TrainOptions(batch=batch, epochs=epochs, steps=3 * epochs if fixed else None)
    clients = np.arange(len(sizes)) * 3
    table, steps = schedule(seed, 2, clients, np.array(sizes), options)
    for place, (client, n) in enumerate(zip(clients, sizes, strict=True)):
        expected = [
            order[start : start + batch]
            for order in orders(seed, 2, int(client), n, options)
            for start in range(0, len(order), batch)
        ]
        assert steps[place] == len(expected)
        for step, samples in enumerate(expected):
            laid = table[place, step]
            # A batch that is a client's whole set has no order to speak of.
            same = (
                np.array_equal if max(sizes) > batch else lambda one, other: set(one) == set(other)
            )
            assert same(laid[laid >= 0], samples)
        assert (table[place, len(expected) :] == -1).all()


def test_words_and_orders_drawn_together_are_those_drawn_alone():
    bases = [rng.key(0, "x", i) for i in range(5)]
    for base, row in zip(bases, rng.words_of(bases, 4, 9), strict=True):
        assert np.array_equal(row, rng.words(base, np.array(4), 9))
        assert np.array_equal(row[:5], rng.words(base, np.array(4), 5))  # short batches
    lengths = np.array([3, 9, 1, 9, 6])
    together = rng.orders(bases, 4, lengths)
    for base, length, row in zip(bases, lengths, together, strict=True):
        assert np.array_equal(row[:length], rng.order(base, 4, int(length)))


def test_small_stacks_give_the_same(monkeypatch):
    whole = ends(3, method="scaffold", train={"batch": 8})[1]
    monkeypatch.setattr("gcfl.engine.vectorised._STACK_NUMBERS", 20_000)
    parts = ends(3, method="scaffold", train={"batch": 8})[1]
    for name, tensor in whole[0].model.items():
        assert torch.allclose(tensor, parts[0].model[name], atol=1e-6)


def test_a_run_can_be_killed_and_resumed_and_is_another_run_than_the_loops(tmp_path):
    changes = {"method": "scaffold+gcfl", "cohort": 3, "engine": {"vectorised": True}}
    alone = run(tmp_path / "alone", **changes)

    def stop(record):
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gcfl.run(out=tmp_path / "stopped", on_round=stop, **tiny(**changes))
    same_bits(gcfl.resume(tmp_path / "stopped" / alone.folder.name).folder, alone.folder)
    loop = run(tmp_path / "alone", **{**changes, "engine": {}})
    assert loop.folder.name != alone.folder.name
    assert loop.accuracy == pytest.approx(alone.accuracy, abs=0.05)


def test_a_client_with_a_bad_update_or_selection_is_left_out(monkeypatch):
    ready = prepared(method="gcfl", data=SIZES)
    select = type(ready.method.select).select

    def failing(self, view, received, memory):
        if view.client == 2:
            raise ValueError("no disk")
        return select(self, view, received, memory)

    monkeypatch.setattr(type(ready.method.select), "select", failing)
    transport = Vectorised(ClientSide(ready.setting, ready.method, ready.federation.clients))
    exchange = transport.exchange

    def spoil(broadcasts):
        answers = exchange(broadcasts)
        next(iter(answers._delta.values()))[3] = float("nan")
        return answers

    transport.exchange = spoil
    loop = ready.rounds(transport)
    played = loop.play(loop.begin())
    spoiled = sorted(set(range(7)) - set(played.accepted))
    assert spoiled == [2, 4]  # the fourth of those that answered
    assert played.left_out[2] == "ValueError: no disk"
    assert "NaN" in played.left_out[4]
    assert all(torch.isfinite(tensor).all() for tensor in played.state.model.values())


def test_stacked_replies_are_replies():
    draw = torch.Generator().manual_seed(0)
    deltas = [
        {"w": torch.randn(3, 2, generator=draw), "n": torch.tensor(client)} for client in range(4)
    ]
    updates = {
        client: Update(delta, {"local": {"c": delta["w"]}}, client + 1, {"loss": float(client)})
        for client, delta in enumerate(deltas)
    }
    one_by_one = Replies(updates)
    stacked = Stacked(
        np.arange(4),
        {name: torch.stack([delta[name] for delta in deltas]) for name in ("w", "n")},
        {"local": {"c": torch.stack([delta["w"] for delta in deltas])}},
        np.arange(1, 5),
        {"loss": np.arange(4.0)},
    )
    for by_examples in (False, True):
        for name, tensor in one_by_one.mean(by_examples).items():
            assert torch.allclose(tensor, stacked.mean(by_examples)[name])
    assert torch.allclose(one_by_one.sum("local", "c"), stacked.sum("local", "c"))
    assert torch.equal(one_by_one.column("local", "c"), stacked.column("local", "c"))
    assert np.array_equal(one_by_one.examples, stacked.examples)
    assert list(stacked) == list(one_by_one)
    assert torch.equal(stacked[2].delta["w"], deltas[2]["w"])
    assert {name: stacked.bytes()[name] for name in ("model", "local")} == {
        name: one_by_one.bytes()[name] for name in ("model", "local")
    }
    for replies in (one_by_one, stacked):
        replies.failures[7] = "gone"
        replies[1].delta["w"][0] = torch.nan  # a view of the stack, or the update itself
        valid, left_out = replies.checked(
            lambda _, update: "not finite" if update.delta["w"].isnan().any() else None
        )
        assert list(valid) == [0, 2, 3]
        assert left_out == {1: "not finite", 7: "gone"}
        assert torch.equal(valid[3].delta["w"], deltas[3]["w"])


class Normed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), layer, nn.ReLU())
        self.out = nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.body(x))


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x):
        self.n += 1
        return x


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(8), nn.Dropout(0.5), Centred(), Counting(), Branching(), nn.RReLU()],
    ids=str,
)
def test_layers_that_mix_samples_or_draw_are_refused(layer, tmp_path):
    with pytest.raises(ModelError, match=r"engine\.vectorised cannot train this model"):
        gcfl.run(
            "fedavg", "digits", lambda: Normed(layer), out=tmp_path, **{"engine.vectorised": True}
        )


def test_layers_that_do_not_are_welcome():
    close(*ends(2, Given(model=lambda: Normed(nn.LayerNorm(8))), method="fedavg"))


def test_what_does_not_go_together_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="in one process"):
        run(tmp_path, engine={"vectorised": True, "workers": 2})


def test_a_clients_bad_sample_is_its_own():
    """A short batch is filled up with samples of the same client, never with somebody else's."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 4)).astype(np.float32), np.arange(120) % 3
    source = gcfl.data.Source("own", x, y, (0, 1, 2))
    sizes = {
        "clients": 6,
        "samples": None,
        "validation": 20,
        "test": 20,
        "min_size": 3,
        "alpha": 0.3,
        "normalise": False,
    }
    plain = prepared(Given(source=source), method="fedavg", data=sizes)
    largest = int(plain.federation.clients.partition.sizes.argmax())
    x[plain.federation.clients.source_rows[largest]] = 3e38
    left = []
    for kind in (InProcess, Vectorised):
        ready = prepared(Given(source=source), method="fedavg", data=sizes, train={"batch": 16})
        loop = ready.rounds(kind(ClientSide(ready.setting, ready.method, ready.federation.clients)))
        left.append(list(map(str, loop.play(loop.begin()).left_out)))
    assert left == [[str(largest)]] * 2


class Pushed(gcfl.methods.base.Plain):
    """A rule that tells only some clients something."""

    name = "pushed"
    odd: bool = False

    def announce(self, state, view):
        return {
            client: {"push": torch.tensor(0.1 * client)}
            for client in view.clients
            if client % 2 == self.odd
        }

    def begin(self, model, received, memory):
        return received

    def correct(self, gradient, params, fixed):
        return {name: slope + fixed.get("push", 0.0) for name, slope in gradient.items()}


@pytest.mark.parametrize("odd", [False, True])
def test_clients_that_are_told_different_things(odd, monkeypatch):
    monkeypatch.setitem(WORDS, "pushed", Word("", {"local": Pushed}))
    close(*ends(2, method="pushed", local={"odd": odd}, train={"batch": 8}))


def test_a_round_without_any_selection_is_an_error(monkeypatch):
    monkeypatch.setattr("gcfl.coreset.baselines.Random.pick", lambda *_: 1 / 0)
    ready = prepared(method="random")
    loop = ready.rounds(
        Vectorised(ClientSide(ready.setting, ready.method, ready.federation.clients))
    )
    with pytest.raises(RunError, match="no client gave a valid update"):
        loop.play(loop.begin())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out(self.scale * x.flatten(1))


def test_parameters_without_dimensions_are_clipped_too():
    close(*ends(2, Given(model=Scaled), method="fedavg", train={"clip": 0.5, "batch": 8}))
