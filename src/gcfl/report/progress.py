"""How a run tells that it is alive: a bar on a terminal, lines elsewhere; all on stderr."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape as no_markup
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from gcfl.base.options import flat
from gcfl.base.record import RoundRecord
from gcfl.base.text import count, visible
from gcfl.experiment import Experiment
from gcfl.results.folder import RunFolder
from gcfl.results.names import called

_LINE_SECONDS = 1.0
_SELDOM_SECONDS = 30.0  # between two lines about one of several runs
_QUIET_SECONDS = 10.0  # without a line, a long round tells how far it is


def escape(text: str) -> str:
    """Text of others, as it is: neither markup nor terminal codes."""
    return no_markup(visible(text))


def columns(what: str, *more: ProgressColumn) -> list[ProgressColumn]:
    """Of a bar: what is counted, how many of all, more, the time since and until."""
    done = [TextColumn(what), MofNCompleteColumn(), BarColumn(), *more]
    return [*done, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()]


class Seldom:
    """Whether it is time for a line about one of several runs, where output is no terminal."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def due(self, name: str) -> bool:
        """The first time is when the run begins: nothing is due then."""
        now = time.monotonic()
        due = now - self._last.setdefault(name, now) >= _SELDOM_SECONDS
        if due:
            self._last[name] = now
        return due


def so_far(rounds: int, of: int, clients: int = 0, cohort: int = 0) -> str:
    """'3/50 rounds', then, inside a round, '4 of 10 clients done'."""
    now = f"  then {clients} of {count(cohort, 'client')} done" if cohort else ""
    return f"{rounds}/{count(of, 'round')}{now}"


class Progress:
    """Pass `start`, `round` and `client` to a run. Warnings of the package appear above the bar."""

    def __init__(self, quiet: bool) -> None:
        self.started = False
        self._quiet = quiet
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar: Bar | None = None
        self._total = self._done = 0
        self._printed = 0.0
        self._handler = _Warnings(self._console)

    def __enter__(self) -> Progress:
        logging.getLogger("gcfl").addHandler(self._handler)
        if not self._quiet:
            # long reading, decoding, corrupting
            logging.getLogger("gcfl.data").setLevel(logging.INFO)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        logging.getLogger("gcfl").removeHandler(self._handler)
        logging.getLogger("gcfl.data").setLevel(logging.NOTSET)

    def start(self, experiment: Experiment, folder: RunFolder, done: int) -> None:
        self.started = True
        self._total, self._done = experiment.rounds, done
        self._printed = time.monotonic()
        if self._quiet:
            return
        again = f", continuing after {done}" if done else ""
        self._console.print(
            escape(
                f"{called(flat(experiment.resolved()))} on {experiment.data.source}, "
                f"{count(experiment.rounds, 'round')}{again}"
            )
        )
        self._console.print(escape(f"folder: {folder.path}"), soft_wrap=True)
        if self._console.is_terminal:
            more = "accuracy {task.fields[accuracy]}{task.fields[clients]}"
            self._bar = Bar(*columns("rounds", TextColumn(more)), console=self._console)
            self._bar.add_task(
                "rounds", total=self._total, completed=done, accuracy="-", clients=""
            )
            self._bar.start()

    def client(self, done: int, cohort: int) -> None:
        """So many clients of the round that is played now are done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], clients=f"  client {done}/{cohort}")
        elif not self._quiet and time.monotonic() - self._printed >= _QUIET_SECONDS:
            self._printed = time.monotonic()
            self._console.print(so_far(self._done, self._total, done, cohort))

    def round(self, record: RoundRecord) -> None:
        self._done = record.round + 1
        if self._quiet:
            return
        shown = "-" if record.accuracy is None else f"{record.accuracy:.4f}"
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=record.round + 1, clients="")
            if record.accuracy is not None:
                self._bar.update(task, accuracy=shown)
            return
        now = time.monotonic()
        if now - self._printed >= _LINE_SECONDS or record.round + 1 == self._total:
            self._printed = now
            loss = "-" if record.loss is None else f"{record.loss:.4f}"
            # how many are played: as everywhere, the rounds themselves count from 0
            played = f"{record.round + 1}/{count(self._total, 'round')}"
            self._console.print(f"{played}  accuracy {shown}  loss {loss}")


class Trials:
    """The same for several short runs: pass `trial` and `round`."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(file=sys.stderr, highlight=False)
        self._handler = _Warnings(self._console)
        what = TextColumn("{task.fields[what]}")
        silent = quiet or not self._console.is_terminal
        self._bar = Bar(*columns("round", what), console=self._console, disable=silent)
        self._task = self._bar.add_task("rounds", total=0, what="")
        self._seldom = Seldom()
        self._name, self._rounds, self._done = "", 0, 0

    def __enter__(self) -> Trials:
        logging.getLogger("gcfl").addHandler(self._handler)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        logging.getLogger("gcfl").removeHandler(self._handler)

    def trial(self, name: str, rounds: int) -> None:
        self._name, self._rounds, self._done = name, rounds, 0
        self._seldom.due(name)
        self._bar.reset(self._task, total=rounds, what=f"trying {escape(name)}")
        if not self._quiet and not self._console.is_terminal:
            self._console.print(f"trying {escape(name)}, {count(rounds, 'round')}")

    def round(self, _: RoundRecord) -> None:
        self._bar.advance(self._task)
        self._done += 1
        lines = not (self._quiet or self._console.is_terminal)
        if lines and self._done < self._rounds and self._seldom.due(self._name):
            self._console.print(f"{escape(self._name)}: {so_far(self._done, self._rounds)}")


class _Warnings(logging.Handler):
    """The package's warnings, and what it says of long work, not torn by the bar."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        kind = "warning: " if record.levelno >= logging.WARNING else ""
        self._console.print(escape(f"{kind}{record.getMessage()}"), soft_wrap=True)
