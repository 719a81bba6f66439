"""What a reader gives: arrays and class names; what a site's must look like; where data lives.

Knows nothing of clients or noise.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base import rng
from gcfl.base.data_types import IntArray
from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError, did_you_mean
from gcfl.base.layout import AS_GIVEN, Layout

log = logging.getLogger("gcfl.data")

Pair = tuple[npt.NDArray[Any], IntArray]
_SAY_EVERY_SECONDS = 5.0
_BLOCK = 4096


def data_home() -> Path:
    """The folder that named sets are looked for in: GCFL_DATA_HOME, else the user's cache."""
    chosen = os.environ.get("GCFL_DATA_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gcfl"


def cache_folder() -> Path:
    """What was made from data and can be made again."""
    folder = data_home() / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def progress(count: int, doing: str) -> Iterator[int]:
    """0 .. count - 1, telling from time to time how far it is."""
    told = time.monotonic()
    for place in range(count):
        yield place
        if time.monotonic() - told > _SAY_EVERY_SECONDS:
            told = time.monotonic()
            log.info("%s: %d of %d", doing, place + 1, count)


@dataclass(frozen=True)
class Source:
    """x (n, ...), y (n,) in 0 .. C - 1, C class names; optionally sets of their own for server and
    test, and a group per sample.

    validation_from_test: the server's clean set is cut from `test`, as the paper does with official
    test sets. own: somebody's own data, whose labels nobody vouches for. rows, of: where these
    samples are some of more, their rows among those, and how many those are. columns: a table's, in
    the order of the features. names (n,): what their owner calls the samples, such as their files;
    root: the folder below which these are. clients: where `groups` says whose each sample is, the
    clients' names in their order. alike: the server's and the test set are cut from every group in
    equal shares. layout: how inputs came. encoding: how a table's columns became features. Before
    they did, x (n, columns) holds objects: the table's cells, as do the sets.
    """

    name: str
    x: npt.NDArray[Any]
    y: IntArray
    classes: tuple[str | int, ...]
    validation: Pair | None = None
    test: Pair | None = None
    groups: npt.NDArray[Any] | None = None
    validation_from_test: bool = False
    own: bool = False
    rows: IntArray | None = None
    of: int | None = None
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    clients: tuple[str, ...] | None = None
    alike: bool = False
    encoding: Encoding | None = None
    layout: Layout = AS_GIVEN
    root: Path | None = None

    def __len__(self) -> int:
        return len(self.y)

    def ids_of(self, rows: IntArray) -> list[str]:
        """What the owner knows these samples by: their names, or their rows in the whole source,
        counted from 0.
        """
        if self.names is not None:
            return [self.names[row] for row in rows.tolist()]
        return [str(row) for row in (rows if self.rows is None else self.rows[rows]).tolist()]

    def digest(self) -> str:
        """A hash of every array, so that two runs on different arrays never share a folder."""
        sha = hashlib.sha256()
        for array in (self.x, self.y, *(self.validation or ()), *(self.test or ())):
            sha.update(f"{array.dtype}{array.shape}".encode())
            for start in range(0, len(array), _BLOCK):  # x may be a file larger than memory
                block = np.ascontiguousarray(array[start : start + _BLOCK])
                sha.update(block.view(np.uint8).reshape(-1).data)
        sha.update(repr(self.classes).encode())
        if self.groups is not None:
            sha.update("\x1f".join(self.groups.tolist()).encode())
        if self.encoding is not None and not self.encoding.plain:
            sha.update(self.encoding.to_json().encode())
        return sha.hexdigest()[:16]

    def lines(self, path: str, setting: str) -> list[str]:
        """The lines of a file with one for every sample of the whole source: those in use here."""
        names = [line.strip() for line in read_text(path, setting).splitlines()]
        if "" in names:
            raise DataError(
                f"{path} ({setting}) has nothing in line {names.index('') + 1}; every sample needs "
                "a name"
            )
        whole = self.of or len(self)
        if len(names) != whole:
            raise DataError(
                f"{path} ({setting}) has {len(names)} lines, but {self.name} has {whole} samples"
            )
        return names if self.rows is None else [names[row] for row in self.rows]


def subset(source: Source, samples: int | None, seed: int) -> Source:
    """A random `samples` of the source, in its order; validation and test stay whole."""
    if samples is None or samples == len(source):
        return source
    if samples > len(source):
        raise DataError(
            f"data.samples is {samples}, but {source.name} has only {len(source)} samples"
        )
    rows = np.sort(rng.stream(seed, "subset").permutation(len(source))[:samples])
    return replace(
        source,
        x=source.x[rows],
        y=source.y[rows],
        groups=None if source.groups is None else source.groups[rows],
        rows=rows if source.rows is None else source.rows[rows],
        of=source.of or len(source),
        names=None if source.names is None else tuple(source.names[row] for row in rows.tolist()),
    )


@dataclass(frozen=True)
class Schema:
    """What the samples of a site must be: C classes (label c is the c-th), a sample's shape and
    number type, and a table's columns in their order or the encoding of them. whose: who says so.
    """

    classes: tuple[str | int, ...]
    shape: tuple[int, ...]
    kind: str
    columns: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    whose: str = "the server"

    @classmethod
    def of(cls, source: Source, classes: Sequence[str | int], whose: str = "the server") -> Schema:
        shape, kind = tuple(source.x.shape[1:]), str(source.x.dtype)
        return cls(tuple(classes), shape, kind, source.columns, source.encoding, whose)

    def codes(self, names: Sequence[Any] | npt.NDArray[Any], where: str) -> IntArray:
        """Names (n,) to labels (n,). A class that the server does not know is refused by name."""
        numbers = {str(name): number for number, name in enumerate(self.classes)}
        texts = [str(name) for name in names]
        for text in dict.fromkeys(texts):
            if text not in numbers:
                raise DataError(
                    f"{where} has the class {text!r}, which {self.whose} does not "
                    f"know{did_you_mean(text, numbers)}"
                )
        return np.array([numbers[text] for text in texts], dtype=np.int64)

    def check(self, source: Source) -> None:
        """A sample must be what the server's model takes."""
        if source.x.shape[1:] != self.shape:
            raise DataError(
                f"{source.name} has samples of shape {source.x.shape[1:]}, but {self.whose}'s "
                f"model takes {self.shape}"
            )
        if str(source.x.dtype) != self.kind:
            raise DataError(
                f"{source.name} holds numbers of type {source.x.dtype}, but {self.whose}'s are "
                f"{self.kind}, and so their scales may differ; convert them"
            )


def label_files(path: str) -> list[Path]:
    """What data.labels names: the file itself, or every cleaned.csv of a folder."""
    here = Path(path).expanduser()
    found = sorted(here.rglob("cleaned.csv")) if here.is_dir() else [here]
    if not found:
        raise DataError(f"{path} (data.labels) is a folder without a cleaned.csv")
    return found


def read_text(path: str, setting: str) -> str:
    """A small file that a setting names."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} ({setting}) cannot be read ({error})") from None
