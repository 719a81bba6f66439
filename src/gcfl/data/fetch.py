"""Downloads from the publishers: checked, resumed where they were cut, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.data.registry import SOURCES
from gcfl.data.source import data_home

OnBytes = Callable[[str, int, int], None]  # file, bytes so far, bytes in all

_ATTEMPTS = 5
_TIMEOUT_SECONDS = 30
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """One file of a publisher. folder: the one that it shares with others of its set; unpacks: what
    the archive becomes.
    """

    url: str
    size: int
    md5: str
    folder: str = ""
    unpacks: str | None = None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_FLOWERS = "https://storage.googleapis.com/download.tensorflow.org/example_images"

_FOUR = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx(address: str, folder: str, *facts: tuple[int, str]) -> tuple[Remote, ...]:
    """The four files of MNIST and its kind, from (size, md5) of each."""
    return tuple(
        Remote(f"{address}/{name}", size, md5, folder)
        for name, (size, md5) in zip(_FOUR, facts, strict=True)
    )


PUBLISHED: dict[str, tuple[Remote, ...]] = {
    "cifar10": (
        Remote(
            f"{_TORONTO}/cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"
        ),
    ),
    "cifar100": (
        Remote(
            f"{_TORONTO}/cifar-100-binary.tar.gz", 168_513_733, "03b5dce01913d631647c71ecec9e9cb8"
        ),
    ),
    "mnist": _idx(
        _MNIST,
        "mnist",
        (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion-mnist": _idx(
        _FASHION,
        "fashion-mnist",
        (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "flowers": (
        Remote(
            f"{_FLOWERS}/flower_photos.tgz",
            228_813_984,
            "6f87fb78e9cc9ab41eff2015b380011d",
            unpacks="flower_photos",
        ),
    ),
}
BY_HAND = {
    "femnist": "FEMNIST is made by LEAF's own scripts (https://github.com/TalwalkarLab/leaf, "
    "data/femnist/preprocess.sh); put the folders train and test that they write into {folder}",
}


def fetch(name: str, on_bytes: OnBytes | None = None, *, again: bool = False) -> Path:
    """Download what is missing of a named set; returns where it lies. A second call goes on where
    the first was cut.

    again: download it though it is there; what is there is set aside, under the same name with
    .before.
    """
    if name not in SOURCES:
        raise ConfigError(
            f"there is no set named {name!r}{did_you_mean(name, [*PUBLISHED, *BY_HAND])}"
        )
    source, home = SOURCES[name], data_home()
    there = source.find()
    if there is not None and (not again or not source.places):
        return there
    if name in BY_HAND:
        raise DataError(BY_HAND[name].format(folder=home / source.places[0]))
    home.mkdir(parents=True, exist_ok=True)
    remotes = PUBLISHED[name]
    needed = sum(remote.size * (2 if remote.unpacks else 1) for remote in remotes)
    free = shutil.disk_usage(home).free
    if needed > free:
        raise DataError(
            f"{name} needs {needed / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are free at {home}"
        )
    # Files that belong together appear together: a folder with half of them would pass for the set.
    for remote in remotes:
        _download(remote, _waiting(home, remote), on_bytes or (lambda *_: None))
    for place in source.places:  # none of them holds the set, or it is wanted anew
        _set_aside(home / place)
    for remote in remotes:
        _place(remote, _waiting(home, remote), home)
    for folder in {remote.folder for remote in remotes if remote.folder}:
        os.replace(home / "downloads" / folder, home / folder)
    found = source.find()
    if found is None:
        raise DataError(
            f"{name} was fetched, but none of {', '.join(source.places)} lies in {home} now"
        )
    return found


def _set_aside(path: Path) -> None:
    if not path.exists():
        return
    before = path.with_name(f"{path.name}.before")
    if before.is_dir():
        shutil.rmtree(before)
    os.replace(path, before)


def _waiting(home: Path, remote: Remote) -> Path:
    """Where the file grows, and waits for its companions."""
    folder = home / "downloads" / remote.folder
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{remote.name}.part"


def _download(remote: Remote, path: Path, on_bytes: OnBytes) -> None:
    """Until the file is whole and its checksum right; each attempt goes on after the last."""
    # whole already, and waits under its own name for its folder to be moved
    if path.with_name(remote.name).exists():
        return
    problem: Exception | None = None
    for _ in range(_ATTEMPTS):
        done = path.stat().st_size if path.exists() else 0
        if done > remote.size:
            path.unlink()
            done = 0
        if done == remote.size:
            _check(remote, path)
            on_bytes(remote.name, done, remote.size)
            return
        try:
            _receive(remote, path, done, on_bytes)
        except urllib.error.HTTPError as error:
            raise DataError(f"{remote.url} answers {error.code} {error.reason}") from None
        # cut, refused, timed out, no name service
        except (OSError, http.client.HTTPException) as error:
            problem = error
    done = path.stat().st_size if path.exists() else 0
    if done == remote.size:
        _check(remote, path)
        return
    raise DataError(
        f"{remote.url} cannot be fetched ({problem or 'the connection closes early'}); {done:,} of "
        f"{remote.size:,} bytes are kept, and the same command goes on there"
    )


def _receive(remote: Remote, path: Path, done: int, on_bytes: OnBytes) -> None:
    request = urllib.request.Request(remote.url, headers={"User-Agent": "gcfl"})  # noqa: S310 (addresses are ours)
    if done:
        request.add_header("Range", f"bytes={done}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        goes_on = answer.status == http.client.PARTIAL_CONTENT
        if not goes_on:
            done = 0  # a server that knows no ranges sends everything again
        with open(path, "ab" if goes_on else "wb") as file:
            while chunk := answer.read(_CHUNK):
                done += len(chunk)
                if done > remote.size:
                    raise DataError(
                        f"{remote.url} is larger than the {remote.size:,} bytes that the publisher "
                        "states"
                    )
                file.write(chunk)
                on_bytes(remote.name, done, remote.size)


def _check(remote: Remote, path: Path) -> None:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != remote.md5:
        path.unlink()
        raise DataError(
            f"{remote.url} is not what the publisher states: md5 {found} instead of {remote.md5}. "
            "It was thrown away; fetch it again, or look whether something on the way changes "
            "downloads"
        )


def _place(remote: Remote, path: Path, home: Path) -> None:
    if remote.unpacks is None:
        if path.exists():
            os.replace(path, path.with_name(remote.name) if remote.folder else home / remote.name)
        return
    unpacking = home / "downloads" / f"{remote.name}.unpacked"
    shutil.rmtree(unpacking, ignore_errors=True)
    try:
        with tarfile.open(path) as archive:
            archive.extractall(unpacking, filter="data")
        os.replace(unpacking / remote.unpacks, home / remote.unpacks)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be unpacked ({error})") from None
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)
    path.unlink()
