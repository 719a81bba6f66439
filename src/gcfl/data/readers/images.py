"""A folder per class of images: jpg, png, webp, bmp, gif. Resized once; the result is cached."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError, one_line
from gcfl.base.files import new_npy, open_npy
from gcfl.data.options import DataOptions
from gcfl.data.source import Pair, Schema, Source, cache_folder, progress

log = logging.getLogger("gcfl.data")

_SETS = {"train": ("train",), "test": ("test",), "validation": ("validation", "valid", "val")}
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


@dataclass(frozen=True)
class Images:
    """Images (n, 3, size, size), uint8, in the order of their paths; the classes are the folders'
    names, sorted.

    Shorter side first: an image is scaled so that it covers the square, then cut in the middle.
    Grey, palette, CMYK and 16-bit images become RGB; transparency lies on white. Where the folders
    are train and test (and perhaps validation), each with a folder per class, those are the sets.
    With a schema the classes come from there, and a folder may be missing.
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
        pairs = {part: _pair(at, classes, options.image_size) for part, at in parts.items()}
        return Source(
            self.name or path.name,
            *pairs["train"],
            tuple(classes),
            pairs.get("validation"),
            pairs.get("test"),
            validation_from_test="test" in pairs and "validation" not in pairs,
            names=tuple(_names(parts["train"])),
        )


def _parts(path: Path) -> dict[str, Path]:
    """The folder itself, or its train, test and validation folders where it has nothing else."""
    part_of = {title: part for part, titles in _SETS.items() for title in titles}
    parts = {part_of.get(folder.name, ""): folder for folder in _folders(path)}
    has_sets = "train" in parts and "" not in parts and len(parts) > 1
    return parts if has_sets and any(map(_images, _folders(parts["train"]))) else {"train": path}


def _pair(path: Path, classes: list[str], size: int) -> Pair:
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
    return _cached(path, files, size), y


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


def _cached(path: Path, files: list[Path], size: int) -> npt.NDArray[np.uint8]:
    """Decoded once; the key is every file's name, size and time: a changed folder is read anew."""
    sha = hashlib.sha256(f"{path.resolve()}|{size}".encode())
    for file in files:
        facts = file.stat()
        sha.update(f"{file.relative_to(path)}|{facts.st_size}|{facts.st_mtime_ns}".encode())
    return cached(sha.hexdigest()[:16], files, lambda file: _decode(file, size), size)


def cached(
    key: str, items: Sequence[Any], decode: Callable[[Any], npt.NDArray[np.uint8]], size: int
) -> npt.NDArray[np.uint8]:
    """Images (n, 3, size, size), decoded once into a file of the cache, which is mapped."""
    cache = cache_folder() / f"images-{key}.npy"
    stored = open_npy(cache)
    if stored is not None:
        return stored
    with new_npy(cache, (len(items), 3, size, size), np.uint8) as x:
        for place in progress(len(items), "reading images"):
            x[place] = decode(items[place])
    made = open_npy(cache)
    if made is None:
        raise DataError(f"{cache} was written and cannot be read again: is the disk full?")
    return made


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
