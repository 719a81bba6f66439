"""Robust server rules against updates of any size, and against statistics of normalisation layers
that lie beside honest weights.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gcfl.base.errors import ConfigError, RunError
from gcfl.engine import ClientSide, InProcess
from gcfl.engine.prepare import Given
from gcfl.methods import Replies, ServerView, Stacked
from gcfl.methods.averaging import Average
from gcfl.methods.bounds import LONG, Lookout, absurd
from gcfl.methods.robust_rules import (
    GeometricMedian,
    Krum,
    Median,
    TrimmedMean,
    Trust,
    geometric_weights,
)
from helpers import equal_trees, prepared

LIAR = 3
EXTREME = (1e-40, 1e5, 1e15, 1e30)
RULES = {
    "median": Median(),
    "median, mix 1": Median(mix=1),
    "trimmed-mean": TrimmedMean(),
    "trimmed-mean, mix 1": TrimmedMean(mix=1),
    "krum": Krum(),
    "krum, mix 1": Krum(mix=1),
    "multi-krum": Krum(multi=3),
    "geometric-median": GeometricMedian(),
    "geometric-median, mix 1": GeometricMedian(mix=1),
    "fltrust": Trust(),
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
kinds = pytest.mark.parametrize("kind", ["single", "stacked"])


def normalised() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    return nn.Sequential(nn.Flatten(), *layers)


def scene(method="fedavg", **changes):
    """A run of a model with BatchNorm."""
    changes = {"model": {"name": "given"}, "cohort": 1.0, **changes}
    return prepared(Given(model=normalised()), method=method, **changes)


@pytest.fixture(scope="module")
def honest():
    """(view, answers) of a first round."""
    ready = scene(data={"clients": 7, "samples": 420})
    seen = []

    class Heard(InProcess):
        def exchange(self, broadcasts):
            seen.append(super().exchange(broadcasts))
            return seen[-1]

    loop = ready.rounds(Heard(ClientSide(ready.setting, ready.method, ready.federation.clients)))
    state = loop.begin()
    loop.play(state)
    view = ServerView(ready.setting, 0, state.model, ready.federation.validation, range(7))
    return view, seen[0]


def lying(answers, change, kind="single"):
    updates = {c: change(one) if c == LIAR else one for c, one in answers.items()}
    if kind == "single":
        return Replies(updates)
    stack = {
        name: torch.stack([one.delta[name] for one in updates.values()])
        for name in answers[LIAR].delta
    }
    return Stacked(np.array(list(updates)), stack, {}, np.full(len(updates), 60), {})


def times(factor):
    """Weights and statistics that long; counts stay, which have a range of their own."""

    def change(one):
        long = {n: t * factor if t.is_floating_point() else t for n, t in one.delta.items()}
        return replace(one, delta=long)

    return change


def statistics(value):
    def change(one):
        told = {n: torch.full_like(t, value) for n, t in one.delta.items() if "running" in n}
        return replace(one, delta={**one.delta, **told})

    return change


def rows(answers, name):
    return torch.stack([one.delta[name].double() for c, one in answers.items() if c != LIAR])


@kinds
@rules
@pytest.mark.parametrize("factor", [*EXTREME, *(-one for one in EXTREME)])
def test_no_size_of_an_update_carries_a_rule_away(rule, factor, kind, honest):
    view, answers = honest
    found = rule.combined(view, lying(answers, times(factor), kind))
    for name in view.setting.network.trained:
        others = rows(answers, name).flatten(1)
        centre = others.mean(dim=0)
        spread = float((others - centre).norm(dim=1).max())
        longest = float(others.norm(dim=1).max())
        away = float((found[name].double().flatten() - centre).norm())
        assert away < (3 * longest if rule.name == "fltrust" else 3 * spread), name


@kinds
def test_an_update_without_length_is_not_trusted(kind, honest):
    view, answers = honest
    without = Trust().combined(view, Replies({c: u for c, u in answers.items() if c != LIAR}))

    def tiny(one):
        return replace(one, delta={n: (t.sign() * 1e-45).to(t) for n, t in one.delta.items()})

    for lie in (tiny, times(1e-40), times(0.0)):
        found = Trust().combined(view, lying(answers, lie, kind))
        for name in view.setting.network.trained:
            torch.testing.assert_close(found[name], without[name], rtol=1e-5, atol=1e-7)


@kinds
@rules
@pytest.mark.parametrize("value", [1e6, -1e3, 1e30])
def test_statistics_stay_among_the_honest_ones(rule, value, kind, honest):
    view, answers = honest
    found = rule.combined(view, lying(answers, statistics(value), kind))
    others = [name for name in view.setting.network.sent if "running" in name]
    assert len(others) == 2
    for name in others:
        honest_rows = rows(answers, name)
        least, most = (honest_rows.amin(dim=0), honest_rows.amax(dim=0))
        slack = 1e-6 + 0.2 * (most - least)  # the server's own, in FLTrust, may lie beside them
        slack = slack if rule.name == "fltrust" else 1e-6
        assert ((found[name] >= least - slack) & (found[name] <= most + slack)).all(), name


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    liars=st.integers(0, 5),
    more=st.integers(1, 4),
    size=st.floats(-3, 30),
    spread=st.floats(-6, 3),
    shift=st.booleans(),
    together=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_fewer_liars_than_half_move_the_geometric_median_by_some_spreads(
    liars, more, size, spread, shift, together, seed
):
    draw = np.random.default_rng(seed)
    count = liars + more
    points = 10.0**spread * draw.normal(size=(count + liars, 6)) + (10.0**spread if shift else 0)
    lies = draw.normal(size=(1 if together else liars, 6))
    points[count:] = 10.0**size * np.broadcast_to(lies, (liars, 6))
    gram = points @ points.T
    squared = np.maximum(np.diag(gram)[:, None] + np.diag(gram)[None, :] - 2 * gram, 0)
    found = geometric_weights(squared) @ points
    centre = points[:count].mean(axis=0)
    reach = np.linalg.norm(points[:count] - centre, axis=1).max()
    # Lopuhaä and Rousseeuw (1991): 2 h / (h - f) times the reach of h honest points, at most.
    bound = 2 * count / more * reach + 1e-6 * np.linalg.norm(points[:count], axis=1).max()
    assert np.linalg.norm(found - centre) <= 1.01 * bound


def test_krum_does_not_take_more_than_are_honest(honest):
    view, answers = honest
    few = lying(answers, times(1e30)).among([0, 1, 2, LIAR])
    found = Krum(byzantine=1, multi=4).combined(view, few)
    best = few.among([0, 1, 2]).mean(False)
    for name in view.setting.network.trained:
        torch.testing.assert_close(found[name], best[name])
    for multi in range(1, 12):
        fewest = Krum(multi=multi).fewest
        assert multi <= fewest - (fewest - 3) // 2
        assert fewest == 3 or multi > fewest - 1 - max(0, (fewest - 1 - 3) // 2)
    with pytest.raises(ConfigError, match="krum needs at least 6 clients in a round"):
        prepared(method="krum", server={"multi": 5})
    prepared(method="krum", server={"multi": 5, "byzantine": 0})


# ---- in a run


def played(ready, lie):
    """What the rounds of a run with a liar gave; lie None: it does not answer."""

    class Lying(InProcess):
        def exchange(self, broadcasts):
            answers = dict(super().exchange(broadcasts))
            mine = answers.pop(LIAR)
            return Replies(answers if lie is None else {**answers, LIAR: lie(mine)})

    transport = Lying(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop = ready.rounds(transport)
    found, state = [], loop.begin()
    while not loop.over(state):
        found.append(loop.play(state))
        transport.commit(found[-1].accepted)
        state = found[-1].state
    return found


RUN = {"rounds": 15, "train": {"epochs": 3}, "data": {"noise": 0.0}}


@pytest.mark.parametrize(
    "method", ["median", "trimmed-mean", "krum", "geometric-median", "fltrust"]
)
def test_with_a_rule_no_size_and_no_statistics_cost_much(method):
    ready = scene(method, **RUN)
    without = played(ready, None)[-1].scores.accuracy
    # No update at all is the one in the middle: Krum, which follows a single one, may stand still.
    sizes = [one for one in EXTREME if method != "krum" or one > 1]
    for lie in (*map(times, sizes), statistics(1e6), statistics(-1e3)):
        assert played(ready, lie)[-1].scores.accuracy > without - 0.15


@pytest.mark.parametrize(
    ("method", "lie", "reason"),
    [
        ("fedavg", times(1e15), "its update is"),
        ("fedavg", times(-1e30), "its update is"),
        ("median", times(1e15), "its update is"),
        ("fedavg", statistics(1e30), "its statistics are"),
        ("fedavg", statistics(-1e12), "its statistics are"),
    ],
)
def test_what_is_a_million_times_too_long_is_left_out_and_named(method, lie, reason, caplog):
    ready = scene(method)
    with caplog.at_level(logging.WARNING, "gcfl"):
        found = played(ready, lie)
    without = played(ready, None)
    assert equal_trees(found[-1].state.model, without[-1].state.model)
    for one in found:
        assert list(one.left_out) == [LIAR]
        assert one.left_out[LIAR].startswith(reason)
        assert one.left_out[LIAR].endswith("times as long as the round's median")
    assert f"round 0: client {LIAR} is left out: {reason}" in caplog.text


def test_control_variates_that_long_are_left_out_too():
    ready = prepared(method="scaffold", cohort=1.0)

    def lie(one):
        sent = {name: tensor * 1e30 for name, tensor in one.payload["local"].items()}
        return replace(one, payload={**one.payload, "local": sent})

    found, without = played(ready, lie), played(ready, None)
    assert found[-1].left_out[LIAR].startswith("the part local is ")
    assert equal_trees(found[-1].state.model, without[-1].state.model)


def test_many_trained_at_once_are_looked_at_too(honest):
    view, answers = honest
    kept, reasons = absurd(view, lying(answers, times(1e15), "stacked"), Median(), {})
    assert list(reasons) == [LIAR]
    assert LIAR not in kept
    assert len(kept) == len(answers) - 1
    untouched = lying(answers, times(1e4), "stacked")
    assert absurd(view, untouched, Median(), {}) == (untouched, {})
    assert list(absurd(view, untouched, Average(), {})[1]) == [LIAR]
    two = lying(answers, times(1e15)).among([0, LIAR])
    assert absurd(view, two, Average(), {}) == (two, {})  # of two nobody knows which is wrong


def test_under_noise_on_the_sum_no_answer_bears_on_another():
    ready = prepared(method="fedavg", cohort=1.0, privacy={"client_epsilon": 8.0})
    assert not any(one.left_out for one in played(ready, times(1e15)))


@pytest.mark.parametrize("method", ["fedavg", "robust", "fedadam"])
@pytest.mark.parametrize("factor", [1000.0, -9e5])
def test_nobody_carries_away_an_average(method, factor):
    ready = prepared(method=method, cohort=1.0, rounds=4)
    without = played(ready, None)
    found = played(ready, times(factor))
    assert all(list(one.left_out) == [LIAR] for one in found)
    assert equal_trees(found[-1].state.model, without[-1].state.model)


def test_who_trains_on_more_samples_may_send_a_longer_update(honest):
    view, answers = honest
    trained = view.setting.network.trained
    norms, model = answers.norms(trained), max(float(view.model[one].norm()) for one in trained)
    factor = max(2 * LONG * float(np.median(norms)), 9 * model) / float(norms[LIAR])
    assert list(absurd(view, lying(answers, times(factor)), Average(), {})[1]) == [LIAR]
    with_many = lying(answers, lambda one: replace(times(factor)(one), examples=10**6))
    assert not absurd(view, with_many, Average(), {})[1]
    for bounded in (Average(clip=1.0), Average(clip="median"), Median()):
        assert not absurd(view, lying(answers, times(factor)), bounded, {})[1]


def test_updates_that_are_often_long_or_next_to_nothing_are_told_of_once(honest, caplog):
    view, answers = honest
    norms = answers.norms(view.setting.network.trained)
    six = 6 * float(np.median(norms) / norms[LIAR])
    for factor, told in ((six, "long for the third time"), (1e-6, "next to nothing")):
        caplog.clear()
        lookout = Lookout()
        with caplog.at_level(logging.WARNING, "gcfl"):
            told_by = lying(answers, lambda one, by=factor: replace(times(by)(one), examples=1))
            for round in range(5):
                now = replace(view, round=round)
                lookout.look(now, told_by, "client {}".format)
                lookout.look(now, told_by.among([0, LIAR]), str)
                assert len(caplog.messages) == (round >= 2)
        assert caplog.messages[0].startswith(f"round 2: the update of client {LIAR} is")
        assert told in caplog.messages[0]


@pytest.mark.parametrize("method", ["fedavg", "robust", "gcfl"])
def test_honest_clients_who_differ_raise_no_alarm(method, caplog):
    data = {"alpha": 0.1, "noise": 0.4, "clients": 6}
    ready = prepared(method=method, cohort=1.0, rounds=12, data=data)
    loop = ready.rounds(
        InProcess(ClientSide(ready.setting, ready.method, ready.federation.clients))
    )
    state = loop.begin()
    with caplog.at_level(logging.WARNING, "gcfl"):
        while not loop.over(state):
            state = loop.play(state).state
    assert not [line for line in caplog.messages if "update of" in line or "left out" in line]


def test_honest_clients_are_not_blamed_for_a_model_that_was_carried_away(caplog):
    left_out = {0: "its loss is 1e+13, which cannot be", 1: "the update has NaN"}
    lookout = Lookout(long={LIAR, 1})
    with caplog.at_level(logging.WARNING, "gcfl"):
        lookout.tell(6, left_out, "client {}".format)
    blame = f"; in earlier rounds updates of client 1 and client {LIAR} were far longer"
    first, second = caplog.messages
    assert first.startswith(f"round 6: client 0 is left out: {left_out[0]}{blame}")
    assert second == f"round 6: client 1 is left out: {left_out[1]}"
    told = lookout.nobody_left(6, dict(reversed(left_out.items())), "client {}".format)
    assert told.startswith(
        f"round 6: no client gave a valid update (client 0: {left_out[0]}{blame}"
    )
    assert Lookout().nobody_left(0, {2: "gone"}, str) == (
        "round 0: no client gave a valid update (2: gone)"
    )


def test_the_end_of_a_run_names_whose_updates_were_long():
    ready = prepared(method="scaffold", cohort=1.0, rounds=20, server={"clip": 1e9})
    with pytest.raises(RunError, match=rf"no client gave .* updates of client {LIAR} were far"):
        played(ready, times(4e5))
