"""What a round accepts, what it leaves out, what it costs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

import gcfl
from gcfl.base.data_types import Update
from gcfl.base.errors import RunError
from gcfl.base.record import Samples, Traffic
from gcfl.engine import InProcess
from gcfl.engine.client import ClientSide
from gcfl.methods.averaging import Average
from gcfl.methods.replies import Replies, mean_delta
from helpers import equal_trees, prepared, run, same_bits, tiny


class Tampered(InProcess):
    """Changes what chosen clients answer."""

    def __init__(self, side, tamper):
        super().__init__(side)
        self._tamper = tamper

    def exchange(self, broadcasts):
        answers = super().exchange(broadcasts)
        changed = {
            client: self._tamper.get(client, lambda answer: answer)(answer)
            for client, answer in answers.items()
        }
        failures = {client: answer for client, answer in changed.items() if isinstance(answer, str)}
        updates = {client: one for client, one in changed.items() if client not in failures}
        return Replies(updates, failures, answers.observed)


def changed(change):
    def tamper(update):
        delta = {name: value.clone() for name, value in update.delta.items()}
        change(delta)
        return Update(delta, update.payload, update.examples, update.metrics)

    return tamper


def broken(value):
    def change(delta):
        delta["1.weight"][0, 0] = value

    return change


def play(tamper, method="gcfl"):
    ready = prepared(method=method)
    transport = Tampered(ClientSide(ready.setting, ready.method, ready.federation.clients), tamper)
    rounds = ready.rounds(transport)
    return rounds, rounds.play(rounds.begin())


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (changed(broken(float("nan"))), "NaN or infinite values in 1.weight"),
        (changed(broken(float("inf"))), "NaN or infinite values in 1.weight"),
        (
            changed(lambda delta: delta.update({"1.weight": torch.zeros(2, 2)})),
            r"1.weight has shape \(2, 2\), expected \(16, 64\)",
        ),
        (changed(lambda delta: delta.pop("1.weight")), "does not have the model's tensors"),
        (lambda _: "ValueError: no power", "ValueError: no power"),
    ],
)
def test_a_bad_update_is_left_out_named_and_the_rest_counts(tamper, reason, caplog):
    with caplog.at_level(logging.WARNING, "gcfl"):
        rounds, played = play({3: tamper})
    assert played.accepted == (0, 1, 2, 4)
    assert set(played.left_out) == {3}
    import re

    assert re.search(f"round 0: client 3 is left out: .*{reason}", caplog.text)
    # The same as a round in which only the four others answered.
    _, good = play({})
    honest = rounds.transport._side
    view = {
        client: honest.work(client, _broadcast(rounds, client), {}).update
        for client in (0, 1, 2, 4)
    }
    start = rounds.begin()
    expected = mean_delta(list(view.values()), by_examples=False)
    for name, value in played.state.model.items():
        assert torch.allclose(value, start.model[name] + expected[name], atol=1e-7)
    assert not equal_trees(played.state.model, good.state.model)


def _broadcast(rounds, client):
    from gcfl.base.data_types import Broadcast
    from gcfl.methods import ServerView

    start = rounds.begin()
    view = ServerView(rounds.setting, 0, start.model, rounds.validation, (client,))
    announced = rounds.method.select.announce(start.parts["select"], view)
    return Broadcast(0, start.model, {"select": announced[client]})


def test_a_round_with_no_valid_reply_is_an_error():
    everyone = dict.fromkeys(range(5), lambda _: "gone")
    with pytest.raises(
        RunError, match=r"round 0: no client gave a valid update \(client 0: gone\)"
    ):
        play(everyone)


def test_a_client_that_was_left_out_keeps_what_it_remembered_before():
    ready = prepared(method="gcfl")
    transport = Tampered(
        ClientSide(ready.setting, ready.method, ready.federation.clients),
        {2: lambda _: "gone"},
    )
    rounds = ready.rounds(transport)
    played = rounds.play(rounds.begin())
    transport.commit(played.accepted)
    assert not transport.of(2)
    assert transport.of(1)["select"]
    # It counts as never selected, so it is told to select in the next round it takes part in.
    again = rounds.play(played.state)
    assert again.selected == 0
    transport._tamper = {}
    assert rounds.play(played.state).selected == 1


class Fragile(nn.Module):
    """Fails on clients with fewer than 30 samples."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        if self.training and x.shape[0] < 30:
            raise ValueError("too few samples for me")
        return self.head(self.flat(x))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_raises_does_not_take_the_round_with_it(tmp_path, workers):
    settings = own_model(method="fedavg", rounds=2, train={"batch": 1000}, data={"alpha": 0.1})
    result = gcfl.run(model=Fragile, out=tmp_path, workers=workers, **settings)
    small = np.flatnonzero(prepared(data={"alpha": 0.1}).federation.clients.partition.sizes < 30)
    assert 0 < len(small) < 5
    for record in result.rounds:
        assert record.left_out == {
            str(client): "ValueError: too few samples for me" for client in small
        }


def test_uniform_and_by_examples():
    updates = [
        Update({"w": torch.tensor([3.0])}, {}, 1, {}),
        Update({"w": torch.tensor([7.0])}, {}, 3, {}),
    ]
    assert mean_delta(updates, by_examples=False)["w"] == 5
    assert mean_delta(updates, by_examples=True)["w"] == 6
    from gcfl.methods import ServerView

    ready = prepared()
    name = ready.setting.network.trained[0]
    updates = [Update({name: update.delta["w"]}, {}, update.examples, {}) for update in updates]
    view = ServerView(
        ready.setting, 0, {name: torch.tensor([1.0])}, ready.federation.validation, (0, 1)
    )
    _, model = Average(rate=0.5).merge({}, view, Replies(dict(enumerate(updates))))
    assert model[name] == 3.5


def test_whole_number_buffers_are_averaged_and_rounded():
    updates = [Update({"n": torch.tensor(value)}, {}, 1, {}) for value in (3, 4, 4)]
    from gcfl.methods import ServerView
    from gcfl.methods.averaging import step

    ready = prepared()
    model = {"n": torch.tensor(10), "kept": torch.tensor(5.0)}
    moved = step(
        ServerView(ready.setting, 0, model, ready.federation.validation, ()),
        mean_delta(updates, False),
        0.5,
    )
    assert moved["n"] == 14
    assert moved["n"].dtype == torch.int64
    assert moved["kept"] == 5


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10)
        )


def own_model(**changes):
    return {key: value for key, value in tiny(**changes).items() if key != "model"}


@pytest.mark.parametrize("method", ["fedavg", "gcfl", "server-only"])
def test_batch_norm_statistics_are_averaged(tmp_path, method):
    result = gcfl.run(model=Normed, out=tmp_path, **own_model(method=method, train={"batch": 7}))
    tree = result.model.tree
    assert int(tree["2.num_batches_tracked"]) > 0
    assert not torch.equal(tree["2.running_mean"], torch.zeros(12))
    test = prepared().federation.test
    assert np.mean(
        gcfl.load(result.folder, model=Normed).predict(test.x) == test.y.numpy()
    ) == pytest.approx(result.accuracy)


def test_batch_norm_statistics_are_kept_and_not_sent_where_asked(tmp_path):
    settings = own_model(method="fedavg", rounds=1)
    kept = gcfl.run(model=Normed, out=tmp_path, **{"model.buffers": "keep"}, **settings)
    assert torch.equal(kept.model.tree["2.running_mean"], torch.zeros(12))
    averaged = gcfl.run(model=Normed, out=tmp_path, **settings)
    buffers = 12 * 4 + 12 * 4 + 8
    sent = [result.rounds[0].bytes.up["model"] for result in (averaged, kept)]
    assert sent[0] - sent[1] == 5 * buffers


def test_cost_is_counted(tmp_path):
    """Samples, steps and bytes against counts made by hand."""
    ready = prepared()
    sizes = ready.federation.clients.partition.sizes
    budget = np.array([max(1, round(0.2 * size)) for size in sizes])
    parameters = sum(value.numel() for value in ready.setting.network.tree().values())
    fedavg, chosen = run(tmp_path, method="fedavg").rounds[0], run(tmp_path, method="gcfl").rounds
    assert fedavg.samples == Samples(sizes.sum(), sizes.sum())
    assert fedavg.steps == sum(-(-size // 32) for size in sizes)
    assert fedavg.bytes.down == {"model": 5 * parameters * 4}
    assert fedavg.bytes.up["model"] == 5 * parameters * 4
    # A selection is one pass over everything at the client, and one over D_S at the server.
    assert chosen[0].samples == Samples(sizes.sum() + 60 + budget.sum(), budget.sum())
    assert chosen[1].samples == Samples(budget.sum(), budget.sum())
    server = run(tmp_path, method="server-only").rounds[0]
    assert server.samples == Samples(60, 60)
    assert server.bytes == Traffic({}, {})
    assert server.cohort == 0


def test_clean_share_is_that_of_the_truth(tmp_path):
    result = run(tmp_path, method="gcfl")
    noisy = prepared().federation.truth.noisy
    for round, chosen in result.coresets.items():
        ids = np.concatenate([coreset.indices for coreset in chosen.values()])
        assert result.rounds[round].coreset.clean_share == 1 - noisy[ids].mean()


@pytest.mark.parametrize("vectorised", [False, True])
def test_the_clean_share_of_weighted_training_is_of_what_it_trains_on(tmp_path, vectorised):
    coreset = {"weighted": True, "budget": 0.8, "variant": "whole", "ridge": 0.0}
    changes = {"coreset": coreset, "engine": {"vectorised": vectorised}}
    result = run(tmp_path, method="gcfl", **changes)
    noisy = prepared(**changes).federation.truth.noisy
    differ = 0
    for round, chosen in result.coresets.items():
        ids, weights = (
            np.concatenate([getattr(one, name) for one in chosen.values()])
            for name in ("indices", "weights")
        )
        used = ids[weights > 0]
        record = result.rounds[round].coreset
        assert record.clean_share == pytest.approx(1 - noisy[used].mean(), abs=1e-12)
        assert record.size == len(used)
        differ += noisy[used].mean() != noisy[ids].mean()
    assert differ > 0


@pytest.mark.parametrize("method", ["fedavg", "gcfl", "gcfl+fedavg", "random", "skyline"])
def test_any_number_of_workers_gives_the_same_bits(tmp_path, method):
    folders = [
        run(tmp_path / str(count), method=method, engine={"workers": count}, cohort=4).folder
        for count in (1, 2, 3)
    ]
    same_bits(folders[0], folders[1])
    same_bits(folders[0], folders[2])


@pytest.mark.parametrize("method", ["gcfl", "random", "fedavg", "server-only", "skyline"])
def test_evaluation_can_be_rare_and_changes_nothing_else(tmp_path, method):
    often = run(tmp_path, method=method)
    seldom = run(tmp_path, method=method, engine={"evaluate_every": 4})
    assert [record.accuracy is not None for record in seldom.rounds] == [
        False,
        False,
        False,
        True,
        False,
        True,
    ]
    assert seldom.accuracy == often.accuracy
    assert equal_trees(seldom.model.tree, often.model.tree)


def test_clients_with_one_sample_and_absent_classes_work(tmp_path):
    result = run(
        tmp_path,
        data={"clients": 60, "min_size": 1, "alpha": 0.05},
        rounds=2,
        engine={"workers": 2},
    )
    ready = prepared(data={"clients": 60, "min_size": 1, "alpha": 0.05})
    assert ready.federation.clients.partition.sizes.min() == 1
    assert result.finished
    assert not result.rounds[0].left_out
