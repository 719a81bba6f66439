"""Token ids: which models take them, and whether ids fit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gcfl.base.errors import DataError

_BLOCK = 65536


class _Found(Exception):
    """The embedding was reached: nothing after it needs to run."""


@torch.no_grad()
def vocabulary(module: nn.Module, x: Tensor) -> int | None:
    """How many ids the embedding has that takes samples x (n, ...) as they are, as its first layer;
    None where no embedding does, or x holds other than whole numbers.
    """
    parts = [p for p in module.modules() if isinstance(p, nn.Embedding | nn.EmbeddingBag)]
    if not parts or _no_ids(x).any():
        return None
    ids = x.long()
    sizes: list[int] = []

    def look(part: nn.Module, inputs: tuple[object, ...]) -> None:
        first = inputs[0] if inputs else None
        if isinstance(first, Tensor) and first.data_ptr() == ids.data_ptr():
            sizes.append(int(part.num_embeddings))  # type: ignore[arg-type]
            raise _Found

    hooks = [part.register_forward_pre_hook(look) for part in parts]
    training = module.training
    try:
        module.eval()(ids)
    except Exception:  # noqa: S110 - found; or a model that takes no whole numbers
        pass
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return sizes[0] if sizes else None


def check_ids(x: Tensor, vocabulary: int | None, what: str) -> None:
    """A sentence where x (n, ...) holds what is no id of an embedding of that size."""
    for start in range(0, len(x), _BLOCK):  # x may be a file larger than memory
        block = x[start : start + _BLOCK]
        wrong = _no_ids(block)
        if wrong.any():
            raise DataError(
                f"{what} has {block[wrong][0].item():g} among its token ids, which must be whole "
                "numbers from 0 (data.tokens = false: the model takes them as they are)"
            )
        if vocabulary is not None and block.numel() and int(block.max()) >= vocabulary:
            raise DataError(
                f"{what} has the token id {int(block.max())}, but the model's embedding has only "
                f"{vocabulary} (0 to {vocabulary - 1})"
            )


def _no_ids(x: Tensor) -> Tensor:
    """(n, ...) where x is negative, no whole number, or one that float32 may have rounded."""
    return (x < 0) | (x != x.floor()) | (x >= 2**24) if x.is_floating_point() else x < 0
