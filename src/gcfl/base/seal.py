"""Digests of files, and tables that carry their own.

A digest tells damage, not forgery: who can write a file can write its digest too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gcfl.base.errors import RunError
from gcfl.base.files import read_json

_MARKS = ("format", "digest")  # two, so that no single damaged name hides that there was a seal


def digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with a digest of all that it says."""
    marked = {**table, "format": 1}
    return {**marked, "digest": _of(marked)}


def unsealed(table: Any, what: str) -> tuple[dict[str, Any], bool]:
    """What `sealed` was given, and true; a table of before there were seals, and false."""
    if not isinstance(table, dict):
        raise RunError(f"{what} is not a table")
    found = dict(table)
    marks = [found.pop(name) for name in _MARKS if name in found]
    if not marks:
        return found, False
    if len(marks) < len(_MARKS) or marks[1] != _of({**found, "format": marks[0]}):
        raise RunError(f"{what} is damaged: it does not match the digest in it")
    return found, True


def read_sealed(path: Path) -> tuple[dict[str, Any], bool]:
    return unsealed(read_json(path), str(path))


def _of(table: Mapping[str, Any]) -> str:
    return digest(json.dumps(table, sort_keys=True).encode())
