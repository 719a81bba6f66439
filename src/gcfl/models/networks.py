"""Networks by name, for any input size: the paper's, and residual ones.

logistic   one linear layer on the flattened input
mlp        hidden layers with ReLU
cnn        the paper's: conv 5x5x32, pool, conv 5x5x64, pool, linear 2048, ReLU, linear C; no
           padding
resnet9, resnet18  for images of 28 to 64 pixels (resnets.py)
text       the sum of the words' embeddings, one linear layer
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from torch import Tensor, nn

from gcfl.base import rng
from gcfl.base.errors import ConfigError, ModelError, did_you_mean, one_line
from gcfl.base.layout import IDS
from gcfl.base.options import Count, Options, allows, within
from gcfl.models.code import is_code, made_by
from gcfl.models.resnets import Norm
from gcfl.models.resnets import resnet9 as resnet9_layers
from gcfl.models.resnets import resnet18 as resnet18_layers


@allows("a list of widths")
def _widths(value: list[int]) -> list[int]:
    if not value or min(value) < 1:
        raise ValueError("must be a list of at least one positive width, such as [64, 32]")
    return value


class ModelOptions(Options):
    """[model]"""

    name: str = "mlp"
    """logistic, mlp, cnn, text, resnet9, resnet18; file.py:make or package.module:Class; or a
    module given from Python
    """
    arguments: dict[str, Any] | None = None
    """what a class or function of your own is called with, by name, besides shape and classes
    """
    hidden: Annotated[list[int], AfterValidator(_widths)] = Field(default=[128])
    """mlp: widths of the hidden layers; text: of the embedding, then of hidden layers"""
    vocabulary: Annotated[int, AfterValidator(within(2, 2**24))] = IDS
    """text: how many token ids its embedding has; the built-in tokeniser makes 8192"""
    last_relu: bool = True
    """cnn: ReLU before the last layer (the authors' code has none)"""
    projection: Count | None = None
    """mlp, cnn, resnets: width of MOON's projection head (two layers) before the last layer"""
    width: Count = 64
    """resnets: channels of the first layer; the last has eight times as many"""
    norm: Norm = "group"
    """resnets: GroupNorm, or BatchNorm"""
    weights: str | None = None
    """weights to start from: a .safetensors file, or the folder of another run"""
    freeze: Literal["body"] | list[str] | None = None
    """what is not trained: body (all but the last layer), or a list of the names of layers"""
    head: str | None = None
    """name of the last linear layer, where it cannot be found"""
    buffers: Literal["average", "keep"] = "average"
    """BatchNorm statistics: averaged like weights, or kept as the initial model has them"""


def logistic(shape: tuple[int, ...], classes: int, options: ModelOptions) -> nn.Module:
    """One linear layer on the flattened input."""
    if options.projection is not None:
        raise ConfigError(
            "model.projection has no effect with logistic: it has no layer before the last"
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int, options: ModelOptions) -> nn.Module:
    """Hidden layers of model.hidden widths, with ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(shape)
    for hidden in options.hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, *_ending(width, classes, options))


def cnn(shape: tuple[int, ...], classes: int, options: ModelOptions) -> nn.Module:
    """The paper's network for images: two convolutions of 5x5, each with pooling, a hidden layer.

    Images under 16 pixels get padding 2, since two unpadded convolutions leave nothing of them.
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ModelError(
            "cnn needs images (channels, height, width) of at least 4 x 4 pixels, got samples of "
            f"shape {shape}"
        )
    channels, *sides = shape
    padding = 0 if min(sides) >= 16 else 2
    left = [(((side + 2 * padding - 4) // 2) + 2 * padding - 4) // 2 for side in sides]
    tail: list[nn.Module] = [nn.ReLU()] if options.last_relu else []
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * left[0] * left[1], 2048),
        *tail,
        *_ending(2048, classes, options),
    )


def resnet9(shape: tuple[int, ...], classes: int, options: ModelOptions) -> nn.Module:
    """Nine layers with two residual blocks, for images of 28 to 64 pixels."""
    layers, width = resnet9_layers(shape, options.width, options.norm)
    return nn.Sequential(*layers, *_ending(width, classes, options))


def resnet18(shape: tuple[int, ...], classes: int, options: ModelOptions) -> nn.Module:
    """ResNet-18 with a first layer for images of 28 to 64 pixels."""
    layers, width = resnet18_layers(shape, options.width, options.norm)
    return nn.Sequential(*layers, *_ending(width, classes, options))


def _ending(width: int, classes: int, options: ModelOptions) -> list[nn.Module]:
    """The last layer, behind a projection head where one is asked for."""
    if options.projection is None:
        return [nn.Linear(width, classes)]
    return [
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, options.projection),
        nn.Linear(options.projection, classes),
    ]


class Words(nn.Module):
    """Token ids (n, length) to the sum (n, width) of their embeddings, over the root of how many
    they are, which keeps its scale whatever the length; 0 fills up and counts for nothing.
    """

    def __init__(self, ids: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ids, width, padding_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        count = (x != 0).sum(dim=1, keepdim=True).clamp(min=1)
        total: Tensor = self.embedding(x).sum(dim=1)
        return total / count.sqrt()


def text(shape: tuple[int, ...], classes: int, options: ModelOptions) -> nn.Module:
    """A bag of words: the sum of their embeddings, hidden layers with ReLU, the last layer."""
    if len(shape) != 1:
        raise ModelError(f"text needs token ids (n, length), got samples of shape {shape}")
    width, *hidden = options.hidden
    layers: list[nn.Module] = [Words(options.vocabulary, width)]
    for wider in hidden:
        layers += [nn.Linear(width, wider), nn.ReLU()]
        width = wider
    return nn.Sequential(*layers, *_ending(width, classes, options))


MODELS: dict[str, Callable[[tuple[int, ...], int, ModelOptions], nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn": cnn,
    "resnet9": resnet9,
    "resnet18": resnet18,
    "text": text,
}


def make(shape: tuple[int, ...], classes: int, options: ModelOptions, seed: int) -> nn.Module:
    """The named network for that shape, initialised by torch's defaults from the run's seed; one of
    somebody's own code by running that code.
    """
    if is_code(options.name):
        return made_by(options.name, seed, shape, classes, options.arguments)
    if options.arguments:
        raise ConfigError(
            f"model.arguments are for a model of your own code, not for {options.name}"
        )
    if options.name not in MODELS:
        raise ConfigError(
            f"model.name {options.name!r} is unknown{did_you_mean(options.name, MODELS)}"
        )
    try:
        with rng.isolated(seed, "init"):
            return MODELS[options.name](shape, classes, options)
    except (RuntimeError, MemoryError, OverflowError) as error:
        raise ModelError(
            f"the model {options.name} cannot be built at this size ({one_line(error)[:200]})"
        ) from error
