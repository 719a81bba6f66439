"""Weights to start from, and what is frozen."""

from __future__ import annotations

import logging

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import gcfl
from gcfl.base.errors import ModelError
from gcfl.models import ModelOptions, make
from gcfl.models.start import network_of
from helpers import run

SHAPE, CLASSES = (1, 8, 8), 10


def network(**options):
    options = ModelOptions(**{"name": "mlp", "hidden": [16], **options})
    module = make(SHAPE, CLASSES, options, seed=0)
    return network_of(module, torch.zeros(2, *SHAPE), CLASSES, None, options)


def other(classes=CLASSES, hidden=16):
    """Weights of the same layers, from another seed."""
    return make(SHAPE, classes, ModelOptions(name="mlp", hidden=[hidden]), seed=1).state_dict()


def saved(path, tensors, **changes):
    found = {**tensors, **changes}
    save_file({name: one for name, one in found.items() if one is not None}, path)
    return str(path)


def test_all_tensors_come_from_the_file(tmp_path):
    weights = other()
    tree = network(weights=saved(tmp_path / "w.safetensors", weights)).tree()
    assert all(torch.equal(tree[name], weights[name]) for name in weights)


@pytest.mark.parametrize("lost", [{"3.weight": None, "3.bias": None}, {}])
def test_a_head_for_other_classes_starts_afresh(tmp_path, lost, caplog):
    weights = other(classes=4)
    with caplog.at_level(logging.INFO, "gcfl"):
        tree = network(weights=saved(tmp_path / "w.safetensors", weights, **lost)).tree()
    fresh = network().tree()
    assert torch.equal(tree["1.weight"], weights["1.weight"])
    assert torch.equal(tree["3.weight"], fresh["3.weight"])
    assert "it starts afresh" in caplog.text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"9.weight": torch.zeros(2)}, "has '9.weight' that the model lacks"),
        ({"1.bias": None}, "lacks '1.bias'"),
        ({"1.bias": torch.zeros(7)}, r"'1.bias' has shape \(7,\), the model's has \(16,\)"),
        ({"1.bias": torch.full((16,), torch.nan)}, "'1.bias' has NaN"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, sentence):
    with pytest.raises(ModelError, match=sentence):
        network(weights=saved(tmp_path / "w.safetensors", other(), **changes))


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.ckpt"])
def test_pickles_are_never_read(tmp_path, name):
    (tmp_path / name).write_bytes(b"boom")
    with pytest.raises(ModelError, match=r"never read.*safetensors.torch.save_file") as caught:
        network(weights=str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        network(weights=str(tmp_path / "nowhere.safetensors"))
    (tmp_path / "odd.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ModelError, match="is no safetensors file"):
        network(weights=str(tmp_path / "odd.safetensors"))


def test_a_run_starts_from_another_and_counts_what_it_started_from(tmp_path):
    first = run(tmp_path, rounds=2)
    # nothing is learnt at this rate: what is left is what it started from
    still = {"train": {"lr": 1e-12, "weight_decay": 0.0}, "method": "fedavg", "rounds": 1}
    second = run(tmp_path, model={"weights": str(first.folder)}, **still)
    for name, tensor in first.model.tree.items():
        assert torch.allclose(tensor, second.model.tree[name], atol=1e-6)
    moved = tmp_path / "far.safetensors"
    moved.write_bytes((first.folder / "model.safetensors").read_bytes())
    same = run(tmp_path / "else", model={"weights": str(moved)}, **still)
    assert same.folder.name == second.folder.name
    assert run(tmp_path, **still).folder.name != second.folder.name
    assert "weights" not in same.model.network.module.__dict__
    save_file(other(), moved)
    (same.folder / "summary.json").unlink()
    with pytest.raises(gcfl.GcflError, match="other files than what is there now"):
        gcfl.resume(same.folder)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.Dropout(0.5), nn.ReLU()
        )
        self.more = nn.Linear(12, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.more(self.body(x)))


def frozen(freeze):
    options = ModelOptions(name="given", freeze=freeze)
    return network_of(Normed(), torch.zeros(2, *SHAPE), CLASSES, None, options)


def test_a_frozen_body_takes_no_gradients_and_holds_still():
    found, x = frozen("body"), torch.randn(6, *SHAPE)
    assert set(found.trained) == set(found.sent) == {"head.weight", "head.bias"}
    tree = found.tree()
    before = {name: tensor.clone() for name, tensor in tree.items()}
    training = found(tree, x, training=True)
    assert torch.equal(training.logits, found(tree, x).logits)
    assert all(torch.equal(before[name], tree[name]) for name in tree)


def test_parts_by_name():
    found, x = frozen(["body"]), torch.randn(6, *SHAPE)
    assert set(found.sent) == {"more.weight", "more.bias", "head.weight", "head.bias"}
    assert torch.equal(found(found.tree(), x, training=True).logits, found(found.tree(), x).logits)
    free = frozen(["more"])
    assert "body.2.running_mean" in free.sent
    assert not torch.equal(free(free.tree(), x, training=True).logits, free(free.tree(), x).logits)
    with pytest.raises(ModelError, match="has no 'bod'; it has 'body', 'more', 'head'"):
        frozen(["bod"])
    with pytest.raises(ModelError, match="no parameter to train"):
        frozen(["body", "more", "head"])


@pytest.mark.parametrize(
    ("options", "warned"),
    [({}, True), ({"weights": True}, False), ({"name": "logistic"}, False), ({"own": True}, False)],
)
def test_layers_that_are_frozen_at_random(tmp_path, caplog, options, warned):
    """Not those of somebody's own module, which may have been trained."""
    model = {"name": "mlp", "hidden": [16], "freeze": "body", **options}
    if model.pop("own", False):
        model = {"name": make(SHAPE, CLASSES, ModelOptions(name="mlp"), seed=1), "freeze": "body"}
    if "weights" in model:
        model["weights"] = saved(tmp_path / "w.safetensors", other())
    run(tmp_path, method="fedavg", rounds=1, model=model)
    assert ("as they were drawn, at random" in caplog.text) == warned
