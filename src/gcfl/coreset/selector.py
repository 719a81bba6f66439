"""What a selector is: one class with its options, its formula, and what it needs.

The same class serves `gcfl.coreset.select`, the scikit-learn face, the methods of a federated run
(`methods.selection`) and Flower apps that exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from gcfl.base.data_types import Coreset, Tree
from gcfl.base.options import Options
from gcfl.coreset.pool import Pool, Split, unweighted

Needs = Literal["nothing", "probabilities", "posterior", "features"]
# A generator for a named purpose, which differs from party to party and from round to round; made
# when it is needed, since making one costs more than a small choice.
Draw = Callable[..., np.random.Generator]


class Selector(Options, ABC):
    """A way to choose from a pool of samples. Its fields are its options.

    needs: what `pick` reads of the pool; for "nothing" no forward pass is made, for "posterior"
    each label's probability of being right is estimated first (`gcfl.labels`). needs_target:
    whether it matches a gradient of the server's clean set. multi_label: whether labels (n, C) of
    sigmoid outputs will do.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[Needs] = "features"
    needs_target: ClassVar[bool] = False
    multi_label: ClassVar[bool] = False

    @abstractmethod
    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        """Candidates among the pool's n samples, and what to remember until the next choice.

        target: (C, d + 1), or (C, d) without bias; None for selectors that need none. memory: what
        the last call returned, empty at first. Where there are more candidates than the budget,
        `narrow` draws from them in each round.
        """

    def narrow(self, candidates: Coreset, budget: int, draw: Draw) -> Coreset:
        """What to train on now: the candidates, or `budget` of them at random if they are more."""
        if len(candidates) <= budget:
            return candidates
        places = np.sort(draw("narrow").permutation(len(candidates))[:budget])
        return Coreset(candidates.indices[places], candidates.weights[places])


class ByClass(Selector):
    """A selector that goes class by class."""

    split: Split = "proportional"
    """how the budget is shared over classes (label-wise)"""


class WithVariants(ByClass):
    """A selector that goes class by class, or over all samples at once."""

    variant: Literal["label-wise", "whole"] = "label-wise"
    """class by class, or over all samples at once"""


class Targeted(WithVariants):
    """A selector that matches a gradient of the server's clean set."""

    needs_target: ClassVar[bool] = True
    multi_label: ClassVar[bool] = True
    allow_single: bool = False
    """accept a class with a single clean sample, whose features the gradient then reveals"""


def at_random(n: int, budget: int, draw: np.random.Generator) -> Coreset:
    """`budget` of n positions without replacement, in their order, all with weight 1."""
    return unweighted(np.sort(draw.permutation(n)[:budget]))
