"""The residual networks, against arithmetic on paper."""

from __future__ import annotations

import pytest
import torch

from gcfl.base.errors import ModelError
from gcfl.models import ModelOptions, Network, make


def resnet(name, shape=(3, 32, 32), classes=10, **options):
    return make(shape, classes, ModelOptions(name=name, **options), seed=0)


def convolutions(pairs):
    """Weights of 3x3 convolutions without bias, each with two numbers per channel to normalise."""
    return sum(9 * before * after + 2 * after for before, after in pairs)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(("channels", "width"), [(1, 8), (3, 64)])
def test_parameters_are_what_the_layers_need(norm, channels, width):
    w, shape = width, (channels, 32, 32)
    straight = [(channels, w), (w, 2 * w), (2 * w, 4 * w), (4 * w, 8 * w)]
    blocks = [(2 * w, 2 * w)] * 2 + [(8 * w, 8 * w)] * 2
    nine = convolutions(straight + blocks) + 8 * w * 10 + 10
    first = [(channels, w)] + [(w, w)] * 4
    later = [pair for k in (2, 4, 8) for pair in [(k * w // 2, k * w)] + [(k * w, k * w)] * 3]
    shortcuts = sum((k * w // 2) * k * w + 2 * k * w for k in (2, 4, 8))
    eighteen = convolutions(first + later) + shortcuts + 8 * w * 10 + 10
    for name, expected in (("resnet9", nine), ("resnet18", eighteen)):
        module = resnet(name, shape, norm=norm, width=width)
        assert sum(part.numel() for part in module.parameters()) == expected
    if width == 64 and channels == 3:
        assert (nine, eighteen) == (6_573_130, 11_173_962)  # the latter as published for CIFAR-10


@pytest.mark.parametrize("name", ["resnet9", "resnet18"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 48), (1, 8, 8)])
@pytest.mark.parametrize("width", [4, 25])
def test_images_of_any_size_end_in_a_linear_head(name, shape, width):
    module = resnet(name, shape, classes=7, width=width)
    network = Network(module, torch.rand(2, *shape), 7)
    assert network.width == 8 * width
    assert network(network.tree(), torch.rand(3, *shape)).logits.shape == (3, 7)


def test_the_side_is_halved_three_times():
    for name in ("resnet9", "resnet18"):
        body = resnet(name, width=4)[:-3]  # without mean, flatten and the last layer
        assert body(torch.rand(2, 3, 64, 32)).shape == (2, 32, 8, 4)


def test_group_norm_treats_each_sample_alone():
    x = torch.randn(5, 3, 32, 32)
    for norm, alone in (("group", True), ("batch", False)):
        module = resnet("resnet9", norm=norm, width=16).train()
        same = torch.allclose(module(x)[:2], module(x[:2]), atol=1e-5)
        assert same is alone


def test_tables_and_small_images_are_refused():
    for shape in ((30,), (3, 7, 7)):
        with pytest.raises(ModelError, match=r"resnet9 needs images .* at least 8 x 8 pixels"):
            resnet("resnet9", shape)
