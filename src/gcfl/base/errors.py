"""One error family: what was given, what is allowed, how to mend it.

Every message is one sentence that a user can act on. The command line prints it and exits with code
2; the Python interface raises it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gcfl.base.text import visible


class GcflError(Exception):
    """Anything that the user can mend. The text is one clear sentence."""


class ConfigError(GcflError):
    """A setting that is unknown, of the wrong type or out of range."""


class DataError(GcflError):
    """Arrays or files that cannot be used as they are."""


class ModelError(GcflError):
    """A network that the methods cannot work with."""


class RunError(GcflError):
    """A run folder that cannot be read, written or continued, or a round that gave nothing."""


class Interrupted(KeyboardInterrupt):
    """Stopped on request; what was finished is kept. No `Exception`: no loop swallows it."""

    def __init__(self, message: str, signal: int = 2) -> None:
        super().__init__(message)
        self.signal = signal


def one_line(error: BaseException) -> str:
    """'ValueError: what it says', without line breaks."""
    return visible(" ".join(f"{type(error).__name__}: {error}".split()))


def one_of(names: Iterable[str]) -> str:
    """'a, b or c'."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"


def all_of(names: Iterable[str]) -> str:
    """'a, b and c'."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """'; did you mean x?' for a near miss, else the list of what exists."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(sorted(set(names)))}" if names else ""
