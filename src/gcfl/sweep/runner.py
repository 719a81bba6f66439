"""Runs side by side, a process each: what is finished is skipped, what is broken is resumed, what
fails is told and left.

A run's process dies with the sweep that started it, whatever ends that; the run folder is then
whole, and the next sweep goes on where it stopped.
"""

from __future__ import annotations

import ctypes
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from gcfl import api
from gcfl.base.errors import GcflError, Interrupted, one_line
from gcfl.base.files import owner
from gcfl.engine import Given
from gcfl.results.folder import RunFolder
from gcfl.sweep.plan import Cell

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_IN_USE_SECONDS = 15.0


@dataclass(frozen=True)
class Outcome:
    """A cell's run folder, or why there is none."""

    cell: Cell
    folder: Path | None
    problem: str | None = None
    was_finished: bool = False


OnOutcome = Callable[[Outcome], None]


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    jobs: int,
    on_outcome: OnOutcome,
    given: Given | None = None,
) -> list[Outcome]:
    """The outcome of every cell, in their order. Ctrl-C ends them, and loses nothing. given: what
    came from Python for all of them.
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
    try:
        while waiting or going:
            while waiting and len(going) < jobs:
                place = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_work, args=(theirs, cells[place], str(out), os.getpid(), given)
                )
                with _ctrl_c_waits():
                    process.start()
                    theirs.close()
                    going[ours] = (place, process)
            for connection in wait(list(going)):
                place, process = going.pop(connection)
                settle(place, _outcome(cells[place], connection, process))
    except KeyboardInterrupt:
        for _, process in going.values():
            process.kill()
        raise Interrupted(
            "stopped; what was finished is kept, and the same command goes on from there"
        ) from None
    return [outcomes[place] for place in range(len(cells))]


def at_once(cells: Sequence[Cell]) -> int:
    """Runs at a time, where nobody says otherwise: one per core, or per its workers."""
    workers = max(cell.experiment().engine.workers for cell in cells)
    return max(1, (os.cpu_count() or 1) // workers)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Inside, Ctrl-C is only noted: what it raises during a fork would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def finished_folder(cell: Cell, out: Path) -> Path | None:
    """Where the cell's finished run lies, if that can be told without reading any data."""
    folder = out / cell.experiment().folder_name()
    there = (folder / "summary.json").exists() and RunFolder.open(folder).finished
    return folder if there else None


def _outcome(cell: Cell, connection: Any, process: Any) -> Outcome:
    try:
        answer = json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        process.join()
        died = f"its process died (exit code {process.exitcode}): out of memory, or killed"
        answer = {"problem": died}
    finally:
        connection.close()
    process.join()
    if "problem" in answer:
        return Outcome(cell, None, answer["problem"])
    return Outcome(cell, Path(answer["folder"]))


def _work(connection: Connection, cell: Cell, out: str, parent: int, given: Given) -> None:
    """A process's life: one run. Its answer is JSON: {"folder"} or {"problem"}."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's to handle
    _die_with(parent)
    # the same warning from many runs at once helps nobody
    logging.getLogger("gcfl").setLevel(logging.ERROR)
    try:
        answer = {"folder": str(_run(cell, Path(out), given))}
    except (GcflError, OSError, MemoryError) as error:
        answer = {"problem": str(error) or "out of memory"}
    except Exception as error:
        answer = {"problem": one_line(error)}
    connection.send_bytes(json.dumps(answer).encode())
    connection.close()


def _run(cell: Cell, out: Path, given: Given) -> Path:
    """The run; where another process is about to end in its folder, after that."""
    experiment = cell.experiment()
    folder = out / experiment.folder_name()
    deadline = time.monotonic() + _IN_USE_SECONDS
    while folder.exists() and owner(folder) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return api.execute(experiment, given, out).folder


def _die_with(parent: int) -> None:
    """Where the system can: this process is killed when the sweep's ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
