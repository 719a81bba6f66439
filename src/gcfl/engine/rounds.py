"""One round, over any transport: cohort, announce, exchange, check, merge, evaluate.

Nothing here knows a method by name, and nothing here writes a file.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from gcfl import codec, rng
from gcfl.engine.evaluate import Scores, evaluate
from gcfl.engine.transport import Answers, Transport
from gcfl.errors import RunError
from gcfl.methods import Method, ServerView, Setting
from gcfl.methods.training import learning_rate
from gcfl.types import Broadcast, Failure, Groups, RoundRecord, Shard, Tree, Update

log = logging.getLogger("gcfl")
_METRIC_BYTES = 8  # a number in a message


@dataclass(frozen=True)
class State:
    """Everything the server carries from one round to the next. `round` is the next one to play."""

    round: int
    model: Tree
    parts: Groups


@dataclass(frozen=True)
class Played:
    """The state after a round, its record, whose answers it used, and which of those clients chose a coreset in it."""

    state: State
    record: RoundRecord
    accepted: tuple[int, ...]
    selected: tuple[int, ...]


@dataclass(frozen=True)
class Rounds:
    """The server's side of a run."""

    setting: Setting
    method: Method
    validation: Shard
    test: Shard
    clients: int
    cohort: int
    transport: Transport
    evaluate_every: int = 1

    def begin(self) -> State:
        """The state before the first round: the network's own weights, each part's first state."""
        model = self.setting.network.tree()
        return State(0, model, {name: part.server_init(model) for name, part in self.method.parts.items()})

    def draw(self, round: int) -> tuple[int, ...]:
        """The round's clients, sorted: m of N without replacement, from (seed, round) alone."""
        if not self.method.server.uses_clients:
            return ()
        if self.cohort == self.clients:
            return tuple(range(self.clients))
        chosen = rng.stream(self.setting.seed, "cohort", round).choice(self.clients, self.cohort, replace=False, shuffle=False)
        return tuple(sorted(chosen.tolist()))

    def play(self, state: State) -> Played:
        """One round from a state to the next. A round with no valid answer is an error.

        Nothing outside the returned value changes, so a round that was interrupted can be played again; the caller
        commits the accepted clients' memory.
        """
        times = _Times()
        started = time.perf_counter()
        view = ServerView(self.setting, state.round, state.model, self.validation, self.draw(state.round))
        with times.of("select"):
            told = {name: part.announce(state.parts[name], view) for name, part in self.method.parts.items()}
        broadcasts = {
            client: Broadcast(state.round, state.model, {name: per[client] for name, per in told.items() if client in per})
            for client in view.clients
        }
        answers = self.transport.exchange(broadcasts) if broadcasts else {}
        replies, left_out = self._accept(state, answers)
        for client, reason in left_out.items():
            log.warning("round %d: client %d is left out: %s", state.round, client, reason)
        with times.of("aggregate" if view.clients else "train"):
            after = self._merge(state, view, replies)
        with times.of("evaluate"):
            scores = self._evaluate(after)
        received = {client: answer for client, answer in answers.items() if isinstance(answer, Update)}  # left out or not, it cost
        times.add_clients(received.values())
        times.seconds["round"] = {"wall": time.perf_counter() - started}
        selected = tuple(client for client in replies if client in told["select"])
        coreset: dict[str, float | int | None] = {
            "size": sum(reply.examples for reply in replies.values()),
            "selected": len(selected),
            "clean_share": None,
        }
        record = RoundRecord(
            round=state.round,
            cohort=len(view.clients),
            left_out={str(client): reason for client, reason in left_out.items()},
            lr=learning_rate(self.setting.train, state.round, self.setting.rounds),
            train_loss=_mean_loss(replies),
            accuracy=scores.accuracy if scores else None,
            loss=scores.loss if scores else None,
            per_class=scores.per_class if scores else None,
            samples={
                "forward": view.meter.forward + _total(received, "forward"),
                "backward": view.meter.backward + _total(received, "backward"),
            },
            steps=view.meter.steps + _total(received, "steps"),
            bytes=_traffic(broadcasts, received),
            coreset=coreset,
            time=times.seconds,
        )
        return Played(after, record, tuple(replies), selected)

    def _accept(self, state: State, answers: Answers) -> tuple[dict[int, Update], dict[int, str]]:
        replies: dict[int, Update] = {}
        left_out: dict[int, str] = {}
        for client, answer in answers.items():
            wrong = answer.reason if isinstance(answer, Failure) else self._wrong(state.model, answer)
            if wrong is None and isinstance(answer, Update):
                replies[client] = answer
            else:
                left_out[client] = wrong or ""
        if answers and not replies:
            client, reason = next(iter(left_out.items()))
            raise RunError(f"round {state.round}: no client gave a valid update (client {client}: {reason})")
        return replies, left_out

    def _wrong(self, model: Tree, update: Update) -> str | None:
        """Why an update cannot be used, or None."""
        names = self.setting.network.sent
        if set(update.delta) != set(names):
            return "the update does not have the model's tensors"
        for name in names:
            if update.delta[name].shape != model[name].shape:
                return f"the update of {name} has shape {tuple(update.delta[name].shape)}, expected {tuple(model[name].shape)}"
        for group, tree in {"update": update.delta, **update.payload}.items():
            for name, tensor in tree.items():
                if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                    return f"the {group} has NaN or infinite values in {name}"
        return None

    def _merge(self, state: State, view: ServerView, replies: dict[int, Update]) -> State:
        parts = dict(state.parts)
        if replies:
            parts["select"] = self.method.select.merge(parts["select"], view, replies)
            parts["local"] = self.method.local.merge(parts["local"], view, replies)
        parts["server"], model = self.method.server.merge(parts["server"], view, replies)
        broken = [name for name in self.setting.network.sent if not bool(torch.isfinite(model[name]).all())]
        if broken:
            raise RunError(
                f"round {state.round}: the model has NaN or infinite values in {broken[0]}; lower train.lr or server.rate"
            )
        return State(state.round + 1, model, parts)

    def _evaluate(self, state: State) -> Scores | None:
        last = state.round == self.setting.rounds
        if last or state.round % self.evaluate_every == 0:
            return evaluate(self.setting.network, state.model, self.test)
        return None


class _Times:
    """CPU-seconds and wall-clock seconds per kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {
            kind: {"cpu": 0.0, "wall": 0.0} for kind in ("select", "train", "aggregate", "evaluate")
        }

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind]["cpu"] += time.thread_time() - cpu
            self.seconds[kind]["wall"] += time.perf_counter() - wall

    def add_clients(self, updates: Iterable[Update]) -> None:
        for update in updates:
            for kind in ("select", "train"):
                for clock in ("cpu", "wall"):
                    self.seconds[kind][clock] += update.metrics[f"{kind}_{clock}"]


def _total(replies: Mapping[int, Update], metric: str) -> int:
    return sum(int(reply.metrics[metric]) for reply in replies.values())


def _mean_loss(replies: Mapping[int, Update]) -> float | None:
    losses = np.array([reply.metrics["loss"] for reply in replies.values()])
    losses = losses[np.isfinite(losses)]
    return float(losses.mean()) if len(losses) else None


def _traffic(broadcasts: Mapping[int, Broadcast], replies: Mapping[int, Update]) -> dict[str, dict[str, int]]:
    """Bytes by direction and payload name, summed over clients."""
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    for broadcast in broadcasts.values():
        down["model"] += codec.size(broadcast.model)
        down.update({name: codec.size(tree) for name, tree in broadcast.payload.items() if tree})
    for reply in replies.values():
        up["model"] += codec.size(reply.delta)
        up.update({name: codec.size(tree) for name, tree in reply.payload.items()})
        up["metrics"] += _METRIC_BYTES * (len(reply.metrics) + 1)
    return {"down": dict(down), "up": dict(up)}
