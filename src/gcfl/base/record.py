"""The record of a round: one line of rounds.jsonl.

A field without a default is one that every line has had since format 0. A field added later has a
default, which stands in for it where older lines lack it; so an added field never makes a run
folder unreadable. What a newer version has written besides is ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

FORMAT = 1


@dataclass(frozen=True)
class Clock:
    """CPU-seconds, summed over clients, and wall-clock seconds."""

    wall: float
    cpu: float = 0.0


@dataclass(frozen=True)
class Times:
    """By kind of work, and the round as a whole (its wall-clock seconds). server_cpu: the server's
    own CPU-seconds among them, without evaluation; None in folders that do not tell.
    """

    select: Clock
    train: Clock
    aggregate: Clock
    evaluate: Clock
    round: Clock
    server_cpu: float | None = None

    @property
    def cpu(self) -> float:
        """CPU-seconds of the method: evaluation is not the method's."""
        return self.select.cpu + self.train.cpu + self.aggregate.cpu


@dataclass(frozen=True)
class Samples:
    """How many samples went through the network, forward and backward; each pass counts."""

    forward: int
    backward: int


@dataclass(frozen=True)
class Traffic:
    """Bytes by direction and payload name, summed over clients."""

    down: dict[str, int]
    up: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.down.values()) + sum(self.up.values())


@dataclass(frozen=True)
class CoresetUse:
    """How many samples were trained on, how many clients chose anew, and how clean it was.

    clean_share: of the samples trained on, so without those that weighted training drops; None
    where nobody knows the truth.
    """

    size: int
    selected: int
    clean_share: float | None


@dataclass(frozen=True)
class RoundRecord:
    """What happened in a round. `time` alone may differ between two runs of the same seed."""

    round: int
    cohort: int
    left_out: dict[str, str]
    lr: float
    train_loss: float | None
    accuracy: float | None
    loss: float | None
    per_class: list[float | None] | None
    validation_loss: float | None
    samples: Samples
    steps: int
    bytes: Traffic
    coreset: CoresetUse
    time: Times
    noise_rate: float | None = None  # the clients' mean estimate of their share of wrong labels
    noise_rate_error: float | None = None  # its mean absolute error, where somebody knows
    chosen: dict[str, float] | None = None  # what cross-validation on the clean set found
    guard: dict[str, float] | None = None  # what a comparison of judged and plain draws found
    # By client how its update helped: norm, cosine, weight, in some rounds left_out_loss; and on
    # which clean samples that was measured.
    contribution: dict[str, dict[str, float]] | None = None
    contribution_on: str | None = None
    privacy: dict[str, float] | None = None  # ε spent so far, by the setting that limits it

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, line: Any) -> RoundRecord:
        """The inverse of `to_json`, for lines of any format; ValueError where it is none."""
        return _read(cls, line, "it")  # type: ignore[no-any-return]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any, name: str) -> Any:
    """A value of the annotated type, checked; `name` for the message."""
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is not a table")
        hints = _hints(kind)  # type: ignore[arg-type]
        lacking = [
            field.name
            for field in fields(kind)
            if field.default is field.default_factory is MISSING
        ]
        for wanted in lacking:
            if wanted not in value:
                raise ValueError(f"{name} lacks {wanted}")
        return kind(
            **{key: _read(hint, value[key], key) for key, hint in hints.items() if key in value}
        )  # type: ignore[operator]
    if isinstance(kind, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        return _read(next(part for part in get_args(kind) if part is not NoneType), value, name)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(value, Mapping):
        return {str(key): _read(inner[1], one, f"{name} {key}") for key, one in value.items()}
    if origin is list and isinstance(value, list):
        return [_read(inner[0], one, name) for one in value]
    if kind is str and isinstance(value, str):
        return value
    if kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        # so written, NaN and whole numbers beyond any float fail too
        number = abs(value) <= sys.float_info.max and (kind is float or value == int(value))
        if number:
            return kind(value)
    what = {int: "a whole number", float: "a number", str: "text", dict: "a table", list: "a list"}
    raise ValueError(f"{name} is not {what.get(origin or kind, 'what it should be')}")
