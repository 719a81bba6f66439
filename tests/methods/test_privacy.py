"""Differential privacy against dp-accounting itself: what is spent, and that the noise is there."""

from __future__ import annotations

import math

import dp_accounting as dp
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gcfl import experiment as config
from gcfl.base.data_types import Update
from gcfl.base.errors import ConfigError
from gcfl.coreset import Pool
from gcfl.engine.audit import check_audit
from gcfl.methods import PrivacyOptions, Replies, ServerView
from gcfl.methods.accounting import ORDERS, cohort_epsilon, cohort_noise
from gcfl.methods.ledger import CleanPlan, Ledger, clipped_sums
from gcfl.methods.noise import LocalNoise, flat, shortened
from gcfl.methods.noisy_descent import gradient_sum
from gcfl.methods.privacy import ClientPlan, Privacy
from helpers import prepared, run, tiny

CLEAN = {"clean_epsilon": 8.0, "input_range": [0.0, 16.0]}
SETTINGS = [
    (0.5, 1e-5, 1, 0),
    (1.0, 1e-5, 10, 0),
    (1.0, 1e-6, 100, 0),
    (3.0, 1e-5, 10, 30),
    (3.0, 1e-4, 1, 1),
    (8.0, 1e-5, 10, 0),
    (8.0, 1e-5, 0, 30),
    (8.0, 1e-7, 50, 10),
    (2.0, 1e-5, 7, 3),
    (0.1, 1e-5, 20, 0),
]


@pytest.mark.parametrize(("epsilon", "delta", "targets", "steps"), SETTINGS)
def test_the_clean_budget_is_what_the_library_says(epsilon, delta, targets, steps):
    options = PrivacyOptions(clean_epsilon=epsilon, delta=delta)
    plan = CleanPlan.of(options, {"target": targets, "steps": steps})
    accountant = dp.pld.PLDAccountant()
    for kind, count in plan.most.items():
        once = dp.GaussianDpEvent(plan.noise[kind])
        accountant.compose(dp.SelfComposedDpEvent(once, count))
    spent = plan.spent(plan.most)
    assert spent == pytest.approx(accountant.get_epsilon(delta), rel=2e-3, abs=1e-3)
    assert spent == pytest.approx(epsilon, rel=1e-9)


COHORTS = [
    (1.0, 10, 10, 10),
    (8.0, 50, 5, 5),
    (3.0, 20, 20, 4),
    (8.0, 100, 100, 10),
    (1.0, 5, 50, 5),
    (2.0, 30, 30, 29),
    (0.5, 3, 40, 2),
    (8.0, 1, 10, 1),
    (5.0, 200, 1000, 10),
    (3.0, 7, 7, 7),
]


@pytest.mark.parametrize(("epsilon", "rounds", "clients", "cohort"), COHORTS)
@pytest.mark.parametrize("where", ["central", "local"])
def test_the_clients_budget_is_what_the_library_says(epsilon, rounds, clients, cohort, where):
    options = PrivacyOptions(client_epsilon=epsilon, client_where=where)
    plan = ClientPlan.of(options, rounds, clients, cohort)
    once = dp.GaussianDpEvent(plan.noise / 2)  # a sum changes by twice the clip
    if where == "local" or clients == cohort:
        accountant = dp.pld.PLDAccountant()
    else:
        accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
        once = dp.SampledWithoutReplacementDpEvent(clients, cohort, once)
    accountant.compose(dp.SelfComposedDpEvent(once, rounds))
    assert plan.spent(rounds) == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3, abs=1e-3)
    assert plan.spent(rounds) <= epsilon * (1 + 1e-9)
    assert plan.rounds == rounds
    if where == "local":
        assert LocalNoise.of(options, rounds, 0).noise == pytest.approx(plan.noise)


def test_few_orders_cost_little():
    event = dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.5))
    every = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    best = every.compose(dp.SelfComposedDpEvent(event, 50)).get_epsilon(1e-5)
    assert best - 1e-9 <= cohort_epsilon(1.5, 50, 100, 10, 1e-5) <= 1.02 * best
    noise = cohort_noise(8.0, 50, 100, 10, 1e-5)
    assert cohort_epsilon(noise - 0.01, 50, 100, 10, 1e-5) > 8.0 * 0.99


def pool(n: int = 40, d: int = 50, classes: int = 10) -> Pool:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=draw)
    probabilities = torch.softmax(torch.randn(n, classes, generator=draw), 1)
    return Pool(features, probabilities, torch.arange(n) % classes)


@pytest.mark.parametrize("whole", [False, True])
def test_a_target_is_a_sum_of_clipped_gradients(whole):
    seen = pool()
    expected = torch.zeros(10, 51, dtype=torch.float64)
    for features, p, label in zip(seen.features, seen.probabilities, seen.labels, strict=True):
        extended = torch.cat([features, torch.ones(1)]).double()
        residual = p.double().clone()
        residual[label] -= 1
        if not whole:
            residual = residual * torch.eye(10, dtype=torch.float64)[label]
        gradient = torch.outer(residual, extended)
        expected += gradient * min(1.0, 3.0 / float(gradient.norm()))
    torch.testing.assert_close(clipped_sums(seen, whole, 3.0), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_one_sample_more_changes_a_sum_by_at_most_the_clip(whole):
    seen = pool()
    huge = Pool(seen.features * 1e6, seen.probabilities, seen.labels)
    for one in (seen, huge):
        fewer = Pool(one.features[1:], one.probabilities[1:], one.labels[1:])
        change = clipped_sums(one, whole, 0.5) - clipped_sums(fewer, whole, 0.5)
        assert float(change.norm()) <= 0.5 * (1 + 1e-9)


def is_deviation(values: torch.Tensor, expected: float) -> None:
    """Of Gaussian values: mean 0, this deviation, and the tails; within five standard errors."""
    values, n = values.flatten().double(), values.numel()
    assert abs(float(values.mean())) < 5 * expected / math.sqrt(n)
    assert float(values.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * n))
    beyond = float((values.abs() > 1.96 * expected).double().mean())
    assert beyond == pytest.approx(0.05, abs=5 * math.sqrt(0.05 * 0.95 / n))


@pytest.mark.parametrize("clip", [0.3, 2.0])
def test_the_noise_is_what_the_accountant_was_told(clip):
    options = PrivacyOptions(clean_epsilon=3.0, clean_clip=clip)
    plan = CleanPlan.of(options, {"target": 40, "steps": 5})
    ledger, seen = Ledger(plan, {}, 7), pool(d=200)
    found = []
    for round in range(40):
        target = ledger.target(lambda: seen, False, round, 1)
        counts = ledger.after["counts"]
        found.append(target * counts[:, None] - clipped_sums(seen, False, clip))
    is_deviation(torch.stack(found), clip * plan.noise["target"])
    zeros = torch.zeros(20_000)
    steps = [ledger.step(zeros) for _ in range(5)]
    is_deviation(torch.stack(steps), clip * plan.noise["steps"])
    assert ledger.step(zeros) is None  # spent
    counted = [
        Ledger(plan, {}, seed).release("counts", torch.zeros(10), 1.0) for seed in range(500)
    ]
    is_deviation(torch.stack(counted), plan.noise["counts"])


def test_the_noise_of_the_clients_is_what_the_accountant_was_told():
    options = PrivacyOptions(client_epsilon=3.0, client_clip=0.5)
    plan = ClientPlan.of(options, 20, 8, 8)
    draw = torch.Generator().manual_seed(1)
    deltas = [{"a": torch.randn(100, 100, generator=draw), "b": torch.randn(3)} for _ in range(8)]
    replies = Replies({k: Update(delta, {}, 1, {}) for k, delta in enumerate(deltas)})
    rows = [flat(delta) for delta in deltas]
    clipped = sum(row * min(1.0, 0.5 / float(row.norm())) for row in rows)
    privacy = Privacy(None, plan)
    found = [privacy.merged(replies, 8, round, 5).mean(False) for round in range(5)]
    noise = torch.stack([8 * flat(one) - clipped for one in found])
    is_deviation(noise, 0.5 * plan.noise)
    local = LocalNoise(0.5, plan.noise, seed=3)
    sent = torch.stack([flat(local.applied(deltas[0], {}, 0, t)[0]) for t in range(5)])
    is_deviation(sent - shortened(rows[0][None], 0.5)[0], 0.5 * plan.noise)


def test_other_answers_get_other_noise_and_the_same_the_same():
    plan = ClientPlan.of(PrivacyOptions(client_epsilon=3.0), 20, 2, 2)
    privacy, zero = Privacy(None, plan), torch.zeros(50)
    one = Replies({0: Update({"a": zero + 0.1}, {}, 1, {}), 1: Update({"a": zero}, {}, 1, {})})
    first, again = (privacy.merged(one, 2, 3, 9).mean(False)["a"] for _ in range(2))
    assert torch.equal(first, again)
    fewer = privacy.merged(one.among([1]), 2, 3, 9).mean(False)["a"]
    assert not torch.allclose(first - fewer, zero + 0.05, atol=1e-3)


def test_a_step_is_a_sum_of_clipped_gradients():
    ready = prepared(method="fedavg", model={"hidden": [8]}, data={"validation": 20})
    view = ServerView(
        ready.setting, 0, ready.setting.network.tree(), ready.federation.validation, ()
    )
    network, clean = ready.setting.network, ready.federation.validation
    expected = 0
    for place in range(len(clean)):
        params = {name: view.model[name].clone().requires_grad_() for name in network.trained}
        logits = network(
            {**view.model, **params}, network.prepare(clean.x[place : place + 1])
        ).logits
        loss = cross_entropy(logits, clean.y[place : place + 1])
        slopes = torch.autograd.grad(loss, list(params.values()))
        row = torch.cat([slope.flatten() for slope in slopes]).double()
        expected = expected + row * min(1.0, 0.7 / float(row.norm()))
    torch.testing.assert_close(gradient_sum(view, view.model, 0.7), expected, rtol=1e-4, atol=1e-5)


def test_partial_cohorts_share_one_target_per_period(tmp_path):
    found = run(tmp_path, cohort=2, rounds=9, coreset={"every": 3}, privacy=CLEAN)
    spent = [record.privacy["clean_epsilon"] for record in found.rounds]
    assert len(set(spent)) == 3
    assert spent[-1] == pytest.approx(8.0)
    assert sorted(spent) == spent


def test_the_budget_ends_the_releases_and_the_rounds(tmp_path, caplog):
    noisy = {**CLEAN, "clean_noise": 1.2}
    found = run(tmp_path, rounds=20, coreset={"every": 1}, privacy=noisy)
    assert "privacy.clean_epsilon is spent" in caplog.text
    assert caplog.text.count("privacy.clean_epsilon is spent") == 1
    assert found.rounds[-1].privacy["clean_epsilon"] <= 8.0
    assert [record.coreset.selected for record in found.rounds][-1] == 0
    ended = run(tmp_path, method="fedavg", privacy={"client_epsilon": 8.0, "client_noise": 2.0})
    assert 0 < len(ended.rounds) < 6
    assert ended.finished
    assert "the run ends there" in caplog.text


REFUSED = [
    ({"data": {"source": "blobs"}, "privacy": {"clean_epsilon": 8.0}}, "privacy.input_range"),
    ({"clean": {"takes_part": True}, "privacy": CLEAN}, "clean.takes_part"),
    ({"clean": {"warm_start": "auto"}, "privacy": CLEAN}, "clean.warm_start"),
    ({"clean": {"hold_out": 0.5}, "privacy": CLEAN}, "clean.hold_out"),
    ({"clean": {"contribution": True}, "privacy": CLEAN}, "clean.contribution"),
    ({"method": "robust", "labels": {"guard": 10}, "privacy": CLEAN}, "labels.guard"),
    *(
        ({"method": method, "privacy": CLEAN}, "cannot be had with fltrust: in every round the")
        for method in ("fltrust", "fltrust+gcfl", "fltrust+robust")
    ),
    ({"method": "scaffold", "privacy": {"client_epsilon": 8.0}}, "control-variates"),
    ({"method": "fedcorr", "privacy": {"client_epsilon": 8.0}}, "mending"),
    ({"server": {"weighting": "examples"}, "privacy": {"client_epsilon": 8.0}}, "uniform"),
    ({"method": "local-only", "privacy": {"client_epsilon": 8.0}}, "no effect"),
    ({"method": "server-only", "privacy": {"client_epsilon": 8.0}}, "no effect"),
    (
        {"method": "robust", "labels": {"pooling": True}, "privacy": {"client_epsilon": 8.0}},
        "labels.pooling",
    ),
    ({"privacy": {"clean_clip": 2.0}}, "no effect without"),
    ({"privacy": {"client_epsilon": 8.0, "client_noise": 0.01}}, "a single round costs more"),
    (
        {
            "method": "fedavg",
            "engine": {"vectorised": True},
            "privacy": {"client_epsilon": 8.0, "client_where": "local"},
        },
        "engine.vectorised",
    ),
    (
        {"method": "fedavg", "privacy": {"client_epsilon": 8.0}, "server": {"clip": "median"}},
        "server.clip cannot be had",
    ),
    ({"method": "median", "privacy": {"client_epsilon": 8.0}}, "cannot be had with median"),
]


@pytest.mark.parametrize(("changes", "text"), REFUSED)
def test_what_is_not_covered_is_refused(changes, text):
    with pytest.raises(ConfigError, match=text.replace(".", r"\.")):
        prepared(**changes)


@pytest.mark.parametrize("name", ["clean_epsilon", "client_epsilon"])
def test_an_audit_tells_more_than_is_covered(name):
    privacy = {name: 8.0, **({"input_range": [0.0, 16.0]} if name == "clean_epsilon" else {})}
    ready = prepared(method="fedavg", privacy=privacy, audit={"share": "rate"})
    with pytest.raises(ConfigError, match=rf"privacy\.{name} covers"):
        check_audit(ready.experiment)


def test_robust_goes_without_what_is_not_covered():
    both = {**CLEAN, "client_epsilon": 8.0}
    ready = config.build(tiny(method="robust", privacy=both))[0]
    assert not ready.clean.takes_part
    assert ready.labels.guard == 0
    assert not ready.labels.pooling
    assert isinstance(ready.clean.warm_start, int)
    assert ready.assembled().labels is not None


def test_a_missing_package_is_named(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'gcfl\[privacy\]'"):
        prepared(privacy=CLEAN)


def test_the_normaliser_is_public():
    ready = prepared(privacy=CLEAN)
    mean, deviation = ready.federation.normaliser
    assert np.allclose(mean, 8.0)
    assert np.allclose(deviation, 4.0)


def test_a_fixed_body_with_few_samples_is_warned_about(caplog):
    few = {"validation": 60, "validation_balanced": True}
    prepared(model={"name": "logistic"}, rounds=50, coreset={"every": 2}, data=few)
    assert "one more equation" in caplog.text
    caplog.clear()
    prepared(model={"name": "mlp"}, rounds=50, coreset={"every": 2}, data=few)
    prepared(model={"name": "logistic"}, rounds=6, coreset={"every": 2}, data=few)
    prepared(model={"name": "logistic"}, rounds=50, method="fedavg", data=few)
    prepared(model={"name": "logistic"}, rounds=50, data=few, privacy=CLEAN)
    assert "one more equation" not in caplog.text
