"""Never below the plain way: judged and plain clients compared on the clean set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import gcfl
from gcfl.coreset import Selector, unweighted
from gcfl.engine import ClientSide, InProcess, Vectorised
from gcfl.methods import Replies, ServerView, guard, register
from gcfl.methods.guard import compared, distrusted, no_comparison, plain_clients
from helpers import dies_in_round, equal_trees, prepared, run, same_bits, spy

GUARDED = {
    "method": "robust",
    "data": {"clients": 8, "samples": 1500, "validation": 150},
    "clean": {"warm_start": 20, "lr": None},
    "labels": {"guard": 4},
    "rounds": 12,
}


class Wrongest(Selector):
    """Takes what is least likely to be right: judging then does harm."""

    name = "wrongest"
    summary = "for tests: the labels that are least likely to be right"
    needs = "posterior"

    def pick(self, pool, target, budget, draw, memory):
        return unweighted(np.sort(pool.right.argsort()[: 2 * budget].numpy())), {}


@pytest.fixture
def wrongest(monkeypatch):
    from gcfl.methods import catalogue

    monkeypatch.setattr(catalogue, "WORDS", dict(catalogue.WORDS))
    register(Wrongest)


def play(ready, rounds, kind=InProcess):
    """Round by round: the messages, the round as it was played, the state before it."""
    transport = kind(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop, sent, seen = ready.rounds(transport), spy(transport), []
    state = loop.begin()
    for _ in range(rounds):
        step = loop.play(state)
        transport.commit(step.accepted)
        seen.append((*sent[-1], state, step))
        state = step.state
    return seen


def told_plain(broadcasts):
    return {c for c, one in broadcasts.items() if "plain" in one.payload.get("labels", {})}


@settings(deadline=None, max_examples=40)
@given(
    clients=st.sets(st.integers(0, 40), min_size=4, max_size=12),
    seed=st.integers(0, 5),
    first=st.integers(1, 30),
)
def test_groups_are_swapped_in_the_second_round(clients, seed, first):
    ready = prepared(**{**GUARDED, "seed": seed})
    state = no_comparison() | {"guard.next": torch.tensor(first)}
    cohort = tuple(sorted(clients))
    back = state | {"guard.back": torch.tensor(True)}
    groups = []
    for round in (first, first + 1):
        view = ServerView(ready.setting, round, {}, ready.federation.validation, cohort)
        groups.append(set(plain_clients(state, view)))
        # Where clients are plain, the same few are judged.
        assert set(plain_clients(back, view)) == clients - groups[-1]
    assert not groups[0] & groups[1]
    assert len(groups[0]) == len(groups[1]) == max(2, len(clients) // 3)
    for round in (first - 1, first + 2):
        view = ServerView(ready.setting, round, {}, ready.federation.validation, cohort)
        assert plain_clients(state, view) == ()
        assert plain_clients(back, view) == cohort


def test_too_few_clients_are_not_compared():
    ready = prepared(**GUARDED)
    view = ServerView(ready.setting, 1, {}, ready.federation.validation, (0, 1, 2))
    assert plain_clients(no_comparison(), view) == ()


def test_a_comparison_is_its_definition():
    """The gain against models put together by hand and a temperature by grid search."""
    ready = prepared(**GUARDED)
    seen = play(ready, 3)
    network, clean = ready.setting.network, ready.federation.validation

    def loss(model):
        logits = network.outputs(model, clean.x).logits.double()
        grid = torch.linspace(-3, 3, 6001).exp()
        return min(float(cross_entropy(logits / t, clean.y)) for t in grid.tolist())

    gains = []
    groups = [told_plain(broadcasts) for broadcasts, *_ in seen]
    assert groups[0] == set()
    for place, (broadcasts, answers, _, step) in enumerate(seen[1:], start=1):
        plain, judged = groups[place], groups[3 - place]  # swapped in the other round
        means = []
        for group in (plain, judged):
            deltas = [answers[client].delta for client in group]
            sent = broadcasts[0].model
            means.append(
                {
                    name: tensor + sum(delta[name] for delta in deltas) / len(deltas)
                    for name, tensor in sent.items()
                }
            )
        gains.append(loss(means[0]) - loss(means[1]))
        # The plain ones drew among all its samples, at its budget.
        shares = [len(step.observed[c].coreset.indices) for c in sorted(plain)]
        sizes = ready.federation.clients.partition.sizes[sorted(plain)]
        assert shares == [max(1, round(0.2 * size)) for size in sizes]
    assert seen[2][3].guard["gain"] == pytest.approx(sum(gains), abs=2e-4)
    assert seen[1][3].guard is None


def test_comparisons_wait_twice_as_long_while_nothing_changes():
    ready = prepared(**GUARDED)
    found = [bool(told_plain(broadcasts)) for broadcasts, *_ in play(ready, 12)]
    assert [round for round, asked in enumerate(found) if asked] == [1, 2, 5, 6]
    # ... and the next after a change comes a period later.
    state, view = no_comparison(), None
    for round, gain in ((1, -1.0), (5, 1.0), (9, 1.0), (17, 1.0)):
        assert int(state["guard.next"]) == round
        view = ServerView(ready.setting, round + 1, {}, ready.federation.validation, (0, 1, 2))
        state |= {"guard.first": torch.tensor(gain, dtype=torch.float64)}
        state |= compared(state, view, Replies({}), 4)  # no groups: this round's gain is 0
        assert bool(state["guard.back"]) == (gain < 0)


def test_clients_fall_back_and_judge_again_only_where_that_is_clearly_better():
    ready = prepared(**GUARDED)
    state, found = no_comparison(), []
    for gain in (0.1, -0.1, -0.1, 0.2, 0.15, 0.15, 0.1, -0.2, -0.2):  # fading sums, by hand, below
        round = int(state["guard.next"]) + 1
        view = ServerView(ready.setting, round, {}, ready.federation.validation, (0, 1, 2))
        state |= {"guard.first": torch.tensor(gain, dtype=torch.float64)}
        state |= compared(state, view, Replies({}), 4)
        found.append(bool(state["guard.back"]))
    # sums: 0.1, -0.05, -0.125, 0.1375, 0.219, 0.259, 0.230, -0.085, -0.243
    assert found == [False, False, True, True, False, False, False, False, True]


@pytest.mark.parametrize("kind", [InProcess, Vectorised])
def test_what_is_distrusted_stays_out_of_the_model(kind):
    ready = prepared(**{**GUARDED, "clean": {"takes_part": False}, "server": {"momentum": 0.0}})
    for broadcasts, answers, state, step in play(ready, 3, kind)[1:]:
        plain = told_plain(broadcasts)
        judged = [answers[client].delta for client in answers if client not in plain]
        for name, tensor in step.state.model.items():
            expected = broadcasts[0].model[name] + sum(d[name] for d in judged) / len(judged)
            assert torch.allclose(tensor, expected, atol=1e-6), name
        view = ServerView(
            ready.setting,
            state.round,
            state.model,
            ready.federation.validation,
            tuple(broadcasts),
        )
        # Where nobody of the trusted kind answers, the others count.
        only = answers.among(plain)
        assert distrusted(state.parts["labels"], view, only) == []


def test_where_judging_does_harm_clients_fall_back(wrongest, tmp_path, caplog):
    caplog.set_level("INFO", logger="gcfl")
    harmful = {**GUARDED, "method": "wrongest+robust", "train": {"loss": "cross-entropy"}}
    bad = run(tmp_path, **harmful)
    assert next(one.guard["plain"] for one in bad.rounds if one.guard) == 1.0
    assert any("plain draws do better" in text for text in caplog.messages)
    shares = [one.coreset.clean_share for one in bad.rounds]
    assert shares[0] < 0.4  # as it chooses
    assert 0.5 < np.mean([shares[place] for place in (3, 4)]) < 0.7  # as labels are
    unguarded = run(tmp_path, **{**harmful, "labels": {"guard": 0}})
    assert bad.accuracy > unguarded.accuracy


def test_where_it_helps_they_do_not(tmp_path):
    good = run(tmp_path, **GUARDED)
    assert {one.guard["plain"] for one in good.rounds if one.guard} == {0.0}


@pytest.mark.parametrize("method", ["robust", "scaffold+robust", "fedavg"])
def test_workers_and_many_at_once_agree(method, tmp_path):
    changes = {**GUARDED, "method": method, "train": {"loss": "corrected"}, "rounds": 4}
    one, two = (
        run(tmp_path / str(workers), **changes, engine={"workers": workers}) for workers in (1, 2)
    )
    assert equal_trees(one.model.tree, two.model.tree)
    ends = [
        play(prepared(**changes), 4, kind)[-1][3].state.model for kind in (InProcess, Vectorised)
    ]
    for name, tensor in ends[0].items():
        assert torch.allclose(tensor, ends[1][name], atol=1e-4), name


@pytest.mark.parametrize("fallen_back", [False, True])
@pytest.mark.parametrize("died_after", [1, 2, 4])
def test_killed_within_a_comparison_or_after_it(fallen_back, died_after, tmp_path, monkeypatch):
    """Rounds 1 and 2 compare, and so do 5 and 6: the same bits, plain or not."""
    for name in ("_HARM", "_CLEAR"):  # what was found does not matter here
        monkeypatch.setattr(guard, name, 99.0 if fallen_back else -99.0)
    changes = {**GUARDED, "rounds": 7}
    whole = run(tmp_path / "whole", **changes)
    assert {one.guard["plain"] for one in whole.rounds if one.guard} == {float(fallen_back)}
    dies_in_round(died_after, lambda: run(tmp_path / "killed", **changes))
    killed = tmp_path / "killed" / whole.folder.name
    assert len(gcfl.load(killed).rounds) == died_after
    same_bits(gcfl.resume(killed).folder, whole.folder)


def test_bad_periods_and_models_that_never_meet_are_refused():
    from gcfl.base.errors import ConfigError

    with pytest.raises(ConfigError, match=r"guard must be 0, or at least 4"):
        prepared(**{**GUARDED, "labels": {"guard": 2}})
    with pytest.raises(ConfigError, match="never meet"):
        prepared(**{**GUARDED, "method": "local-only+robust"})
    local = {key: value for key, value in GUARDED.items() if key != "labels"}
    assert prepared(**{**local, "method": "local-only+robust"}).method.labels.guard == 0
