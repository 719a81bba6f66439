"""What Flower's programs start here, found and ended by the home that they all share.

`flwr run` and a SuperLink start others in sessions of their own, and Ray gives its workers other
names: none of them need be our child, but each has the home in its environment, or is a child of
one that has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from gcfl.base.errors import RunError

_END_SECONDS = 10.0


def alive(home: Path) -> set[psutil.Process]:
    """What has this home in its environment, and what that has started."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone since, or somebody else's
            if process.pid != os.getpid() and process.environ().get("FLWR_HOME") == str(
                home.absolute()
            ):
                found |= {process, *process.children(recursive=True)}
    return set(filter(_runs, found))


def end_all(home: Path) -> None:
    """End what lives in this home: first asked, then made to."""
    known = alive(home)
    ways: tuple[Callable[[psutil.Process], None], ...] = (
        psutil.Process.terminate,
        psutil.Process.kill,
    )
    for end in ways:
        for process in known:
            with suppress(psutil.NoSuchProcess):
                end(process)
        _, left = psutil.wait_procs(known, timeout=_END_SECONDS)
        known = set(filter(_runs, left)) | alive(home)  # who loses its parent is still ours
    if known:
        raise RunError(
            f"these processes could not be ended: {sorted(process.pid for process in known)}"
        )


def _runs(process: psutil.Process) -> bool:
    """Not gone, and not one that has ended and only waits to be counted."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
