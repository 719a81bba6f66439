"""Plays all rounds and writes what happens, so that a stop or a kill at any moment loses nothing
that was finished.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from gcfl.base import failpoints
from gcfl.base.data_types import Coreset
from gcfl.base.errors import Interrupted, RunError
from gcfl.base.record import RoundRecord
from gcfl.data import Truth
from gcfl.data.partition import Partition
from gcfl.engine.checkpoint import Checkpoint
from gcfl.engine.rounds import Played, Rounds, State
from gcfl.engine.transport import Transport
from gcfl.results.folder import RunFolder

OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Observer:
    """The simulation's onlooker: it alone knows the truth, and it only records."""

    truth: Truth | None
    partition: Partition  # as rows of the source

    def clean_share(self, transport: Transport, clients: Sequence[int]) -> float | None:
        """Share of clean samples among all that these clients trained on; None where nobody
        knows.
        """
        if self.truth is None:
            return None
        clean = total = 0
        for client in clients:
            ids = self.partition[client]
            coreset = transport.coreset(client)
            used = ids if coreset is None else ids[coreset.indices]
            clean += int((~self.truth.noisy[used]).sum())
            total += len(used)
        return clean / total if total else None

    def coresets(self, transport: Transport, clients: Sequence[int]) -> dict[int, Coreset]:
        """The coresets of these clients, as rows of the source."""
        held = {client: transport.coreset(client) for client in clients}
        return {
            client: Coreset(self.partition[client][own.indices], own.weights)
            for client, own in held.items()
            if own is not None
        }


def drive(
    rounds: Rounds,
    folder: RunFolder,
    observer: Observer,
    checkpoint_every: int,
    on_round: OnRound,
    finish: Callable[[State], None],
) -> None:
    """From the checkpoint, or the beginning, to the last round, then `finish`.

    On Ctrl-C: `Interrupted`, with what was finished on disk.
    """
    checkpoint = Checkpoint(folder.checkpoint)
    state = _start(rounds, folder, checkpoint)
    saved = state.round

    def save(state: State) -> None:
        checkpoint.save(state, rounds.transport.changed(), rounds.transport.remembered)

    with _Stop() as stop:
        try:
            while not rounds.over(state):
                with stop.at_once():
                    played = rounds.play(state)
                record = _write(folder, rounds.transport, observer, played)
                state = played.state
                if state.round - saved >= checkpoint_every or rounds.over(state):
                    save(state)
                    saved = state.round
                failpoints.reach("round.end")
                on_round(record)
                if not rounds.over(state):
                    stop.here()
            finish(state)
        except KeyboardInterrupt:
            if state.round > saved:
                save(state)
            raise Interrupted(
                f"stopped after {state.round} of {rounds.setting.rounds} rounds", stop.signal
            ) from None


def _start(rounds: Rounds, folder: RunFolder, checkpoint: Checkpoint) -> State:
    first = rounds.begin()
    if not checkpoint.exists():
        folder.forget_from(0)
        return first
    state, memory = checkpoint.load()
    expected = {name: (tensor.shape, tensor.dtype) for name, tensor in first.model.items()}
    if {name: (tensor.shape, tensor.dtype) for name, tensor in state.model.items()} != expected:
        raise RunError(
            f"the checkpoint in {folder.path} holds a model of another shape than the "
            "configuration asks for"
        )
    folder.forget_from(state.round)
    rounds.transport.restore(memory)
    return State(
        state.round,
        {name: tensor.to(first.model[name].device) for name, tensor in state.model.items()},
        state.parts,
    )


def _write(
    folder: RunFolder, transport: Transport, observer: Observer, played: Played
) -> RoundRecord:
    """The record as it was written: with what the observer knows."""
    transport.commit(played.accepted)
    share = observer.clean_share(transport, played.accepted)
    record = replace(played.record, coreset=replace(played.record.coreset, clean_share=share))
    chosen = observer.coresets(transport, played.selected)
    if chosen:
        folder.add_coresets(record.round, chosen)
    folder.add_round(record)
    return record


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside, in torch and in numpy's BLAS, since the number of threads changes the
    order of sums, and so the bits.
    """
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
            signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
            self._before = {number: signal.signal(number, self._handle) for number in signals}
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
