"""What is kept of a sample's label from one look to the next, and put together at the end.

A model that trained on a wrong label begins to believe it; models of other times and the final one
err in different places. So each look at the samples adds its posterior q (n, C) to a fading sum

    S ← f S + q,   k ← f k + 1        with f = 1/2: the last looks count most,

and the audit judges by the mean of S / k and the final model's posterior. Kept in half precision:
2 C + 6 bytes a sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gcfl.base.data_types import IntArray, Tree

FADES = 0.5
NEVER = -1
_SUM, _LOOKS, _USED = "evidence.sum", "evidence.looks", "evidence.used"


def looked(memory: Tree, posterior: Tensor) -> Tree:
    """The evidence after one more look: posterior (n, C)."""
    n, classes = posterior.shape
    before = memory if fits(memory, n, classes) else _nothing(n, classes)
    return {
        _SUM: (FADES * before[_SUM].double() + posterior.double().cpu()).half(),
        _LOOKS: (FADES * before[_LOOKS].double() + 1).half(),
        _USED: before[_USED],
    }


def used(memory: Tree, rows: IntArray, round: int) -> Tree:
    """The memory after a round that trained on these rows: the last such round of each sample."""
    if _USED not in memory:
        return memory
    last = memory[_USED].clone()
    last[torch.from_numpy(rows)] = round
    return {**memory, _USED: last}


def forgotten(memory: Tree) -> Tree:
    """The memory without what was kept of single samples."""
    return {name: one for name, one in memory.items() if name not in (_SUM, _LOOKS, _USED)}


def fits(memory: Tree, n: int, classes: int) -> bool:
    """Whether there is evidence, and of so many samples and classes."""
    return _SUM in memory and memory[_SUM].shape == (n, classes)


def past(memory: Tree) -> tuple[Tensor, Tensor]:
    """(n, C) the mean posterior of the looks so far, in float64; (n,) the last round in which each
    sample was trained on, NEVER where it was not.
    """
    mean = memory[_SUM].double() / memory[_LOOKS].double().clamp(min=1e-3)[:, None]
    return mean / mean.sum(dim=1, keepdim=True).clamp(min=1e-9), memory[_USED]


def put_together(final: Tensor, mean: Tensor | None) -> Tensor:
    """(n, C): the final model's posterior and that of the looks before, each by half."""
    return final if mean is None else (final + mean.to(final)) / 2


def _nothing(n: int, classes: int) -> Tree:
    return {
        _SUM: torch.zeros(n, classes, dtype=torch.half),
        _LOOKS: torch.zeros(n, dtype=torch.half),
        _USED: torch.full((n,), NEVER, dtype=torch.int32),
    }
