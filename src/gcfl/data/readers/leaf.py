"""FEMNIST and its kind in LEAF's json: samples by writer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gcfl.data.source import Source
from gcfl.errors import DataError


def holds(path: Path) -> bool:
    return path.is_dir() and any(path.glob("train/*.json"))


def read(path: Path, name: str = "leaf") -> Source:
    """Images (n, 1, 28, 28) from the pixels of train/ and test/ together, labels, and the writer of each.

    LEAF stores pixels as shares of 255 with four digits; they are uint8 again here.
    """
    pixels, labels, groups = [], [], []
    for file in (*sorted(path.glob("train/*.json")), *sorted(path.glob("test/*.json"))):
        try:
            held = json.loads(file.read_text())
            users = held["user_data"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is not LEAF json ({type(error).__name__}: {error})") from None
        for user, samples in users.items():
            shares, y = np.asarray(samples["x"], dtype=np.float64), np.asarray(samples["y"])
            if shares.ndim != 2 or len(shares) != len(y):
                raise DataError(f"{file}: the samples of {user} do not fit together: x {shares.shape}, y {y.shape}")
            pixels.append(np.round(shares * 255).astype(np.uint8))
            labels.append(y.astype(np.int64))
            groups.append(np.full(len(y), user, dtype=object))
    if not pixels:
        raise DataError(f"{path} has no LEAF json in train/ or test/")
    flat = np.concatenate(pixels)
    side = round(flat.shape[1] ** 0.5)
    x = flat.reshape(-1, 1, side, side) if side * side == flat.shape[1] else flat
    known = np.unique(np.concatenate(labels))
    y = np.searchsorted(known, np.concatenate(labels))
    return Source(name, x, y.astype(np.int64), tuple(known.tolist()), groups=np.concatenate(groups).astype(str))
