"""When clients select, what they keep, and what the server sends them for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcfl import experiment as config
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError, DataError
from gcfl.coreset import Selector, label_wise_target, unweighted
from gcfl.coreset.baselines import Random as RandomChoice
from gcfl.coreset.matching import GradientMatching as Matching
from gcfl.methods import (
    WORDS,
    ClientView,
    Replies,
    Selection,
    SelectionRule,
    ServerView,
    parse,
    periodic,
    register,
)
from helpers import prepared, run, tiny

Random, GradientMatching = periodic(RandomChoice), periodic(Matching)


def share_of(record):
    return record.coreset.clean_share


def sent_select(result):
    return [record.bytes.down.get("select", 0) for record in result.rounds]


def test_the_target_is_sent_only_when_a_selection_is_due_and_is_the_last_layer(tmp_path):
    result = run(tmp_path, method="gcfl")
    last_layer = 10 * (16 + 1) * 4
    assert sent_select(result) == [5 * last_layer, 0, 5 * last_layer, 0, 5 * last_layer, 0]
    assert [record.coreset.selected for record in result.rounds] == [5, 0, 5, 0, 5, 0]
    assert sorted(result.coresets) == [0, 2, 4]


def test_with_partial_participation_each_client_selects_by_the_age_of_its_own_choice(tmp_path):
    result = run(tmp_path, method="gcfl", cohort=2, rounds=12, coreset={"every": 3})
    last = {}
    for record in result.rounds:
        chosen = set(result.coresets.get(record.round, {}))
        cohort = set(prepared(method="gcfl", cohort=2, rounds=12).rounds(None).draw(record.round))
        due = {client for client in cohort if record.round - last.get(client, -100) >= 3}
        assert chosen == due
        last.update(dict.fromkeys(chosen, record.round))


def test_the_papers_schedule_selects_only_in_rounds_divisible_by_k(tmp_path):
    result = run(
        tmp_path, method="gcfl", cohort=2, rounds=8, coreset={"every": 4, "schedule": "paper"}
    )
    assert sorted(result.coresets) == [0, 4]
    # A client that was not there in a selecting round trains on a random coreset of the same size,
    # not on everything.
    sizes = prepared().federation.clients.partition.sizes
    for record in result.rounds:
        cohort = prepared(cohort=2, rounds=8).rounds(None).draw(record.round)
        assert record.coreset.size == sum(max(1, round(0.2 * sizes[client])) for client in cohort)


def view_of(ready, client=0, round=0):
    return ClientView.of(
        ready.setting,
        round,
        client,
        ready.setting.network.tree(),
        ready.federation.clients.shard(client),
    )


def test_a_lost_coreset_is_replaced_by_a_random_one_and_told():
    ready = prepared()
    selector = Random(budget=0.2)
    chosen = selector.select(view_of(ready), {}, {})
    assert int(chosen.sends["round"]) == 0
    kept = selector.select(view_of(ready, round=1), None, chosen.memory)
    assert np.array_equal(kept.coreset.indices, chosen.coreset.indices)
    lost = selector.select(view_of(ready, round=1), None, {})
    assert len(lost.coreset) == len(chosen.coreset)
    assert int(lost.sends["round"]) == -1
    state = selector.server_init({})
    for round, told in enumerate((chosen, lost)):
        state = selector.merge(state, server_view(ready, round=round), Replies({0: reply(told)}))
    assert selector.announce(state, server_view(ready, clients=(0,))) == {0: {}}


def server_view(ready, clients=(0, 1), round=2):
    return ServerView(
        ready.setting, round, ready.setting.network.tree(), ready.federation.validation, clients
    )


def reply(selection):
    from gcfl.base.data_types import Update

    return Update({}, {"select": selection.sends}, 1, {})


def test_one_that_always_says_it_has_not_selected_is_not_asked_in_every_round():
    """In the round in which it was asked, it has been told the target, whatever it says."""
    ready, rule = prepared(), GradientMatching(budget=0.2, every=10)
    lost = Random(budget=0.2).select(view_of(ready), None, {})
    state, asked = rule.server_init({}), []
    for round in range(6):
        view = server_view(ready, clients=(0,), round=round)
        asked.append(bool(rule.announce(state, view)))
        state = rule.merge(state, view, Replies({0: reply(lost)}))
    assert asked == [True, False] * 3


def test_the_servers_target_is_that_of_its_own_data():
    ready = prepared()
    view = server_view(ready)
    target = GradientMatching().target(view)["target"]
    outputs = ready.setting.network.outputs(view.model, view.validation.x)
    assert torch.equal(
        target, label_wise_target(outputs.features, outputs.logits.softmax(1), view.validation.y)
    )
    whole = GradientMatching(variant="whole").target(view)["target"]
    assert whole.shape == target.shape
    # The bias column of the mean gradient is the mean residual.
    residual = outputs.logits.softmax(1) - torch.nn.functional.one_hot(view.validation.y, 10)
    assert torch.allclose(whole[:, -1], residual.mean(0), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"variant": "whole"}, {"score": "distance"}, {"score": "nearest"}, {"nonnegative": False}],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_variant_trains(tmp_path, options, weighted):
    result = run(
        tmp_path,
        method="gcfl",
        rounds=2,
        coreset={**options, "weighted": weighted, "split": "equal", "points_per_step": 2},
    )
    assert result.finished
    sizes = prepared().federation.clients.partition.sizes
    for client, coreset in result.coresets[0].items():
        assert len(set(coreset.indices)) == len(coreset) == max(1, round(0.2 * sizes[client]))


def test_a_class_with_a_single_sample_at_the_server_is_refused_unless_forced(caplog):
    x = torch.zeros(8, 2)
    lone = Shard(x, torch.tensor([0, 0, 0, 0, 0, 1, 2, 2]), np.arange(8))
    with pytest.raises(DataError, match="a single sample of class b"):
        GradientMatching().check(lone, ("a", "b", "c", "d"))
    GradientMatching(allow_single=True).check(lone, ("a", "b", "c", "d"))
    assert "fewer than 5 samples of class b, c" in caplog.text
    assert "no sample of class d" in caplog.text


def test_names_compose():
    for name, word in WORDS.items():
        slots = parse(name)
        for slot, part in word.decides.items():
            assert getattr(slots, slot) is part
    both = parse("fedavg+random")
    assert both.select is Random
    assert parse("skyline+random").clean_only
    for wrong, message in {
        "gcfl+random": "contradictory",
        "fedavg+": "unknown",
        "gclf": "did you mean gcfl",
    }.items():
        with pytest.raises(ConfigError, match=message):
            parse(wrong)


def test_skyline_with_a_budget_is_random_on_clean_samples(tmp_path):
    result = run(tmp_path, method="skyline+random")
    assert {record.coreset.clean_share for record in result.rounds} == {1.0}
    assert (
        result.rounds[0].coreset.size < run(tmp_path, method="skyline").rounds[0].coreset.size / 2
    )


def test_options_that_a_method_does_not_have_do_not_change_its_identity():
    one, unused = config.build(tiny(method="fedavg", coreset={"budget": 0.3}))
    other, _ = config.build(tiny(method="fedavg", coreset={"budget": 0.7}))
    assert "coreset.budget" in unused
    assert one.identity() == other.identity()
    changed = [
        config.build(tiny(method="gcfl", coreset={"budget": share}))[0].identity()
        for share in (0.3, 0.7)
    ]
    assert changed[0] != changed[1]


def test_workers_and_checkpoints_do_not_change_the_identity():
    plain = config.build(tiny())[0].identity()
    assert plain == config.build(tiny(engine={"workers": 3, "checkpoint_every": 7}))[0].identity()
    assert plain != config.build(tiny(seed=1))[0].identity()


class Visits(SelectionRule):
    """The first half of the samples; remembers how often it was asked, and no indices."""

    name = "visits"
    summary = "the first half, with a memory of something else"

    def select(self, view, received, memory):
        count = memory.get("visits", torch.tensor(0)) + 1
        half = unweighted(np.arange(view.size // 2))
        return Selection(half, {}, {"visits": count}, fresh=True)


class Forgetful(Visits):
    name = "forgetful"

    def select(self, view, received, memory):
        return Selection(unweighted(np.arange(view.size // 2)), {}, {}, fresh=True)


@pytest.mark.parametrize("rule", [Visits, Forgetful])
@pytest.mark.parametrize("engine", [{}, {"workers": 2}, {"vectorised": True}])
def test_a_rule_that_remembers_something_else_gets_its_true_clean_share(
    rule, engine, tmp_path, own_words
):
    register(rule)
    result = run(tmp_path, method=rule.name, rounds=2, engine=engine)
    federation = prepared().federation
    rows = [
        federation.clients.source_rows[client][: size // 2]
        for client, size in enumerate(federation.clients.partition.sizes)
    ]
    chosen = np.concatenate(rows)
    for client, coreset in result.coresets[1].items():
        assert np.array_equal(coreset.indices, rows[client])
    expected = (~federation.truth.noisy[chosen]).mean()
    shares = [share_of(record) for record in result.rounds]
    assert shares == [pytest.approx(expected)] * 2


class Pooled(Selector):
    """Candidates of twice the budget, and a count of the choices in its memory."""

    name = "pooled"
    summary = "twice the budget, drawn from in each round"
    needs = "probabilities"

    def pick(self, pool, target, budget, draw, memory):
        count = memory.get("count", torch.tensor(0)) + 1
        return unweighted(np.arange(2 * budget)), {"count": count}


@pytest.mark.parametrize("engine", [{}, {"workers": 2}, {"vectorised": True}])
def test_more_candidates_than_the_budget_are_drawn_from_in_every_round(engine, tmp_path, own_words):
    register(Pooled)
    result = run(tmp_path, method="pooled", rounds=4, coreset={"every": 2}, engine=engine)
    sizes = prepared().federation.clients.partition.sizes
    drawn = [result.coresets[round] for round in range(4)]
    for coresets in drawn:
        for client, coreset in coresets.items():
            budget = max(1, round(0.2 * sizes[client]))
            candidates = prepared().federation.clients.source_rows[client][: 2 * budget]
            assert len(set(coreset.indices)) == budget
            assert set(coreset.indices) <= set(candidates)
    assert any(set(drawn[0][c].indices) != set(drawn[1][c].indices) for c in drawn[0])
    ready = prepared(method="pooled", rounds=4, coreset={"every": 2})
    transport = ready.transport()
    loop, state = ready.rounds(transport), None
    state = loop.begin()
    for _ in range(4):
        played = loop.play(state)
        transport.commit(played.accepted)
        state = played.state
    assert {int(transport.of(c)["select"]["memory.count"]) for c in range(5)} == {2}
