"""Inputs from Python to samples: texts to token ids, images to channels first."""

from __future__ import annotations

import logging
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError
from gcfl.base.layout import Layout, hashed, is_texts

log = logging.getLogger("gcfl.data")
Channels = Literal["first", "last", "grey", "none"] | None
_CHANNELS = (1, 3, 4)
_FEWEST_PIXELS = 8  # of a side, where nobody said that it is an image


def laid_out(
    x: npt.NDArray[Any], channels: Channels, length: int
) -> tuple[Layout, npt.NDArray[Any]]:
    """How inputs (n, ...) came, and the samples that they are: ids of texts' words, or images with
    their channels first. Bytes (n, height, width) are grey images; other numbers may be sequences.
    """
    if is_texts(x):
        return Layout(words=length), hashed(x, length)
    where = channels or _channels(x)
    needed = {"first": 4, "last": 4, "grey": 3}.get(where, x.ndim)
    if x.ndim != needed:
        raise DataError(
            f"data.channels is {where!r}, which is for arrays of {needed} axes, but x has shape "
            f"{x.shape}"
        )
    if where == "last":
        turned = np.moveaxis(x, -1, 1)
        if channels is None:
            log.info("x %s has its channels last, and is read as %s", x.shape, turned.shape)
        return Layout(channels="last"), turned
    return (Layout(channels="grey"), x[:, None]) if where == "grey" else (Layout(), x)


def _channels(x: npt.NDArray[Any]) -> Literal["first", "last", "grey", "none"]:
    """Where an array's channels are, by its shape: images have 1, 3 or 4 of them, and more pixels
    than that; where both ends could be channels, the reading that makes them square.
    """
    if x.ndim == 3 and x.dtype == np.uint8 and min(x.shape[1:]) >= _FEWEST_PIXELS:
        return "grey"
    if x.ndim != 4 or x.shape[3] not in _CHANNELS:
        return "none"
    one, two, three = x.shape[1:]
    if one not in _CHANNELS:
        return "last" if min(one, two) >= _FEWEST_PIXELS else "none"
    if (one == two) == (two == three):
        raise DataError(
            f"x of shape {x.shape} may have its channels first or last; say which: "
            'data={"source": (x, y), "channels": "first"} or "last" (data.channels)'
        )
    return "last" if one == two else "first"
