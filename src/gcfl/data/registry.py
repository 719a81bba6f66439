"""Sources by name or by path."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from gcfl.base import rng
from gcfl.base.errors import DataError, GcflError, did_you_mean, one_line
from gcfl.data.options import DataOptions
from gcfl.data.readers import Reader, cifar, known, reader_of
from gcfl.data.readers.cifar import Cifar
from gcfl.data.readers.huggingface import on_the_hub, read_hub
from gcfl.data.readers.idx import Idx
from gcfl.data.readers.images import Images
from gcfl.data.readers.leaf import Leaf
from gcfl.data.sets import sets_in, with_sets
from gcfl.data.source import Schema, Source, data_home, subset
from gcfl.data.useless import warn_of_useless

log = logging.getLogger("gcfl.data")


@dataclass(frozen=True)
class Generated:
    """A set that needs no file: read(options, seed) makes it."""

    summary: str
    read: Callable[[DataOptions, int], Source]
    places: ClassVar[tuple[str, ...]] = ()

    def find(self) -> Path:
        return data_home()


@dataclass(frozen=True)
class Stored:
    """A set in files: who reads it, and where below the data home it may lie. mirrors: whether a
    mirrored image is still one of its class.
    """

    summary: str
    reader: Reader
    places: tuple[str, ...]
    mirrors: bool = False

    def find(self) -> Path | None:
        """Where it lies. A place that does not hold it does not count."""
        paths = map(data_home().joinpath, self.places)
        return next(
            (path for path in paths if path.exists() and self.reader.recognises(path)), None
        )

    def read(self, options: DataOptions, _: int) -> Source:
        name, path = options.source, self.find()
        if path is None:
            raise DataError(
                f"{name} is not there: none of {', '.join(self.places)} lies in {data_home()} and "
                f"holds it. `gcfl data fetch {name}` gets it; or put one of them there, or say "
                "with GCFL_DATA_HOME where it is"
            )
        try:
            with in_a_sentence(path):
                return self.reader.read(path, options, None)
        except DataError as error:
            raise DataError(
                f"{error}; `gcfl data fetch {name} --again` replaces what is there"
            ) from error


def _digits(_: DataOptions, __: int) -> Source:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8)[:, None], bunch.target.astype(np.int64)
    return Source("digits", images, labels, tuple(range(10)))


def _blobs(options: DataOptions, seed: int) -> Source:
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

SOURCES: dict[str, Generated | Stored] = {
    "digits": Generated("scikit-learn's 1,797 handwritten digits, 8 x 8 grey, 10 classes", _digits),
    "blobs": Generated(
        "ten Gaussian blobs in R^10, standard deviations 1 to 8, as in the paper's motivating "
        "experiment",
        _blobs,
    ),
    "cifar10": Stored(
        "CIFAR-10: 50,000 + 10,000 photos, 32 x 32, 10 classes",
        Cifar(10),
        cifar.PLACES[10],
        mirrors=True,
    ),
    "cifar100": Stored(
        "CIFAR-100: 50,000 + 10,000 photos, 32 x 32, 100 classes",
        Cifar(100),
        cifar.PLACES[100],
        True,
    ),
    "femnist": Stored(
        "FEMNIST: handwriting by writer, 28 x 28 grey", Leaf("femnist"), ("leaf/femnist/data",)
    ),
    "mnist": Stored(
        "MNIST: 60,000 + 10,000 digits, 28 x 28 grey", Idx("mnist"), ("mnist", "MNIST/raw")
    ),
    "fashion-mnist": Stored(
        "Fashion-MNIST: 60,000 + 10,000 garments, 28 x 28 grey",
        Idx("fashion-mnist", _FASHION),
        ("fashion-mnist", "FashionMNIST/raw"),
    ),
    "flowers": Stored(
        "3,670 photos of five kinds of flowers", Images("flowers"), ("flower_photos",), True
    ),
}


def augmentation(name: str) -> Literal["crop", "flip+crop"]:
    """What images of this source bear: mirrored, a digit or an organ may be another."""
    return "flip+crop" if getattr(SOURCES.get(name), "mirrors", False) else "crop"


def read(options: DataOptions, seed: int) -> Source:
    """The source of that name, or at that path, or an error that says what to do."""
    name = options.source
    if name in SOURCES:
        with in_a_sentence(name):
            source = SOURCES[name].read(options, seed)
    elif on_the_hub(name):
        with in_a_sentence(name):
            source = read_hub(name, options)
    else:
        source, options = _read_path(options)
    return sets(subset(source, options.samples, seed), options)


def sets(source: Source, options: DataOptions) -> Source:
    """With the clean set and the test set that lie in files of their own."""
    with in_a_sentence("data.validation or data.test"):
        return with_sets(source, options)


def _read_path(options: DataOptions) -> tuple[Source, DataOptions]:
    """Somebody's own files; the options with the sets that a folder has beside its train file."""
    name, path = options.source, Path(options.source).expanduser()
    if not path.exists():
        like_the_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", name)
        hint = f"; a set on the Hugging Face hub is written hf:{name}" if like_the_hub else ""
        raise DataError(
            f"data.source {name!r} is neither a path that exists nor a "
            f"name{did_you_mean(name, SOURCES)}{hint}"
        )
    whole = path
    with in_a_sentence(path):
        if not known(path) and (parts := sets_in(path)):
            path = parts.pop("train")
            own = [part for part in parts if not isinstance(getattr(options, part), str)]
            options = options.model_copy(update={part: str(parts[part]) for part in own})
        source = replace(reader_of(path).read(path, options, None), own=True)
    source = source if path is whole else replace(source, name=whole.name)
    warn_of_useless(source, options.date_format)
    lonely = [str(source.classes[label]) for label in np.flatnonzero(np.bincount(source.y) == 1)]
    if lonely:
        log.warning(
            "%s has a single sample of class %s: it cannot be learnt and tested both",
            source.name,
            ", ".join(lonely),
        )
    return source, options


def read_as(options: DataOptions, seed: int, schema: Schema) -> Source:
    """A site's own training samples, with the labels of the server's classes."""
    path = Path(options.source).expanduser()
    if options.source not in SOURCES and path.exists():
        with in_a_sentence(path):
            source = reader_of(path).read(path, options, schema)
    else:
        source = read(options, seed)
    if source.classes != schema.classes:  # a reader that has names of its own
        names = np.asarray([str(name) for name in source.classes])[source.y]
        source = replace(source, y=schema.codes(names, source.name), classes=schema.classes)
    schema.check(source)
    return replace(source, validation=None, test=None, own=True)


@contextmanager
def in_a_sentence(where: str | Path) -> Iterator[None]:
    """Whatever a broken file makes a reader raise becomes a sentence."""
    try:
        yield
    except GcflError:
        raise
    except Exception as error:  # files can be broken in more ways than readers check
        raise DataError(f"{where} cannot be read: {one_line(error)}") from error
