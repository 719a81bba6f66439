"""Arrays given from Python or read from tables, checked and coded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.data.source import Source
from gcfl.errors import DataError

Pair = tuple[Any, Any]


def arrays(
    data: Pair, validation: Pair | None = None, test: Pair | None = None, classes: Sequence[str | int] | None = None
) -> Source:
    """A source from arrays: (x, y), and optionally the server's clean (x, y) and a test (x, y).

    x is (n, features) or (n, channels, height, width), of any number type; y holds whole numbers or names.
    The classes are those given, else the sorted labels of y.
    """
    pairs = {"data": _pair("data", data)}
    for name, pair in (("validation", validation), ("test", test)):
        if pair is not None:
            pairs[name] = _pair(name, pair)
    if classes is None:
        classes = np.unique(pairs["data"][1]).tolist()
    classes = [label.item() if isinstance(label, np.generic) else label for label in classes]
    known = {label: index for index, label in enumerate(classes)}
    if len(known) != len(classes):
        raise DataError("classes must be different from each other")
    if len(known) < 2:
        raise DataError(f"data needs at least two classes, got {list(known)}")
    shape = pairs["data"][0].shape[1:]
    coded = {}
    for name, (x, y) in pairs.items():
        if x.shape[1:] != shape:
            raise DataError(f"x of {name} has samples of shape {x.shape[1:]}, but data has {shape}")
        unknown = [label for label in np.unique(y).tolist() if label not in known]
        if unknown:
            raise DataError(f"y of {name} has the label {unknown[0]!r}, which is not among the {len(known)} classes of data")
        coded[name] = (x, np.array([known[label] for label in y.tolist()], dtype=np.int64))
    return Source("arrays", *coded["data"], tuple(known), coded.get("validation"), coded.get("test"), own=True)


def _pair(name: str, pair: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{name} must be a pair (x, y) of arrays, got {type(pair).__name__}")
    x, y = (_array(f"{part} of {name}", value) for part, value in zip("xy", pair, strict=True))
    if x.dtype.kind not in "fiub":
        raise DataError(f"x of {name} must hold numbers, got dtype {x.dtype}")
    if x.ndim < 2:
        raise DataError(f"x of {name} must be (n, features) or (n, channels, height, width), got shape {x.shape}")
    y = _labels(y)
    if y.ndim != 1 or y.dtype.kind not in "iU":
        raise DataError(
            f"y of {name} must be one row of whole numbers or names, got dtype {y.dtype} and shape {y.shape}; "
            "try y.astype(int) or y.astype(str)"
        )
    if len(x) != len(y):
        raise DataError(f"x of {name} has {len(x)} samples, but y has {len(y)} labels")
    if len(x) == 0:
        raise DataError(f"{name} is empty")
    if x.dtype.kind == "f":
        bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if bad.any():
            raise DataError(f"x of {name} has NaN or infinite values in {int(bad.sum())} samples, first in row {int(bad.argmax())}")
        x = x.astype(np.float32, copy=False)
    elif x.dtype != np.uint8:
        x = x.astype(np.float32)
    return x, y


def _labels(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Names as text, whole numbers as int64, whatever they came as (a table's columns are objects or floats); else as it was."""
    if y.dtype.kind == "S" or (y.dtype.kind == "O" and all(isinstance(label, str) for label in y.flat)):
        return y.astype(str)
    if y.dtype.kind in "iub" or (y.dtype.kind == "f" and bool(np.isfinite(y).all()) and bool((y == np.round(y)).all())):
        return y.astype(np.int64)
    return y


def _array(what: str, value: Any) -> npt.NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"{what} is not a regular array ({error})") from None
