"""Any module that ends in a Linear works, and is told apart from any other."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import gcfl
from helpers import tiny


def run(tmp_path, model, **changes):
    settings = {
        key: value for key, value in tiny(**{"rounds": 2, **changes}).items() if key != "model"
    }
    return gcfl.run(model=model, out=tmp_path, **settings)


class Odd(nn.Module):
    """A frozen layer, an unused one, a mask, a table with infinities, a tied weight, no bias in the
    head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.frozen = nn.Linear(64, 16).requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.one = nn.Linear(16, 16)
        self.two = nn.Linear(16, 16)
        self.two.weight = self.one.weight
        self.register_buffer("mask", torch.tensor([True, False] * 8))
        self.register_buffer("table", torch.tensor([0.0, float("-inf")]))
        self.head = nn.Linear(16, 10, bias=False)

    def forward(self, x):
        hidden = torch.relu(self.frozen(self.flat(x))) * self.mask
        return self.head(torch.relu(self.two(torch.relu(self.one(hidden)))))


@pytest.mark.parametrize("method", ["fedavg", "gcfl", "server-only"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_odd_model(tmp_path, method, workers):
    result = run(
        tmp_path / str(workers),
        Odd,
        method=method,
        engine={"workers": workers},
        train={"epochs": 2},
    )
    assert all(not record.left_out for record in result.rounds)
    from gcfl.base import rng

    with rng.isolated(0, "init"):
        start = Odd()
    tree = result.model.tree
    assert torch.equal(tree["frozen.weight"], start.frozen.weight)
    assert not torch.equal(tree["one.weight"], start.one.weight)
    assert torch.equal(tree["mask"], start.mask)
    module = result.model.module
    assert torch.equal(module.two.weight, module.one.weight)


def test_training_a_tied_model_is_training_it_by_hand(tmp_path):
    """One client, one full batch: the step is torch's own."""
    settings = {
        "clients": 1,
        "rounds": 1,
        "train": {
            "batch": 1000,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "schedule": "constant",
            "lr": 0.5,
        },
    }
    data = {"source": "digits", "samples": 200, "validation": 50, "test": 50}
    result = gcfl.run(method="fedavg", data=data, model=Odd, out=tmp_path, **settings)
    from gcfl import experiment as config
    from gcfl.engine.prepare import Given, prepare

    ready = prepare(
        config.build(
            {"method": "fedavg", "data": {**data, "clients": 1}, "model": {"name": "given"}}
        )[0],
        Given(model=Odd),
    )
    shard = ready.federation.clients.shard(0)
    module = ready.setting.network.module.train()
    mean, deviation = ready.federation.normaliser
    loss = nn.functional.cross_entropy(module((shard.x.float() - mean) / deviation), shard.y)
    (gradient,) = torch.autograd.grad(loss, [module.one.weight])
    assert torch.allclose(
        result.model.tree["one.weight"], module.one.weight - 0.5 * gradient, atol=1e-6
    )


def net(activation):
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), activation, nn.Linear(8, 10))


def test_models_with_equal_weights_and_other_layers_are_other_runs(tmp_path, caplog):
    first, second = (run(tmp_path, net(activation)) for activation in (nn.ReLU(), nn.Tanh()))
    assert first.folder != second.folder
    assert run(tmp_path, net(nn.ReLU())).folder == first.folder
    with caplog.at_level(logging.WARNING, "gcfl"):
        gcfl.load(first.folder, model=net(nn.Tanh())).predict(torch.zeros(1, 1, 8, 8))
    assert "other layers or other code" in caplog.text


def test_models_with_another_forward_are_other_runs(tmp_path):
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 10)

        def forward(self, x):
            return self.head(torch.relu(self.body(x.flatten(1))))

    class Edited(Plain):
        def forward(self, x):
            return self.head(torch.tanh(self.body(x.flatten(1))))

    Edited.__name__, Edited.__qualname__ = Plain.__name__, Plain.__qualname__
    assert run(tmp_path, Plain).folder != run(tmp_path, Edited).folder


def test_own_labels_that_may_be_wrong_are_not_called_clean(tmp_path):
    x, y = torch.randn(100, 5), torch.arange(100) % 2
    result = gcfl.run(
        data=(x, y), model="logistic", clients=3, rounds=1, validation=30, out=tmp_path
    )
    assert result.rounds[0].coreset.clean_share is None
    flipped = gcfl.run(
        data=(x, y), model="logistic", clients=3, rounds=1, validation=30, noise=0.2, out=tmp_path
    )
    assert flipped.rounds[0].coreset.clean_share is not None


@pytest.mark.parametrize("kind", ["object", "float", "bytes", "int8", "list"])
def test_labels_as_tables_have_them(tmp_path, kind):
    import numpy as np

    names = np.array(["cat", "dog"])[np.arange(100) % 2]
    y = {
        "object": names.astype(object),
        "float": (np.arange(100) % 2).astype(float),
        "bytes": names.astype("S"),
        "int8": (np.arange(100) % 2).astype(np.int8),
        "list": names.tolist(),
    }[kind]
    result = gcfl.run(
        data=(np.random.default_rng(0).normal(size=(100, 3)), y),
        model="logistic",
        clients=np.int64(3),
        rounds=1,
        validation=30,
        out=tmp_path,
        classes=np.array([0, 1]) if kind in ("float", "int8") else None,
    )
    assert set(result.predict(np.zeros((1, 3))).tolist()) <= (
        {0, 1} if kind in ("float", "int8") else {"cat", "dog"}
    )


class Base(nn.Module):
    def __init__(self, mode: str = "x", shift: float = 0.0) -> None:
        super().__init__()
        self.mode = mode
        self.register_buffer("shift", torch.tensor(shift), persistent=False)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.act(x)) if self.mode in {"x", "y", "zz"} else self.head(x)

    @staticmethod
    def act(x):
        return torch.relu(x)


def test_the_fingerprint_sees_bases_attributes_buffers_and_static_methods():
    from gcfl.models.fingerprint import fingerprint

    def made(kind, *arguments):
        torch.manual_seed(0)
        return fingerprint(kind(*arguments))

    class Child(Base):
        pass

    class OtherBase(Base):
        def forward(self, x):
            return self.head(x)

    class OtherChild(OtherBase):
        pass

    class Static(Base):
        @staticmethod
        def act(x):
            return torch.tanh(x)

    OtherBase.__qualname__, OtherChild.__qualname__ = Base.__qualname__, Child.__qualname__
    OtherChild.__name__ = Child.__name__
    Static.__name__, Static.__qualname__ = Base.__name__, Base.__qualname__
    assert made(Base) == made(Base)
    assert made(Child) != made(OtherChild)
    assert made(Base) != made(Static)
    assert made(Base) != made(Base, "y")
    assert made(Base) != made(Base, "x", 1.0)


def test_the_fingerprint_is_the_same_in_every_process(tmp_path):
    """Sets print in another order from process to process."""
    import subprocess
    import sys

    from helpers import ROOT

    code = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'tests')!r}, "
        f"{str(ROOT / 'tests' / 'engine')!r}]\n"
        "import torch, test_any_model as t\nfrom gcfl.models.fingerprint import fingerprint\n"
        "torch.manual_seed(0); print(fingerprint(t.Base()))"
    )
    import os

    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(prints) == 1


def test_an_activation_in_place_after_the_last_layer_is_noticed():
    from gcfl.base.errors import ModelError
    from gcfl.models.network import Network

    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True))
    network = Network(module, torch.randn(2, 4), 3)
    with pytest.raises(ModelError, match="does not end in a Linear"):
        network.require_head()


def test_no_batch_of_one_is_left_over():
    from gcfl.models.network import Network

    network = Network(
        nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)
        ),
        torch.zeros(2, 4),
        3,
    )
    assert network.outputs(network.tree(), torch.randn(9, 4), batch=4).logits.shape == (9, 3)
