"""What tells one module from another: its layers, the code of its own classes, its weights.

Two modules with equal weights may still compute different things (another activation, another forward), and a run must
not be taken for another's.
"""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import Any

from torch import nn

from gcfl.codec import encode
from gcfl.errors import ModelError


def fingerprint(module: nn.Module) -> str:
    """A hash of layers, code and weights."""
    sha = hashlib.sha256(architecture(module).encode())
    try:
        sha.update(encode({"model": dict(module.state_dict())}))
    except ValueError as error:
        raise ModelError(f"the model's weights cannot be read ({error}); lazy layers need one call on a sample first") from None
    return sha.hexdigest()[:16]


def architecture(module: nn.Module) -> str:
    """A hash of the layers as torch prints them, and of the code of every class that is not torch's own."""
    sha = hashlib.sha256(repr(module).encode())
    for kind in dict.fromkeys(type(part) for part in module.modules()):
        if kind.__module__.partition(".")[0] == "torch":
            continue
        for name, member in sorted(vars(kind).items()):
            code = getattr(member, "__code__", None)
            if code is not None:
                sha.update(f"{kind.__qualname__}.{name}{_facts(code)}".encode())
    return sha.hexdigest()[:16]


def _facts(code: CodeType) -> Any:
    """Instructions, names and constants, without line numbers and file names."""
    constants = [_facts(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants
