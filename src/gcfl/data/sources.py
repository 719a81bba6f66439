"""Sources by name or by path."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gcfl.base import rng
from gcfl.base.errors import DataError, GcflError, did_you_mean, one_line
from gcfl.data.home import data_home
from gcfl.data.known import Known
from gcfl.data.options import DataOptions
from gcfl.data.readers import cifar, huggingface, idx, images, leaf, tables
from gcfl.data.source import Source, subset


@dataclass(frozen=True)
class Named:
    """A source with a name: what it is, where below the data home it may lie, and how it is read
    from there.
    """

    summary: str
    read: Callable[[Path, DataOptions, int], Source]
    places: tuple[str, ...] = ()
    holds: Callable[[Path], bool] = lambda _: True

    def find(self) -> Path | None:
        """Where it lies; the data home itself for what needs no file. A place that does not hold it
        does not count.
        """
        if not self.places:
            return data_home()
        return next(
            (
                path
                for path in map(data_home().joinpath, self.places)
                if path.exists() and self.holds(path)
            ),
            None,
        )


def _digits(_: Path, __: DataOptions, ___: int) -> Source:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Source(
        "digits",
        bunch.images.astype(np.uint8)[:, None],
        bunch.target.astype(np.int64),
        tuple(range(10)),
    )


def _blobs(_: Path, options: DataOptions, seed: int) -> Source:
    from sklearn.datasets import make_blobs

    x, y = make_blobs(
        n_samples=options.samples or 5000,
        n_features=10,
        centers=10,
        cluster_std=np.linspace(1, 8, 10),
        random_state=int(rng.stream(seed, "blobs").integers(2**31)),
    )[:2]
    return Source("blobs", x.astype(np.float32), y.astype(np.int64), tuple(range(10)))


_FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

log = logging.getLogger("gcfl.data")

SOURCES: dict[str, Named] = {
    "digits": Named("scikit-learn's 1,797 handwritten digits, 8 x 8 grey, 10 classes", _digits),
    "blobs": Named(
        "ten Gaussian blobs in R^10, standard deviations 1 to 8, as in the paper's motivating "
        "experiment",
        _blobs,
    ),
    "cifar10": Named(
        "CIFAR-10: 50,000 + 10,000 photos, 32 x 32, 10 classes",
        lambda path, _, __: cifar.read(path, 10),
        cifar.PLACES[10],
        lambda path: cifar.holds(path) == 10,
    ),
    "cifar100": Named(
        "CIFAR-100: 50,000 + 10,000 photos, 32 x 32, 100 classes",
        lambda path, _, __: cifar.read(path, 100),
        cifar.PLACES[100],
        lambda path: cifar.holds(path) == 100,
    ),
    "femnist": Named(
        "FEMNIST: handwriting by writer, 28 x 28 grey",
        lambda path, _, __: leaf.read(path, "femnist"),
        ("leaf/femnist/data",),
        leaf.holds,
    ),
    "mnist": Named(
        "MNIST: 60,000 + 10,000 digits, 28 x 28 grey",
        lambda path, _, __: idx.read(path, "mnist"),
        ("mnist", "MNIST/raw"),
        idx.holds,
    ),
    "fashion-mnist": Named(
        "Fashion-MNIST: 60,000 + 10,000 garments, 28 x 28 grey",
        lambda path, _, __: idx.read(path, "fashion-mnist", _FASHION),
        ("fashion-mnist", "FashionMNIST/raw"),
        idx.holds,
    ),
    "flowers": Named(
        "3,670 photos of five kinds of flowers",
        lambda path, options, _: images.read(path, options.image_size, "flowers"),
        ("flower_photos",),
        images.holds,
    ),
}


def read(options: DataOptions, seed: int) -> Source:
    """The source of that name, or at that path, or an error that says what to do."""
    name = options.source
    if name in SOURCES:
        named = SOURCES[name]
        path = named.find()
        if path is None:
            raise DataError(
                f"{name} is not there: none of {', '.join(named.places)} lies in {data_home()} and "
                "holds it. "
                f"`gcfl data fetch {name}` gets it; or put one of them there, or say with "
                "GCFL_DATA_HOME where it is"
            )
        try:
            found = _told(path, partial(named.read, path, options, seed))
        except DataError as error:
            if not named.places:
                raise
            raise DataError(
                f"{error}; `gcfl data fetch {name} --again` replaces what is there"
            ) from error
        return subset(found, None if name == "blobs" else options.samples, seed)
    if huggingface.on_the_hub(name):
        found = _told(
            name,
            partial(huggingface.read_hub, name, options.label, options.group, options.image_size),
        )
        return subset(found, options.samples, seed)
    path = Path(name).expanduser()
    if not path.exists():
        hint = (
            f"; a set on the Hugging Face hub is written hf:{name}"
            if re.fullmatch(r"[\w.-]+/[\w.-]+", name)
            else ""
        )
        raise DataError(
            f"data.source {name!r} is neither a path that exists nor a "
            f"name{did_you_mean(name, SOURCES)}{hint}"
        )
    source = replace(_told(path, partial(_from_path, path, options, None)), own=True)
    lonely = [str(source.classes[label]) for label in np.flatnonzero(np.bincount(source.y) == 1)]
    if lonely:
        log.warning(
            "%s has a single sample of class %s: it cannot be learnt and tested both",
            source.name,
            ", ".join(lonely),
        )
    return subset(source, options.samples, seed)


def read_known(options: DataOptions, seed: int, known: Known) -> Source:
    """A site's own samples, with the labels of the server's classes: its training samples, where it
    has several sets.
    """
    path = Path(options.source).expanduser()
    if options.source not in SOURCES and path.exists():
        source = _told(path, partial(_from_path, path, options, known))
    else:
        source = read(options, seed)
    if source.classes != known.classes:  # a reader that has names of its own
        names = np.asarray([str(name) for name in source.classes])[source.y]
        source = replace(source, y=known.codes(names, source.name), classes=known.classes)
    known.check(source)
    return replace(source, validation=None, test=None, own=True)


def _told(where: str | Path, reader: Callable[[], Source]) -> Source:
    """Whatever a broken file makes a reader raise becomes a sentence."""
    try:
        return reader()
    except GcflError:
        raise
    except Exception as error:  # files can be broken in more ways than readers check
        raise DataError(f"{where} cannot be read: {one_line(error)}") from error


def _from_path(path: Path, options: DataOptions, known: Known | None) -> Source:
    if path.is_file() and path.suffix.lower() in tables.ENDINGS:
        return tables.read(path, options.label, options.group, known)
    if tables.holds_arrays(path):
        return tables.read_arrays(path, known)
    if huggingface.holds(path):
        return huggingface.read_folder(path, options.label, options.group, options.image_size)
    kind = cifar.holds(path)
    if kind is not None:
        return cifar.read(path, kind)
    if idx.holds(path):
        return idx.read(path, path.name)
    if leaf.holds(path):
        return leaf.read(path, path.name)
    if images.holds(path):
        return images.read(path, options.image_size, known=known)
    raise DataError(
        f"{path} is no data that gcfl can read: a folder per class of images, a CSV, parquet or "
        "npz file, a folder of x.npy and "
        "y.npy, IDX files, LEAF json, CIFAR, or a Hugging Face dataset (a folder from "
        "save_to_disk, or hf:owner/name)"
    )
