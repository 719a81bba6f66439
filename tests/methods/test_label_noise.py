"""Estimated label noise in a run: when, from what, what is sent, and what the loss makes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gcfl.engine import ClientSide, InProcess, Vectorised
from gcfl.labels import label_posterior, log_columns, pool_rates, symmetric_transition
from gcfl.methods import ClientView, TrainOptions, parse
from gcfl.methods.losses import mean_loss, sample_losses
from helpers import prepared, run, spy

ROBUST = {
    "method": "robust",
    "coreset": {"every": 2, "budget": 0.2},
    "train": {"min_steps": 1},
    "labels": {"average": 0.0, "guard": 0, "evidence": False},
    "clean": {"warm_start": 2, "lr": None},
}


def played(ready, rounds, kind=InProcess):
    transport = kind(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop = ready.rounds(transport)
    state, found = loop.begin(), []
    for _ in range(rounds):
        step = loop.play(state)
        transport.commit(step.accepted)
        state = step.state
        found.append(step)
    return transport, found


def test_the_corrected_loss_is_its_formula_and_cross_entropy_without_an_estimate():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=draw, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 1, 0])
    transition = symmetric_transition(0.3, 4)
    options = TrainOptions(loss="corrected")
    expected = -(logits.softmax(1) @ transition)[torch.arange(6), labels].log()
    found = sample_losses(logits, labels, options, log_columns(transition))
    assert torch.allclose(found, expected)
    assert torch.allclose(mean_loss(logits, labels, options, None), cross_entropy(logits, labels))
    both = torch.stack([logits, logits + 1])
    columns = log_columns(torch.stack([transition, torch.eye(4, dtype=torch.float64)]))
    stacked = sample_losses(both, torch.stack([labels, labels]), options, columns)
    assert torch.allclose(stacked[0], expected)
    assert torch.allclose(stacked[1], cross_entropy(logits, labels, reduction="none"))


def test_the_estimate_comes_from_the_selections_own_pass_and_is_remembered():
    ready = prepared(**ROBUST)
    transport, steps = played(ready, 3)
    sizes = ready.federation.clients.partition.sizes
    budget = sum(max(1, round(0.2 * size)) for size in sizes)
    server = len(ready.federation.validation)
    # One pass over everything where a selection is due, none in between; the server trains too.
    passes = [step.samples.forward - step.samples.backward for step in steps]
    assert passes == [sizes.sum(), 0, sizes.sum()]
    assert steps[1].samples.backward == budget + server
    assert [step.observed[0].rate is not None for step in steps] == [True, False, True]
    remembered = transport.of(0)["labels"]
    assert set(remembered) == {"transition", "round", "rate"}
    # Towards the others' rates, as they told them in round 0.
    first = np.array([steps[0].observed[client].rate for client in range(5)])
    common, weight = pool_rates(first, sizes.tolist())
    rate = (sizes[0] * steps[2].observed[0].rate + weight * common) / (sizes[0] + weight)
    assert torch.allclose(remembered["transition"], symmetric_transition(rate, 10).float())


def test_without_a_selection_a_pass_of_its_own_is_made_and_counted():
    ready = prepared(method="fedavg", train={"loss": "corrected"}, labels={"every": 2})
    _, steps = played(ready, 3)
    sizes = ready.federation.clients.partition.sizes.sum()
    assert [step.samples.forward - step.samples.backward for step in steps] == [sizes, 0, sizes]


def test_the_rate_is_that_of_the_posterior():
    ready = prepared(method="sift")
    client, model = 2, ready.setting.network.tree()
    view = ClientView.of(ready.setting, 0, client, model, ready.federation.clients.shard(client))
    found = ready.method.labels.estimate(view, {}, {})
    outputs = ready.setting.network.outputs(model, view.shard.x)
    expected = label_posterior(outputs.logits, view.shard.y)
    assert found.rate == pytest.approx(expected.rate, abs=1e-6)
    assert torch.allclose(found.right, expected.right, atol=1e-5)
    # Before the first estimate, or after lost state, nothing is known: T = I.
    assert ready.method.labels.estimate(view, None, {}).transition is None


@pytest.mark.parametrize("pooling", [True, False])
def test_a_client_tells_its_rate_and_size_and_only_where_rates_are_pooled(pooling):
    ready = prepared(
        **{**ROBUST, "labels": {"pooling": pooling, "guard": 0}, "clean": {"hold_out": 0.3}}
    )
    transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    seen = spy(transport)
    loop = ready.rounds(transport)
    state = loop.begin()
    for _ in range(3):
        step = loop.play(state)
        transport.commit(step.accepted)
        state = step.state
    for round, (broadcasts, answers) in enumerate(seen):
        for client, update in answers.items():
            told = {name: one.numel() for name, one in update.payload.get("labels", {}).items()}
            expected = {"round": 1, **({"rate": 1, "size": 1} if pooling else {})}
            assert told == expected
            assert int(update.payload["labels"]["round"]) == round - round % 2
            message = broadcasts[client].payload.get("labels")
            if round % 2:
                assert message is None
                continue
            shapes = {name: tuple(one.shape) for name, one in message.items()}
            calibration = {"temperature": (), "bias": (10,), "prior": (10,)}
            pooled = {"pooled": (2,)} if pooling and round else {}
            averaged = {f"model.{k}": tuple(v.shape) for k, v in state.model.items() if round}
            assert shapes == {**calibration, **pooled, **averaged}
    state = state.parts["labels"]
    assert state["sizes"].tolist() == (
        ready.federation.clients.partition.sizes.tolist() if pooling else [0] * 5
    )


@pytest.mark.parametrize("method", ["robust", "scaffold+robust", "moon+sift", "fedadam+robust"])
def test_many_clients_at_once_equal_the_loop(method):
    ends = []
    for kind in (InProcess, Vectorised):
        ready = prepared(method=method, coreset={"every": 2, "budget": 0.2})
        _, steps = played(ready, 3, kind)
        ends.append(steps)
    for one, other in zip(*ends, strict=True):
        assert {c: seen.rate for c, seen in one.observed.items()} == pytest.approx(
            {c: seen.rate for c, seen in other.observed.items()}, abs=1e-5
        )
    for name, tensor in ends[0][-1].state.model.items():
        assert torch.allclose(tensor, ends[1][-1].state.model[name], atol=1e-4), name


def test_the_preset_gives_way_to_the_user_and_to_other_words():
    from gcfl import experiment as config

    plain = config.build({"method": "robust"})[0]
    assert plain.train.loss == "corrected"
    assert plain.server.momentum == 0.8
    assert plain.clean.takes_part
    said = {"method": "robust", "train": {"loss": "gce"}, "clean": {"warm_start": 3}}
    changed = config.build(said)[0]
    assert changed.train.loss == "gce"
    assert changed.clean.warm_start == 3
    assert parse("fedadam+robust").server is parse("fedadam").server
    assert parse("robust+gcfl").select is parse("gcfl").select
    for word in ("scaffold", "moon", "fedprox"):
        assert config.build({"method": f"{word}+robust"})[0].clean.takes_part
    # Where the clients' models never meet there is nothing to take part in.
    assert not config.build({"method": "local-only+robust"})[0].clean.takes_part


def test_the_record_says_what_was_estimated_and_how_far_off_it_is(tmp_path):
    result = run(tmp_path, **ROBUST, rounds=4)
    truth = prepared(**ROBUST).federation.truth
    rows = prepared(**ROBUST).federation.clients.source_rows
    first, second = result.rounds[0], result.rounds[1]
    assert second.noise_rate is None
    assert 0 < first.noise_rate < 0.9
    shares = [truth.noisy[rows[client]].mean() for client in range(5)]
    ready = prepared(**ROBUST, rounds=4)
    _, steps = played(ready, 1)
    rates = [steps[0].observed[client].rate for client in range(5)]
    assert first.noise_rate == pytest.approx(np.mean(rates))
    assert first.noise_rate_error == pytest.approx(np.abs(np.array(rates) - shares).mean())


def test_labels_are_judged_by_the_average_of_the_models_so_far():
    """Against the average written out: Σ_k d^k θ_{t-k} / Σ_k d^k of the broadcast models."""
    decay = 0.7
    ready = prepared(method="sift", labels={"average": decay}, coreset={"every": 2})
    transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop, seen = ready.rounds(transport), spy(transport)
    state = loop.begin()
    for _ in range(5):
        step = loop.play(state)
        transport.commit(step.accepted)
        state = step.state
    sent = [broadcasts[0] for broadcasts, _ in seen]
    assert not any(name.startswith("model.") for name in sent[0].payload["labels"])
    for now in (2, 4):
        weights = [decay ** (now - past) for past in range(now + 1)]
        for name in state.model:
            models = [one.model[name].double() for one in sent[: now + 1]]
            expected = sum(w * m for w, m in zip(weights, models, strict=True)) / sum(weights)
            found = sent[now].payload["labels"][f"model.{name}"]
            assert torch.allclose(found.double(), expected, atol=1e-6)
    # One pass by that model, and none besides: sifting needs no other.
    sizes = ready.federation.clients.partition.sizes.sum()
    assert step.samples.forward - step.samples.backward == sizes
