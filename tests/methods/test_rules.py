"""Each rule against its definition, written here a second time, on problems small enough to compute
by hand.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gcfl
from gcfl import experiment as config
from gcfl.base.data_types import Broadcast, Update
from gcfl.base.errors import ConfigError
from gcfl.engine import InProcess
from gcfl.engine.client import ClientSide, answer
from gcfl.engine.prepare import Given
from gcfl.methods import CleanOptions, ClientView, Replies, ServerView, TrainOptions
from gcfl.methods.augmentation import augmented, margin
from gcfl.methods.averaging import ServerAdam, ServerMomentum
from gcfl.methods.contrastive import Contrastive, contrast
from gcfl.methods.control_variates import ControlVariates
from gcfl.methods.losses import mean_loss, sample_losses
from gcfl.methods.proximal import Proximal
from gcfl.methods.server_training import MINE, SERVER, server_update
from gcfl.methods.training import clipped, plain_steps
from helpers import equal_trees, prepared, run, same_bits, spy, tiny

PLAIN_SGD = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "lr": 0.1}


def played(rounds: int, **changes):
    """The states after each of so many rounds, and the transport with what clients remember."""
    ready = prepared(**changes)
    transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop = ready.rounds(transport)
    states, records = [loop.begin()], []
    for _ in range(rounds):
        step = loop.play(states[-1])
        transport.commit(step.accepted)
        states.append(step.state)
        records.append(step.record(None))
    return ready, transport, states, records


# ---- FedProx


def test_a_fedprox_step_is_the_proximal_gradient():
    """Several full-batch steps, written out: θ ← θ - η (∇F(θ) + μ (θ - θ_t))."""
    mu, steps = 0.7, 4
    train = {**PLAIN_SGD, "batch": 1000, "steps": steps}
    ready, _, states, _ = played(
        1, method="fedprox", local={"mu": mu}, train=train, model={"name": "logistic"}
    )
    network, moved = ready.setting.network, []
    for client in range(len(ready.federation.clients)):
        shard = ready.federation.clients.shard(client)
        x = network.prepare(shard.x).flatten(1)
        start = {name: tensor.clone() for name, tensor in states[0].model.items()}
        weight, bias = (start[name].clone().requires_grad_() for name in network.trained)
        for _ in range(steps):
            loss = cross_entropy(x @ weight.T + bias, shard.y)
            pull = (
                mu
                / 2
                * sum(
                    ((now - start[name]) ** 2).sum()
                    for name, now in zip(network.trained, (weight, bias), strict=True)
                )
            )
            slopes = torch.autograd.grad(loss + pull, (weight, bias))
            with torch.no_grad():
                weight, bias = (
                    now - 0.1 * slope for now, slope in zip((weight, bias), slopes, strict=True)
                )
            weight.requires_grad_(), bias.requires_grad_()
        moved.append([tensor.detach() for tensor in (weight, bias)])
    for place, name in enumerate(network.trained):
        expected = torch.stack([client[place] for client in moved]).mean(0)
        assert torch.allclose(states[1].model[name], expected, atol=1e-6)


def test_without_their_term_fedprox_and_moon_are_fedavg_bit_for_bit(tmp_path):
    plain = run(tmp_path, method="fedavg")
    for method in ("fedprox", "moon"):
        result = run(tmp_path, method=method, local={"mu": 0.0})
        assert (result.folder / "model.safetensors").read_bytes() == (
            plain.folder / "model.safetensors"
        ).read_bytes()
    pulled = run(tmp_path, method="fedprox", local={"mu": 0.5})
    assert (pulled.folder / "model.safetensors").read_bytes() != (
        plain.folder / "model.safetensors"
    ).read_bytes()


def test_a_stronger_pull_moves_less():
    def distance(mu):
        _, _, states, _ = played(
            1, method="fedprox", local={"mu": mu}, train={**PLAIN_SGD, "epochs": 5}
        )
        return sum(
            float((states[1].model[name] - tensor).norm())
            for name, tensor in states[0].model.items()
        )

    assert distance(0.0) > distance(1.0) > distance(5.0)


# ---- SCAFFOLD


def control_variates(ready, transport, name):
    """Every client's c_i; 0 for those that never took part."""
    zero = torch.zeros_like(ready.setting.network.tree()[name])
    return torch.stack(
        [
            transport.of(client).get("local", {}).get(name, zero)
            for client in range(len(ready.federation.clients))
        ]
    )


@pytest.mark.parametrize("cohort", [1.0, 2])
def test_the_servers_control_variate_stays_the_mean_of_all_clients(cohort):
    ready, transport, states, _ = played(5, method="scaffold", cohort=cohort)
    for name in ready.setting.network.trained:
        own = control_variates(ready, transport, name)
        assert torch.allclose(states[-1].parts["local"][name], own.mean(0), atol=1e-6), name
        assert own.abs().max() > 0


def test_a_clients_control_variate_is_its_mean_gradient():
    """With one step per round and no weight decay, option II gives c_i⁺ = ∇F_i(θ_t), whatever c_i
    and c were.
    """
    train = {**PLAIN_SGD, "batch": 1000, "steps": 1}
    ready, transport, states, _ = played(
        3, method="scaffold", train=train, model={"name": "logistic"}
    )
    network = ready.setting.network
    for client in range(5):
        shard = ready.federation.clients.shard(client)
        params = [states[2].model[name].clone().requires_grad_() for name in network.trained]
        loss = cross_entropy(network.prepare(shard.x).flatten(1) @ params[0].T + params[1], shard.y)
        for name, slope in zip(network.trained, torch.autograd.grad(loss, params), strict=True):
            assert torch.allclose(transport.of(client)["local"][name], slope, atol=1e-4)


def test_an_update_that_is_left_out_commits_nothing(monkeypatch):
    ready, transport, states, _ = played(2, method="scaffold")
    before = {name: tensor.clone() for name, tensor in transport.of(3)["local"].items()}
    exchange = InProcess.exchange

    def spoil(self, broadcasts):
        answers = exchange(self, broadcasts)
        next(iter(answers[3].delta.values()))[0] = float("nan")
        return answers

    monkeypatch.setattr(InProcess, "exchange", spoil)
    loop = ready.rounds(transport)
    step = loop.play(states[-1])
    transport.commit(step.accepted)
    assert list(step.left_out) == [3]
    assert equal_trees(transport.of(3)["local"], before)
    for name in ready.setting.network.trained:
        own = control_variates(ready, transport, name)
        assert torch.allclose(step.state.parts["local"][name], own.mean(0), atol=1e-6)


class Quadratic:
    """Clients with F_i(θ) = ½ Σ_d a_id (θ_d - b_id)²: everything is known in closed form."""

    def __init__(self, clients=4, size=3):
        draw = np.random.default_rng(7)
        self.a = torch.from_numpy(draw.uniform(0.2, 2.0, (clients, size)))
        self.b = torch.from_numpy(draw.normal(0, 3, (clients, size)))

    def optimum(self):
        return (self.a * self.b).sum(0) / self.a.sum(0)

    def fedavg_fixed_point(self, lr, steps):
        """θ = mean_i [b_i + (1 - η a_i)^K (θ - b_i)], solved for θ."""
        shrink = (1 - lr * self.a) ** steps
        return ((1 - shrink) * self.b).mean(0) / (1 - shrink).mean(0)


def test_scaffold_reaches_the_optimum_of_a_heterogeneous_quadratic_where_fedavg_does_not():
    problem, lr, steps = Quadratic(), 0.1, 8
    rule = ControlVariates()

    def rounds(rule, count):
        theta, common = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        memory = [{} for _ in problem.a]
        for _ in range(count):
            locals_, told = [], []
            for client, (a, b) in enumerate(zip(problem.a, problem.b, strict=True)):
                fixed = rule.begin({"w": theta}, {"w": common}, memory[client]) if rule else {}
                y = theta.clone()
                for _ in range(steps):
                    gradient = {"w": a * (y - b)}
                    y = (
                        y
                        - lr * (rule.correct(gradient, {"w": y}, fixed) if rule else gradient)["w"]
                    )
                locals_.append(y)
                if rule:
                    tells, memory[client] = rule.finish({"w": y}, fixed, steps, lr)
                    told.append(tells["w"])
            theta = torch.stack(locals_).mean(0)
            if rule:
                common = common + torch.stack(told).sum(0) / len(problem.a)
        return theta

    fedavg = rounds(None, 400)
    assert torch.allclose(fedavg, problem.fedavg_fixed_point(lr, steps), atol=1e-9)
    assert (fedavg - problem.optimum()).norm() > 0.05
    assert torch.allclose(rounds(rule, 400), problem.optimum(), atol=1e-8)


@pytest.mark.parametrize(("momentum", "steps"), [(0.9, 1), (0.9, 7), (0.5, 40), (0.0, 5)])
def test_momentum_makes_no_control_variate_larger(momentum, steps):
    """Where the gradient is the same at every step, c_i⁺ is that gradient, whatever c_i and c are,
    and however far momentum carries the model.
    """
    draw = np.random.default_rng(3)
    slope, common, mine, start = (torch.from_numpy(draw.normal(size=4)) for _ in range(4))
    rule, lr = ControlVariates(), 0.1
    fixed = rule.begin({"w": start}, {"w": common}, {"w": mine})
    local = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([local], lr, momentum)
    for _ in range(steps):
        local.grad = rule.correct({"w": slope}, {"w": local}, fixed)["w"]
        optimiser.step()
    done = plain_steps(steps, momentum)
    _, memory = rule.finish({"w": local.detach()}, fixed, done, lr)
    assert torch.allclose(memory["w"], slope)


@pytest.mark.parametrize("vectorised", [False, True])
def test_scaffold_with_momentum_from_a_shared_file_learns(tmp_path, vectorised):
    """Divided by steps alone, control variates grow tenfold a round, and so does the loss."""
    found = run(
        tmp_path,
        method="scaffold",
        rounds=12,
        train={"momentum": 0.9, "lr": 0.05, "epochs": 5},
        data={"noise": 0.0},
        engine={"vectorised": vectorised},
    )
    assert found.accuracy > 0.6
    assert found.final.loss < np.log(10)


def test_scaffold_steps_without_momentum_unless_asked():
    assert config.build({"method": "scaffold+gcfl"})[0].train.momentum == 0
    assert config.build({"method": "scaffold", "train": {"momentum": 0.5}})[0].train.momentum == 0.5
    assert config.build({"method": "gcfl"})[0].train.momentum == 0.9


# ---- MOON


def test_moons_loss_is_the_formula():
    draw = torch.Generator().manual_seed(0)
    z, common, previous = (torch.randn(6, 5, generator=draw, dtype=torch.float64) for _ in range(3))

    def cosine(a, b):
        return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))

    near, far = torch.exp(cosine(z, common) / 0.3), torch.exp(cosine(z, previous) / 0.3)
    assert torch.allclose(contrast(z, common, previous, 0.3), -torch.log(near / (near + far)))


def test_moon_compares_with_the_global_and_the_previous_local_model():
    """One full-batch step of round two, with the three models' features computed here."""
    train = {**PLAIN_SGD, "batch": 1000, "steps": 1}
    ready, transport, states, _ = played(
        1, method="moon", local={"mu": 2.0}, train=train, cohort=1.0
    )
    network, rule = ready.setting.network, ready.method.local
    previous = transport.of(0)["local"]
    assert set(previous) == set(states[1].model)
    shard = ready.federation.clients.shard(0)
    x = network.prepare(shard.x)
    module = nn.Sequential(*list(network.module.children()))

    def features(tree):
        return torch.relu(x.flatten(1) @ tree["1.weight"].T + tree["1.bias"])

    local = {name: tensor.clone().requires_grad_() for name, tensor in states[1].model.items()}
    z = features(local)
    loss = cross_entropy(z @ local["3.weight"].T + local["3.bias"], shard.y)
    loss = (
        loss
        + 2.0 * contrast(z, features(states[1].model), features(previous), rule.temperature).mean()
    )
    slopes = torch.autograd.grad(loss, [local[name] for name in network.trained])
    loop = ready.rounds(transport)
    seen = spy(transport)
    loop.play(states[1])
    ((_, answers),) = seen
    for name, slope in zip(network.trained, slopes, strict=True):
        assert torch.allclose(answers[0].delta[name], -0.1 * slope, atol=1e-6)
    assert len(module) == 4


def test_a_client_without_a_previous_model_trains_as_in_fedavg():
    """In its first round the two features are the same, and the term's gradient is zero."""
    _, _, moon, _ = played(1, method="moon", local={"mu": 5.0})
    _, _, plain, _ = played(1, method="fedavg")
    assert equal_trees(moon[1].model, plain[1].model)


def test_the_projection_head_is_what_moon_compares():
    ready = prepared(method="moon", model={"name": "mlp", "hidden": [16], "projection": 7})
    assert ready.setting.network.width == 7
    linears = [
        part for part in ready.setting.network.module.modules() if isinstance(part, nn.Linear)
    ]
    assert [(part.in_features, part.out_features) for part in linears] == [
        (64, 16),
        (16, 16),
        (16, 7),
        (7, 10),
    ]


# ---- cost


def test_what_methods_cost():
    _, _, states, plain = played(3, method="fedavg", cohort=2)
    size = sum(tensor.numel() * 4 for tensor in states[0].model.values())
    for record in plain:
        assert record.bytes.down == {"model": 2 * size}
        assert record.bytes.up["model"] == 2 * size
    _, _, _, scaffold = played(3, method="scaffold", cohort=2)
    for record in scaffold:
        assert record.bytes.down == {"model": 2 * size, "local": 2 * size}
        assert record.bytes.up["local"] == record.bytes.up["model"] == 2 * size
    ready, _, states, gcfl_records = played(
        4, method="gcfl", cohort=1.0, coreset={"every": 3, "budget": 0.2}
    )
    head = (ready.setting.network.width + 1) * 10
    for number, record in enumerate(gcfl_records):
        extra = record.bytes.down.get("select", 0)
        # Exactly the last layer: 10 classes, features and bias.
        assert (extra > 0) == (number % 3 == 0)
        if extra:
            assert extra == 5 * head * 4
    _, _, _, moon = played(2, method="moon")
    assert moon[0].samples.forward == moon[0].samples.backward
    assert moon[1].samples.forward == 3 * moon[1].samples.backward


# ---- server rules


def merge_twice(rule, first, second):
    ready = prepared()
    name = ready.setting.network.trained[0]
    model = {name: torch.tensor([1.0, 2.0])}
    network = type("N", (), {"trained": (name,), "sent": (name,)})()
    setting = type("S", (), {"network": network})()
    state = rule.server_init(model)
    for delta in (first, second):
        view = ServerView(setting, 0, model, None, (0,))
        state, model = rule.merge(
            state, view, Replies({0: Update({name: torch.tensor(delta)}, {}, 1, {})})
        )
    return model[name]


def test_server_momentum_by_hand():
    # v1 = Δ1, θ1 = θ0 + η v1; v2 = β v1 + Δ2, θ2 = θ1 + η v2
    theta = merge_twice(ServerMomentum(momentum=0.5, rate=2.0), [0.1, 0.2], [0.3, -0.1])
    assert torch.allclose(
        theta, torch.tensor([1 + 0.2 + 2 * (0.05 + 0.3), 2 + 0.4 + 2 * (0.1 - 0.1)])
    )


def test_server_adam_by_hand():
    rule = ServerAdam(rate=0.1, beta1=0.5, beta2=0.75, tau=0.01)
    theta, m, v = np.array([1.0, 2.0]), np.zeros(2), np.full(2, 0.01**2)
    for delta in (np.array([0.1, 0.2]), np.array([0.3, -0.1])):
        m, v = 0.5 * m + 0.5 * delta, 0.75 * v + 0.25 * delta**2
        theta = theta + 0.1 * m / (np.sqrt(v) + 0.01)
    assert np.allclose(merge_twice(rule, [0.1, 0.2], [0.3, -0.1]), theta)


def test_momentum_zero_is_fedavg_bit_for_bit(tmp_path):
    plain = run(tmp_path, method="fedavg")
    still = run(tmp_path, method="fedavgm", server={"momentum": 0.0})
    assert (still.folder / "model.safetensors").read_bytes() == (
        plain.folder / "model.safetensors"
    ).read_bytes()


def test_the_server_as_one_more_client():
    ready, transport, states, _ = played(1, method="fedavg", clean={"takes_part": True})
    loop = ready.rounds(transport)
    answers = transport.exchange({client: broadcast(states[0]) for client in range(5)})
    view = ServerView(ready.setting, 0, states[0].model, ready.federation.validation, (0, 1))
    own, memory = server_update(view, ready.method.local, {}, {}, CleanOptions())
    assert not memory
    assert own.examples == len(ready.federation.validation)
    for name in ready.setting.network.trained:
        mean = torch.stack(
            [*(answers[client].delta[name] for client in range(5)), own.delta[name]]
        ).mean(0)
        assert torch.allclose(states[1].model[name], states[0].model[name] + mean, atol=1e-6)
    assert loop.clean.takes_part


def broadcast(state):
    return Broadcast(state.round, state.model, {})


@pytest.mark.parametrize("method", ["fedprox", "scaffold", "moon"])
def test_the_server_is_a_client_like_any_other(method):
    """In every round: what a client does who holds the clean set, remembers what the server does
    and is told what all are told.
    """
    ready, _, states, _ = played(
        3, method=method, cohort=2, local={"mu": 0.5}, clean={"takes_part": True}
    )
    validation = ready.federation.validation
    for before, after in pairwise(states):
        told = {"local": before.parts["local"]} if method == "scaffold" else {}
        message = Broadcast(before.round, before.model, told)
        memory = {"local": before.parts.get(MINE, {})}
        expected = answer(ready.setting, ready.method, SERVER, validation, message, memory)
        view = ServerView(ready.setting, before.round, before.model, validation, (0, 3))
        rule = ready.method.local
        own, remembered = server_update(
            view, rule, before.parts["local"], memory["local"], CleanOptions()
        )
        assert equal_trees(own.delta, expected.update.delta)
        assert own.payload.keys() == expected.update.payload.keys()
        for part, tree in own.payload.items():
            assert equal_trees(tree, expected.update.payload[part])
        assert equal_trees(remembered, expected.memory["local"])
        assert equal_trees(remembered, after.parts.get(MINE, {}))
    assert bool(states[-1].parts.get(MINE)) == (method != "fedprox")


@pytest.mark.parametrize("cohort", [1.0, 2])
def test_with_the_server_scaffolds_c_is_the_mean_of_one_more(cohort):
    """And the server's c_i, after a single step per round, is the gradient of the clean set."""
    train = {**PLAIN_SGD, "batch": 1000, "steps": 1}
    scene = {"train": train, "model": {"name": "logistic"}, "clean": {"takes_part": True}}
    ready, transport, states, _ = played(4, method="scaffold", cohort=cohort, **scene)
    network, clean = ready.setting.network, ready.federation.validation
    params = [states[3].model[name].clone().requires_grad_() for name in network.trained]
    loss = cross_entropy(network.prepare(clean.x).flatten(1) @ params[0].T + params[1], clean.y)
    slopes = torch.autograd.grad(loss, params)
    for name, slope in zip(network.trained, slopes, strict=True):
        own = states[-1].parts[MINE][name]
        assert torch.allclose(own, slope, atol=1e-4)
        everybody = torch.cat([control_variates(ready, transport, name), own[None]])
        assert torch.allclose(states[-1].parts["local"][name], everybody.mean(0), atol=1e-6), name


def test_warm_start_trains_before_the_first_round_and_fine_tuning_after_the_last():
    cold, warm = (played(1, method="fedavg", clean={"warm_start": epochs}) for epochs in (0, 3))
    server = len(cold[0].federation.validation)
    assert warm[3][0].samples.backward - cold[3][0].samples.backward == 3 * server
    assert not equal_trees(cold[2][1].model, warm[2][1].model)
    _, _, _, tuned = played(6, method="fedavg", clean={"fine_tune": "end", "fine_tune_epochs": 2})
    plain = played(6, method="fedavg")[3]
    extra = [
        after.samples.backward - before.samples.backward
        for after, before in zip(tuned, plain, strict=True)
    ]
    assert extra == [0, 0, 0, 0, 0, 2 * server]
    _, _, _, each = played(6, method="fedavg", clean={"fine_tune": "each"})
    extra = [
        after.samples.backward - before.samples.backward
        for after, before in zip(each, plain, strict=True)
    ]
    assert extra == [server] * 6


def test_names_say_what_a_method_is():
    for name, expected in {
        "fedavg": "fedavg",
        "finetune": "fedavg+finetune",
        "finetune+fedavg": "fedavg+finetune",
        "fedavg+gcfl": "gcfl",
        "gcfl+scaffold": "gcfl+scaffold",
        "scaffold+gcfl": "gcfl+scaffold",
        "gcfl+finetune": "gcfl+finetune",
    }.items():
        assert config.build({"method": name})[0].method == expected


def test_words_that_preset_options():
    assert config.build({"method": "gcfl+finetune"})[0].clean.fine_tune == "end"
    assert config.build({"method": "fedavgm+warmstart"})[0].clean.warm_start == 10
    assert (
        config.build({"method": "fedavg+warmstart", "clean": {"warm_start": 2}})[0].clean.warm_start
        == 2
    )


# ---- keeping and stopping by what is held out


def test_held_out_samples_are_nobodys(tmp_path):
    ready = prepared(method="fedavg", clean={"hold_out": 0.25, "keep": "best"})
    whole = prepared(method="fedavg").federation.validation
    rest, held = ready.federation.validation, ready.held_out
    assert len(held) == 15
    assert set(rest.ids) | set(held.ids) == set(whole.ids)
    assert not set(rest.ids) & set(held.ids)
    mean = rest.x.double().mean(dim=(0, 2, 3))
    assert torch.allclose(ready.setting.network.normaliser[0].flatten().double(), mean)


def test_the_best_model_is_kept_and_patience_stops(tmp_path):
    settings = {"method": "fedavg", "train": {"lr": 0.3, "epochs": 5}, "rounds": 12}
    best = run(tmp_path, **settings, clean={"hold_out": 0.5, "keep": "best"})
    losses = [record.validation_loss for record in best.rounds]
    assert len(losses) == 12
    place = int(np.argmin(losses))
    assert best.accuracy == best.rounds[place].accuracy
    x = prepared(**settings).federation.test
    right = (best.predict(x.x.numpy()) == x.y.numpy()).mean()
    assert right == pytest.approx(best.accuracy)
    stopped = run(tmp_path, **settings, clean={"hold_out": 0.5, "patience": 1})
    waited = next(r for r in range(1, 12) if losses[r] >= min(losses[:r]))
    assert len(stopped.rounds) == waited + 1
    assert stopped.finished
    assert gcfl.load(stopped.folder).rounds[-1].accuracy is not None


@pytest.mark.parametrize("options", [{"keep": "best"}, {"patience": 3}])
def test_judging_needs_something_to_judge_by(tmp_path, options):
    with pytest.raises(ConfigError, match="needs clean"):
        run(tmp_path, server=options)


@pytest.mark.parametrize("server", [{"patience": 1}, {"keep": "best"}])
def test_fine_tuning_at_the_end_is_of_the_model_that_is_kept(tmp_path, server):
    settings = {"method": "fedavg", "train": {"lr": 0.3, "epochs": 5}, "rounds": 12}
    judged = {"hold_out": 0.5, **server}
    plain = run(tmp_path, **settings, server=judged)
    tuned = run(
        tmp_path,
        **settings,
        clean={**judged, "fine_tune": "end", "fine_tune_epochs": 20, "fine_tune_lr": 0.01},
    )
    assert len(tuned.rounds) == len(plain.rounds)
    assert (plain.folder / "model.safetensors").read_bytes() != (
        tuned.folder / "model.safetensors"
    ).read_bytes()
    test = prepared(**settings).federation.test
    for result in (plain, tuned):
        assert (result.predict(test.x.numpy()) == test.y.numpy()).mean() == pytest.approx(
            result.accuracy
        )


def test_the_server_trains_as_long_as_it_is_told(tmp_path):
    short, long = (
        played(1, method="server-only", train={"batch": 10, "steps": steps})[3] for steps in (5, 50)
    )
    assert (short[0].steps, long[0].steps) == (5, 50)
    records = played(
        1, method="fedavg", train={"batch": 10, "steps": 50}, clean={"takes_part": True}
    )[3]
    assert records[0].steps == 6 * 50


def test_kept_statistics_stay_whatever_trains():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU())
            self.out = nn.Linear(8, 10)

        def forward(self, x):
            return self.out(self.body(x))

    for changes in (
        {"clean": {"warm_start": 1}},
        {"clean": {"fine_tune": "each"}},
        {"method": "moon"},
        {"method": "local-only"},
    ):
        model = {"name": "given", "buffers": "keep"}
        ready = prepared(Given(model=Normed), **{"method": "fedavg", "model": model, **changes})
        transport = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
        loop = ready.rounds(transport)
        step = loop.play(loop.begin())
        transport.commit(step.accepted)
        assert step.state.model["body.2.running_mean"].abs().max() == 0
        for client in range(5):
            assert all(
                t.abs().max() == 0
                for n, t in transport.of(client).get("local", {}).items()
                if n.endswith("running_mean")
            )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "local-only", "clean": {"takes_part": True}}, "no effect with local-only"),
        ({"method": "local-only", "server": {"rate": 0.5}}, "no effect with local-only"),
        ({"method": "server-only", "clean": {"takes_part": True}}, "no effect with server-only"),
        ({"train": {"loss": "gce", "smoothing": 0.1}}, "no effect with the loss 'gce'"),
        ({"model": {"name": "logistic", "projection": 4}}, "no effect with logistic"),
        ({"train": {"momentum": 1.5}}, r"momentum must be in \[0, 1\)"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, **changes)


# ---- reference points


def test_centralised_is_sgd_on_all_samples(tmp_path):
    ready = prepared(method="centralised", train={"epochs": 2})
    assert len(ready.federation.clients) == 1
    assert len(ready.federation.clients.shard(0)) == 180
    noisy, clean = (
        run(tmp_path, method=name, train={"epochs": 4})
        for name in ("centralised", "centralised+skyline")
    )
    assert noisy.rounds[0].coreset.clean_share == pytest.approx(0.6, abs=0.02)
    assert clean.rounds[0].coreset.clean_share == 1.0


def test_local_only_never_mixes():
    ready, transport, _, records = played(4, method="local-only")
    network = ready.setting.network
    test = ready.federation.test
    scores = []
    for client in range(5):
        local = transport.of(client)["local"]
        logits = network.outputs(local, test.x).logits
        scores.append(float((logits.argmax(1) == test.y).double().mean()))
    assert records[-1].accuracy == pytest.approx(np.mean(scores))
    assert records[-1].bytes.total == 0
    # Whoever comes late starts where everybody started, not at what others have learnt.
    ready, some, states, _ = played(4, method="local-only", cohort=2)
    assert equal_trees(states[0].model, states[3].model)
    first = next(
        t for t in range(1, 4) if set(ready.rounds(some).draw(t)) - set(ready.rounds(some).draw(0))
    )
    client = (set(ready.rounds(some).draw(first)) - set(ready.rounds(some).draw(0))).pop()
    fresh = InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    expected = fresh.exchange({client: Broadcast(first, states[0].model, {})})[client].delta
    again = played(first + 1, method="local-only", cohort=2)[1].of(client)["local"]
    for name, delta in expected.items():
        assert torch.allclose(again[name], states[0].model[name] + delta, atol=1e-6)


def test_skyline_at_the_same_budget():
    full = prepared(method="random", coreset={"budget": 0.1})
    sky = prepared(method="skyline+random", coreset={"budget": 0.1})
    pooled = prepared(
        method="centralised+skyline+random", coreset={"budget": 0.1}
    ).federation.clients.shard(0)
    assert pooled.whole == 180
    for client in range(5):
        sizes = []
        for ready in (full, sky):
            shard = ready.federation.clients.shard(client)
            view = ClientView.of(ready.setting, 0, client, ready.setting.network.tree(), shard)
            sizes.append(len(ready.method.select.select(view, {}, {}).coreset))
        assert sizes[0] == sizes[1]
    assert len(sky.federation.clients.shard(0)) < len(full.federation.clients.shard(0))


# ---- local training options


@pytest.mark.parametrize("seed", range(3))
def test_losses_by_definition(seed):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(9, 4, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, 4, (9,), generator=draw)
    p = torch.softmax(logits, 1)
    own = p[torch.arange(9), labels]
    smooth = TrainOptions(smoothing=0.3)
    expected = 0.7 * -own.log() + 0.3 * -p.log().mean(1)
    assert torch.allclose(sample_losses(logits, labels, smooth), expected)
    assert torch.allclose(mean_loss(logits, labels, smooth, None), expected.mean())
    assert torch.allclose(
        sample_losses(logits, labels, TrainOptions(loss="gce", gce_q=0.4)), (1 - own**0.4) / 0.4
    )
    # Symmetric: cross-entropy both ways round, with log 0 = A in the labels, -4 unless said.
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    sce = TrainOptions(loss="sce", sce_alpha=0.2, sce_beta=0.7)
    for options, log_zero in ((sce, -4.0), (sce.model_copy(update={"sce_log_zero": -6.5}), -6.5)):
        reverse = -(p * torch.where(one_hot > 0, 0.0, log_zero)).sum(1)
        expected = 0.2 * -own.log() + 0.7 * reverse
        assert torch.allclose(sample_losses(logits, labels, options), expected)
    weights = torch.rand(9, generator=draw, dtype=torch.float64)
    gce = TrainOptions(loss="gce", gce_q=0.4)
    assert torch.allclose(
        mean_loss(logits, labels, gce, weights), ((1 - own**0.4) / 0.4 * weights).mean()
    )


def test_clipping_shortens_and_never_lengthens():
    gradients = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    assert torch.allclose(
        torch.cat([part.flatten() for part in clipped(gradients, 1.0)]), torch.tensor([0.6, 0.8])
    )
    assert all(torch.equal(a, b) for a, b in zip(clipped(gradients, 6.0), gradients, strict=True))


def test_augmentation_is_a_shift_and_a_mirror():
    """Every augmented image is found among all shifted and mirrored versions of its original; draws
    depend on step alone.
    """
    assert [margin(side) for side in (5, 8, 16, 28, 32, 64)] == [1, 1, 2, 4, 4, 4]
    most = 3
    x = torch.arange(2 * 3 * 26 * 25, dtype=torch.float32).reshape(2, 3, 26, 25) + 1
    padded = torch.nn.functional.pad(x, (most,) * 4)
    seen = set()
    for step in range(60):
        result = augmented(x, 99, step, mirror=True)
        assert torch.equal(result, augmented(x, 99, step, mirror=True))
        for sample in range(2):
            matches = [
                (down, across, mirror)
                for down in range(2 * most + 1)
                for across in range(2 * most + 1)
                for mirror in (False, True)
                for window in [padded[sample, :, down : down + 26, across : across + 25]]
                if torch.equal(result[sample], window.flip(-1) if mirror else window)
            ]
            assert matches
            seen.update(matches[:1])
    assert len({down for down, _, _ in seen}) == 7
    assert len({across for _, across, _ in seen}) == 7
    assert {mirror for _, _, mirror in seen} == {False, True}
    assert not any(
        torch.equal(augmented(x, 99, step, False), augmented(x, 98, step, False))
        for step in range(5)
    )


@pytest.mark.parametrize(
    "train",
    [
        {"loss": "gce"},
        {"loss": "sce"},
        {"smoothing": 0.2},
        {"clip": 0.5},
        {"augment": "flip+crop"},
        {"augment": "crop"},
    ],
)
def test_options_repeat_and_matter(tmp_path, train):
    first, second = (
        run(tmp_path / str(workers), engine={"workers": workers}, train=train) for workers in (1, 2)
    )
    same_bits(first.folder, second.folder)
    assert (
        first.curve != run(tmp_path / "plain").curve
        or first.rounds[0].train_loss != run(tmp_path / "plain").rounds[0].train_loss
    )


def test_augmentation_is_for_images(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.augment is for images"):
        gcfl.run(
            out=tmp_path,
            **tiny(data={"source": "blobs"}, train={"augment": "crop"}, model={"name": "logistic"}),
        )


def test_parts_have_their_names():
    assert {Proximal.name, ControlVariates.name, Contrastive.name} == {
        "proximal",
        "control-variates",
        "contrastive",
    }
