"""What a round cost: seconds, bytes, samples."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from gcfl.base import codec, record
from gcfl.base.data_types import Broadcast
from gcfl.methods.replies import Replies, Stacked

_METRIC_BYTES = 8  # a number in a message


class Times:
    """CPU-seconds and wall-clock seconds per kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {
            kind: {"cpu": 0.0, "wall": 0.0} for kind in ("select", "train", "aggregate", "evaluate")
        }
        self._started = time.perf_counter()

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind]["cpu"] += time.thread_time() - cpu
            self.seconds[kind]["wall"] += time.perf_counter() - wall

    def with_clients(self, replies: Replies) -> record.Times:
        """All of it, with what the clients report and the round as a whole."""
        for kind in ("select", "train"):
            for clock in ("cpu", "wall"):
                self.seconds[kind][clock] += (
                    float(replies.metric(f"{kind}_{clock}").sum()) if len(replies) else 0.0
                )
        clocks = {kind: record.Clock(**clock) for kind, clock in self.seconds.items()}
        return record.Times(**clocks, round=record.Clock(time.perf_counter() - self._started))


def total(replies: Replies, metric: str) -> int:
    return int(replies.metric(metric).sum()) if len(replies) else 0


def mean_loss(replies: Replies) -> float | None:
    """The mean of the clients' training losses, of those that are finite."""
    losses = replies.metric("loss") if len(replies) else np.empty(0)
    losses = losses[np.isfinite(losses)]
    return float(losses.mean()) if len(losses) else None


def traffic(
    broadcasts: Mapping[int, Broadcast], replies: Replies, shares: bool = True
) -> record.Traffic:
    """Bytes by direction and payload name, summed over clients. What many clients are told alike is
    measured once.
    """
    if not shares:
        return record.Traffic({}, {})
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    messages = {id(broadcast): broadcast for broadcast in broadcasts.values()}
    for same, count in Counter(map(id, broadcasts.values())).items():
        down["model"] += count * codec.size(messages[same].model)
        down.update(
            {
                name: count * codec.size(tree)
                for name, tree in messages[same].payload.items()
                if tree
            }
        )
    if isinstance(replies, Stacked):
        up["model"] += codec.size(replies.delta)
        up.update({name: codec.size(tree) for name, tree in replies.payload.items() if tree})
        up["metrics"] += _METRIC_BYTES * (len(replies.metrics) + 1) * len(replies)
    else:
        for reply in replies.values():
            up["model"] += codec.size(reply.delta)
            up.update({name: codec.size(tree) for name, tree in reply.payload.items()})
            up["metrics"] += _METRIC_BYTES * (len(reply.metrics) + 1)
    return record.Traffic(dict(down), dict(up))
