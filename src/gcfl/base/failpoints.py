"""Places where a test may make the process die or a write fail, for real.

`GCFL_FAILPOINT="name:nth:action"` strikes the nth time that `name` is passed: `kill` sends SIGKILL
to this process, and the name of an errno (`ENOSPC`, `EROFS`) raises that OSError. Unset, a
failpoint costs one look-up.
"""

from __future__ import annotations

import errno
import os
import signal

_passed: dict[str, int] = {}


def reach(name: str) -> None:
    """Strike here if the environment says so."""
    order = os.environ.get("GCFL_FAILPOINT")
    if not order:
        return
    wanted, nth, action = order.split(":")
    if wanted != name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] != int(nth):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    code = getattr(errno, action)
    raise OSError(code, os.strerror(code), name)
