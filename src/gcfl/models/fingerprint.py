"""Hashes of modules, their tensors, and the code of classes: what a run's identity is made of."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from torch import nn

from gcfl.base.codec import encode
from gcfl.base.errors import ModelError

_PLAIN = (str, int, float, bool, type(None), tuple, list)


def fingerprint(module: nn.Module) -> str:
    """A hash of architecture and tensors."""
    sha = hashlib.sha256(architecture(module).encode())
    try:
        sha.update(
            encode(
                {
                    "parameters": dict(module.named_parameters()),
                    "buffers": dict(module.named_buffers()),
                }
            )
        )
    except ValueError as error:
        raise ModelError(
            f"the model's weights cannot be read ({error}); lazy layers need one call on a sample "
            "first"
        ) from None
    return sha.hexdigest()[:16]


def architecture(module: nn.Module) -> str:
    """A hash of the layers, and of code and plain attributes of what is not torch's own."""
    sha = hashlib.sha256(repr(module).encode())
    for name, part in module.named_modules():
        kinds = [
            kind
            for kind in type(part).__mro__
            if kind.__module__.partition(".")[0] not in ("torch", "builtins")
        ]
        if not kinds:
            continue
        plain = {
            key: value
            for key, value in vars(part).items()
            if not key.startswith("_") and isinstance(value, _PLAIN)
        }
        plain.pop("training", None)
        sha.update(f"{name}{sorted((key, repr(value)) for key, value in plain.items())}".encode())
        for kind in kinds:
            for key, code in _functions(kind):
                sha.update(f"{kind.__qualname__}.{key}{_facts(code)}".encode())
    return sha.hexdigest()[:16]


def sources_of(module: nn.Module) -> str:
    """A hash of the files that define its layers, but for torch's own: what their functions call
    counts too.
    """
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    names = {kind.__module__ for kind in kinds} - {"builtins", "__main__"}
    files = [
        getattr(sys.modules.get(name), "__file__", None)
        for name in sorted(names)
        if name.partition(".")[0] not in ("torch", "gcfl")
    ]
    sha = hashlib.sha256()
    for file in filter(None, files):
        sha.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return sha.hexdigest()[:16]


def code_of(classes: list[type]) -> str:
    """A hash of the code of classes that are not gcfl's own."""
    sha = hashlib.sha256()
    for kind in classes:
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] not in (
                "gcfl",
                "pydantic",
                "builtins",
                "abc",
                "typing",
            ):
                for name, code in _functions(base):
                    sha.update(f"{base.__qualname__}.{name}{_facts(code)}".encode())
    return sha.hexdigest()[:16]


def _functions(kind: type) -> Iterator[tuple[str, CodeType]]:
    """The code of a class's own functions, whatever they are wrapped in."""
    for name, member in sorted(vars(kind).items()):
        bare = getattr(member, "__func__", getattr(member, "fget", member))
        code = getattr(bare, "__code__", None)
        if code is not None:
            yield name, code


def _facts(code: CodeType) -> Any:
    """Instructions, names and constants, without line numbers and file names."""
    return (
        code.co_code,
        code.co_names,
        code.co_varnames,
        [_constant(value) for value in code.co_consts],
    )


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _facts(value)
    # A set's order changes from process to process.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
