"""Robust server rules against their definitions, against Flower's own strategies, and against a
client that attacks.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from gcfl.base.data_types import Update
from gcfl.base.errors import ConfigError
from gcfl.engine import ClientSide, InProcess
from gcfl.methods import Replies, ServerView, Stacked
from gcfl.methods.answers import Like
from gcfl.methods.averaging import Average
from gcfl.methods.bounds import bounded
from gcfl.methods.robust_rules import GeometricMedian, Krum, Median, TrimmedMean, Trust
from gcfl.methods.server_training import SERVER, this_round, train_on_clean
from helpers import prepared, run

READY = prepared(method="fedavg", model={"name": "mlp", "hidden": [3]}, data={"validation": 100})
NAMES = READY.setting.network.trained
MODEL = READY.setting.network.tree()
VIEW = ServerView(READY.setting, 0, MODEL, READY.federation.validation, ())


def replies(m, seed=0, kind="single", far=1.0):
    """m random updates, the last one `far` times as long."""
    draw = torch.Generator().manual_seed(seed)
    deltas = [
        {name: torch.randn(MODEL[name].shape, generator=draw) for name in NAMES} for _ in range(m)
    ]
    deltas[-1] = {name: far * part for name, part in deltas[-1].items()}
    if kind == "single":
        return Replies({one: Update(delta, {}, one + 1, {}) for one, delta in enumerate(deltas)})
    stack = {name: torch.stack([delta[name] for delta in deltas]) for name in NAMES}
    return Stacked(np.arange(m), stack, {}, np.arange(1, m + 1), {})


def flat(tree):
    return np.concatenate([tree[name].double().numpy().ravel() for name in NAMES])


def vectors(answers):
    return np.stack([flat(answers[client].delta) for client in answers])


def combined(rule, answers):
    return flat(rule.combined(VIEW, answers))


def krum_by_hand(points, liars, best):
    scores = []
    for i, one in enumerate(points):
        others = sorted(((one - x) ** 2).sum() for j, x in enumerate(points) if j != i)
        scores.append(sum(others[: max(1, len(points) - liars - 2)]))
    return np.mean(
        [points[i] for i in sorted(range(len(points)), key=scores.__getitem__)[:best]], 0
    )


both = pytest.mark.parametrize("kind", ["single", "stacked"])
cases = pytest.mark.parametrize(("m", "seed"), list(itertools.product((3, 4, 5, 8, 11), (0, 1))))


@both
@cases
def test_rules_are_their_definitions(m, seed, kind):
    answers = replies(m, seed, kind, far=50.0)
    points = vectors(answers)
    assert np.allclose(combined(Median(), answers), np.median(points, axis=0), atol=1e-5)
    cut = max(1, int(0.3 * m))
    if 2 * cut < m:
        middle = np.sort(points, axis=0)[cut : m - cut].mean(axis=0)
        assert np.allclose(combined(TrimmedMean(trim=0.3), answers), middle, atol=1e-5)
    liars = (m - 3) // 2
    assert np.allclose(combined(Krum(), answers), krum_by_hand(points, liars, 1), atol=1e-4)
    expected = krum_by_hand(points, 0, 2)
    assert np.allclose(combined(Krum(byzantine=0, multi=2), answers), expected, atol=1e-4)
    found = combined(GeometricMedian(), answers)

    def cost(z):
        return np.linalg.norm(points - z, axis=1).sum()

    best = minimize(cost, points.mean(axis=0), method="BFGS").fun
    assert cost(found) <= best * (1 + 1e-6)


@pytest.mark.parametrize("scales", [(-3.0, 0.5, 1.0, 2.0, 900.0), (1.0, 1.0, 1.0, 1.0, 900.0)])
def test_the_geometric_median_of_points_in_a_line_is_their_median(scales):
    direction = replies(1)[0].delta
    answers = Replies(
        {
            one: Update({name: scale * part for name, part in direction.items()}, {}, 1, {})
            for one, scale in enumerate(scales)
        }
    )
    assert np.allclose(combined(GeometricMedian(), answers), flat(direction), atol=1e-4)


@both
def test_mixing_replaces_each_by_the_mean_of_its_nearest(kind):
    answers = replies(7, 3, kind, far=4.0)
    points = vectors(answers)
    mixed = []
    for one in points:
        order = np.argsort(((points - one) ** 2).sum(axis=1))
        mixed.append(points[order[:5]].mean(axis=0))
    mixed = np.stack(mixed)
    assert np.allclose(combined(Median(mix=2), answers), np.median(mixed, axis=0), atol=1e-5)
    expected = krum_by_hand(mixed, 2, 1)
    assert np.allclose(combined(Krum(mix=2), answers), expected, atol=1e-4)
    found = combined(GeometricMedian(mix=2), answers)
    cost = np.linalg.norm(mixed - found, axis=1).sum()
    best = minimize(
        lambda z: np.linalg.norm(mixed - z, axis=1).sum(), mixed.mean(axis=0), method="BFGS"
    )
    assert cost <= best.fun * (1 + 1e-6)


@both
def test_fltrust_is_its_definition(kind):
    answers = replies(5, 4, kind, far=1000.0)
    points = vectors(answers)
    local = train_on_clean(VIEW, MODEL, this_round(VIEW)).model
    own = flat(local) - flat(MODEL)
    trust = [max(0.0, p @ own / np.linalg.norm(p) / np.linalg.norm(own)) for p in points]
    matched = [p / np.linalg.norm(p) * np.linalg.norm(own) for p in points]
    expected = sum(t * p for t, p in zip(trust, matched, strict=True)) / sum(trust)
    assert np.allclose(combined(Trust(), answers), expected, atol=1e-6)
    # Nobody goes the server's way: the model stays.
    against = Replies({0: Update({name: MODEL[name] - local[name] for name in NAMES}, {}, 1, {})})
    assert not combined(Trust(), against).any()
    # A server that takes part has made that step already.
    mine = {name: local[name] - MODEL[name] for name in NAMES}
    heard = Replies({SERVER: Update(mine, {}, 1, {}), **answers})
    expected = (expected * sum(trust) + own) / (sum(trust) + 1)
    assert np.allclose(combined(Trust(), heard), expected, atol=1e-6)


def test_the_same_as_flowers_strategies(monkeypatch):
    pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedMedian, FedTrimmedAvg, MultiKrum
    from flwr.serverapp.strategy import Krum as FlowerKrum

    pairs = [
        (Median(), FedMedian()),
        (TrimmedMean(trim=0.25), FedTrimmedAvg(beta=0.25)),
        (Krum(byzantine=2), FlowerKrum(num_malicious_nodes=2)),
        (Krum(byzantine=1, multi=4), MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4)),
    ]
    for m, (ours, theirs) in itertools.product((8, 9), pairs):
        answers = replies(m, m, far=20.0)
        messages = []
        for client in answers:
            arrays = ArrayRecord([answers[client].delta[name].numpy() for name in NAMES])
            content = RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 1})})
            sent = Message(RecordDict(), dst_node_id=client + 1, message_type="train")
            messages.append(Message(content, reply_to=sent))
        arrays, _ = theirs.aggregate_train(1, messages)
        expected = np.concatenate([one.ravel() for one in arrays.to_numpy_ndarrays()])
        assert np.allclose(combined(ours, answers), expected, atol=1e-4), type(ours).__name__


# ---- bounds


@both
@pytest.mark.parametrize("clip", [0.5, "median"])
def test_clip_shortens_what_is_longer_and_nothing_else(clip, kind):
    answers = replies(5, 5, kind, far=1000.0)
    points = vectors(answers)
    norms = np.linalg.norm(points, axis=1)
    longest = np.median(norms) if clip == "median" else clip
    expected = points * np.minimum(1, longest / norms)[:, None]
    found = bounded(VIEW, answers, Average(clip=clip), {})
    assert np.allclose(vectors(found), expected, rtol=1e-5, atol=1e-6)
    assert bounded(VIEW, answers, Average(), {}) is answers


@both
def test_control_variates_are_bounded_by_the_median_of_theirs(kind):
    answers = replies(5, 6, kind, far=1000.0)
    payload = {"local": {name: Like.of(MODEL[name]) for name in NAMES}}
    if kind == "single":
        answers = Replies(
            {
                c: dataclasses.replace(one, payload={"local": one.delta})
                for c, one in answers.items()
            }
        )
    else:
        answers = Stacked(
            answers.clients, answers._delta, {"local": answers._delta}, np.ones(5), {}
        )
    before = answers.norms(NAMES, "local")
    for rule in (Average(clip=1.0), Median()):
        after = bounded(VIEW, answers, rule, payload).norms(NAMES, "local")
        assert np.allclose(after, np.minimum(before, np.median(before)), rtol=1e-5)


def attacked(attack, away=False, **settings):
    """(accuracy, model) of a run in which client 0 attacks, or is away."""
    ready = prepared(**settings)
    clients = ready.federation.clients
    if attack == "flip":
        y, rows = clients.y.clone(), torch.from_numpy(clients.partition[0])
        y[rows] = 9 - y[rows]
        clients = dataclasses.replace(clients, y=y)

    class Attacker(InProcess):
        def exchange(self, broadcasts):
            answers = dict(super().exchange(broadcasts))
            mine = answers.pop(0)
            if away:
                return Replies(answers)
            factor = 1.0 if attack == "flip" else attack
            delta, local = (
                {name: part * factor for name, part in tree.items()}
                for tree in (mine.delta, mine.payload.get("local", {}))
            )
            payload = {**mine.payload, "local": local} if local else mine.payload
            mine = dataclasses.replace(mine, delta=delta, payload=payload)
            return Replies({0: mine, **answers})

    transport = Attacker(ClientSide(ready.setting, ready.method, clients))
    loop = ready.rounds(transport)
    state = loop.begin()
    while not loop.over(state):
        played = loop.play(state)
        transport.commit(played.accepted)
        state = played.state
    return played.scores.accuracy, state.model


SCENE = {
    "data": {"samples": 1000, "noise": 0.0, "partition": "iid", "test": 300, "validation": 100},
    "rounds": 15,
    "train": {"lr": 0.1, "epochs": 2},
    "engine": {"evaluate_every": 15},
}


@pytest.mark.parametrize(
    "method", ["median", "trimmed-mean", "krum", "geometric-median", "fltrust"]
)
def test_one_attacker_of_five_costs_less_than_three_points(method):
    settings = {**SCENE, "method": method, "server": {"clip": "median", "mix": 1}}
    honest, _ = attacked(None, away=True, **settings)
    assert honest > 0.85
    for attack in (1000.0, -10.0, "flip"):
        assert attacked(attack, **settings)[0] > honest - 0.03, attack


def test_without_a_rule_the_attack_works_and_is_named(caplog):
    with caplog.at_level(logging.WARNING, "gcfl"):
        broken, _ = attacked(-10.0, **{**SCENE, "method": "fedavg", "rounds": 5})
    assert broken < 0.5
    warnings = [text for text in caplog.messages if "as long as the round's median" in text]
    assert "the update of client 0 is " in warnings[0]
    assert sum("the update of client 0 " in text for text in warnings) == 1  # not in each round


def test_control_variates_cannot_be_used_either():
    settings = {**SCENE, "method": "scaffold+median"}
    honest, _ = attacked(None, away=True, **settings)
    assert attacked(1000.0, **settings)[0] > honest - 0.05


# ---- settings


def test_momentum_goes_with_every_rule(tmp_path):
    for method in ("median", "fltrust"):
        plain = run(tmp_path, method=method)
        fast = run(tmp_path, method=method, server={"momentum": 0.5})
        assert plain.folder != fast.folder
        assert (plain.folder / "model.safetensors").read_bytes() != (
            fast.folder / "model.safetensors"
        ).read_bytes()
    assert prepared(method="median+robust").method.server == Median(momentum=0.8)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "krum", "server": {"byzantine": 2}}, "needs at least 7 clients in a round"),
        ({"method": "krum", "server": {"multi": 6}}, "needs at least 8 clients in a round"),
        (
            {"method": "krum", "server": {"multi": 5, "byzantine": 1}},
            "needs at least 6 clients in a round",
        ),
        ({"method": "median", "cohort": 2}, "needs at least 3 clients in a round"),
        ({"method": "trimmed-mean", "server": {"mix": 2}}, "needs at least 7 clients"),
        ({"method": "centralised+median"}, "needs at least 3 clients"),
        (
            {"method": "fedavg", "cohort": 2, "server": {"clip": "median"}},
            "fedavg with server.clip = median needs at least 3 clients",
        ),
        ({"method": "median+krum"}, "contradictory"),
        ({"method": "fedavgm+median"}, "contradictory"),
        ({"method": "trimmed-mean", "server": {"trim": 0.5}}, r"must be in \(0, 0.5\)"),
        ({"method": "fedavg", "server": {"clip": "mean"}}, "clip"),
        ({"method": "fedavg", "server": {"clip": 0.0}}, "clip"),
    ],
)
def test_what_cannot_be_is_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        prepared(**changes)
