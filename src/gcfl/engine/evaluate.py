"""How good a model is on samples that nobody trained on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from gcfl.base.data_types import Shard, Tree
from gcfl.models.network import Network


@dataclass(frozen=True)
class Scores:
    """Share of right answers, mean loss, and the share of right answers per class (None: no sample
    of it).
    """

    accuracy: float
    loss: float | None
    per_class: list[float | None]


def mean_scores(scores: list[Scores]) -> Scores:
    """Of several models, the mean of each number that there is."""
    if len(scores) == 1:
        return scores[0]

    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    accuracy = sum(score.accuracy for score in scores) / len(scores)
    per_class = [
        mean(column) for column in zip(*(score.per_class for score in scores), strict=True)
    ]
    return Scores(accuracy, mean(score.loss for score in scores), per_class)


def evaluate(network: Network, model: Tree, shard: Shard) -> Scores:
    """Top-1 accuracy and mean cross-entropy on a shard."""
    logits = network.outputs(model, shard.x).logits.cpu()
    loss = float(cross_entropy(logits.double(), shard.y))
    right = logits.argmax(1) == shard.y
    counts = torch.bincount(shard.y, minlength=network.classes)
    hits = torch.bincount(shard.y[right], minlength=network.classes)
    per_class = [
        int(hit) / int(count) if count else None for hit, count in zip(hits, counts, strict=True)
    ]
    return Scores(
        float(right.double().mean()),
        loss if loss == loss and abs(loss) != float("inf") else None,
        per_class,
    )
