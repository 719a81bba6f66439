"""Residual networks for images of 28 to 64 pixels: a first convolution of 3x3, no pooling after it.

resnet9   conv w, conv 2w, pool, block 2w, conv 4w, pool, conv 8w, pool, block 8w, mean, linear C
          (each conv 3x3 with norm and ReLU; a block is two of them and a shortcut)
resnet18  He et al., 2016: conv w, then four stages of two blocks of w, 2w, 4w, 8w channels, the
          last three at half the side, mean, linear C
"""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn

from gcfl.base.errors import ModelError

Norm = Literal["group", "batch"]
_GROUP = 16  # channels that GroupNorm puts together
_HALVED = 3  # how often the side of an image is halved


def resnet9(shape: tuple[int, ...], width: int, norm: Norm) -> tuple[list[nn.Module], int]:
    """(layers up to the features, how many features): 8 weight layers and the last."""
    channels = _checked("resnet9", shape)
    layers = [
        *_convolution(channels, width, norm),
        *_convolution(width, 2 * width, norm),
        nn.MaxPool2d(2),
        Residual(nn.Sequential(*_twice(2 * width, norm)), nn.Identity(), last_relu=False),
        *_convolution(2 * width, 4 * width, norm),
        nn.MaxPool2d(2),
        *_convolution(4 * width, 8 * width, norm),
        nn.MaxPool2d(2),
        Residual(nn.Sequential(*_twice(8 * width, norm)), nn.Identity(), last_relu=False),
    ]
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()], 8 * width


def resnet18(shape: tuple[int, ...], width: int, norm: Norm) -> tuple[list[nn.Module], int]:
    """The same of the 18 layers of He et al."""
    layers = _convolution(_checked("resnet18", shape), width, norm)
    before = width
    for stage in range(4):
        channels = width * 2**stage
        for stride in (2 if stage else 1, 1):
            layers.append(_block(before, channels, stride, norm))
            before = channels
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()], before


class Residual(nn.Module):
    """inner(x) + shortcut(x), with ReLU after it or not."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module, last_relu: bool) -> None:
        super().__init__()
        self.inner, self.shortcut = inner, shortcut
        self.last = nn.ReLU() if last_relu else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.inner(x) + self.shortcut(x))
        return found


def _block(before: int, channels: int, stride: int, norm: Norm) -> nn.Module:
    inner = nn.Sequential(
        *_convolution(before, channels, norm, stride),
        *_convolution(channels, channels, norm)[:-1],  # the sum comes before the last ReLU
    )
    shortcut: nn.Module = nn.Identity()
    if stride != 1 or before != channels:
        shortcut = nn.Sequential(
            nn.Conv2d(before, channels, 1, stride, bias=False), _norm(channels, norm)
        )
    return Residual(inner, shortcut, last_relu=True)


def _twice(channels: int, norm: Norm) -> list[nn.Module]:
    return [
        *_convolution(channels, channels, norm),
        *_convolution(channels, channels, norm),
    ]


def _convolution(before: int, channels: int, norm: Norm, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(before, channels, 3, stride, padding=1, bias=False),
        _norm(channels, norm),
        nn.ReLU(),
    ]


def _norm(channels: int, norm: Norm) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(math.gcd(channels, max(1, channels // _GROUP)), channels)


def _checked(name: str, shape: tuple[int, ...]) -> int:
    """The channels of images that can be halved three times."""
    if len(shape) != 3 or min(shape[1:]) < 2**_HALVED:
        raise ModelError(
            f"{name} needs images (channels, height, width) of at least 8 x 8 pixels, got samples "
            f"of shape {shape}"
        )
    return shape[0]
