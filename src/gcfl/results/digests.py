"""What the files of a run held when they were written, and whether they still do.

A folder of coresets has one digest, over the names and digests of its files in the order of their
rounds: summary.json and the checkpoint's manifest stay small however many rounds there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from gcfl.base.errors import RunError
from gcfl.base.seal import digest, file_digest

CORESETS = "coresets"
MANIFEST = "checkpoint/manifest.json"
_ROUNDS = "rounds.jsonl"
_FIRST = ("config.toml", "environment.json", "clients.json")  # written once, at the start


class Digests:
    """Kept up to date as a run writes: a round costs its own line and its own coresets."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._lines, self._coresets = hashlib.sha256(), hashlib.sha256()
        self._chosen = False

    @classmethod
    def of(cls, folder: Path, lines: Iterable[bytes], coresets: Iterable[Path]) -> Self:
        """Of a run that goes on: its first files, these of its lines, these coresets."""
        found = cls()
        for name in _FIRST:
            if (folder / name).exists():
                found._first[name] = file_digest(folder / name)
        for line in lines:
            found.add_line(line)
        for path in coresets:
            found.add_coresets(path.name, path.read_bytes())
        return found

    def add_line(self, line: bytes) -> None:
        self._lines.update(line)

    def add_coresets(self, name: str, blob: bytes) -> None:
        self._chosen = True
        self._coresets.update(f"{name} {digest(blob)}\n".encode())

    def all(self) -> dict[str, str]:
        """By the file's name."""
        found = {**self._first, _ROUNDS: self._lines.hexdigest()}
        return found | ({CORESETS: self._coresets.hexdigest()} if self._chosen else {})


def coreset_files(folder: Path) -> list[Path]:
    """In the order of their rounds."""
    names = [path.stem.removeprefix("round-") for path in folder.glob("round-*.safetensors")]
    rounds = sorted((name for name in names if name.isdecimal()), key=int)
    return [folder / f"round-{name}.safetensors" for name in rounds]


def compare(folder: Path, digests: Mapping[str, str], name: str) -> bool:
    """Whether the file is there; an error where it holds something else than it should. A folder
    that was kept without files that nobody asks for is still a run: only rounds must be there.
    """
    path = folder / name
    if name == CORESETS:
        chain = Digests()
        for file in coreset_files(path):
            chain.add_coresets(file.name, file.read_bytes())
        found = chain.all().get(CORESETS)
        there = found is not None
    else:
        there = path.is_file()
        found = file_digest(path) if there else None
    if name == _ROUNDS and not there:
        raise RunError(f"{path} is missing")
    if there and found != digests.get(name):
        raise RunError(f"{path} is damaged: it does not match its digest in summary.json")
    return there


def missing(folder: Path, digests: Mapping[str, str]) -> list[str]:
    """The names of files that are not there; an error where one that is holds something else."""
    names = dict.fromkeys((*digests, CORESETS))  # coresets that were added are none of the run's
    return [name for name in names if not compare(folder, digests, name) and name in digests]
