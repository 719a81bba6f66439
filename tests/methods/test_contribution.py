"""How much each client helped: against plain autograd, models put together by hand, and harm."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn.functional import cross_entropy

import gcfl
from gcfl.base.errors import ConfigError, RunError
from gcfl.base.record import RoundRecord
from gcfl.engine import ClientSide, InProcess, Vectorised
from gcfl.engine.prepare import Given
from gcfl.methods import Replies, ServerView
from gcfl.methods.contribution import contributions as of_round
from gcfl.methods.server_training import SERVER
from gcfl.report.build import report
from gcfl.report.terminal import show
from gcfl.results.contribution import contributions
from helpers import equal_trees, prepared, run, same_bits, timeless, tiny

ASKED = {"contribution": True, "contribution_every": 2}
PLAIN = {"method": "fedavg", "rounds": 3, "data": {"validation": 90}}


class Draws(nn.Module):
    """Statistics that move, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.drop(self.body(x)))


def play(ready, rounds, kind=InProcess, spoil=lambda answers: answers):
    """Round by round: the model that was sent, the answers, what was heard at the merge, and the
    round as it was played.
    """
    transport = kind(ClientSide(ready.setting, ready.method, ready.federation.clients))
    loop, seen = ready.rounds(transport), []
    exchange, merge = transport.exchange, type(ready.method.server).merge
    entered = []

    def spy(broadcasts):
        answers = spoil(exchange(broadcasts))
        seen.append([next(iter(broadcasts.values())).model, answers])
        return answers

    def watched(self, state, view, replies):
        entered.append(replies)
        return merge(self, state, view, replies)

    transport.exchange = spy
    state = loop.begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(ready.method.server), "merge", watched)
        for number in range(rounds):
            step = loop.play(state)
            transport.commit(step.accepted)
            seen[-1] += [entered[number], step]
            state = step.state
    return seen


def by_hand(ready, model, delta):
    """(norm, cosine) of one update by loops over tensors and torch's own autograd."""
    shard = ready.held_out or ready.federation.validation
    network = ready.setting.network
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in model.items()}
    module = network.module.eval()
    logits = torch.func.functional_call(module, leaves, (network.prepare(shard.x),))
    cross_entropy(logits, shard.y).backward()
    inner = square = length = 0.0
    for name in network.trained:
        step = -leaves[name].grad.double()
        inner += float((delta[name].double() * step).sum())
        square += float((delta[name].double() ** 2).sum())
        length += float((step**2).sum())
    return square**0.5, inner / (square * length) ** 0.5


def loss_by_hand(ready, model):
    """The cross-entropy after the best temperature of a grid."""
    shard = ready.held_out or ready.federation.validation
    logits = ready.setting.network.outputs(model, shard.x).logits.double()
    grid = torch.linspace(-3, 3, 6001).exp()
    return min(float(cross_entropy(logits / t, shard.y)) for t in grid.tolist())


@pytest.mark.parametrize("kind", [InProcess, Vectorised])
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("clean", [{}, {"hold_out": 0.4}, {"takes_part": True, "hold_out": 0.4}])
def test_norm_cosine_and_weight_are_their_definition(kind, weighting, clean):
    changes = {**PLAIN, "clean": {**ASKED, **clean}, "server": {"weighting": weighting}}
    ready = prepared(**changes)
    size = len(ready.held_out or ready.federation.validation)
    for model, answers, heard, step in play(ready, 3, kind):
        assert list(step.contribution) == [str(client) for client in answers]
        assert step.contribution_on == ("held out" if clean else "clean set")
        parts = {one: heard[one].examples if weighting == "examples" else 1 for one in heard}
        assert (SERVER in parts) == ("takes_part" in clean)
        for client, update in answers.items():
            found = step.contribution[str(client)]
            norm, cosine = by_hand(ready, model, update.delta)
            assert found["norm"] == pytest.approx(norm, rel=1e-6)
            assert found["cosine"] == pytest.approx(cosine, abs=1e-5)
            assert found["weight"] == pytest.approx(parts[client] / sum(parts.values()))
    bare = play(prepared(**{**changes, "clean": clean}), 3, kind)
    for (*_, asked), (*_, plain) in zip(play(ready, 3, kind), bare, strict=True):
        passes = 1 + (0 if asked.state.round % 2 == 0 else 1 + len(asked.accepted))
        assert asked.samples.forward - plain.samples.forward == passes * size
        assert asked.samples.backward - plain.samples.backward == size
        assert plain.contribution is plain.contribution_on is None


@pytest.mark.parametrize("kind", [InProcess, Vectorised])
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("clean", [{"hold_out": 0.4}, {"takes_part": True}])
def test_left_out_losses_are_their_definition(kind, weighting, clean):
    ready = prepared(**PLAIN, clean={**ASKED, **clean}, server={"weighting": weighting})
    for number, (model, answers, _, step) in enumerate(play(ready, 3, kind)):
        if number % 2:
            assert all("left_out_loss" not in one for one in step.contribution.values())
            continue

        def mean_of(clients, model=model, answers=answers):
            parts = [answers[one].examples if weighting == "examples" else 1 for one in clients]
            return {
                name: tensor
                + sum(p * answers[c].delta[name] for p, c in zip(parts, clients, strict=True))
                / sum(parts)
                for name, tensor in model.items()
            }

        whole = loss_by_hand(ready, mean_of(list(answers)))
        for client in answers:
            rest = mean_of([one for one in answers if one != client])
            expected = loss_by_hand(ready, rest) - whole
            found = step.contribution[str(client)]["left_out_loss"]
            assert found == pytest.approx(expected, abs=2e-6)
        sizes = [abs(one["left_out_loss"]) for one in step.contribution.values()]
        assert max(sizes) > 1e-4  # far above what is allowed to differ


def test_one_client_that_outweighs_all_others_is_left_out_exactly():
    ready = prepared(**PLAIN, clean=ASKED)
    model, answers, *_ = play(ready, 1)[0]
    giant = Replies(
        {c: replace(one, examples=10**9 if c == 2 else 1) for c, one in answers.items()}
    )
    view = ServerView(ready.setting, 0, model, ready.federation.validation, tuple(answers))
    found = of_round(view, giant, giant, by_examples=True, leave_out=True)
    others = [giant[one].delta for one in giant if one != 2]
    rest = {name: t + sum(d[name] for d in others) / len(others) for name, t in model.items()}
    alone = {name: t + giant[2].delta[name] for name, t in model.items()}
    expected = loss_by_hand(ready, rest) - loss_by_hand(ready, alone)
    assert found["2"]["left_out_loss"] == pytest.approx(expected, abs=2e-6)
    assert sum(one["weight"] for one in found.values()) == pytest.approx(1)


@pytest.mark.parametrize("model", [None, Draws])
def test_stacked_is_the_loop(model):
    ready = prepared(Given(model=model), **PLAIN, clean={**ASKED, "hold_out": 0.3})
    model, answers, *_ = play(ready, 1, Vectorised if model is None else InProcess)[0]
    from gcfl.methods import Stacked

    clients = list(answers)
    stacked = Stacked(
        np.array(clients),
        {name: torch.stack([answers[c].delta[name] for c in clients]) for name in answers[0].delta},
        {},
        answers.examples,
        {},
    )
    view = ServerView(
        ready.setting,
        0,
        model,
        ready.federation.validation,
        tuple(clients),
        held_out=ready.held_out,
    )
    single = Replies({client: answers[client] for client in clients})
    for by_examples in (False, True):
        one, many = (of_round(view, each, each, by_examples, True) for each in (single, stacked))
        assert one.keys() == many.keys()
        for client, numbers in one.items():
            assert set(numbers) == {"norm", "cosine", "weight", "left_out_loss"}
            assert many[client] == pytest.approx(numbers, abs=1e-5)


def test_vectorised_runs_agree_with_the_loop():
    ready = prepared(**PLAIN, clean={**ASKED, "hold_out": 0.3})
    for (*_, one), (*_, many) in zip(play(ready, 3), play(ready, 3, Vectorised), strict=True):
        for client, numbers in one.contribution.items():
            assert many.contribution[client] == pytest.approx(numbers, abs=1e-5)


@pytest.mark.parametrize("method", ["robust", "scaffold", "fedavg", "gcfl+fedadam"])
def test_the_model_has_the_same_bits(method, tmp_path):
    changes = {
        "method": method,
        "rounds": 4,
        "data": {"validation": 120},
        "clean": {"hold_out": 0.3},
    }
    plain = run(tmp_path, **changes)
    asked = run(tmp_path, **{**changes, "clean": {"hold_out": 0.3, **ASKED}})
    assert equal_trees(plain.model.tree, asked.model.tree)
    news = ("contribution", "contribution_on", "samples")
    for first, second in zip(plain.rounds, asked.rounds, strict=True):
        assert first.contribution is None
        assert second.contribution
        same = [
            {name: value for name, value in timeless(one.to_json()).items() if name not in news}
            for one in (first, second)
        ]
        assert same[0] == same[1]


def test_statistics_and_draws_of_a_model_stay_as_they_are(tmp_path):
    settings = {name: value for name, value in tiny(**PLAIN).items() if name != "model"}
    plain, asked = (
        gcfl.run(model=Draws, out=tmp_path, **settings, clean=clean) for clean in ({}, ASKED)
    )
    assert equal_trees(plain.model.tree, asked.model.tree)


def test_one_and_two_workers_record_the_same(tmp_path):
    folders = [
        run(tmp_path / str(workers), **PLAIN, clean=ASKED, engine={"workers": workers}).folder
        for workers in (1, 2)
    ]
    same_bits(*folders)


def test_flipped_labels_show(tmp_path):
    """One client of six has nearly every label moved on by one class."""
    result = run(
        tmp_path,
        method="fedavg",
        rounds=9,
        data={
            "samples": 1000,
            "clients": 6,
            "partition": "iid",
            "noise": 0.0,
            "noise_kind": "pair",
            "noise_rates": [0.0, 0.0, 0.0, 0.99, 0.0, 0.0],
            "validation": 200,
            "test": 100,
        },
        train={"epochs": 3},
        clean={"contribution": True, "contribution_every": 1, "hold_out": 0.5},
    )
    found = contributions(result.rounds)
    flipped, honest = found.pop(3), found.values()
    assert flipped.cosine < min(one.cosine for one in honest) - 0.1
    assert flipped.gain < min(one.gain for one in honest)
    assert flipped.interval[1] < 0
    assert flipped.weight == pytest.approx(9 / 6)
    assert flipped.rounds == flipped.judged == 9


def test_invalid_updates_are_not_in_it_and_distrusted_ones_weigh_nothing():
    def spoil(answers):
        answers[1].delta["1.weight"][0] = torch.nan
        return answers

    ready = prepared(**PLAIN, clean=ASKED)
    step = play(ready, 1, spoil=spoil)[0][3]
    assert list(step.contribution) == ["0", "2", "3", "4"]
    assert {one["weight"] for one in step.contribution.values()} == {0.25}

    guarded = {
        "method": "robust",
        "data": {"clients": 8, "samples": 500},
        "clean": {**ASKED, "contribution_every": 1, "warm_start": 5, "lr": None},
        "labels": {"guard": 4},
    }
    for number, (_, answers, heard, step) in enumerate(play(prepared(**guarded), 3)):
        assert list(step.contribution) == [str(client) for client in answers]
        out = {client for client in answers if client not in heard}
        assert bool(out) == (number > 0)
        for client in answers:
            numbers = step.contribution[str(client)]
            assert numbers["weight"] == (0 if client in out else 1 / len(heard))
            assert ("left_out_loss" in numbers) == (client not in out)


def test_one_client_alone_has_nobody_to_be_compared_with():
    step = play(prepared(**{**PLAIN, "method": "centralised"}, clean=ASKED), 1)[0][3]
    assert set(step.contribution["0"]) == {"norm", "cosine", "weight"}
    assert step.contribution["0"]["weight"] == 1


def test_too_many_clients_are_not_left_out_one_by_one(caplog):
    caplog.set_level("INFO", logger="gcfl")
    many = {"samples": 700, "clients": 51, "partition": "iid", "validation": 60, "test": 60}
    ready = prepared(method="fedavg", data=many, rounds=2, clean={**ASKED, "contribution_every": 1})
    for *_, step in play(ready, 2, Vectorised):
        assert len(step.contribution) == 51
        assert all("left_out_loss" not in one for one in step.contribution.values())
    assert len([text for text in caplog.messages if "clean.contribution" in text]) == 1


def test_an_update_of_nothing_has_no_direction():
    def spoil(answers):
        for tensor in answers[0].delta.values():
            tensor.zero_()
        return answers

    step = play(prepared(**PLAIN, clean=ASKED), 1, spoil=spoil)[0][3]
    assert step.contribution["0"]["norm"] == step.contribution["0"]["cosine"] == 0


@pytest.mark.parametrize(
    ("method", "why"),
    [("local-only", "the clients' models never meet"), ("server-only", "it has no clients")],
)
def test_methods_that_have_no_use_for_it_refuse_it(method, why):
    with pytest.raises(ConfigError, match=f"clean.contribution has no effect with {method}: {why}"):
        prepared(method=method, clean={"contribution": True})
    with pytest.raises(ConfigError, match="contribution_every must be at least 1"):
        prepared(clean={"contribution_every": 0})


def lines(values):
    """Records of a client, from (cosine, norm, weight, left_out_loss or None)."""
    made = []
    for number, (cosine, norm, weight, loss) in enumerate(values):
        numbers = {"cosine": cosine, "norm": norm, "weight": weight}
        numbers |= {} if loss is None else {"left_out_loss": loss}
        made.append({**BLANK, "round": number, "contribution": {"7": numbers}})
    return [RoundRecord.from_json(line) for line in made]


CLOCK = {"wall": 0.0, "cpu": 0.0}
BLANK = {
    **dict.fromkeys(("train_loss", "accuracy", "loss", "per_class", "validation_loss")),
    "cohort": 1,
    "left_out": {},
    "lr": 0.1,
    "samples": {"forward": 0, "backward": 0},
    "steps": 0,
    "bytes": {"down": {}, "up": {}},
    "coreset": {"size": 0, "selected": 0, "clean_share": None},
    "time": dict.fromkeys(("select", "train", "aggregate", "evaluate", "round"), CLOCK),
}


def test_over_a_run():
    (found,) = contributions(
        lines([(0.5, 1, 0.2, 1.0), (0.1, 3, 0.4, None), (0.3, 2, 0.0, 2.0), (0.3, 2, 0.1, 3.0)])
    ).items()
    client, one = found
    assert (client, one.rounds, one.judged) == (7, 4, 3)
    assert (one.cosine, one.norm, one.weight) == pytest.approx((0.3, 2.0, 0.7))
    assert one.gain == pytest.approx(2.0)
    assert one.interval == pytest.approx((2 - 1.96 / 3**0.5, 2 + 1.96 / 3**0.5), abs=1e-4)
    two = contributions(lines([(0.5, 1, 0.2, 1.0), (0.5, 1, 0.2, 3.0)]))[7]
    assert (two.gain, two.interval) == (2.0, None)
    none = contributions(lines([(0.5, 1, 0.2, None)]))[7]
    assert none.gain is none.interval is None


def test_records_without_it_are_read_and_damaged_ones_are_named():
    old = RoundRecord.from_json({**BLANK, "round": 0})
    assert old.contribution is old.contribution_on is None
    assert contributions([old]) == {}
    (record,) = lines([(0.5, 1, 0.2, 1.0)])
    assert RoundRecord.from_json(record.to_json()) == record
    for wrong in ({"7": {"norm": "long"}}, {"7": 1.0}, [1]):
        with pytest.raises(ValueError, match=r"contribution|norm"):
            RoundRecord.from_json({**BLANK, "round": 0, "contribution": wrong})
    for wrong in ({"x": {"norm": 1, "cosine": 1, "weight": 1}}, {"7": {"norm": 1}}):
        broken = RoundRecord.from_json({**BLANK, "round": 0, "contribution": wrong})
        with pytest.raises(RunError, match=r"round 0: the contribution of client . is damaged"):
            contributions([broken])


def test_show_and_report_tell_it(tmp_path):
    many = {"samples": 600, "clients": 32, "partition": "iid", "validation": 60, "test": 60}
    result = run(tmp_path, method="fedavg", data=many, rounds=3, clean={**ASKED, "hold_out": 0.5})
    console = Console(width=120, file=io.StringIO())
    show(result, console)
    text = console.file.getvalue()
    assert "Contribution, least gain first" in text
    assert "the loss on the server's held-out clean samples without the client" in text
    assert "and 2 more clients" in text
    found = contributions(result.rounds)
    worst = min(found, key=lambda one: found[one].gain)
    assert f"{found[worst].gain:+.4f}" in text
    assert f"{found[worst].cosine:+.3f}" in text
    (page,) = report(result.folder, tmp_path / "report.html", data=False)
    assert "<h2>Contribution</h2>" in page.read_text()
    plain = run(tmp_path / "plain", **PLAIN)
    (page,) = report(plain.folder, tmp_path / "plain.html", data=False)
    assert "Contribution" not in page.read_text()
