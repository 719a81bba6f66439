"""How long and at which rate the server trains on its clean set: chosen by cross-validation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gcfl.methods import CleanOptions, Meter, ServerView, clean_choice
from gcfl.methods.clean_choice import settled
from gcfl.methods.server_training import annealed, warm_started
from helpers import prepared, run, same_bits


def server_view(**changes):
    ready = prepared(**changes)
    model = ready.setting.network.tree()
    return ServerView(ready.setting, 0, model, ready.federation.validation, (), Meter())


AUTO = CleanOptions(warm_start="auto", lr="auto", warm_schedule="cosine")


def test_the_choice_is_the_best_of_what_was_tried(monkeypatch):
    """Every trial is noted; by brute force, none of them beats what is chosen."""
    tried, real = [], clean_choice._tried

    def noted(view, lr, epochs):
        tried.append(real(view, lr, epochs))
        return tried[-1]

    monkeypatch.setattr(clean_choice, "_tried", noted)
    view = server_view()
    chosen, note = settled(view, AUTO, {})
    best = min(tried, key=lambda trial: trial.loss)
    mine = next(t for t in tried if (t.lr, t.epochs) == (chosen.lr, chosen.warm_start))
    assert 0.98 * mine.loss <= best.loss
    assert {trial.lr for trial in tried} == {0.05, 0.05 / 3}
    assert len({trial.epochs for trial in tried}) >= 2
    # Its cost is counted: each sample is trained on in two of three folds.
    assert view.meter.backward == sum(trial.epochs for trial in tried) * 2 * len(view.validation)
    # What is known is not looked for again.
    count = len(tried)
    assert settled(view, AUTO, note) == (chosen, note)
    assert len(tried) == count
    assert settled(view, CleanOptions(warm_start=3), {}) == (CleanOptions(warm_start=3), {})


def test_a_trial_is_judged_on_what_it_has_not_seen():
    """A network that learns by heart: its trained samples look perfect, its trial does not."""
    view = server_view()
    trial = clean_choice._tried(view, 0.05, 60)
    model = annealed(view, 0.05, 60, -9)
    logits = view.setting.network.outputs(model, view.validation.x).logits
    assert trial.loss > float(cross_entropy(logits.double(), view.validation.y)) + 0.1


def test_the_warm_start_is_a_plain_loop_at_a_falling_rate():
    view = server_view(train={"batch": 64, "weight_decay": 0.0, "momentum": 0.0})
    clean = CleanOptions(warm_start=4, warm_schedule="cosine", lr=0.2)
    found = warm_started(view, clean)
    network = view.setting.network
    x, y = network.prepare(view.validation.x), view.validation.y
    model = {name: tensor.clone().requires_grad_() for name, tensor in view.model.items()}
    for epoch in range(4):  # 60 samples: a single batch, whose order does not matter
        loss = cross_entropy(network(model, x, training=True).logits, y)
        slopes = torch.autograd.grad(loss, list(model.values()))
        rate = 0.2 * (1 + math.cos(math.pi * epoch / 4)) / 2
        model = {
            name: (tensor - rate * slope).detach().requires_grad_()
            for (name, tensor), slope in zip(model.items(), slopes, strict=True)
        }
    for name, tensor in model.items():
        assert torch.allclose(found[name], tensor, atol=1e-6)


def test_what_was_chosen_stands_in_the_record_and_survives_a_resume(tmp_path):
    whole = run(tmp_path / "a", method="robust")
    again = run(tmp_path / "b", method="robust", engine={"workers": 2})
    same_bits(whole.folder, again.folder)
    first, *others = whole.rounds
    assert set(first.chosen) == {"lr", "epochs"}
    assert all(record.chosen is None for record in others)
    assert first.time.server_cpu <= first.time.cpu
    assert whole.rounds[1].time.server_cpu > 0


def test_the_servers_rate_is_used_in_the_rounds_too(tmp_path):
    """With all clients at one rate, another for the server changes the round, and only there."""
    same, slower = (
        run(tmp_path / str(lr), method="fedavg", clean={"takes_part": True, "lr": lr})
        for lr in (0.05, 0.01)
    )
    plain = run(tmp_path / "plain", method="fedavg", clean={"takes_part": True})
    assert [r.loss for r in same.rounds] == [r.loss for r in plain.rounds]
    assert [r.loss for r in slower.rounds] != [r.loss for r in plain.rounds]


def test_a_handful_of_clean_samples_is_not_cut_into_folds():
    view = server_view()
    few = torch.arange(8)
    shard = type(view.validation)(
        view.validation.x[few], view.validation.y[few], view.validation.ids[:8]
    )
    small = ServerView(view.setting, 0, view.model, shard, (), Meter())
    chosen, _ = settled(small, AUTO, {})
    assert (chosen.lr, chosen.warm_start) == (0.05, 100)
    assert small.meter.backward == 0


@pytest.mark.parametrize(("samples", "epochs", "batch", "passes"), [(5, 1, 2, 3), (100, 2, 10, 2)])
def test_few_batches_are_passed_over_more_often(samples, epochs, batch, passes):
    """At least min_steps steps, by whole passes."""
    options = prepared(train={"epochs": epochs, "batch": batch, "min_steps": 8}).setting.train
    assert options.passes(math.ceil(samples / batch)) == passes
    assert np.ceil(samples / batch) * passes >= 8
