"""CIFAR-10 and CIFAR-100: the binary version, the pickled python version, and their archives.

The python version is a pickle, and is read by a reader of our own (`pickled.py`).
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError, one_line
from gcfl.data.options import DataOptions
from gcfl.data.readers.pickled import read_pickled, text
from gcfl.data.source import Schema, Source

_PIXELS = 3 * 32 * 32
PLACES = {
    10: (
        "cifar-10-batches-bin",
        "cifar-10-batches-py",
        "cifar-10-binary.tar.gz",
        "cifar-10-python.tar.gz",
    ),
    100: (
        "cifar-100-binary",
        "cifar-100-python",
        "cifar-100-binary.tar.gz",
        "cifar-100-python.tar.gz",
    ),
}
_BATCHES = {
    10: ([f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]),
    100: (["train"], ["test"]),
}
_WANTED = {"batches.meta", "batches.meta.txt", "meta", "fine_label_names.txt"} | {
    f"{name}{ending}"
    for parts in _BATCHES.values()
    for part in parts
    for name in part
    for ending in ("", ".bin")
}
_LARGEST = 2**28  # bytes that an archive unpacks to; the real ones have less than 190 million
_TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Files = Mapping[str, bytes]
Part = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Cifar:
    """The official training set as data, the official test set as test; labels are the fine ones.

    classes: 10, 100, or None for whichever is there.
    """

    classes: int | None = None
    eats = "CIFAR"

    def recognises(self, path: Path) -> bool:
        found = _kind(path)
        return found is not None and self.classes in (None, found)

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        classes, files = self.classes or _kind(path) or 10, _files(path)
        for ending, decode in ((".bin", _binary), ("", _python)):
            parts = [[f"{name}{ending}" for name in part] for part in _BATCHES[classes]]
            if all(name in files for part in parts for name in part):
                train, test = (
                    decode(path, {name: files[name] for name in part}, classes) for part in parts
                )
                names = _class_names(files, classes)
                return Source(
                    f"cifar{classes}", *train, names, test=test, validation_from_test=True
                )
        raise DataError(
            f"{path} holds no CIFAR-{classes}: neither the binary version nor the python version"
        )


def _kind(path: Path) -> int | None:
    """Which CIFAR a folder or archive holds, by its files' names: 10, 100 or None."""
    if path.is_dir():
        names = {file.name for file in path.iterdir() if file.is_file()}
    elif path.name.endswith((".tar.gz", ".tgz")):
        return next((classes for classes in (100, 10) if f"cifar-{classes}-" in path.name), None)
    else:
        return None
    if {"data_batch_1.bin", "test_batch.bin"} <= names or {"data_batch_1", "test_batch"} <= names:
        return 10
    return 100 if {"train.bin", "test.bin"} <= names or {"train", "test", "meta"} <= names else None


class _Unpacked(gzip.GzipFile):
    """A packed file up to a limit: a few thousand bytes can stand for any number."""

    def read(self, size: int | None = -1) -> bytes:
        block = super().read(size)
        if self.tell() > _LARGEST:
            raise DataError(
                f"{self.name} is no archive of CIFAR: it unpacks to over {_LARGEST:,} bytes"
            )
        return block


def _files(path: Path) -> Files:
    """What a folder or an archive holds, of the names that CIFAR has."""
    if path.is_dir():
        there = [one for one in path.iterdir() if one.name in _WANTED and one.is_file()]
        return {one.name: one.read_bytes() for one in there}
    found = {}
    try:
        with _Unpacked(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if name in _WANTED and member.isfile() else None
                if file is not None:
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is not a whole .tar.gz archive ({error})") from None
    return found


def _class_names(files: Files, classes: int) -> tuple[str, ...]:
    plain = files.get("batches.meta.txt") or files.get("fine_label_names.txt")
    if plain is not None:
        names: list[str] = plain.decode().split()
    else:
        meta = files.get("batches.meta") or files.get("meta")
        table = _unpickle(meta, "meta") if meta is not None else {}
        listed = table.get("label_names", table.get("fine_label_names"))
        if isinstance(listed, list) and all(isinstance(name, str | bytes) for name in listed):
            names = [text(name) for name in listed]
        else:
            names = []
    if len(names) == classes:
        return tuple(names)
    return _TEN if classes == 10 else tuple(f"class {label}" for label in range(classes))


def _binary(path: Path, files: Files, classes: int) -> Part:
    labels = 1 if classes == 10 else 2  # CIFAR-100 has the coarse label first
    rows = []
    for name, blob in files.items():
        flat = np.frombuffer(blob, dtype=np.uint8)
        if flat.size == 0 or flat.size % (labels + _PIXELS):
            raise DataError(
                f"{path / name} is cut off or not CIFAR-{classes}: {flat.size} bytes are no whole "
                "number of images"
            )
        rows.append(flat.reshape(-1, labels + _PIXELS))
    table = np.concatenate(rows)
    return _part(path, table[:, labels:], table[:, labels - 1], classes)


def _python(path: Path, files: Files, classes: int) -> Part:
    key = "labels" if classes == 10 else "fine_labels"
    batches = [_unpickle(blob, str(path / name)) for name, blob in files.items()]
    for name, batch in zip(files, batches, strict=True):
        data, labels = batch.get("data"), batch.get(key)
        if not isinstance(data, np.ndarray) or not isinstance(labels, list):
            raise DataError(f"{path / name} is not a batch of CIFAR-{classes}")
        odd = [one for one in labels if type(one) is not int or not 0 <= one < classes]
        if odd:
            nested = isinstance(odd[0], list | tuple | dict)  # of which no text is made
            found = "[...]" if nested else f"{odd[0]!r:.40}"
            raise DataError(f"{path / name} is not CIFAR-{classes}: it has the label {found}")
        if data.ndim != 2 or data.shape != (len(labels), _PIXELS):
            raise DataError(
                f"{path / name} is not CIFAR-{classes}: images of shape {data.shape} with "
                f"{len(labels)} labels"
            )
    pixels = np.concatenate([batch["data"] for batch in batches])
    every = np.concatenate([np.asarray(batch[key], np.int64) for batch in batches])
    return _part(path, pixels, every, classes)


def _part(
    path: Path, pixels: npt.NDArray[np.uint8], labels: npt.NDArray[Any], classes: int
) -> Part:
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or len(labels) != len(pixels):
        raise DataError(
            f"{path} is not CIFAR-{classes}: images of shape {pixels.shape} with {len(labels)} "
            "labels"
        )
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(labels) == 0 or wrong.size:
        found = f"the label {wrong[0]}" if wrong.size else "no images"
        raise DataError(f"{path} is not CIFAR-{classes}: it has {found}")
    return np.ascontiguousarray(pixels).reshape(-1, 3, 32, 32), labels.astype(np.int64)


def _unpickle(blob: bytes, what: str) -> dict[str, Any]:
    try:
        return read_pickled(blob)
    except DataError as error:
        raise DataError(f"{what} {error}: refused") from None
    except Exception as error:  # a broken file can break anywhere
        raise DataError(f"{what} is not a CIFAR batch ({one_line(error)})") from None
