"""Arrays given from Python or read from tables, checked and coded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.utils.data

from gcfl.base import rng
from gcfl.base.errors import DataError, one_line
from gcfl.base.layout import is_texts
from gcfl.data.layouts import Channels, laid_out
from gcfl.data.source import Source

log = logging.getLogger("gcfl.data")
Pair = tuple[Any, Any]
_BLOCK = 4096


def arrays(
    data: Pair,
    validation: Pair | None = None,
    test: Pair | None = None,
    classes: Sequence[str | int] | None = None,
    channels: Channels = None,
    length: int = 64,
) -> Source:
    """A source from arrays: (x, y), and optionally the server's clean (x, y) and a test (x, y).

    x is (n, features) or images, of any number type, or n texts; y holds whole numbers or names.
    channels: where images have them; None: as the shape tells. length: words of a text. Each pair
    may also be a torch Dataset of samples (x, label), which is read once from beginning to end. The
    classes are those given, else those that the Dataset names, else the sorted labels of y.
    """
    if classes is None:
        classes = class_names(data)
    pairs = {"data": as_pair("data", data)}
    for name, pair in (("validation", validation), ("test", test)):
        if pair is not None:
            pairs[name] = as_pair(name, pair)
    if classes is None:
        classes = np.unique(pairs["data"][1]).tolist()
    classes = [label.item() if isinstance(label, np.generic) else label for label in classes]
    try:
        codes = {label: index for index, label in enumerate(classes)}
    except TypeError:
        raise DataError(f"classes must be names or whole numbers, got {classes[0]!r}") from None
    if len(codes) != len(classes):
        raise DataError("classes must be different from each other")
    if len(codes) < 2:
        raise DataError(f"data needs at least two classes, got {list(codes)}")
    layout, x = laid_out(pairs["data"][0], channels, length)
    shape = x.shape[1:]
    coded = {}
    for name, (given, y) in pairs.items():
        x = x if name == "data" else layout(given, shape)
        if x.shape[1:] != shape:
            raise DataError(f"x of {name} has samples of shape {x.shape[1:]}, but data has {shape}")
        unknown = [label for label in np.unique(y).tolist() if label not in codes]
        if unknown:
            raise DataError(
                f"y of {name} has the label {unknown[0]!r}, which is not among the {len(codes)} "
                "classes of data"
            )
        coded[name] = (x, np.array([codes[label] for label in y.tolist()], dtype=np.int64))
    return Source(
        "arrays",
        *coded["data"],
        tuple(codes),
        coded.get("validation"),
        coded.get("test"),
        own=True,
        layout=layout,
    )


def as_pair(name: str, pair: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """x (n, ...) of bytes or float32, and y (n,) of int64 or text, checked; name: for messages."""
    if isinstance(pair, torch.utils.data.Dataset):
        pair = _collect(name, pair)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{name} must be a pair (x, y) of arrays, got {type(pair).__name__}")
    texts = is_texts(pair[0])
    # texts as numpy's own would all take the room of the longest
    given = np.array(pair[0], dtype=object) if texts else pair[0]
    x, y = _array(f"x of {name}", given), _array(f"y of {name}", pair[1])
    if x.dtype.kind not in "fiub" and not texts:
        raise DataError(f"x of {name} must hold numbers, or texts alone, got dtype {x.dtype}")
    if x.ndim < 2 and not texts:
        raise DataError(
            f"x of {name} must be (n, features) or (n, channels, height, width), got shape "
            f"{x.shape}"
        )
    if 0 in x.shape[1:]:
        raise DataError(f"x of {name} has samples without values: shape {x.shape}")
    y = _labels(name, y)
    if y.ndim != 1 or y.dtype.kind not in "iU":
        raise DataError(
            f"y of {name} must be one row of whole numbers or names, got dtype {y.dtype} and shape "
            f"{y.shape}; try y.astype(int) or y.astype(str)"
        )
    if len(x) != len(y):
        raise DataError(f"x of {name} has {len(x)} samples, but y has {len(y)} labels")
    if len(x) == 0:
        raise DataError(f"{name} is empty")
    if x.dtype.kind == "f":
        # x may be a file larger than memory
        bad = np.concatenate(
            [_not_finite(x[start : start + _BLOCK]) for start in range(0, len(x), _BLOCK)]
        )
        if bad.any():
            raise DataError(
                f"x of {name} has NaN or infinite values in {int(bad.sum())} samples, first in row "
                f"{int(bad.argmax())}"
            )
        x = x.astype(np.float32, copy=False)
    elif x.dtype != np.uint8 and not texts:
        x = _as_float32(name, x)
    return x, y


def _as_float32(name: str, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Whole numbers as float32, with a warning where that rounds them."""
    rounded = x.astype(np.float32)
    if x.dtype.itemsize >= 4:
        # float64 holds what float32 made of them; beyond 2^53 everything counts as rounded
        lost = (rounded.astype(np.float64) != x) | (np.abs(rounded) >= 2.0**53)
        if lost.any():
            log.warning(
                "x of %s has %d whole numbers that float32 rounds, first in row %d; such numbers "
                "are rather names: leave the column out, or give it as a category",
                name,
                int(lost.sum()),
                int(np.argwhere(lost)[0, 0]),
            )
    return rounded


def _not_finite(block: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """(m,) of a block of rows, as float32: what is too large for that is infinite."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(block.astype(np.float32, copy=False)).reshape(len(block), -1)
    return np.logical_not(finite.all(axis=1))


def class_names(dataset: Any) -> Any:
    """A torch Dataset's own, or those of the one that it is a part of (torch's Subset)."""
    if not isinstance(dataset, torch.utils.data.Dataset):
        return None
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return getattr(dataset, "classes", None)


def _collect(name: str, dataset: Any) -> Pair:
    """All samples of a torch Dataset, stacked."""
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"{name} must be a Dataset with a length; collect the samples of a stream into arrays "
            "first"
        )
    xs: list[npt.NDArray[Any]] = []
    ys: list[Any] = []
    try:
        length = len(dataset)
    except Exception as error:  # somebody's own code
        raise DataError(f"{name} has no length: {one_line(error)}") from error
    for place in range(length):
        try:
            # Transforms that draw give the same at every call, and leave the draws of others alone.
            with rng.isolated(0, "dataset", place), rng.fenced(place):
                sample = dataset[place]
        except Exception as error:  # somebody's own code raises what it likes
            raise DataError(
                f"sample {place} of {name} cannot be read: {one_line(error)}"
            ) from error
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise DataError(
                f"sample {place} of {name} must be a pair (x, label), got {type(sample).__name__}"
            )
        x = _sample(sample[0])
        if xs and (x.shape, x.dtype) != (xs[0].shape, xs[0].dtype):
            raise DataError(
                f"sample {place} of {name} is {x.dtype} of shape {x.shape}, but the first is "
                f"{xs[0].dtype} of shape {xs[0].shape}; all must be alike (resize images in the "
                "Dataset's transform)"
            )
        xs.append(x)
        label = np.asarray(_array("y", sample[1]))
        if label.ndim:
            raise DataError(
                f"the label of sample {place} of {name} must be one number or name, got shape "
                f"{label.shape}"
            )
        ys.append(label.item())
    if not xs:
        raise DataError(f"{name} is empty")
    names = class_names(dataset)
    if names is not None and all(
        isinstance(label, int) and 0 <= label < len(names) for label in ys
    ):
        ys = [names[label] for label in ys]
    return np.stack(xs), np.asarray(ys)


def _sample(value: Any) -> npt.NDArray[Any]:
    """A tensor, an array or a text as it is; a Pillow image as (channels, height, width)."""
    if isinstance(value, str):
        return np.asarray(value, dtype=object)
    if getattr(value, "mode", None) == "P":  # a palette's numbers are no shades
        value = value.convert("RGB")
    array = _array("x", value)
    if hasattr(value, "getbands"):
        return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return array


def _labels(name: str, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Names as text, whole numbers as int64, whatever they came as (a table's columns are objects
    or floats); else as it was.
    """
    if y.dtype.kind == "S":
        try:
            return np.char.decode(y, "utf-8")
        except UnicodeDecodeError:
            raise DataError(
                f"y of {name} has bytes that are not UTF-8; decode them to text first"
            ) from None
    if y.dtype.kind == "O" and all(isinstance(label, str) for label in y.flat):
        return y.astype(str)
    if y.dtype.kind in "iub" or (
        y.dtype.kind == "f" and bool(np.isfinite(y).all()) and bool((y == np.round(y)).all())
    ):
        # uint64 would turn negative; of larger floats, neighbours become one
        most = 2**53 if y.dtype.kind == "f" else 2**63 - 1
        if y.dtype.kind in "uf" and y.size and (y.max() > most or y.min() < -most):
            raise DataError(
                f"y of {name} has labels beyond {most}, which are no whole numbers to a computer; "
                "number the classes from 0, or give them names"
            )
        return y.astype(np.int64)
    return y


def _array(what: str, value: Any) -> npt.NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if np.ma.is_masked(value):
        raise DataError(f"{what} has masked values; leave those samples out, or fill them")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"{what} is not a regular array ({error})") from None
