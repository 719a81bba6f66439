"""What a round cost: seconds, bytes, samples."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from gcfl.base import codec
from gcfl.base.data_types import Broadcast
from gcfl.base.record import Clock, Times
from gcfl.methods import Replies

Moment = tuple[float, float]  # CPU-seconds of this thread, wall-clock seconds


def now() -> Moment:
    return time.thread_time(), time.perf_counter()


class Stopwatch:
    """The server's seconds per kind of work."""

    def __init__(self) -> None:
        self._spent: defaultdict[str, Moment] = defaultdict(lambda: (0.0, 0.0))
        self._started = time.perf_counter()

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
        for kind in ("select", "train") if len(replies) else ():
            cpu, wall = (float(replies.metric(f"{kind}_{what}").sum()) for what in ("cpu", "wall"))
            self._add(kind, cpu, wall)
        clocks = {kind: self._spent[kind] for kind in ("select", "train", "aggregate", "evaluate")}
        whole = Clock(time.perf_counter() - self._started, sum(cpu for cpu, _ in clocks.values()))
        return Times(
            **{kind: Clock(wall, cpu) for kind, (cpu, wall) in clocks.items()}, round=whole
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
