"""Samples to predict, in any format that the readers know: no labels needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.cells import cells
from gcfl.base.encoding import Encoding, Table
from gcfl.base.errors import DataError, one_line
from gcfl.data.options import DataOptions
from gcfl.data.readers import images, reader_of
from gcfl.data.readers.tables import Tables, read_columns, read_inputs
from gcfl.data.registry import in_a_sentence
from gcfl.data.tabular import texts_of


@dataclass(frozen=True)
class Unlabelled:
    """x (n, ...) as a model takes them, what their owner calls them, and, of a table, how many
    cells of each column hold a value that the encoding does not know.
    """

    x: npt.NDArray[Any]
    ids: list[str]
    unseen: dict[str, int]


def read_unlabelled(path: Path, options: DataOptions, encoding: Encoding | None) -> Unlabelled:
    """options: those of the run that trained the model. encoding: the model's, of a table."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    with in_a_sentence(path):
        if Tables().recognises(path):
            return _table(path, options, encoding)
        return _samples(path, options, encoding)


def _table(path: Path, options: DataOptions, encoding: Encoding | None) -> Unlabelled:
    columns = read_columns(path)
    if options.text is not None:
        texts = texts_of(columns, options.text, str(path))
        return Unlabelled(texts, [str(row) for row in range(len(texts))], {})
    if encoding is None:  # a model of an older version, which knows no names: all in their order
        names = [name for name in columns if name not in (options.label, options.group)]
        if not names:
            raise DataError(f"{path} has no column besides {options.label!r}")
        encoding = Encoding.plain_numbers(names)
    wanted = {column.name for column in encoding.columns}
    table: Table = {name: cells(columns[name], name) for name in columns if name in wanted}
    x = encoding.apply(table, str(path), lambda row: row + 2)
    return Unlabelled(x, [str(row) for row in range(len(x))], encoding.unseen(table))


def _samples(path: Path, options: DataOptions, encoding: Encoding | None) -> Unlabelled:
    if path.suffix.lower() == ".npz" or (path / "x.npy").exists():
        x = read_inputs(path)
        return Unlabelled(x, [str(row) for row in range(len(x))], {})
    if pictures := _pictures(path):
        return _images(path, pictures, options)
    source = reader_of(path).read(path, options.model_copy(update={"source": str(path)}), None)
    ids = source.ids_of(np.arange(len(source)))
    if encoding is None or source.columns is None:
        return Unlabelled(source.x, ids, {})
    table: Table = dict(zip(source.columns, source.x.astype(object).T, strict=True))
    return Unlabelled(encoding.apply(table, str(path)), ids, encoding.unseen(table))


def _pictures(path: Path) -> list[Path]:
    """An image, or those that lie in a folder side by side, without folders for classes."""
    from PIL import Image

    endings = Image.registered_extensions()
    files = [path] if path.is_file() else sorted(path.iterdir())
    return [file for file in files if file.is_file() and file.suffix.lower() in endings]


def _images(path: Path, files: list[Path], options: DataOptions) -> Unlabelled:
    """Those that can be read; the others are named, unless data.broken refuses them."""
    found, failed = [], {}
    for place, file in enumerate(files):
        try:
            found.append(_picture(file, options.image_size))
        except DataError as error:
            failed[place] = str(error)
    if not found:
        raise DataError(failed[0])
    kept = images.without(failed, len(files), options.broken, str(path))
    return Unlabelled(np.stack(found), [files[place].name for place in kept], {})


def _picture(file: Path, size: int) -> npt.NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(file) as image:
            return images.fit(image, size)
    except Exception as error:  # a broken image raises whatever its decoder raises
        raise DataError(f"{file} cannot be read as an image ({one_line(error)})") from error
