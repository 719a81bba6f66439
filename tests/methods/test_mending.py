"""FedCorr: stages, who is drawn, what is mended, what is sent and what it costs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch.nn.functional import cross_entropy

from gcfl.base.data_types import Broadcast, Update
from gcfl.base.errors import ConfigError
from gcfl.engine import ClientSide, InProcess
from gcfl.engine.client import answer
from gcfl.methods import ClientView, Replies, ServerView
from gcfl.methods.mending import Mending
from helpers import equal_trees, prepared, run

RATES = [0.4, 0.4, 0.4, 0.0, 0.0]
SCENE = {
    "method": "fedcorr",
    "rounds": 20,
    "data": {
        "samples": 1500,
        "noise": 0.0,
        "noise_rates": RATES,
        "partition": "iid",
        "validation": 100,
        "test": 300,
    },
    "model": {"name": "mlp", "hidden": [64]},
    "train": {"mixup": 0.0},  # a preset of fedcorr, and slow to learn in so few rounds
}


class Heard(InProcess):
    """Keeps what went up and down."""

    def __init__(self, side):
        super().__init__(side)
        self.down, self.up = [], []

    def exchange(self, broadcasts):
        replies = super().exchange(broadcasts)
        self.down.append({client: one.payload for client, one in broadcasts.items()})
        self.up.append({client: one.payload for client, one in replies.items()})
        return replies


def play(**changes):
    ready = prepared(**{**SCENE, **changes})
    transport = Heard(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop = ready.rounds(transport)
    state, steps = loop.begin(), []
    while not loop.over(state):
        played = loop.play(state)
        transport.commit(played.accepted)
        state = played.state
        steps.append(played)
    return ready, transport, steps


@pytest.fixture(scope="module")
def scene():
    return play()


def right(ready, client, labels):
    """Share of right labels; only the test knows the truth."""
    shard = ready.federation.clients.shard(client)
    return float((labels.numpy() == ready.federation.truth.labels[shard.ids]).mean())


def view_of(ready, client, round=0, model=None):
    shard = ready.federation.clients.shard(client)
    return ClientView.of(ready.setting, round, client, model or ready.setting.network.tree(), shard)


def test_corrected_labels_are_cleaner_than_observed_ones(scene):
    ready, transport, steps = scene
    assert (steps[-1].state.parts["local"]["level"] > 0).tolist() == [rate > 0 for rate in RATES]
    for client, rate in enumerate(RATES):
        observed = ready.federation.clients.shard(client).y
        before = right(ready, client, observed)
        assert before == pytest.approx(1 - rate, abs=0.01)
        memory = transport.of(client)["local"]
        if rate:
            assert right(ready, client, memory["labels"]) > before + 0.2
        else:
            assert "labels" not in memory


def test_it_trains_with_mixup_as_its_authors_do():
    assert prepared(method="fedcorr").setting.train.mixup == 1.0
    assert prepared(method="fedcorr", train={"mixup": 0.0}).setting.train.mixup == 0.0
    assert prepared(method="fedavg").setting.train.mixup == 0.0


@pytest.mark.parametrize(
    ("options", "rounds", "lengths"),
    [
        ({}, 100, (10, 45, 45)),
        ({}, 20, (2, 9, 9)),
        ({}, 3, (1, 1, 1)),
        ({}, 1, (1, 0, 0)),
        ({"preparing": 4, "tuning": 0.5}, 10, (4, 5, 1)),
        ({"preparing": 8, "tuning": 8}, 10, (8, 2, 0)),
    ],
)
def test_stages_have_their_lengths(options, rounds, lengths):
    stages = [Mending(**options).stage(round, rounds) for round in range(rounds)]
    assert stages == sorted(stages)
    assert tuple(stages.count(stage) for stage in (1, 2, 3)) == lengths


def test_who_takes_part_and_what_is_sent(scene):
    _, transport, steps = scene
    everybody = (0, 1, 2, 3, 4)
    assert [step.accepted for step in steps] == [everybody] * 2 + [(3, 4)] * 9 + [everybody] * 9
    for round, (down, up) in enumerate(zip(transport.down, transport.up, strict=True)):
        for payload in up.values():
            assert set(payload) == ({"local"} if round < 2 else set())
            for tree in payload.values():
                assert set(tree) == {"dimension", "rate"}
                assert all(tensor.numel() == 1 for tensor in tree.values())
        told = {client: set(payload["local"]) for client, payload in down.items() if payload}
        if round == 0 or 2 <= round < 11:
            assert told == {}
        elif round == 1:
            assert all(names == {"share", "pull"} for names in told.values())
        else:
            assert told == {client: {"share"} for client in (0, 1, 2)}
            assert all(float(down[client]["local"]["share"]) == 1 for client in told)


def test_every_pass_is_counted_and_losses_are_used_once(scene):
    ready, transport, steps = scene
    sizes = ready.federation.clients.partition.sizes
    extra = [step.samples.forward - step.samples.backward for step in steps]
    told = [sum(sizes[c] for c, payload in down.items() if payload) for down in transport.down]
    assert extra[0] == sizes.sum()  # each looks at its samples with its own model
    assert extra[1] == sizes.sum() + told[1]  # and noisy ones with the global model
    assert extra[2:11] == [0] * 9
    assert extra[11] == told[11] == sizes[:3].sum()
    assert extra[12:] == [0] * 8
    assert set(transport.of(0)["local"]) == {"labels"}


def test_those_who_rest_cost_nothing(scene):
    ready, _, steps = scene
    model = 4 * sum(tensor.numel() for tensor in ready.setting.network.tree().values())
    assert steps[5].traffic.down == {"model": 2 * model}
    assert steps[5].traffic.up["model"] == 2 * model
    assert steps[5].cohort == 2


def test_training_is_as_if_the_labels_had_been_observed():
    """The bits of FedAvg on a shard that has the corrected labels."""
    ready, plain = (
        prepared(method=name, train={"mixup": 1.0}) for name in ("fedcorr+gcfl", "gcfl")
    )
    shard = ready.federation.clients.shard(1)
    labels = shard.y.flip(0)
    target = ready.method.select.target(
        ServerView(ready.setting, 5, ready.setting.network.tree(), ready.federation.validation, ())
    )
    broadcast = Broadcast(5, ready.setting.network.tree(), {"select": target})
    memory = {"local": {"labels": labels}}
    corrected = answer(ready.setting, ready.method, 1, shard, broadcast, memory)
    mended = dataclasses.replace(shard, y=labels)
    expected = answer(plain.setting, plain.method, 1, mended, broadcast, {})
    observed = answer(plain.setting, plain.method, 1, shard, broadcast, {})
    assert equal_trees(corrected.update.delta, expected.update.delta)
    assert equal_trees(corrected.memory["select"], expected.memory["select"])
    assert not equal_trees(corrected.update.delta, observed.update.delta)
    assert equal_trees(corrected.memory["local"], memory["local"])


def test_a_model_that_is_right_mends_what_it_is_asked_to():
    """A model trained on clean labels: of 40% wrong ones, as many are mended as it may look at."""
    _, _, steps = play(method="skyline", train={"epochs": 4})
    ready, model = prepared(**SCENE), steps[-1].state.model
    view = view_of(ready, 0, 5, model)
    y, truth = view.shard.y, ready.federation.truth.labels[view.shard.ids]
    wrong = y.numpy() != truth
    assert wrong.mean() == pytest.approx(0.4, abs=0.01)
    logits = ready.setting.network.outputs(model, view.shard.x).logits
    losses = cross_entropy(logits, y, reduction="none")
    for share in (0.2, 0.4, 1.0):
        labels, memory = ready.method.local.relabel(
            view_of(ready, 0, 5, model), {"share": torch.tensor(share)}, {"losses": losses}
        )
        changed = labels != y
        assert 0.9 * min(share, 0.4) <= changed.double().mean() <= share
        fixed = (labels.numpy() == truth)[changed.numpy()].mean()
        assert fixed > 0.9
        assert right(ready, 0, labels) > 0.6 + 0.8 * min(share, 0.4)
        assert equal_trees(memory, {"labels": labels})
    unsure = Mending(confidence=1.0)
    kept, _ = unsure.relabel(view, {"share": torch.tensor(1.0)}, {"losses": losses})
    assert torch.equal(kept, y)


def test_without_word_or_losses_nothing_changes():
    ready = prepared(method="fedcorr")
    rule, view = ready.method.local, view_of(ready, 0)
    share, losses = {"share": torch.tensor(1.0)}, torch.rand(view.size)
    assert rule.relabel(view, share, {}) == (None, {})
    labels, memory = rule.relabel(view, {}, {"losses": losses})
    assert labels is None
    assert set(memory) == {"losses"}
    # Of other samples than it has now: as if it had forgotten.
    assert rule.relabel(view, share, {"losses": losses[1:]}) == (None, {})
    assert view.meter.forward == 0


def replies_of(dimensions, rates):
    return Replies(
        {
            client: Update(
                {},
                {
                    "local": {
                        "dimension": torch.tensor(dimension, dtype=torch.float64),
                        "rate": torch.tensor(rate, dtype=torch.float64),
                    }
                },
                1,
                {},
            )
            for client, (dimension, rate) in enumerate(zip(dimensions, rates, strict=True))
        }
    )


def test_the_server_tells_clients_apart_by_their_mean_dimension():
    ready = prepared(method="fedcorr", rounds=40)
    draw = np.random.default_rng(3)
    scores = np.concatenate([draw.normal(2, 0.2, 12), draw.normal(3, 0.3, 8)])
    rates = draw.uniform(0.2, 0.9, 20)
    rates[-1] = 0.06
    view = ServerView(
        ready.setting, 0, {}, ready.federation.validation, tuple(range(20)), population=22
    )
    rule, state = ready.method.local, {}
    for shift in (-0.5, 0.5):
        state = rule.merge(state, view, replies_of(scores + shift, rates))
    fitted = GaussianMixture(2, random_state=0).fit(scores[:, None])
    noisy = fitted.predict(scores[:, None]) == fitted.means_[:, 0].argmax()
    assert np.allclose(state["level"][:20], np.where(noisy, rates, 0))
    assert 0 < noisy.sum() < 20
    # Stage 2: known and clean; 20 and 21 were never heard.
    later = dataclasses.replace(view, round=10)
    assert list(rule.candidates(state, later)) == np.flatnonzero(~noisy | (rates <= 0.1)).tolist()
    assert rule.candidates(state, view) is None
    assert rule.candidates({}, later) is None
    told = rule.announce(state, later)
    assert set(told) == set(np.flatnonzero(noisy & (rates <= 0.1)).tolist())
    assert all(np.isclose(told[c]["share"], 0.5 * rates[c]) for c in told)
    # Nobody is clean: everybody is drawn, and nobody relabels before the last stage.
    nobody = {**state, "level": torch.ones(22)}
    assert rule.candidates(nobody, later) is None
    assert not rule.announce(nobody, later)
    last = rule.announce(nobody, dataclasses.replace(view, round=39))
    assert [float(tree["share"]) for tree in last.values()] == [1.0] * 20


def test_cohorts_of_the_second_stage_are_drawn_among_the_clean():
    _, _, steps = play(cohort=2, rounds=12, local={"preparing": 6, "tuning": 5})
    state = steps[6].state.parts["local"]
    clean = {c for c in range(5) if state["heard"][c] > 0 and state["level"][c] <= 0.1}
    assert 0 < len(clean) < 5
    for step in steps[6:11]:
        assert set(step.accepted) <= clean
        assert len(step.accepted) == min(2, len(clean))
    assert len(steps[11].accepted) == 2


def test_the_pull_is_the_gradient_of_its_term():
    rule, level = Mending(beta=5.0), 0.3
    start = {"w": torch.randn(4, dtype=torch.float64), "b": torch.randn(2, dtype=torch.float64)}
    params = {name: (tensor + 0.5).requires_grad_() for name, tensor in start.items()}
    term = 5.0 * level * sum(((params[n] - start[n]) ** 2).sum() for n in start)
    expected = dict(zip(params, torch.autograd.grad(term, list(params.values())), strict=True))
    ready = prepared(method="fedcorr")
    view = ServerView(ready.setting, 0, {}, ready.federation.validation, (0,), population=5)
    told = rule.announce({"level": torch.tensor([level], dtype=torch.float64)}, view)[0]
    fixed = rule.begin(start, told, {})
    zero = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    found = rule.correct(zero, params, fixed)
    assert all(torch.allclose(found[name], expected[name]) for name in start)
    assert rule.correct(zero, params, rule.begin(start, {}, {})) is zero


def test_what_it_cannot_have_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"fedcorr cannot be had with engine\.vectorised"):
        run(tmp_path, method="fedcorr", engine={"vectorised": True})
    with pytest.raises(ConfigError, match=r"tuning must be a share in \(0, 1\] or a whole count"):
        run(tmp_path, method="fedcorr", local={"tuning": 0})
