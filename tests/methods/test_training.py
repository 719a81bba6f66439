"""The trainer, the optimiser and FedAvg against plain loops written from their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gcfl.base import rng
from gcfl.base.data_types import Coreset
from gcfl.methods import ClientView, TrainOptions
from gcfl.methods.base import Plain
from gcfl.methods.training import SGD, learning_rate, orders, train
from helpers import prepared, run


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("fused", [True, False])
def test_sgd_is_torchs(momentum, fused):
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(4, 3, generator=generator), torch.randn(5, generator=generator)]
    ours = [part.clone() for part in start]
    theirs = [part.clone().requires_grad_() for part in start]
    mine = SGD(ours, 0.1, momentum, 0.01)
    mine._fused = fused
    reference = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=0.01)
    for _ in range(5):
        gradients = [torch.randn(part.shape, generator=generator) for part in start]
        for part, gradient in zip(theirs, gradients, strict=True):
            part.grad = gradient.clone()
        reference.step()
        mine.step([gradient.clone() for gradient in gradients])
    for left, right in zip(ours, theirs, strict=True):
        assert torch.allclose(left, right, atol=1e-6)


@pytest.mark.parametrize(
    ("n", "batch", "epochs", "steps"),
    [(10, 4, 2, None), (10, 4, 1, 7), (3, 8, 3, None), (8, 4, 1, 1), (1, 1, 1, 5)],
)
def test_orders_give_the_promised_steps(n, batch, epochs, steps):
    options = TrainOptions(batch=batch, epochs=epochs, steps=steps)
    passes = list(orders(0, 3, 2, n, options))
    sizes = [
        len(order[start : start + batch])
        for order in passes
        for start in range(0, len(order), batch)
    ]
    assert len(sizes) == (steps or epochs * math.ceil(n / batch))
    for order in passes[:-1]:
        assert sorted(order) == list(range(n))
    assert len(set(passes[-1])) == len(passes[-1])
    assert not np.array_equal(
        next(orders(0, 4, 2, 50, options)), next(orders(0, 3, 2, 50, options))
    )


def plain_fedavg(ready, rounds):
    """FedAvg from the paper, with torch's own optimiser, nothing of ours but the data, the first
    weights and the batch orders.
    """
    federation, setting = ready.federation, ready.setting
    module = setting.network.module
    mean, deviation = federation.normaliser
    model = {name: value.clone() for name, value in module.state_dict().items()}
    for t in range(rounds):
        deltas = []
        for client in range(len(federation.clients)):
            shard = federation.clients.shard(client)
            module.load_state_dict(model)
            module.train()
            optimiser = torch.optim.SGD(
                module.parameters(),
                lr=0.05 * (1 + math.cos(math.pi * t / rounds)) / 2,
                momentum=0.9,
                weight_decay=5e-4,
            )
            base = rng.key(setting.seed, "order", t, client)
            order = torch.from_numpy(rng.order(base, 0, len(shard)))
            for batch in order.split(32):
                x = (shard.x[batch].float() - mean) / deviation
                optimiser.zero_grad()
                cross_entropy(module(x), shard.y[batch]).backward()
                optimiser.step()
            deltas.append(
                {name: value - model[name] for name, value in module.state_dict().items()}
            )
        model = {
            name: value + sum(delta[name] for delta in deltas) / len(deltas)
            for name, value in model.items()
        }
    return model


def test_fedavg_is_the_plain_loop(tmp_path):
    expected = plain_fedavg(prepared(method="fedavg"), 6)
    got = run(tmp_path, method="fedavg").model.tree
    for name, value in expected.items():
        assert torch.allclose(got[name], value, atol=1e-6), name


def view_of(ready, client=0):
    network = ready.setting.network
    return ClientView.of(
        ready.setting, 0, client, network.tree(), ready.federation.clients.shard(client)
    )


def test_weights_scale_the_gradient_and_zero_weights_drop_out():
    """With one full batch, a weighted step is the step on the weighted mean gradient."""
    ready = prepared(train={"batch": 1000, "momentum": 0.0, "weight_decay": 0.0})
    view = view_of(ready)
    coreset = Coreset(np.array([0, 3, 5, 7]), np.array([2.0, 0.0, 1.0, 3.0]))
    got = train(view, coreset, Plain(), {}, weighted=True, lr=0.1)
    network = ready.setting.network
    params = {name: value.clone().requires_grad_() for name, value in view.model.items()}
    rows = torch.tensor([0, 5, 7])
    losses = cross_entropy(
        network(params, network.prepare(view.shard.x[rows])).logits,
        view.shard.y[rows],
        reduction="none",
    )
    loss = (losses * torch.tensor([1.0, 0.5, 1.5])).mean()
    for (name, value), gradient in zip(
        params.items(), torch.autograd.grad(loss, list(params.values())), strict=True
    ):
        assert torch.allclose(got.model[name], value - 0.1 * gradient, atol=1e-6)
    assert view.meter.backward == 3


def test_learning_rate_follows_the_cosine():
    options = TrainOptions(lr=0.2)
    assert learning_rate(options, 0, 10) == 0.2
    assert math.isclose(learning_rate(options, 5, 10), 0.1)
    assert learning_rate(TrainOptions(lr=0.2, schedule="constant"), 9, 10) == 0.2


def test_dropout_draws_from_the_runs_seed(tmp_path):
    class Dropped(torch.nn.Sequential):
        def __init__(self) -> None:
            super().__init__(
                torch.nn.Flatten(),
                torch.nn.Linear(64, 20),
                torch.nn.Dropout(0.5),
                torch.nn.Linear(20, 10),
            )

    import gcfl
    from helpers import tiny

    settings = {key: value for key, value in tiny(method="fedavg").items() if key != "model"}
    torch.rand(1)
    first = gcfl.run(model=Dropped, out=tmp_path / "a", **settings)
    torch.rand(7)
    second = gcfl.run(model=Dropped, out=tmp_path / "b", **settings)
    assert (first.folder / "model.safetensors").read_bytes() == (
        second.folder / "model.safetensors"
    ).read_bytes()
