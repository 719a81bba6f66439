"""One codec for every tree: a safetensors blob of named groups and a JSON header. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from gcfl.base.data_types import Groups, Tree
from gcfl.base.errors import RunError

# what a header that somebody else wrote may lead to
_ODD = (LookupError, ValueError, TypeError, AttributeError, RecursionError)
_SEPARATOR = "/"  # group names hold none; tensor names may


def encode(
    groups: Mapping[str, Mapping[str, torch.Tensor]], meta: Mapping[str, Any] | None = None
) -> bytes:
    """Groups of tensors and JSON-able facts as bytes. Empty groups survive."""
    flat = {
        f"{group}{_SEPARATOR}{name}": tensor.detach().to("cpu").contiguous()
        for group, tree in groups.items()
        for name, tensor in tree.items()
    }
    # safetensors refuses tensors that share memory (tied weights): each gets memory of its own.
    seen: set[int] = set()
    for name, tensor in flat.items():
        if tensor.numel() and tensor.untyped_storage().data_ptr() in seen:
            flat[name] = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
    # One entry only: safetensors writes several in an order of its own, and equal trees must give
    # equal bytes.
    return save(
        flat, metadata={"gcfl": json.dumps({"groups": sorted(groups), "meta": dict(meta or {})})}
    )


def decode(blob: bytes, what: str = "message") -> tuple[Groups, dict[str, Any]]:
    """The inverse of `encode`; a blob that is not one is an error that names `what`."""
    try:
        tensors: Tree = load(blob)
        length = int.from_bytes(blob[:8], "little")
        header = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["gcfl"])
        groups: Groups = {name: {} for name in header["groups"]}
        for name, tensor in tensors.items():
            group, _, rest = name.partition(_SEPARATOR)
            groups[group][rest] = tensor
        return groups, dict(header["meta"])
    except (SafetensorError, *_ODD) as error:
        raise RunError(f"{what} is damaged or was not written by gcfl ({error})") from error


def size(tree: Mapping[str, torch.Tensor]) -> int:
    """Bytes of the numbers in a tree, without any header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tree.values())
