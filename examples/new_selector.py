"""A selector of one's own in a few lines, against gcfl and random.

Shows: a class with one method becomes a word that composes with all other words, in Python, in TOML
and on every engine; `gcfl.compare` plays the rivals on the same data and seeds and says who won.

    python examples/new_selector.py        # about 10 seconds
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

import gcfl
from gcfl.base.data_types import Coreset, Tree
from gcfl.base.options import Count
from gcfl.coreset import Draw, Pool, Selector, unweighted
from gcfl.methods import register


class Neighbours(Selector):
    """Samples that look like others of the same label.

    With ĥ_i the normalised input of the last layer, N(i) the k samples j ≠ i with the largest
    ĥ_i·ĥ_j, and a_i the share of N(i) that has i's label: every sample with a_i > 1/2, or the b
    samples with the largest a_i where those are fewer than the budget b. Rounds draw b of them.
    """

    name: ClassVar[str] = "neighbours"
    summary: ClassVar[str] = "samples whose nearest neighbours have the same label"

    k: Count = 5
    """neighbours that are asked"""

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        unit = torch.nn.functional.normalize(pool.features)
        alike = (unit @ unit.T).fill_diagonal_(-2.0)  # (n, n); nobody is a neighbour of itself
        nearest = alike.topk(min(self.k, len(pool) - 1)).indices
        agree = (pool.labels[nearest] == pool.labels[:, None]).float().mean(dim=1)
        count = max(budget, int((agree > 0.5).sum()))
        return unweighted(agree.argsort(descending=True, stable=True)[:count]), {}


def main(out: Path) -> gcfl.sweep.Comparison:
    register(Neighbours)
    found = gcfl.compare(
        ["random+warmstart", "gcfl+warmstart", "neighbours+warmstart"],
        data="digits",
        clients=5,
        noise=0.4,
        validation=100,
        rounds=20,
        lr=0.05,
        epochs=5,
        coreset={"every": 5},
        seeds=3,
        jobs=1,
        out=out,
    )
    print(found)
    return found


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp(prefix="gcfl-selector-")))
