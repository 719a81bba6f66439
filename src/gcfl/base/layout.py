"""How inputs come: texts, or images with their channels elsewhere; what `predict` takes, too.

Texts become token ids by words: a word is a run of letters and digits, or a single sign, in lower
case; its id is 1 + CRC-32(word in UTF-8) mod (IDS - 1), and 0 fills up short texts. So ids need no
vocabulary that somebody would have to collect, and are the same at every site.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError, one_line

IDS = 8192  # of the words of texts
_MOST_WORDS = 2**20
Tokenizer = Callable[[str], Any]


@dataclass(frozen=True)
class Layout:
    """channels: where images had them: at the end, or nowhere (grey). words: texts of so many words
    were hashed to ids. ids: samples are token ids.
    """

    channels: Literal["last", "grey"] | None = None
    words: int | None = None
    ids: bool = False

    def __call__(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Inputs (n, ...) as samples of this shape; what is no such input stays as it is."""
        if is_texts(x):
            if self.words is None:
                raise DataError(
                    "x holds texts, but the model was trained on numbers; turn them into those "
                    "first"
                )
            return hashed(x, self.words)
        given = tuple(np.shape(x)[1:])
        if self.channels == "last" and given == (*shape[1:], shape[0]):
            return np.moveaxis(np.asarray(x), -1, 1)
        return np.asarray(x)[:, None] if self.channels == "grey" and given == shape[1:] else x

    def facts(self) -> dict[str, Any]:
        """What a model's file says of it; nothing where inputs are the samples themselves."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def of(cls, facts: Any) -> Layout:
        """The inverse of `facts`, which may be anybody's: ValueError where they make no sense."""
        known = isinstance(facts, dict) and set(facts) <= set(asdict(AS_GIVEN))
        found = cls(**facts) if known else cls(words=0)
        words = found.words
        if found.channels not in (None, "last", "grey") or not (
            words is None or (type(words) is int and 1 <= words <= _MOST_WORDS)
        ):
            raise ValueError(f"{facts!r} is no layout of inputs")
        return found


AS_GIVEN = Layout()  # inputs that are the samples themselves


def is_texts(x: Any) -> bool:
    """Whether it is a list, an array or a table's column of texts."""
    x = x.to_numpy() if hasattr(x, "to_numpy") else x
    if isinstance(x, np.ndarray):
        return x.ndim == 1 and len(x) > 0 and (x.dtype.kind == "U" or isinstance(x[0], str))
    return isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], str)


def hashed(texts: Iterable[Any], length: int) -> npt.NDArray[np.float32]:
    """(n, length) the ids of the words of each text, by the built-in tokeniser."""
    known: dict[str, int] = {}

    def ids(text: str) -> list[int]:
        words = re.findall(r"\w+|[^\w\s]", text.lower())[:length]
        for word in words:
            if word not in known:
                known[word] = 1 + zlib.crc32(word.encode()) % (IDS - 1)
        return [known[word] for word in words]

    return tokenised(texts, ids, length)


def tokenised(texts: Iterable[Any], tokenizer: Tokenizer, length: int) -> npt.NDArray[np.float32]:
    """(n, length) token ids, cut or filled up with 0. They are kept as float32, as all inputs are,
    which holds whole numbers below 2^24 as they are.
    """
    rows = []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"the text in row {row} is missing, or no text: {text!r:.80}")
        rows.append(_ids(text, tokenizer, row)[:length])
    ids = np.zeros((len(rows), length), dtype=np.float32)
    for row, found in enumerate(rows):
        ids[row, : len(found)] = found
    return ids


def _ids(text: str, tokenizer: Tokenizer, row: int) -> Sequence[int]:
    """What a tokeniser makes of one text: a list of ids, or a table that has it as input_ids."""
    try:
        made = tokenizer(text)
    except Exception as error:  # somebody's own code raises what it likes
        raise DataError(
            f"the tokeniser fails on the text in row {row}: {one_line(error)}"
        ) from error
    made = made["input_ids"] if hasattr(made, "keys") and "input_ids" in made else made
    ids = np.asarray(made.detach().cpu() if hasattr(made, "detach") else made)
    if ids.ndim == 2 and len(ids) == 1:  # some give a batch of one
        ids = ids[0]
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise DataError(
            f"the tokeniser must give a list of whole numbers; in row {row} it gave {made!r:.80}"
        )
    if len(ids) and not (ids.min() >= 0 and ids.max() < 2**24):
        raise DataError(f"the tokeniser gives ids below 0 or above 2^24 in row {row}")
    return list(ids.tolist())
