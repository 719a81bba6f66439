"""How good a model is, and what a round cost: seconds, bytes, samples."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from gcfl.base import codec
from gcfl.base.data_types import Broadcast, Shard, Tree
from gcfl.base.record import Clock, Times
from gcfl.methods import Replies
from gcfl.models.network import Network

Moment = tuple[float, float]  # CPU-seconds of this thread, wall-clock seconds


def now() -> Moment:
    return time.thread_time(), time.perf_counter()


@dataclass(frozen=True)
class Ahead:
    """What was done before the first round: samples that went forward, seconds."""

    samples: int = 0
    spent: Moment = (0.0, 0.0)


class Stopwatch:
    """The server's seconds per kind of work; ahead: of training, spent already."""

    def __init__(self, ahead: Moment = (0.0, 0.0)) -> None:
        self._spent: defaultdict[str, Moment] = defaultdict(lambda: (0.0, 0.0))
        self._spent["train"] = ahead
        self._started = time.perf_counter() - ahead[1]

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        before = now()
        try:
            yield
        finally:
            self._add(kind, *(after - start for after, start in zip(now(), before, strict=True)))

    def _add(self, kind: str, cpu: float, wall: float) -> None:
        before = self._spent[kind]
        self._spent[kind] = before[0] + cpu, before[1] + wall

    def times(self, replies: Replies) -> Times:
        """All of it, with what the clients report, and the round as a whole."""
        server = sum(cpu for kind, (cpu, _) in self._spent.items() if kind != "evaluate")
        for kind in ("select", "train") if len(replies) else ():
            cpu, wall = (float(replies.metric(f"{kind}_{what}").sum()) for what in ("cpu", "wall"))
            self._add(kind, cpu, wall)
        clocks = {kind: self._spent[kind] for kind in ("select", "train", "aggregate", "evaluate")}
        whole = Clock(time.perf_counter() - self._started, sum(cpu for cpu, _ in clocks.values()))
        return Times(
            **{kind: Clock(wall, cpu) for kind, (cpu, wall) in clocks.items()},
            round=whole,
            server_cpu=server,
        )


class Laps:
    """A client's seconds, lap by lap: this thread does all its work."""

    def __init__(self) -> None:
        self._last = now()

    def lap(self) -> Moment:
        """Since the last lap."""
        before, self._last = self._last, now()
        return self._last[0] - before[0], self._last[1] - before[1]


def total(replies: Replies, metric: str) -> int:
    return int(replies.metric(metric).sum()) if len(replies) else 0


def mean_loss(replies: Replies) -> float | None:
    """The mean of the clients' training losses, of those that are finite."""
    losses = replies.metric("loss") if len(replies) else np.empty(0)
    losses = losses[np.isfinite(losses)]
    return float(losses.mean()) if len(losses) else None


def bytes_down(broadcasts: Mapping[int, Broadcast]) -> dict[str, int]:
    """By payload name, summed over clients. What many clients get alike is measured once."""
    down: Counter[str] = Counter()
    messages = {id(broadcast): broadcast for broadcast in broadcasts.values()}
    for same, count in Counter(map(id, broadcasts.values())).items():
        down["model"] += count * codec.size(messages[same].model)
        for name, tree in messages[same].payload.items():
            if tree:
                down[name] += count * codec.size(tree)
    return dict(down)


@dataclass(frozen=True)
class Scores:
    """Share of right answers, mean loss, right answers per class (None: no sample of it)."""

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
