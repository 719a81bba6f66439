"""Attribute noise: the label is right, what it belongs to is spoiled. Nine corruptions of images,
three of tables.

missing   round(severity / 10 · d) values, at least one, are lost, and filled with the column's
          mean, as an importer would
scale     as many values are off by a factor of ten, either way, as in a wrong unit
gaussian  every value gets N(0, (0.4 · severity · the column's standard deviation)²)

A row of a table counts as noisy, so it must differ from what it was: only values that change are
picked, and where a corruption changes nothing of a row (a factor on zeros, the mean of a constant
column), the next one named takes its place.

Images go through the imagecorruptions-imaug package (an extra), which draws from numpy's global
generator and refuses images below 32 pixels. Here each sample has a word of its own that all its
draws come from, and small images are padded by reflection, corrupted and cut back. What was made is
kept on disk: the same federation again is read, not made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base import rng
from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.base.files import open_npy, write_npy
from gcfl.data.source import cache_folder, progress

TABULAR = ("missing", "scale", "gaussian")
NINE = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "frost",
    "fog",
    "brightness",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
_OTHERS = (
    "contrast",
    "defocus_blur",
    "gaussian_blur",
    "glass_blur",
    "motion_blur",
    "saturate",
    "snow",
    "spatter",
    "speckle_noise",
    "zoom_blur",
)
_TAKES_SEED = ("impulse_noise", "glass_blur")
_SMALLEST = 32
_BLOCK = 1024


@dataclass(frozen=True)
class Scale:
    """What the corruptions go by: the values of black and white in images, each column's mean and
    standard deviation in tables.
    """

    low: float
    high: float
    mean: FloatArray
    deviation: FloatArray


@dataclass(frozen=True)
class Corruption:
    """How samples are spoiled: each by one of `names`, at severity 1 to 5, against a scale."""

    names: tuple[str, ...]
    severity: int
    scale: Scale


def measure(x: npt.NDArray[Any], rows: IntArray) -> Scale:
    """From these rows alone. x (n, d), or (n, channels, height, width).

    Black and white are 0 and 255 for bytes that use them, else 0 (or the smallest) and the largest.
    """
    if x.ndim == 2:
        values = x[rows].astype(np.float64)
        return Scale(0.0, 1.0, values.mean(axis=0), values.std(axis=0))
    # A block of rows at a time: x may be a file larger than memory.
    blocks = [x[rows[start : start + _BLOCK]] for start in range(0, len(rows), _BLOCK)]
    high = float(max(block.max() for block in blocks))
    low = min(0.0, float(min(block.min() for block in blocks))) if x.dtype.kind == "f" else 0.0
    if x.dtype == np.uint8 and high > 127:
        high = 255.0
    return Scale(low, high if high > low else low + 1, np.zeros(0), np.zeros(0))


def corrupt(
    x: npt.NDArray[Any], rows: IntArray, how: Corruption, seed: int, purpose: str = "clients"
) -> npt.NDArray[Any]:
    """x[rows] (m, ...), each sample spoiled by the corruption drawn for it. Same dtype and shape.

    What a sample becomes depends on its row, the seed, the purpose and the scale, not on which
    others are spoiled.
    """
    which, words = drawn(rows, len(how.names), seed, purpose)
    if x.ndim == 4:
        return _corrupt_images(x[rows], how, which, words)
    spoiled = x[rows]
    for place, (first, word) in enumerate(zip(which.tolist(), words.tolist(), strict=True)):
        names = (*how.names[first:], *how.names[:first])
        versions = (spoil_row(spoiled[place], name, word, how) for name in names)
        changed = next((row for row in versions if not np.array_equal(row, spoiled[place])), None)
        if changed is None:
            raise DataError(
                f"row {rows[place]} of the data stays as it is under {' and '.join(how.names)}: "
                "attribute noise cannot spoil it; choose others with data.corruptions, or drop "
                "columns that never vary"
            )
        spoiled[place] = changed
    return spoiled


def _corrupt_images(
    clean: npt.NDArray[Any], how: Corruption, which: IntArray, words: IntArray
) -> npt.NDArray[Any]:
    """Image i is spoiled by names[which[i]] with the draws of words[i]; made once, then read."""
    names, severity, low, high = how.names, how.severity, how.scale.low, how.scale.high
    key = hashlib.blake2b(
        f"{_version()}|{names}|{severity}|{low!r}|{high!r}|{clean.shape}|{clean.dtype}".encode(),
        digest_size=12,
    )
    for array in (which, words, clean):
        key.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    cache = cache_folder() / f"corrupted-{key.hexdigest()}.npy"
    made = open_npy(cache)
    if made is None:
        made = np.empty_like(clean)
        for place in progress(len(clean), "corrupting images"):
            name, word = names[which[place]], int(words[place])
            made[place] = image_of(clean[place], name, severity, word, low, high)
        write_npy(cache, made)
    return made


def spoil_row(row: npt.NDArray[Any], name: str, word: int, how: Corruption) -> npt.NDArray[Any]:
    """One row (d,) of a table under one corruption, with the draws that follow from the word."""
    draw = np.random.Generator(np.random.Philox(word))
    values, scale = row.astype(np.float64), how.scale
    if name == "gaussian":
        noise = draw.normal(size=len(row)) * (0.4 * how.severity * scale.deviation)
        return _as(row.dtype, values + noise)
    if name == "missing":
        wrong = _as(row.dtype, scale.mean)
    else:
        factors = 10.0 ** draw.choice([-1, 1], size=len(row))
        wrong = _as(row.dtype, values * factors)
        # bytes that are at their limit go the other way
        wrong = np.where(wrong != row, wrong, _as(row.dtype, values / factors))
    count = max(1, round(how.severity / 10 * len(row)))
    places = draw.permutation(np.flatnonzero(wrong != row))[:count]
    spoiled = row.copy()
    spoiled[places] = wrong[places]
    return spoiled


def _as(dtype: np.dtype[Any], values: FloatArray) -> npt.NDArray[Any]:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.round(values), limits.min, limits.max)
    limit = np.finfo(np.float32).max  # ten times a huge number is still a number
    return np.clip(values, -limit, limit).astype(dtype)


def drawn(
    rows: IntArray, kinds: int, seed: int, purpose: str = "clients"
) -> tuple[IntArray, IntArray]:
    """For each row, which of so many corruptions hits it, and the word of its draws."""
    draws = rng.words(rng.key(seed, "corruption", purpose), rows, 2)
    return (draws[:, 0] % np.uint64(kinds)).astype(np.int64), (draws[:, 1] >> np.uint64(32)).astype(
        np.int64
    )


def chosen(x: npt.NDArray[Any], names: Sequence[str] | None) -> tuple[str, ...]:
    """The corruptions to draw from, or a sentence about why they do not fit the data."""
    if x.ndim not in (2, 4):
        raise DataError(
            "attribute noise is for tables (n, features) and images (n, channels, height, width), "
            f"not shape {x.shape}"
        )
    usual = TABULAR if x.ndim == 2 else NINE
    known = TABULAR if x.ndim == 2 else (*NINE, *_OTHERS)
    for name in names or ():
        if name not in known:
            what = "tables" if x.ndim == 2 else "images"
            raise ConfigError(
                f"data.corruptions has {name!r}, which is none for "
                f"{what}{did_you_mean(name, known)}"
            )
    return tuple(names) if names else usual


def image_of(
    image: npt.NDArray[Any], name: str, severity: int, word: int, low: float = 0, high: float = 255
) -> npt.NDArray[Any]:
    """One image (channels, height, width), corrupted with the draws that follow from the 32-bit
    word.

    low and high are the values that stand for black and white. Three channels are colour; any other
    number is taken as so many grey images under the same draws, each of which the corruption sees
    as RGB and gives back its green channel.
    """
    scaled = (
        image
        if (low, high) == (0, 255)
        else np.clip(np.round((image - low) * (255 / (high - low))), 0, 255).astype(np.uint8)
    )
    if len(scaled) == 3:
        spoiled = _one(scaled.transpose(1, 2, 0), name, severity, word).transpose(2, 0, 1)
    else:
        spoiled = np.stack(
            [_one(np.stack([plane] * 3, axis=-1), name, severity, word)[..., 1] for plane in scaled]
        )
    if (low, high) == (0, 255):
        return spoiled.astype(image.dtype)
    back = spoiled * ((high - low) / 255) + low
    return (np.round(back) if image.dtype.kind in "iu" else back).astype(image.dtype)


def _one(
    image: npt.NDArray[np.uint8], name: str, severity: int, word: int
) -> npt.NDArray[np.uint8]:
    """RGB (height, width, 3), of any size."""
    library = _library()
    height, width = image.shape[:2]
    extra = [(max(0, _SMALLEST - side), side) for side in (height, width)]
    pads = [(missing // 2, missing - missing // 2) for missing, _ in extra]
    if any(missing for missing, _ in extra):
        image = np.pad(image, (*pads, (0, 0)), mode="symmetric")
    seeded = {"seed": word} if name in _TAKES_SEED else {}
    with rng.fenced(word):
        spoiled: npt.NDArray[np.uint8] = library.corrupt(
            np.ascontiguousarray(image), severity, name, **seeded
        )
    (top, _), (left, _) = pads
    return spoiled[top : top + height, left : left + width]


def _library() -> Any:
    try:
        import imagecorruptions
    except ImportError:
        raise DataError(
            "attribute noise on images needs imagecorruptions-imaug: pip install "
            "'gcfl[corruptions]'"
        ) from None
    return imagecorruptions


def _version() -> str:
    from importlib.metadata import version

    _library()
    return version("imagecorruptions-imaug")
