from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from gcfl.base.errors import ModelError
from gcfl.models import ModelOptions, make
from gcfl.models.network import Network


def test_the_papers_cnn_has_its_size():
    """3.35 M parameters on 32 x 32 x 3 with ten classes; the last layer has 205 k numbers at 100
    classes.
    """
    module = make((3, 32, 32), 10, ModelOptions(name="cnn"), 0)
    assert sum(part.numel() for part in module.parameters()) == 3_353_034
    hundred = Network(
        make((3, 32, 32), 100, ModelOptions(name="cnn"), 0), torch.zeros(2, 3, 32, 32), 100
    )
    assert (hundred.width + 1) * hundred.classes == 204_900


@pytest.mark.parametrize(
    "shape", [(1, 4, 4), (1, 8, 8), (3, 15, 40), (1, 28, 28), (3, 32, 32), (2, 33, 17)]
)
@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
def test_models_take_any_size(shape, name):
    network = Network(make(shape, 4, ModelOptions(name=name), 0), torch.zeros(2, *shape), 4)
    output = network.outputs(network.tree(), torch.rand(5, *shape))
    assert output.logits.shape == (5, 4)
    assert output.features.shape == (5, network.width)


def test_the_last_relu_is_an_option():
    with_relu, without = (
        make((3, 32, 32), 10, ModelOptions(name="cnn", last_relu=flag), 0) for flag in (True, False)
    )
    assert (
        sum(isinstance(part, nn.ReLU) for part in with_relu)
        == sum(isinstance(part, nn.ReLU) for part in without) + 1
    )


def test_initial_weights_come_from_the_seed_alone():
    first = make((1, 8, 8), 3, ModelOptions(), 1)
    torch.rand(3)
    again, other = make((1, 8, 8), 3, ModelOptions(), 1), make((1, 8, 8), 3, ModelOptions(), 2)
    assert torch.equal(first[1].weight, again[1].weight)
    assert not torch.equal(first[1].weight, other[1].weight)


class Nested(nn.Module):
    """Ends in a Linear that is not registered last."""

    def __init__(self, softmax: bool = False) -> None:
        super().__init__()
        self.classifier = nn.Linear(6, 3)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.ReLU())
        self.softmax = softmax

    def forward(self, x):
        logits = self.classifier(self.body(x))
        return logits.softmax(1) if self.softmax else logits


def test_the_head_is_found_by_what_it_does():
    module = Nested()
    network = Network(module, torch.zeros(2, 8), 3)
    assert network.head_name == "classifier"
    x = torch.rand(4, 8)
    output = network(network.tree(), x)
    assert torch.equal(output.features, module.body(x))
    assert torch.equal(output.logits, module(x))


@pytest.mark.parametrize(
    ("module", "head", "message"),
    [
        (Nested(softmax=True), None, "probabilities.*not end in a Linear.*'classifier', 'body.1'"),
        (Nested(), "body.7", "'body.7' is not a Linear layer.*'classifier', 'body.1'"),
        (Nested(), "body.1", "its output is not that of 'body.1'"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), None, "has no parameter to train"),
        (nn.Linear(8, 5), None, "5 outputs.*3 classes"),
        (nn.Linear(9, 3), None, r"cannot take samples of shape \(8,\)"),
        (nn.LSTM(8, 3), None, "must return one tensor of logits"),
    ],
)
def test_other_models_are_refused_with_the_layers_that_could_be_the_head(module, head, message):
    with pytest.raises(ModelError, match=message):
        Network(module, torch.zeros(2, 8), 3, head=head)


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
        )


def test_a_call_is_a_function_of_its_tree():
    network = Network(Normed(), torch.zeros(2, 4), 3)
    module = copy.deepcopy(network.module)
    tree = {
        name: torch.rand_like(value) if value.is_floating_point() else value
        for name, value in network.tree().items()
    }
    x = torch.rand(5, 4)
    expected = torch.func.functional_call(module.eval(), tree, (x,))
    assert torch.equal(network(tree, x).logits, expected)
    with network.attached(tree):
        assert torch.equal(network(tree, x).logits, expected)
        other = network.tree()
        assert torch.equal(
            network(other, x).logits, torch.func.functional_call(module, other, (x,))
        )
    # Afterwards the module has its own tensors again.
    assert all(
        torch.equal(value, module.state_dict()[name])
        for name, value in network.module.state_dict().items()
    )


def test_training_mode_updates_the_buffers_of_the_tree_only():
    network = Network(Normed(), torch.zeros(2, 4), 3)
    tree, before = network.tree(), network.tree()
    for attach in (False, True):
        if attach:
            with network.attached(tree):
                network(tree, torch.rand(8, 4), training=True)
        else:
            network(tree, torch.rand(8, 4), training=True)
        assert int(tree["1.num_batches_tracked"]) == 1 + attach
    assert not torch.equal(tree["1.running_mean"], before["1.running_mean"])
    assert torch.equal(network.tree()["1.running_mean"], before["1.running_mean"])


def test_a_batch_of_one_uses_running_statistics():
    network = Network(Normed(), torch.zeros(2, 4), 3)
    tree = network.tree()
    network(tree, torch.rand(1, 4), training=True)
    assert int(tree["1.num_batches_tracked"]) == 0
    network(tree, torch.rand(2, 4), training=True)
    assert int(tree["1.num_batches_tracked"]) == 1


def test_preparation_normalises_and_keeps_values():
    pixels = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    mean, deviation = (
        torch.tensor([1.0, 2, 3]).reshape(3, 1, 1),
        torch.tensor([2.0, 4, 8]).reshape(3, 1, 1),
    )
    network = Network(
        make((3, 4, 4), 2, ModelOptions(), 0), torch.from_numpy(pixels), 2, (mean, deviation)
    )
    got = network.prepare(torch.from_numpy(pixels))
    assert torch.allclose(got, (torch.from_numpy(pixels).float() - mean) / deviation)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_tied_weights_are_one_tensor_attached_or_not():
    network = Network(Tied(), torch.zeros(2, 4), 3)
    assert "second.weight" not in network.tree()
    tree = {name: torch.randn_like(value) for name, value in network.tree().items()}
    x = torch.randn(5, 4)
    loose = network(tree, x).logits
    with network.attached(tree):
        assert torch.equal(network(tree, x).logits, loose)
    module = Tied()
    module.load_state_dict(tree, strict=False)
    assert torch.allclose(module(x), loose)


def test_the_users_module_keeps_no_hooks():
    network = Network(Nested(), torch.zeros(2, 8), 3)
    network(network.tree(), torch.rand(4, 8))
    assert not any(
        part._forward_pre_hooks or part._forward_hooks for part in network.module.modules()
    )


def test_batch_norm_without_statistics_and_double_precision():
    module = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)
    ).double()
    network = Network(module, torch.zeros(2, 4), 3)
    assert (
        network(network.tree(), network.prepare(torch.rand(8, 4)), training=True).logits.dtype
        == torch.float64
    )


class Drawing(nn.Module):
    """Draws even in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(nn.functional.dropout(x, 0.5, training=True))


def test_modules_that_always_draw_repeat_and_leave_the_generator_alone():
    before = torch.get_rng_state()
    network = Network(Drawing(), torch.zeros(2, 4), 3)
    tree, x = network.tree(), torch.ones(6, 4)
    state = torch.get_rng_state()
    first = network.outputs(tree, x).logits
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(first, network.outputs(tree, x).logits)
    torch.set_rng_state(before)
