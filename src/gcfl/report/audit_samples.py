"""The samples of an audit as the page carries them: columns of numbers, pictures, strange columns.

Everything is for `audit.js`, which draws only what one looks at.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.data.readers.images import fit
from gcfl.results.findings import EVIDENCE, STRANGE, Findings

Inputs = Callable[[int, IntArray], npt.NDArray[Any] | None]
Typical = tuple[FloatArray, FloatArray]

_PARTS = 10_000  # probabilities are whole numbers of this part: short, and as exact as audit.csv
_SIDE = 128  # pixels of a picture, at most
_FEW_PIXELS = 64  # of a side: so small a picture is kept to the pixel
_DARK = 32  # bytes below it are as good as black
_PIXELS = 1_000_000  # that are looked at to find black and white
_COLUMNS = 3  # of a table's row
_FOR_STRANGE = 5  # one in so many embedded samples may be there as a strange input alone


def class_names(sites: Sequence[Findings]) -> tuple[str, ...]:
    """The classes of all sites; those that several sites name alike are the same."""
    if len({site.classes for site in sites}) == 1:
        return sites[0].classes
    return tuple(dict.fromkeys(name for site in sites for name in site.classes))


def coded(site: Findings, classes: Sequence[str], places: IntArray) -> IntArray:
    """A site's numbers of classes as the page's."""
    if site.classes == tuple(classes):
        return places
    number = {name: place for place, name in enumerate(classes)}
    return np.array([number[name] for name in site.classes], dtype=np.int64)[places]


def samples(
    sites: Sequence[Findings],
    inputs: Inputs,
    columns: tuple[str, ...] | None,
    typical: Typical | None,
    embedded: int,
    root: Path | None = None,
) -> dict[str, Any]:
    """All samples, the likeliest wrong label first: a list for each of their features, in the same
    order. `rows`: the numbers of those that carry a picture or columns.
    """
    classes = class_names(sites)
    sizes = [len(site) for site in sites]
    wrong = _joined([site.wrong for site in sites])
    order = np.argsort(-wrong, kind="stable")
    owner = np.repeat(np.arange(len(sites)), sizes)[order]
    place = _joined([np.arange(size) for size in sizes]).astype(np.int64)[order]
    strange = _joined([site.strange for site in sites])[order]
    ids = [id for site in sites for id in site.ids]
    known = [site.truth if site.truth is not None else np.full(len(site), -1) for site in sites]
    rows = _carried(strange, embedded)
    pictures, cells = _carry(rows, owner, place, sites, inputs, columns, typical, root)
    return {
        "parts": _PARTS,
        "strangeFrom": round(STRANGE * _PARTS),
        "sites": [site.site for site in sites],
        "classes": list(classes),
        "evidence": list(EVIDENCE),
        "site": owner.tolist(),
        "id": [ids[number] for number in order],
        "label": _codes([coded(site, classes, site.labels) for site in sites], order),
        "suggested": _codes([coded(site, classes, site.suggested) for site in sites], order),
        "wrong": _parts_above(wrong[order]),
        "confidence": _parts(_joined([site.confidence for site in sites])[order]),
        "strange": _parts(strange),
        "evidenced": _codes([site.evidence for site in sites], order),
        "truth": _codes(known, order) if any(site.truth is not None for site in sites) else None,
        "rows": rows.tolist(),
        "pictures": pictures,
        "cells": cells,
    }


def json_block(data: Any, id: str) -> str:
    """Data in the page that nothing in them can leave: there is no `<` in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        f'<script type="application/json" id="{id}">{text.replace("<", chr(92) + "u003c")}</script>'
    )


def _joined(lists: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0), *lists])


def _codes(lists: Sequence[npt.NDArray[Any]], order: IntArray) -> list[int]:
    found: list[int] = _joined(lists).astype(int)[order].tolist()
    return found


def _parts_above(values: FloatArray) -> list[int]:
    """Rounded up, so that "more than 50%" means here what it means for the exact numbers; but only
    certainty is written as such.
    """
    found = np.minimum(np.ceil(values * _PARTS - 1e-6), np.where(values < 1, _PARTS - 1, _PARTS))
    return [int(value) for value in found.tolist()]


def _parts(values: FloatArray) -> list[int | None]:
    """Rounded down, so that nothing is strange by rounding; None where nothing is known."""
    found = np.minimum(np.floor(values * _PARTS + 1e-6), np.where(values < 1, _PARTS - 1, _PARTS))
    return [None if math.isnan(value) else int(value) for value in found.tolist()]


def _carried(strange: FloatArray, embedded: int) -> IntArray:
    """Rows that carry their input: the first ones, and some strange inputs that are not among them,
    or one could never see those whose label looks right.
    """
    most = max(0, min(embedded, len(strange)))
    by_strange = np.argsort(-np.nan_to_num(strange, nan=-1.0), kind="stable")
    apart = [row for row in by_strange if strange[row] >= STRANGE and row >= most]
    apart = apart[: most // _FOR_STRANGE]
    return np.array([*range(most - len(apart)), *sorted(apart)], dtype=np.int64)


def _carry(
    rows: IntArray,
    owner: IntArray,
    place: IntArray,
    sites: Sequence[Findings],
    inputs: Inputs,
    columns: tuple[str, ...] | None,
    typical: Typical | None,
    root: Path | None,
) -> tuple[list[str | None] | None, list[list[str]] | None]:
    """By carrying row: its picture, and its strangest columns. None where no row has any."""
    pictures: list[str | None] = [None] * len(rows)
    cells: list[list[str]] = [[] for _ in rows]
    found: list[tuple[int, IntArray, npt.NDArray[Any]]] = []
    for site in range(len(sites)):
        mine = np.flatnonzero(owner[rows] == site)
        given = inputs(site, place[rows[mine]]) if len(mine) else None
        if given is not None and np.asarray(given).dtype.kind in "biuf":
            found.append((site, mine, np.asarray(given)))
    top = max(
        (int(raw.max()) for *_, raw in found if raw.dtype == np.uint8 and raw.size), default=255
    )
    for site, mine, raw in found:
        if _is_image(raw):
            for number, image in zip(mine, as_bytes(raw, top), strict=True):
                id = sites[site].ids[place[rows[number]]]
                whole = None if root is None else original(root / id, image.shape[-1])
                pictures[number] = png(image) if whole is None else whole
        elif raw.ndim == 2 and typical is not None:
            for number, texts in zip(mine, strangest(raw, columns, typical), strict=True):
                cells[number] = texts
    return (
        pictures if any(pictures) else None,
        cells if any(cells) else None,
    )


def _is_image(raw: npt.NDArray[Any]) -> bool:
    return raw.ndim == 3 or (raw.ndim == 4 and raw.shape[1] in (1, 3))


def as_bytes(raw: npt.NDArray[Any], top: int = 255) -> Iterator[npt.NDArray[np.uint8]]:
    """Images (m, channels, height, width) or (m, height, width), each as 0 to 255. Bytes stay as
    they are, unless `top`, the largest of all pictures, is so small that one would see nothing:
    masks, or digits of 16 greys. Numbers from 0 to 1 are shares of white; any others are stretched
    from the darkest to the lightest of these images, but for the last thousandth on both sides,
    which a few broken pixels may hold.
    """
    if raw.dtype == np.uint8:
        scale = 255 / top if 0 < top < _DARK else 1
        yield from (np.round(image * scale).astype(np.uint8) for image in raw)
        return
    low, high = _range(raw)
    for image in raw:
        values = np.nan_to_num(image.astype(np.float64), nan=low)
        shares = (values - low) / ((high - low) or 1.0)
        yield np.round(np.clip(shares, 0, 1) * 255).astype(np.uint8)


def _range(raw: npt.NDArray[Any]) -> tuple[float, float]:
    """What is black and what is white; of many pixels, some are looked at."""
    some = raw.reshape(-1)[:: max(1, raw.size // _PIXELS)].astype(np.float64)
    finite = some[np.isfinite(some)]
    if not finite.size or (raw.min() >= 0 and raw.max() <= 1):
        return 0.0, 1.0
    low, high = np.quantile(finite, [0.001, 0.999])
    return (low, high) if low < high else (float(finite.min()), float(finite.max()))


def png(image: npt.NDArray[np.uint8]) -> str:
    """One image (1 or 3, height, width) or (height, width) as an address that carries it."""
    return _address(image, "PNG")


def original(path: Path, least: int) -> str | None:
    """A photo's own file as such an address: cut to a square, as the model saw it, with more pixels
    than the `least` that the model got, where the file has more. None where it cannot be read now.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            side = min(_SIDE, max(least, min(opened.size)))
            opened.draft(None, (side, side))  # a large JPEG is decoded as a smaller one
            image = fit(opened, side)
    except Exception:  # whatever decoders raise: the file may not be what it was
        return None
    return _address(image, "JPEG" if image.shape[-1] > _FEW_PIXELS else "PNG")


def _address(image: npt.NDArray[np.uint8], kind: str) -> str:
    from PIL import Image

    flat = image[0] if image.ndim == 3 and len(image) == 1 else image
    picture = Image.fromarray(
        np.ascontiguousarray(flat if flat.ndim == 2 else flat.transpose(1, 2, 0))
    )
    picture.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    picture.save(file, kind, optimize=True)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def strangest(
    raw: npt.NDArray[Any], columns: tuple[str, ...] | None, typical: Typical
) -> list[list[str]]:
    """By row of a table, its columns that are farthest from the clean set's mean, in its standard
    deviations.
    """
    values, (mean, sd) = raw.astype(np.float64), typical
    names = columns or tuple(f"column {place}" for place in range(1, values.shape[1] + 1))
    if not values.shape[1] == len(names) == len(mean) == len(sd):
        raise ValueError(f"{values.shape[1]} columns, {len(names)} names, {len(mean)} means")
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(values == mean, 0.0, (values - mean) / sd)
    # A value that is missing is not far from anything.
    far = np.argsort(-np.nan_to_num(np.abs(z), nan=-1.0, posinf=np.inf), axis=1, kind="stable")
    return [
        [_cell(names[c], values[row, c], z[row, c], mean[c]) for c in far[row, :_COLUMNS]]
        for row in range(len(values))
    ]


def _cell(name: str, value: float, z: float, mean: float) -> str:
    if np.isnan(value):
        return f"{name} is missing"
    if np.isinf(value) or np.isnan(z):
        return f"{name} = {value:.4g}"
    if np.isinf(z):
        return f"{name} = {value:.4g} (always {mean:.4g} in the clean set)"
    return f"{name} = {value:.4g} ({abs(z):.1f} sd {'above' if z > 0 else 'below'})"
