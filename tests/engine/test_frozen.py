"""A frozen body looks once: the run on its features is the run on the inputs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

import gcfl
from gcfl import experiment as config
from gcfl.api import running
from gcfl.engine import frozen as room
from gcfl.engine.prepare import Given, prepare
from helpers import same_bits, tiny


class Backbone(nn.Module):
    def __init__(self, dropout=0.0, normed=False):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3),
            nn.BatchNorm2d(6) if normed else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Flatten(),
        )
        self.top = nn.ModuleDict({"head": nn.Linear(6 * 36, 10)})

    def forward(self, x):
        return self.top["head"](self.body(x))


def by_hand(**options):
    torch.manual_seed(0)
    made = Backbone(**options)
    made.body.requires_grad_(False)
    return made


def run(out, model=None, **changes):
    settings = tiny(**{"rounds": 3, **changes})
    settings["model"] = {"name": Backbone, "freeze": "body"} if model is None else model
    return gcfl.run(out=out, **settings)


@pytest.fixture
def whole(monkeypatch):
    """Runs on the inputs themselves."""

    def switch():
        monkeypatch.setattr(
            running, "prepare", lambda *args, **_: prepare(*args, on_features=False)
        )

    return switch


@pytest.mark.parametrize("method", ["gcfl", "fedavg", "scaffold+gcfl", "moon", "robust"])
def test_the_result_is_that_of_the_inputs(tmp_path, whole, method):
    cached = run(tmp_path / "cached", method=method)
    whole()
    plain = run(tmp_path / "plain", method=method)
    assert cached.folder.name == plain.folder.name
    assert cached.model.tree.keys() == plain.model.tree.keys()
    for name, tensor in plain.model.tree.items():
        assert torch.allclose(tensor, cached.model.tree[name], atol=1e-5), name
    x = np.random.default_rng(0).integers(0, 16, (20, 1, 8, 8)).astype(np.float32)
    assert np.allclose(plain.model.predict_proba(x), cached.model.predict_proba(x), atol=1e-4)
    ours, theirs = cached.rounds, plain.rounds
    assert [one.accuracy for one in ours] == [one.accuracy for one in theirs]
    # each sample of clients and server went through the body once more, and that is all
    more = 300 - 60
    assert ours[0].samples.forward == theirs[0].samples.forward + more
    assert ours[1].samples == theirs[1].samples
    assert ours[0].samples.backward == theirs[0].samples.backward


def test_workers_a_resume_and_many_clients_at_once(tmp_path):
    one = run(tmp_path / "one")
    same_bits(one.folder, run(tmp_path / "two", engine={"workers": 2}).folder)
    many = run(tmp_path / "many", engine={"vectorised": True})
    for name, tensor in one.model.tree.items():
        assert torch.allclose(tensor, many.model.tree[name], atol=1e-5)
    assert len(gcfl.audit(one).sites) == 5


def test_features_are_kept_by_what_made_them(tmp_path, monkeypatch):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(room, "_WORTH", 1)
    looks = []
    computed = room.Frozen._computed
    monkeypatch.setattr(
        room.Frozen, "_computed", lambda self, x: looks.append(len(x)) or computed(self, x)
    )
    first = run(tmp_path / "first")
    assert sorted(looks) == [3, 60, 60, 180]
    again = run(tmp_path / "second")
    assert len(looks) == 4  # nothing went through the body
    same_bits(first.folder, again.folder)
    run(tmp_path / "third", method="fedavg", data={"noise": 0.1})
    assert len(looks) == 4  # labels are no inputs
    run(tmp_path / "fourth", seed=1)  # another body, another split
    assert len(looks) == 8


def test_what_acts_on_inputs_turns_it_off(tmp_path, caplog):
    def kept(model=None, **changes):
        options = {"name": "given"} if model else {"name": "given", "freeze": "body"}
        experiment = config.build({**tiny(**changes), "model": options})[0]
        given = Given(None, model or Backbone)
        return prepare(experiment, given, on_features=True).frozen is not None

    assert kept()
    assert not kept(train={"augment": "crop"})
    assert not kept(train={"mixup": 0.2})
    with caplog.at_level(logging.INFO, "gcfl"):
        assert kept(train={"augment": "auto"})
    assert "train.augment is none" in caplog.text
    # models from Python that are frozen by hand
    assert kept(by_hand())
    assert not kept(by_hand(dropout=0.5))
    with caplog.at_level(logging.INFO, "gcfl"):
        assert not kept(by_hand(normed=True))
    assert 'model.freeze = "body" holds it still' in caplog.text
    assert not kept(Backbone())
    assert kept(lambda: by_hand(normed=False))


def test_batch_norm_and_dropout_hold_still_where_frozen_by_setting(tmp_path, whole):
    model = {"name": by_hand(dropout=0.5, normed=True), "freeze": "body"}
    cached = run(tmp_path / "cached", model)
    whole()
    plain = run(tmp_path / "plain", model)
    for name, tensor in plain.model.tree.items():
        assert torch.allclose(tensor, cached.model.tree[name], atol=1e-5), name
        if name.startswith("body."):
            assert torch.equal(tensor, model["name"].state_dict()[name])


def test_what_broadcast_gradients_tell_is_warned_of(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "gcfl"):
        run(tmp_path, coreset={"every": 1}, rounds=8)
    assert "the model's body never changes" in caplog.text


def test_a_linear_model_has_no_body_to_keep(tmp_path):
    settings = tiny(model={"name": "logistic"})
    settings["model"].pop("hidden")
    assert prepare(config.build(settings)[0], Given(), on_features=True).frozen is None
