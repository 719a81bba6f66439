"""Runs side by side, a process each: what is finished is skipped, what is broken is resumed, what
fails is told and left.

A run's process dies with the sweep that started it, whatever ends that; the run folder is then
whole, and the next sweep goes on where it stopped.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from gcfl import api
from gcfl.base.errors import GcflError, Interrupted, one_line
from gcfl.base.files import owner
from gcfl.base.record import RoundRecord
from gcfl.engine import Given
from gcfl.experiment import Experiment
from gcfl.results.folder import RunFolder
from gcfl.sweep.plan import Cell

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_IN_USE_SECONDS = 15.0
_TELL_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """A cell's run folder, or why there is none."""

    cell: Cell
    folder: Path | None
    problem: str | None = None
    was_finished: bool = False


OnOutcome = Callable[[Outcome], None]
OnProgress = Callable[[Cell, "Going"], None]


@dataclass(frozen=True)
class Going:
    """How far a run is: rounds done of all, and of the round that is played now its clients."""

    rounds: int
    of: int
    clients: int = 0
    cohort: int = 0


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    jobs: int,
    on_outcome: OnOutcome,
    given: Given | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> list[Outcome]:
    """The outcome of every cell, in their order. Ctrl-C and SIGTERM end them, and lose nothing.
    given: what came from Python for all of them. on_progress: told now and then how far a run is.
    """
    given = given or Given()
    outcomes: dict[int, Outcome] = {}

    def settle(place: int, outcome: Outcome) -> None:
        outcomes[place] = outcome
        on_outcome(outcome)

    waiting = []
    for place, cell in enumerate(cells):
        folder = finished_folder(cell, out)
        if folder is None:
            waiting.append(place)
        else:
            settle(place, Outcome(cell, folder, was_finished=True))
    if waiting and any(
        cells[place].settings.get("data.source", "digits") in ("digits", "blobs")
        for place in waiting
    ):
        import sklearn.datasets  # noqa: F401  (once here, not once in every process)
    forks = "fork" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if forks else "spawn")
    going: dict[Any, tuple[int, Any]] = {}
    terminated: list[int] = []
    try:
        with _sigterm_as_ctrl_c(terminated):
            while waiting or going:
                while waiting and len(going) < jobs:
                    place = waiting.pop(0)
                    ours, theirs = context.Pipe(duplex=False)
                    process = context.Process(
                        target=_work, args=(theirs, cells[place], str(out), os.getpid(), given)
                    )
                    with _signals_wait():
                        process.start()
                        theirs.close()
                        going[ours] = (place, process)
                for connection in wait(list(going)):
                    place, process = going[connection]
                    answer = _answer(connection, process)
                    if "rounds" in answer:
                        on_progress(cells[place], Going(**answer))
                    else:
                        del going[connection]
                        settle(place, _outcome(cells[place], answer))
    except KeyboardInterrupt:
        for _, process in going.values():
            process.kill()
        raise Interrupted(
            "stopped; what was finished is kept, and the same command goes on from there",
            signal.SIGTERM if terminated else signal.SIGINT,
        ) from None
    return [outcomes[place] for place in range(len(cells))]


def at_once(cells: Sequence[Cell]) -> int:
    """Runs at a time, where nobody says otherwise: one per core, or per its workers."""
    workers = max(cell.experiment().engine.workers for cell in cells)
    return max(1, (os.cpu_count() or 1) // workers)


@contextmanager
def _sigterm_as_ctrl_c(seen: list[int]) -> Iterator[None]:
    """Inside, SIGTERM is noted, and stops what goes on as Ctrl-C does."""

    def stop(number: int, _: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM are only noted: what they raise during a fork would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    both = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, _: asked.append(number)) for one in both}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if asked:
        signal.raise_signal(asked[0])


def finished_folder(cell: Cell, out: Path) -> Path | None:
    """Where the cell's finished run lies, if that can be told without reading any data."""
    folder = out / cell.experiment().folder_name()
    there = (folder / "summary.json").exists() and RunFolder.open(folder).finished
    return folder if there else None


def _answer(connection: Any, process: Any) -> dict[str, Any]:
    """What a process says: how far it is, or how it ended."""
    try:
        answer: dict[str, Any] = json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        process.join()
        died = f"its process died (exit code {process.exitcode}): out of memory, or killed"
        answer = {"problem": died}
    if "rounds" not in answer:
        connection.close()
        process.join()
    return answer


def _outcome(cell: Cell, answer: Mapping[str, Any]) -> Outcome:
    if "problem" in answer:
        return Outcome(cell, None, answer["problem"])
    return Outcome(cell, Path(answer["folder"]))


def _work(connection: Connection, cell: Cell, out: str, parent: int, given: Given) -> None:
    """A process's life: one run. It says how far it is, then {"folder"} or {"problem"}, in JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(parent)
    # the same warning from many runs at once helps nobody
    logging.getLogger("gcfl").setLevel(logging.ERROR)
    try:
        answer = {"folder": str(_run(cell, Path(out), given, _Teller(connection)))}
    except (GcflError, OSError, MemoryError) as error:
        answer = {"problem": str(error) or "out of memory"}
    except Interrupted as stop:  # by SIGTERM, in the middle of its rounds
        answer = {"problem": str(stop)}
    except Exception as error:
        answer = {"problem": one_line(error)}
    with suppress(OSError):  # nobody listens any more
        connection.send_bytes(json.dumps(answer).encode())
        connection.close()


class _Teller:
    """Says how far a run is, at most once a second. Pass `start`, `round` and `client` to it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._of = self._done = 0
        self._said = -math.inf

    def start(self, experiment: Experiment, _: RunFolder, done: int) -> None:
        self._of, self._done = experiment.rounds, done
        self._tell()

    def round(self, record: RoundRecord) -> None:
        self._done = record.round + 1
        self._tell()

    def client(self, done: int, cohort: int) -> None:
        self._tell(done, cohort)

    def _tell(self, clients: int = 0, cohort: int = 0) -> None:
        now = time.monotonic()
        if now - self._said >= _TELL_SECONDS:
            self._said = now
            going = asdict(Going(self._done, self._of, clients, cohort))
            with suppress(OSError):
                self._connection.send_bytes(json.dumps(going).encode())


def _run(cell: Cell, out: Path, given: Given, teller: _Teller) -> Path:
    """The run; where another process is about to end in its folder, after that."""
    experiment = cell.experiment()
    folder = out / experiment.folder_name()
    deadline = time.monotonic() + _IN_USE_SECONDS
    while folder.exists() and owner(folder) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    told = {"on_start": teller.start, "on_round": teller.round, "on_client": teller.client}
    return api.execute(experiment, given, out, **told).folder  # type: ignore[arg-type]


def _die_with(parent: int) -> None:
    """Where the system can: this process is killed when the sweep's ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
