"""A folder per class of images: jpg, png, webp, bmp, gif. Resized once; the result is cached."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError, one_line
from gcfl.base.files import new_npy, open_npy, read_json, write_json
from gcfl.data.options import DataOptions
from gcfl.data.source import Pair, Schema, Source, cache_folder, progress

log = logging.getLogger("gcfl.data")

_SETS = {"train": ("train",), "test": ("test",), "validation": ("validation", "valid", "val")}
Broken = Literal["skip", "refuse"]
Decode = Callable[[Any], npt.NDArray[np.uint8]]
_MOST_BROKEN = 0.1  # of all images
_NAMED = 5  # of the broken ones
_SKIPPED = "data.broken = 'skip' leaves it out"
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


@dataclass(frozen=True)
class Images:
    """Images (n, 3, size, size), uint8, in the order of their paths; the classes are the folders'
    names, sorted.

    Shorter side first: an image is scaled so that it covers the square, then cut in the middle.
    Grey, palette, CMYK and 16-bit images become RGB; transparency lies on white. Where the folders
    are train and test (and perhaps validation), each with a folder per class, those are the sets.
    With a schema the classes come from there, and a folder may be missing. A file that cannot be
    read is left out and named, unless data.broken refuses it.
    """

    name: str | None = None
    eats = "a folder per class of images"

    def recognises(self, path: Path) -> bool:
        return path.is_dir() and any(_images(folder) for folder in _folders(_parts(path)["train"]))

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        parts = _parts(path)
        classes = [folder.name for folder in _folders(parts["train"])]
        if schema is not None:
            schema.codes(classes, str(parts["train"]))
            classes = [str(label) for label in schema.classes]
        elif len(classes) < 2:
            raise DataError(f"{path} needs a folder per class, at least two; found {classes}")
        pairs, kept = {}, {}
        for part, at in parts.items():
            pairs[part], kept[part] = _pair(at, classes, options)
        names = _names(parts["train"])
        whole = len(kept["train"]) == len(names)
        return Source(
            self.name or path.name,
            *pairs["train"],
            tuple(classes),
            pairs.get("validation"),
            pairs.get("test"),
            validation_from_test="test" in pairs and "validation" not in pairs,
            rows=None if whole else kept["train"],
            of=None if whole else len(names),
            names=tuple(names[place] for place in kept["train"].tolist()),
            root=parts["train"],
        )


def _parts(path: Path) -> dict[str, Path]:
    """The folder itself, or its train, test and validation folders where it has nothing else."""
    part_of = {title: part for part, titles in _SETS.items() for title in titles}
    parts = {part_of.get(folder.name, ""): folder for folder in _folders(path)}
    has_sets = "train" in parts and "" not in parts and len(parts) > 1
    return parts if has_sets and any(map(_images, _folders(parts["train"]))) else {"train": path}


def _pair(path: Path, classes: list[str], options: DataOptions) -> tuple[Pair, IntArray]:
    """Images and labels, and which of the files they are."""
    folders = _folders(path)
    for folder in folders:
        if folder.name not in classes:
            raise DataError(f"{folder} is a class that {path.parent / 'train'} does not have")
        if not _images(folder):
            raise DataError(
                f"{path} has a folder without images: {folder.name!r}; remove it, or put its "
                "images in"
            )
    files = [file for folder in folders for file in _images(folder)]
    if not files:
        raise DataError(f"{path} has no folder of images")
    ignored = sum(file.is_file() for folder in folders for file in folder.iterdir()) - len(files)
    if ignored:
        log.info(
            "%s: %d files that are not images (%s) are left out", path, ignored, ", ".join(_ENDINGS)
        )
    y = np.array([classes.index(file.parent.name) for file in files], dtype=np.int64)
    x, kept = _cached(path, files, options.image_size, options.broken)
    emptied = [folder.name for folder in folders if classes.index(folder.name) not in y[kept]]
    if emptied:
        raise DataError(f"{path} has no image of {emptied[0]!r} that can be read")
    return (x, y[kept]), kept


def _names(path: Path) -> list[str]:
    """The files below a folder, in the order of the samples: class/file.png."""
    return [f"{one.name}/{file.name}" for one in _folders(path) for file in _images(one)]


def _folders(path: Path) -> list[Path]:
    return sorted(
        folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    )


def _images(folder: Path) -> list[Path]:
    files = (
        file
        for file in folder.iterdir()
        if file.suffix.lower() in _ENDINGS and not file.name.startswith(".")
    )
    return sorted(file for file in files if file.is_file())


def _cached(
    path: Path, files: list[Path], size: int, broken: Broken
) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """Decoded once; the key is every file's name, size and time: a changed folder is read anew."""
    sha = hashlib.sha256(f"{path.resolve()}|{size}".encode())
    for file in files:
        facts = file.stat()
        sha.update(f"{file.relative_to(path)}|{facts.st_size}|{facts.st_mtime_ns}".encode())
    key = sha.hexdigest()[:16]
    return cached(key, files, lambda file: _decode(file, size), size, broken, str(path))


def cached(
    key: str, items: Sequence[Any], decode: Decode, size: int, broken: Broken, where: str
) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """Images (m, 3, size, size), decoded once into a file of the cache, which is mapped, and their
    places (m,) among the items; what is broken is listed in a file beside it.
    """
    cache = cache_folder() / f"images-{key}.npy"
    notes = cache.with_suffix(".broken.json")
    x = open_npy(cache)
    if x is None:
        with new_npy(cache, (len(items), 3, size, size), np.uint8) as new:
            failed = decoded(items, decode, new, broken)
            # before the images appear, so that they never lack it
            write_json(notes, failed)
        x = open_npy(cache)
    if x is None:
        raise DataError(f"{cache} was written and cannot be read again: is the disk full?")
    noted = read_json(notes) if notes.exists() else {}  # older caches have no list
    failed = {int(place): why for place, why in noted.items()}
    kept = without(failed, len(items), broken, where)
    return x[: len(kept)], kept


def decoded(
    items: Sequence[Any], decode: Decode, x: npt.NDArray[np.uint8], broken: Broken
) -> dict[int, str]:
    """Every image into x, one after the other; place and sentence of those that are broken."""
    failed: dict[int, str] = {}
    for place in progress(len(items), "reading images"):
        try:
            x[place - len(failed)] = decode(items[place])
        except DataError as error:
            failed[place] = str(error)
            if broken == "refuse":
                raise DataError(f"{error}; {_SKIPPED}") from error
            if len(failed) > _MOST_BROKEN * len(items):
                raise DataError(
                    f"{failed[min(failed)]}; more than a tenth of the {len(items)} images are "
                    "broken"
                ) from error
    return failed


def without(failed: Mapping[int, str], count: int, broken: Broken, where: str) -> IntArray:
    """The places of the others, with a warning that names what is left out, or an error."""
    said = list(failed.values())
    if said and broken == "refuse":
        raise DataError(f"{said[0]}; {_SKIPPED}")
    if said:
        rest = [f"and {len(said) - _NAMED} more"] if len(said) > _NAMED else []
        listed = "; ".join([*said[:_NAMED], *rest])
        log.warning("%s: %d of %d images are left out: %s", where, len(said), count, listed)
    return np.setdiff1d(np.arange(count), list(failed))


def _decode(file: Path, size: int) -> npt.NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(file) as opened:
            return fit(opened, size)
    except Exception as error:  # a broken or monstrous image raises whatever its decoder raises
        raise DataError(f"{file} cannot be read as an image ({one_line(error)})") from None


def fit(image: Any, size: int) -> npt.NDArray[np.uint8]:
    """A Pillow image of any mode as (3, size, size)."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":  # 16 bits and more: to the range of 8
        values = np.asarray(image, dtype=np.float64)
        # Their mode says how far 16-bit images reach; of the wider ones only the values tell.
        top = 65535.0 if image.mode.startswith("I;16") or values.max() > 255 else 255.0
        image = Image.fromarray(np.clip(values / top * 255, 0, 255).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    fitted = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    return np.asarray(fitted, dtype=np.uint8).transpose(2, 0, 1)
