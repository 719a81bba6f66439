"""One reader per format: a path in, a `Source` out, or one sentence.

A new format is a class like `Reader`, in a file here, and its place in READERS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gcfl.base.errors import DataError, one_of
from gcfl.data.options import DataOptions
from gcfl.data.readers.cifar import Cifar
from gcfl.data.readers.huggingface import HuggingFace
from gcfl.data.readers.idx import Idx
from gcfl.data.readers.images import Images
from gcfl.data.readers.leaf import Leaf
from gcfl.data.readers.tables import Arrays, Tables
from gcfl.data.source import Schema, Source


class Reader(Protocol):
    """One format. eats: what it reads, as lists and error messages name it."""

    @property
    def eats(self) -> str: ...

    def recognises(self, path: Path) -> bool:
        """Whether an existing file or folder is of this format, by a cheap look."""

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        """All of it. schema: what a site's samples must be, for readers that can go by it."""


# The first that recognises a path reads it.
READERS: tuple[Reader, ...] = (
    Tables(),
    Arrays(),
    HuggingFace(),
    Cifar(),
    Idx(),
    Leaf(),
    Images(),
)


def known(path: Path) -> bool:
    """Whether some reader reads it."""
    return any(reader.recognises(path) for reader in READERS)


def reader_of(path: Path) -> Reader:
    """The reader for a path, or a sentence about what can be read."""
    for reader in READERS:
        if reader.recognises(path):
            return reader
    raise DataError(f"{path} is no data that gcfl can read: {formats()}")


def formats() -> str:
    """Everything that a path may lead to, in one line."""
    apart = "a folder with train, validation and test files"
    return one_of([apart, *(reader.eats for reader in READERS)])
