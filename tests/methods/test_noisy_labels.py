"""mixup, ELR and FedLSR against loops written from the papers' and authors' definitions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn
from torch.nn.functional import one_hot

from gcfl.base import rng
from gcfl.base.data_types import Broadcast, Coreset
from gcfl.base.errors import ConfigError
from gcfl.engine import ClientSide, InProcess, Vectorised
from gcfl.labels import log_columns
from gcfl.methods import CleanOptions, ClientView, Replies, ServerView, TrainOptions
from gcfl.methods.augmentation import (
    JITTER,
    Inputs,
    StackInputs,
    augmented,
    jitter,
    mixes,
    view_shares,
)
from gcfl.methods.base import Plain
from gcfl.methods.early_learning import EarlyLearning
from gcfl.methods.self_regularisation import SelfRegularisation
from gcfl.methods.server_training import SERVER, joined
from gcfl.methods.training import train
from gcfl.models.network import Output
from helpers import equal_trees, prepared, run

SMALL = {"batch": 8, "epochs": 2, "lr": 0.1, "schedule": "constant"}


def trained(ready, rule, loss_of, coreset=None, fixed=None, weighted=False, columns=None):
    """A client's training by `train`, and by a plain loop with torch's optimiser over a logistic
    model, whose loss of a batch is loss_of(logits of inputs, x, rows, step).
    """
    client, setting = 2, ready.setting
    shard = ready.federation.clients.shard(client)
    view = ClientView.of(setting, 3, client, setting.network.tree(), shard)
    coreset = coreset or Coreset(np.arange(len(shard)), np.ones(len(shard)))
    got = train(view, coreset, rule, fixed or {}, weighted, 0.1, columns)
    rows = torch.from_numpy(coreset.indices)
    x = setting.network.prepare(shard.x).flatten(1)
    weight, bias = (view.model[name].clone().requires_grad_() for name in setting.network.trained)
    optimiser = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9, weight_decay=5e-4)
    step, losses = 0, []
    for epoch in range(2):
        base = rng.key(setting.seed, "order", 3, client)
        for batch in torch.from_numpy(rng.order(base, epoch, len(rows))).split(8):
            optimiser.zero_grad()
            loss = loss_of(lambda inputs: inputs @ weight.T + bias, x[rows[batch]], batch, step)
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
            step += 1
    for name, expected in zip(setting.network.trained, (weight, bias), strict=True):
        assert torch.allclose(got.model[name], expected.detach(), atol=2e-6), name
    return got, np.mean(losses)


# ---- mixup


@pytest.mark.parametrize("kind", ["cross-entropy", "smoothed", "gce", "corrected", "weighted"])
def test_mixup_is_the_plain_loop(kind):
    """Each label counts by its share of the mixture, for every loss, and by its own weight."""
    options = {"smoothed": {"smoothing": 0.2}, "gce": {"loss": "gce"}}
    options["corrected"] = {"loss": "corrected"}
    ready = prepared(
        train={**SMALL, "mixup": 0.7, **options.get(kind, {})}, model={"name": "logistic"}
    )
    y, key = ready.federation.clients.shard(2).y, rng.key(0, "mixup", 3, 2)
    draw = np.random.default_rng(0)
    transition = torch.from_numpy(draw.dirichlet(np.ones(10), 10)).float()
    chosen = np.sort(draw.permutation(len(y))[:20])
    weights = draw.random(20) + 0.1 if kind == "weighted" else np.ones(20)
    counts = torch.from_numpy(weights / weights.mean()).float()

    def of_labels(logits, labels):
        p = torch.softmax(logits, 1)
        if kind == "smoothed":
            return -((0.8 * one_hot(labels, 10) + 0.02) * p.log()).sum(1)
        if kind == "gce":
            return (1 - (p * one_hot(labels, 10)).sum(1) ** 0.7) / 0.7
        if kind == "corrected":
            return -(p @ transition)[torch.arange(len(labels)), labels].log()
        return -(one_hot(labels, 10) * p.log()).sum(1)

    def loss_of(model, x, batch, step):
        (share,), (order,) = mixes([key], step, np.array([len(batch)]), 0.7)
        logits = model(share * x + (1 - share) * x[order])
        labels, weight = y[chosen][batch], counts[batch]
        own = (weight * of_labels(logits, labels)).mean()
        other = (weight[order] * of_labels(logits, labels[order])).mean()
        return share * own + (1 - share) * other

    columns = log_columns(transition) if kind == "corrected" else None
    coreset = Coreset(chosen, weights)
    result, mean = trained(ready, Plain(), loss_of, coreset, None, kind == "weighted", columns)
    assert result.loss == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_are_drawn_from_beta(alpha):
    bases = rng.keys(list(range(40)), 0, "test")
    shares = np.concatenate([mixes(bases, t, np.full(40, 3), alpha)[0] for t in range(50)])
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert len(np.unique(shares)) > 1900


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.integers(1, 2),
)
def test_many_clients_draw_what_each_draws_alone(sizes, step, alpha, views):
    options, longest = TrainOptions(mixup=alpha), max(sizes)
    x = torch.arange(len(sizes) * longest * 6.0).reshape(len(sizes), longest, 2, 3).sin()
    clients = [3 * place + 1 for place in range(len(sizes))]
    many = StackInputs(options, 5, 2, clients, views)
    real = torch.arange(longest) < torch.tensor(sizes)[:, None]
    first, extra, mix = many.of(x, real, step)
    for place, (client, size) in enumerate(zip(clients, sizes, strict=True)):
        one = Inputs(options, 5, 2, client, views).of(x[place, :size], step)
        assert torch.allclose(one[0], first[place, :size], atol=1e-6)
        assert one[1].keys() == extra.keys()
        if views == 2:
            assert torch.allclose(one[1]["second"], extra["second"][place, :size], atol=1e-6)
            assert one[1]["share"] == extra["share"][place]
        if mix is not None and one[2] is not None:
            assert sorted(one[2].partners.tolist()) == list(range(size))
            assert torch.equal(one[2].partners, mix.partners[place, :size])
            assert 0 <= one[2].share <= 1
    assert (mix is not None) == (alpha > 0)


def test_mixup_repeats_and_matters(tmp_path):
    first, second = (
        run(tmp_path / str(n), engine={"workers": n}, train={"mixup": 1.0}) for n in (1, 2)
    )
    assert first.rounds[-1].train_loss == second.rounds[-1].train_loss
    plain = run(tmp_path / "off", train={"mixup": 0.0})
    assert plain.rounds[-1].train_loss != first.rounds[-1].train_loss
    assert plain.folder.name == run(tmp_path / "default").folder.name


def test_the_server_mixes_too():
    losses = []
    for alpha in (0.0, 1.0):
        ready = prepared(method="server-only", train={"mixup": alpha})
        loop = ready.rounds(ready.transport())
        losses.append(loop.play(loop.begin()).state.model)
    assert any(not torch.equal(losses[0][name], losses[1][name]) for name in losses[0])


# ---- ELR


def plain_elr(ready, cohorts, strength, decay):
    """FedAvg with ELR's loss, each sample's target in a table by client."""
    setting, clients = ready.setting, ready.federation.clients
    names = setting.network.trained
    model = [setting.network.tree()[name] for name in names]
    targets = [torch.zeros(len(clients.shard(c)), 10) for c in range(len(clients))]
    for t, cohort in enumerate(cohorts):
        moved = []
        for client in cohort:
            shard, target = clients.shard(client), targets[client]
            x = setting.network.prepare(shard.x).flatten(1)
            weight, bias = (tensor.clone().requires_grad_() for tensor in model)
            optimiser = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9, weight_decay=5e-4)
            for epoch in range(2):
                base = rng.key(setting.seed, "order", t, client)
                for batch in torch.from_numpy(rng.order(base, epoch, len(shard))).split(8):
                    p = torch.softmax(x[batch] @ weight.T + bias, 1)
                    inside = p.clamp(1e-4, 1 - 1e-4)
                    for place, sample in enumerate(batch.tolist()):
                        now = inside[place].detach() / inside[place].detach().sum()
                        target[sample] = decay * target[sample] + (1 - decay) * now
                    cross = -p.log()[torch.arange(len(batch)), shard.y[batch]]
                    agree = torch.stack(
                        [inside[i] @ target[j] for i, j in enumerate(batch.tolist())]
                    )
                    optimiser.zero_grad()
                    (cross + strength * torch.log(1 - agree)).mean().backward()
                    optimiser.step()
            moved.append((weight.detach(), bias.detach()))
        model = [torch.stack(parts).mean(0) for parts in zip(*moved, strict=True)]
    return dict(zip(names, model, strict=True)), targets


@pytest.mark.parametrize("kind", [InProcess, Vectorised])
def test_elr_is_the_plain_loop_over_several_rounds(kind):
    local = {"strength": 2.0, "decay": 0.6}
    ready = prepared(
        method="elr", cohort=3, local=local, train=SMALL, model={"name": "logistic"}, rounds=4
    )
    transport = kind(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop = ready.rounds(transport)
    state = loop.begin()
    for _ in range(4):
        played = loop.play(state)
        transport.commit(played.accepted)
        state = played.state
        assert "kept" not in played.traffic.up
    model, targets = plain_elr(ready, [loop.draw(t) for t in range(4)], 2.0, 0.6)
    for name, tensor in model.items():
        assert torch.allclose(state.model[name], tensor, atol=1e-5), name
    for client, target in enumerate(targets):
        known = transport.of(client).get("kept", {}).get("rows", torch.zeros_like(target))
        assert torch.allclose(known, target, atol=1e-5)
    assert sum(bool(target.any()) for target in targets) > 3


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 3.0, 40.0, 1e4]))
def test_elr_stays_finite_and_pulls_towards_the_target(seed, scale):
    """However sure the model is; and where a class has all of the target, its logit rises."""
    draw = torch.Generator().manual_seed(seed)
    rule, logits = EarlyLearning(), scale * torch.randn(6, 5, generator=draw)
    kept = torch.zeros(6, 5)
    for _ in range(30):
        kept = rule.note(Output(logits, logits), kept)
    assert (kept.sum(1) <= 1 + 1e-5).all()
    free = logits.clone().requires_grad_()
    loss = rule.loss(None, Output(free, free), None, {"kept": kept})
    (slope,) = torch.autograd.grad(loss.sum(), free)
    assert torch.isfinite(loss).all()
    assert (loss <= 0).all()
    assert torch.isfinite(slope).all()
    certain = one_hot(torch.full((6,), 2), 5).float()
    even = torch.zeros(6, 5, requires_grad=True)
    loss = rule.loss(None, Output(even, even), None, {"kept": certain})
    (slope,) = torch.autograd.grad(loss.sum(), even)
    # λ log(1 - p_2) at p = 1/5: its gradient is λ p_2 / (1 - p_2) (p - e_2)
    expected = 3.0 * 0.2 / 0.8 * (torch.full((6, 5), 0.2) - certain)
    assert torch.allclose(slope, expected, atol=1e-6)


def test_elr_forgets_what_is_of_other_samples_and_keeps_rows_it_did_not_train_on():
    ready = prepared(method="elr+random", coreset={"budget": 0.2})
    side = ClientSide(ready.setting, ready.method, ready.federation.clients)
    model = ready.setting.network.tree()
    fresh = side.work(1, Broadcast(0, model, {"select": {}}), {})
    rows, chosen = fresh.memory["kept"]["rows"], fresh.memory["select"]["indices"]
    assert rows.shape == (len(ready.federation.clients.shard(1)), 10)
    assert torch.equal(rows.any(1).nonzero().flatten(), chosen.sort().values)
    assert set(fresh.update.payload) <= {"select"}
    for lost in (rows[:-1], rows[:, :-1], torch.ones(3)):
        again = side.work(1, Broadcast(0, model, {"select": {}}), {"kept": {"rows": lost}})
        assert torch.equal(again.memory["kept"]["rows"], rows)
    before = torch.rand(rows.shape)
    later = side.work(1, Broadcast(0, model, {"select": {}}), {"kept": {"rows": before}})
    others = ~rows.any(1)
    assert torch.equal(later.memory["kept"]["rows"][others], before[others])
    assert not torch.equal(later.memory["kept"]["rows"][~others], rows[~others])


def test_elr_without_strength_is_fedavg_bit_for_bit(tmp_path):
    plain = run(tmp_path, method="fedavg")
    for strength, same in ((0.0, True), (1.0, False)):
        result = run(tmp_path, method="elr", local={"strength": strength})
        models = ((one.folder / "model.safetensors").read_bytes() for one in (plain, result))
        assert (next(models) == next(models)) is same


def test_what_elr_cannot_have(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.mixup cannot be had with gcfl\+elr"):
        run(tmp_path, method="elr+gcfl", train={"mixup": 1.0})


@pytest.mark.parametrize("method", ["elr", "fedlsr", "fedcorr"])
def test_a_server_that_takes_part_trains_plainly(method):
    """Its labels are in no doubt: its update is that of FedAvg's server."""
    updates = []
    for name in ("fedavg", method):
        ready = prepared(method=name, clean={"takes_part": True})
        loop = ready.rounds(ready.transport())
        state = loop.begin()
        view = ServerView(ready.setting, 0, state.model, ready.federation.validation, (0,))
        heard, _ = joined(view, ready.method.local, Replies({}), state.parts, CleanOptions())
        updates.append(heard[SERVER].delta)
        loop.play(state)  # and the round goes through
    equal_trees(*updates)


# ---- FedLSR


def authors_loss(first, second, labels, share, gamma, entropy):
    """The loss of a batch as the authors' notebook has it."""
    sharp, other = (torch.softmax(3 * z, 1).clamp(1e-6, 1.0) for z in (first, second))
    mixed = share * torch.softmax(first, 1) + (1 - share) * torch.softmax(second, 1)
    sharpened = mixed**2 / (mixed**2).sum(1, keepdim=True)
    between = ((sharp + other) / 2).log()
    kl = partial(nn.functional.kl_div, reduction="sum")
    divergence = (kl(between, sharp) + kl(between, other)) / 2 / first.numel()  # their "mean"
    unsure = -(torch.softmax(sharp, 1) * torch.log_softmax(sharp, 1)).sum(1).mean()
    return nn.CrossEntropyLoss()(sharpened, labels) + gamma * divergence + entropy * unsure


def test_fedlsr_is_the_plain_loop_with_the_authors_loss():
    ready = prepared(method="fedlsr", train=SMALL, model={"name": "logistic"})
    y, key = ready.federation.clients.shard(2).y, rng.key(0, "view", 3, 2)

    def loss_of(model, x, batch, step):
        second = x + jitter([key], step, (len(batch), 64))[0]
        share = float(view_shares([key], step)[0])
        return authors_loss(model(x), model(second), y[batch], share, 0.25, 0.5)

    rule = SelfRegularisation(entropy=0.5)
    trained(ready, rule, loss_of, fixed={"distill": torch.tensor(0.25)})


def test_fedlsrs_divergence_grows_in_and_is_told_by_the_server():
    ready = prepared(method="fedlsr", rounds=10, local={"distill": 0.5, "warm_up": 0.4}, cohort=2)
    transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop, told = ready.rounds(transport), []
    exchange = transport.exchange

    def listen(broadcasts):
        told.extend({float(one.payload["local"]["distill"]) for one in broadcasts.values()})
        return exchange(broadcasts)

    transport.exchange = listen
    state = loop.begin()
    for _ in range(6):
        played = loop.play(state)
        transport.commit(played.accepted)
        state = played.state
        assert played.samples.forward == played.samples.backward
        assert played.samples.forward == 2 * played.examples
        assert "local" not in played.traffic.up
    assert told == pytest.approx([0.5 * min(1, t / 4) for t in range(6)])
    assert not any(transport.of(client) for client in range(5))
    without = SelfRegularisation(warm_up=0.0).begin({}, {}, {})
    assert math.isclose(float(without["distill"]), 0.4, rel_tol=1e-6)


def test_a_second_view_is_drawn_as_the_first_or_has_noise():
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for augment in ("crop", "flip+crop"):
        inputs = Inputs(TrainOptions(augment=augment), 0, 1, 2, views=2)
        first, extra, _ = inputs.of(x, 7)
        mirror = augment == "flip+crop"
        assert torch.equal(first, augmented(x, rng.key(0, "augment", 1, 2), 7, mirror))
        assert torch.equal(extra["second"], augmented(x, rng.key(0, "view", 1, 2), 14, mirror))
        assert not torch.equal(first, extra["second"])
    bases = rng.keys(list(range(10)), 0, "noise")
    drawn = torch.cat([jitter(bases, step, (4, 30)) for step in range(5)]).flatten() / JITTER
    assert stats.kstest(drawn.numpy(), stats.norm.cdf).pvalue > 0.01
    shares = np.concatenate([view_shares(bases, step).numpy() for step in range(50)])
    assert stats.kstest(shares, stats.uniform.cdf).pvalue > 0.01
    assert len(np.unique(shares)) == 500
