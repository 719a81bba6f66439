"""The factor formulas against per-sample autograd gradients of the last layer."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from gcfl.coreset import label_wise_target, own_label, whole
from gcfl.models import ModelOptions, make
from gcfl.models.network import Network


def case(name: str, bias: bool = True):
    generator = torch.Generator().manual_seed(5)
    shape, classes, n = ((3, 32, 32), 10, 12) if name == "cnn" else ((10,), 4, 40)
    module = make(shape, classes, ModelOptions(name=name), 3)
    if not bias:
        module[-1] = torch.nn.Linear(module[-1].in_features, classes, bias=False)
    network = Network(module, torch.zeros(2, *shape), classes)
    x = torch.randn(n, *shape, generator=generator)
    y = torch.randint(0, classes, (n,), generator=generator)
    tree = network.tree()
    outputs = network.outputs(tree, x)
    return network, tree, x, y, outputs.features, outputs.logits.softmax(1)


def autograd_rows(network, tree, x, y):
    """(n, C, d + 1): per-sample gradients of the last layer, by torch.func."""
    head = {name: tensor for name, tensor in tree.items() if name.startswith(network.head_name)}
    body = {name: tensor for name, tensor in tree.items() if name not in head}

    def loss(part, sample, label):
        logits = functional_call(network.module, {**body, **part}, (sample[None],))
        return cross_entropy(logits, label[None])

    network.module.eval()
    grads = vmap(grad(loss), (None, 0, 0))(head, x, y)
    weight = grads[f"{network.head_name}.weight"]
    bias = grads.get(f"{network.head_name}.bias")
    return weight if bias is None else torch.cat([weight, bias[:, :, None]], dim=2)


def close(ours, theirs):
    """Equal to 1e-5 of the largest entry."""
    return float((ours - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max())


@pytest.mark.parametrize(
    ("name", "bias"), [("cnn", True), ("logistic", True), ("logistic", False), ("mlp", True)]
)
def test_factors_equal_autograd(name, bias):
    network, tree, x, y, features, probabilities = case(name, bias)
    rows = autograd_rows(network, tree, x, y)
    dense = rows.flatten(1).double()
    gradients = whole(features, probabilities, y, network.bias)
    gram = torch.stack([gradients.gram_column(j) for j in range(len(y))]).double()
    assert close(gradients.gram(slice(None)).double(), gram)
    assert close(gram, dense @ dense.T)
    assert close(gradients.squared_norms(), dense.square().sum(1))
    assert close(gradients.mean(), rows.mean(0))
    target = torch.randn(rows.shape[1:], generator=torch.Generator().manual_seed(1))
    assert close(gradients.inner(target), dense @ target.flatten().double())
    own = own_label(features, probabilities, y, network.bias)
    picked = rows[torch.arange(len(y)), y].double()
    assert close(own.gram_column(2).double(), picked @ picked[2])


@pytest.mark.parametrize("name", ["cnn", "logistic"])
def test_the_label_wise_target_is_a_row_of_the_autograd_gradient(name):
    """Row c (and bias c) of the gradient of the mean loss over the samples of class c."""
    network, tree, x, y, features, probabilities = case(name)
    target = label_wise_target(features, probabilities, y, network.bias)
    weight_name, bias_name = f"{network.head_name}.weight", f"{network.head_name}.bias"
    for c in range(network.classes):
        members = y == c
        if not members.any():
            assert (target[c] == 0).all()
            continue
        params = {key: value.clone().requires_grad_() for key, value in tree.items()}
        network.module.eval()
        loss = cross_entropy(functional_call(network.module, params, (x[members],)), y[members])
        weight, bias = torch.autograd.grad(loss, [params[weight_name], params[bias_name]])
        assert torch.allclose(target[c, :-1], weight[c], atol=1e-6)
        assert torch.allclose(target[c, -1], bias[c], atol=1e-6)
