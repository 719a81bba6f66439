"""A run's life: begin or resume, play the rounds, write what happens, stop on request, finish.

A stop or a kill at any moment loses nothing that was finished. The same code serves runs on one
machine and the server of a federation on Flower.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from gcfl.base.data_types import Coreset
from gcfl.base.errors import Interrupted, RunError
from gcfl.base.files import locked, reach
from gcfl.base.record import RoundRecord
from gcfl.base.text import count
from gcfl.data import Truth
from gcfl.data.partition import Partition
from gcfl.engine.checkpoint import Checkpoint
from gcfl.engine.client_test import tested
from gcfl.engine.played import Played, State
from gcfl.engine.prepare import Prepared
from gcfl.engine.rounds import Rounds
from gcfl.engine.transport import ClientMemory, OnClient, Transport
from gcfl.experiment import Experiment
from gcfl.methods.privacy import without_secret
from gcfl.methods.training import trained_on
from gcfl.results.environment import environment_of
from gcfl.results.folder import RunFolder
from gcfl.results.outcome import keeps, summarise
from gcfl.results.privacy import statement

log = logging.getLogger("gcfl")
OnStart = Callable[[Experiment, RunFolder, int], None]
OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Observer:
    """The simulation's onlooker: it alone knows the truth, and it only records."""

    truth: Truth | None
    partition: Partition  # as rows of the source
    weighted: bool = False  # points of weight 0 are then not trained on

    def clean_share(self, played: Played) -> float | None:
        """Share of clean samples among all that were trained on; None where nobody knows."""
        if self.truth is None:
            return None
        clean = total = 0
        for client in played.accepted:
            rows = self.partition[client]
            seen = played.observed.get(client)
            if seen is not None and seen.coreset is not None:
                rows = rows[trained_on(seen.coreset, self.weighted).indices]
            clean += int((~self.truth.noisy[rows]).sum())
            total += len(rows)
        return clean / total if total else None

    def rate_error(self, played: Played) -> float | None:
        """The mean over clients of |estimated - true| share of wrong labels."""
        rates = {c: one.rate for c, one in played.observed.items() if one.rate is not None}
        if self.truth is None or not rates:
            return None
        wrong = {client: self.truth.noisy[self.partition[client]].mean() for client in rates}
        return float(np.mean([abs(rates[client] - wrong[client]) for client in rates]))

    def coresets(self, played: Played) -> dict[int, Coreset]:
        """What was chosen or drawn in this round, as rows of the source."""
        found = {}
        for client in played.accepted:
            seen = played.observed.get(client)
            if seen is not None and seen.fresh and seen.coreset is not None:
                rows = self.partition[client][seen.coreset.indices]
                found[client] = Coreset(rows, seen.coreset.weights)
        return found


@dataclass(frozen=True)
class Lifecycle:
    """One run in one folder.

    connect: makes the transport, once it is known that there is something to play. holdings: who
    the clients are and how much they hold, known once connected. again: how to continue, for
    messages. on_start(experiment, folder, rounds done), on_round(record) and, where clients are
    simulated, on_client(clients done, of how many) are told what happens.
    """

    prepared: Prepared
    folder: RunFolder
    connect: Callable[[], Transport]
    observer: Observer
    holdings: Callable[[], Mapping[str, Any]]
    again: str
    workers: int = 1
    checkpoint_every: int = 1
    on_start: OnStart = lambda *_: None
    on_round: OnRound = lambda _: None
    on_client: OnClient = lambda *_: None

    def run(self) -> None:
        """From the start, from the checkpoint, or not at all if the run is finished."""
        try:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            with locked(self.folder.path):
                if self.folder.finished:
                    self.folder.verify()
                    log.info("%s is finished already", self.folder.path)
                else:
                    self._train()
        except Interrupted as stop:
            raise Interrupted(f"{stop}; to continue: {self.again}", stop.signal) from None
        except BrokenPipeError:
            raise  # somebody stopped reading what we print; nothing is wrong with the folder
        except OSError as error:
            saved = self.folder.config.exists()
            more = f"; what was finished is kept: {self.again}" if saved else ""
            raise RunError(
                f"cannot write {self.folder.path}: {error.strerror or error}{more}"
            ) from error

    def _train(self) -> None:
        experiment, folder = self.prepared.experiment, self.folder
        transport = self.connect()
        if isinstance(transport, ClientMemory):
            transport.on_client = self.on_client
        try:
            if not Checkpoint(folder.checkpoint).exists():
                environment = environment_of(experiment.engine.device, self.workers)
                by = self.prepared.encoded_by
                encoded = {} if by is None else {"encoded_by": by}
                folder.create(experiment.to_toml(), environment, {**self.holdings(), **encoded})
            self.on_start(experiment, folder, len(folder.records()))
            self._drive(self.prepared.rounds(transport))
        finally:
            transport.close()

    def _drive(self, rounds: Rounds) -> None:
        """All rounds that are left. On Ctrl-C: `Interrupted`, with what was finished on disk."""
        checkpoint = Checkpoint(self.folder.checkpoint)
        state = self._first(rounds, checkpoint)
        saved = state.round

        def save(state: State) -> None:
            changed, remembered = rounds.transport.changed(), rounds.transport.remembered
            if rounds.over(state) and rounds.privacy is not None:  # no more noise to make
                state = replace(state, parts=without_secret(state.parts))
                changed = {who: without_secret(groups) for who, groups in remembered().items()}
            checkpoint.save(state, changed, remembered, self.folder.covers())

        if rounds.privacy is not None and not checkpoint.exists():
            save(state)  # or a kill in the first round would release it again with other noise
        with _Stop() as stop:
            try:
                while not rounds.over(state):
                    with stop.at_once():
                        played = rounds.play(state)
                    rounds.transport.commit(played.accepted)
                    record = self._write(played)
                    state = played.state
                    if state.round - saved >= self.checkpoint_every or rounds.over(state):
                        save(state)
                        saved = state.round
                    reach("round.end")
                    self.on_round(record)
                    if not rounds.over(state):
                        stop.here()
                self._finish(rounds, state)
            except KeyboardInterrupt:
                if state.round > saved:
                    save(state)
                raise Interrupted(
                    f"stopped after {state.round} of {count(rounds.setting.rounds, 'round')}",
                    stop.signal,
                ) from None

    def _first(self, rounds: Rounds, checkpoint: Checkpoint) -> State:
        """The state to go on from."""
        first = rounds.begin()
        if not checkpoint.exists():
            self.folder.forget_from(0)
            return first
        state, memory = checkpoint.load()
        if _shapes(state) != _shapes(first):
            raise RunError(
                f"the checkpoint in {self.folder.path} holds a model of another shape than the "
                "configuration asks for"
            )
        self.folder.forget_from(state.round, checkpoint.covers)
        rounds.transport.restore(memory)
        model = {name: t.to(first.model[name].device) for name, t in state.model.items()}
        return State(state.round, model, state.parts)

    def _write(self, played: Played) -> RoundRecord:
        record = played.record(self.observer.clean_share(played), self.observer.rate_error(played))
        chosen = self.observer.coresets(played)
        if chosen:
            self.folder.add_coresets(record.round, chosen)
        self.folder.add_round(record)
        return record

    def _finish(self, rounds: Rounds, state: State) -> None:
        keep = keeps(self.prepared.experiment.resolved())
        records = self.folder.records()
        summary = summarise(records, keep)
        summary["privacy"] = statement(
            self.prepared.experiment.resolved(), records, self.folder.encoded_by
        )
        final, federation = rounds.final(state), self.prepared.federation
        if by_client := tested(rounds.setting.network, final, federation):
            summary["clients"] = by_client
        self.folder.finish(*self.prepared.parcel(final), summary)


def _shapes(state: State) -> dict[str, Any]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.model.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside: the number of threads changes the order of sums, and so the bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


class _Stop:
    """Ctrl-C and SIGTERM: at once while a round is played, which can be played again, and only
    between the writes otherwise.
    """

    def __init__(self) -> None:
        self.signal = int(signal.SIGINT)
        self._asked = False
        self._interruptible = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self.signal = number
        if self._interruptible:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def here(self) -> None:
        if self._asked:
            raise KeyboardInterrupt
