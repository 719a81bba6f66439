"""What a site is told of the data: which classes there are, in which order, and what a sample looks
like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError, did_you_mean
from gcfl.data.source import Source


@dataclass(frozen=True)
class Known:
    """The classes (C names, label c is the c-th), a sample's shape and number type, and a table's
    columns in their order.
    """

    classes: tuple[str | int, ...]
    shape: tuple[int, ...]
    kind: str
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, source: Source, classes: Sequence[str | int]) -> Known:
        return cls(tuple(classes), tuple(source.x.shape[1:]), str(source.x.dtype), source.columns)

    def codes(self, names: Sequence[Any] | npt.NDArray[Any], where: str) -> IntArray:
        """Names (n,) to labels (n,) in 0 .. C - 1. A class that the server does not know is refused
        by its name.
        """
        numbers = {str(name): number for number, name in enumerate(self.classes)}
        texts = [str(name) for name in names]
        for text in dict.fromkeys(texts):
            if text not in numbers:
                raise DataError(
                    f"{where} has the class {text!r}, which the server does not "
                    f"know{did_you_mean(text, numbers)}"
                )
        return np.array([numbers[text] for text in texts], dtype=np.int64)

    def check(self, source: Source) -> None:
        """A sample must be what the server's model takes."""
        if source.x.shape[1:] != self.shape:
            raise DataError(
                f"{source.name} has samples of shape {source.x.shape[1:]}, but the server's model "
                f"takes {self.shape}"
            )
        if str(source.x.dtype) != self.kind:
            raise DataError(
                f"{source.name} holds numbers of type {source.x.dtype}, but the server's are "
                f"{self.kind}, and so their "
                "scales may differ; convert them"
            )
