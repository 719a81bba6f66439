"""Augmentation on the tensors of a batch: shifted by up to four pixels each way, mirrored at
random, in one gather.

What comes in from outside the image is 0: the mean of the server's set where inputs are normalised.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from gcfl.base import rng

PADDING = 4


def augmented(x: Tensor, base: int, step: int, mirror: bool) -> Tensor:
    """Images x (n, C, H, W); the draws follow from (base, step) alone. Two words a sample: shift,
    and whether to mirror.
    """
    n, _, height, width = x.shape
    words = rng.words(base, np.array(step), 2 * n).reshape(n, 2)
    span = np.uint64(2 * PADDING + 1)
    down, across = (
        (words[:, 0] % span).astype(np.int64),
        (words[:, 0] // span % span).astype(np.int64),
    )
    columns = np.broadcast_to(np.arange(width), (n, width))
    if mirror:
        columns = np.where(
            (words[:, 1] & np.uint64(1)).astype(bool)[:, None], columns[:, ::-1], columns
        )
    rows = torch.from_numpy(down[:, None] + np.arange(height)).to(x.device)
    places = torch.from_numpy(across[:, None] + columns).to(x.device)
    # Channels last: one gather then moves whole pixels.
    padded = pad(x, (PADDING,) * 4).permute(0, 2, 3, 1)
    samples = torch.arange(n, device=x.device)[:, None, None]
    return padded[samples, rows[:, :, None], places[:, None, :]].permute(0, 3, 1, 2)
