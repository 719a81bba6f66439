"""Our own reader of the pickles that CIFAR's python version consists of.

It follows the opcodes of the format and knows what those files contain: whole numbers, text, lists,
tuples, tables, and numpy arrays of bytes. No byte of a file chooses what is made: the four names
that arrays are pickled by stand for steps of this reader, never for objects, and the only type of
an array is uint8. Anything else is refused.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError

_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "kind",
    "numpy dtype": "type",
    "_codecs encode": "encode",
}
_BYTE_TYPE = (3, "|", None, None, None, -1, -1, 0)  # what numpy says of uint8


class _Step:
    """A name that the file asked for, or the type of bytes."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Array:
    """An array that is announced; filled by BUILD."""

    values: npt.NDArray[np.uint8] | None = None


_MARK, _BYTES = _Step("mark"), _Step("bytes")


def read_pickled(blob: bytes) -> dict[str, Any]:
    """The table that the file holds, by text; ValueError where it is none of ours."""
    found = _Machine().run(blob)
    if not isinstance(found, dict):
        raise ValueError("it holds no table")
    values = ((text(key), value) for key, value in found.items())
    return {key: one.values if isinstance(one, _Array) else one for key, one in values}


def text(value: Any) -> str:
    """Nothing else is made text of: a list that holds itself many times over would never end."""
    if not isinstance(value, str | bytes):
        raise ValueError("a name is not text")
    return value.decode() if isinstance(value, bytes) else value


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, blob: bytes) -> Any:
        argument: Any
        for opcode, argument, _ in pickletools.genops(blob):
            name = opcode.name
            if name == "STOP":
                return self._pop()
            if name in _NOTHING:
                continue
            if name in _PLAIN:
                self._stack.append(argument)
            elif name in _OLD_TEXT:  # text of Python 2, whose bytes nobody has told the meaning of
                self._stack.append(argument.encode("latin-1"))
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name]())
            elif name in _PUTS:
                place = len(self._memo) if name == "MEMOIZE" else int(argument)
                self._memo[place] = self._stack[-1]
            elif name in _GETS:
                self._stack.append(self._memo[int(argument)])
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise ValueError(f"it uses {name}, which no such file needs")
        raise ValueError("it has no end")

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("it takes more than it has put there")
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        found = []
        while self._stack[-1] is not _MARK:
            found.append(self._stack.pop())
        self._stack.pop()
        return found[::-1]

    def _last(self, kind: type) -> Any:
        if type(self._stack[-1]) is not kind:
            raise ValueError(f"it fills something that is no {kind.__name__}")
        return self._stack[-1]

    def append(self, _: Any) -> None:
        value = self._pop()
        self._last(list).append(value)

    def appends(self, _: Any) -> None:
        values = self._since_mark()
        self._last(list).extend(values)

    def set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._put([key, value])

    def set_items(self, _: Any) -> None:
        self._put(self._since_mark())

    def _put(self, pairs: list[Any]) -> None:
        table = self._last(dict)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | bytes):
                raise ValueError("a key of a table is not text")
            table[key] = value

    def tuple_of(self, count: int) -> None:
        self._stack.append(tuple([self._pop() for _ in range(count)][::-1]))

    def marked(self, make: Callable[[list[Any]], Any]) -> None:
        self._stack.append(make(self._since_mark()))

    def marked_table(self, _: Any) -> None:
        pairs = self._since_mark()
        self._stack.append({})
        self._put(pairs)

    def named(self, name: Any) -> None:
        if name is None:  # STACK_GLOBAL
            last, first = self._pop(), self._pop()
            name = f"{text(first)} {text(last)}"
        if name not in _NAMES:
            raise DataError(f"asks for {name.replace(' ', '.')}, which no data file needs")
        self._stack.append(_Step(_NAMES[name]))

    def call(self, _: Any) -> None:
        given, step = self._pop(), self._pop()
        what = step.name if isinstance(step, _Step) and isinstance(given, tuple) else ""
        if what == "encode" and len(given) == 2 and isinstance(given[0], str):
            made: Any = given[0].encode("latin-1")
        elif what == "type" and given and given[0] in ("u1", b"u1"):
            made = _BYTES
        elif what == "array" and given and isinstance(given[0], _Step) and given[0].name == "kind":
            made = _Array()
        else:
            raise ValueError("it asks for something else than an array of bytes")
        self._stack.append(made)

    def build(self, _: Any) -> None:
        state, target = self._pop(), self._stack[-1]
        if target is _BYTES:
            plain = tuple(text(one) if isinstance(one, bytes) else one for one in state)
            if plain != _BYTE_TYPE:
                raise ValueError("its bytes are not plain ones")
            return
        version, shape, kind, by_columns, blob = state
        sizes = isinstance(shape, tuple) and all(type(one) is int and one >= 0 for one in shape)
        ours = isinstance(target, _Array) and version == 1 and kind is _BYTES and sizes
        if not ours or not isinstance(blob, bytes) or math.prod(shape) != len(blob):
            raise ValueError("it holds an array that is not one of bytes, or is cut off")
        flat = np.frombuffer(blob, dtype=np.uint8)
        target.values = flat.reshape(shape, order="F" if by_columns else "C")


_NOTHING = frozenset({"PROTO", "FRAME"})
_OLD_TEXT = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})
_PLAIN = frozenset(
    {
        *("INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "TUPLE": lambda machine, _: machine.marked(tuple),
    "LIST": lambda machine, _: machine.marked(list),
    "DICT": _Machine.marked_table,
    "GLOBAL": _Machine.named,
    "STACK_GLOBAL": _Machine.named,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}
