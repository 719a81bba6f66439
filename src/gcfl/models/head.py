"""Which linear layer is the last: found by what it does, not by what it is called."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gcfl.base.errors import ModelError, one_line


def find_head(
    module: nn.Module, x: Tensor, classes: int | None, wanted: str | None
) -> tuple[str | None, str, int]:
    """(the head's name, None where there is none; a sentence that says so; how many outputs).

    x: two prepared samples. wanted: the name that it must have.
    """
    linears = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    listed = ", ".join(repr(name) for name in linears)
    if wanted is not None and wanted not in linears:
        raise ModelError(
            f"model.head {wanted!r} is not a Linear layer of the model; candidates: {listed}"
        )
    results: dict[str, tuple[Tensor, int]] = {}
    hooks = [
        part.register_forward_hook(
            lambda _, __, output, name=name: results.__setitem__(name, (output, output._version))
        )
        for name, part in linears.items()
    ]
    try:
        with torch.no_grad():
            logits = module(x)
    except Exception as error:
        raise ModelError(
            f"the model cannot take samples of shape {tuple(x.shape[1:])} ({one_line(error)})"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ModelError("the model must return one tensor of logits (n, classes)")
    ends = [
        name
        for name, (result, version) in results.items()
        if _same(result, logits) and version == logits._version
    ]
    if wanted is not None:
        ends = [name for name in ends if name == wanted]
    if wanted is not None and not ends:
        raise ModelError(
            f"the model does not end in a Linear layer: its output is not that of {wanted!r}"
        )
    if classes is not None and logits.shape[1] != classes:
        named = f" (layer {ends[-1]!r})" if ends else ""
        raise ModelError(
            f"the model gives {logits.shape[1]} outputs{named}, but the data has {classes} classes"
        )
    if ends:
        return ends[-1], "", logits.shape[1]
    why = (
        "the model does not end in a Linear layer: its output is not that of any of "
        f"{listed}; return the logits of one of these as they are (no softmax after it)"
        if linears
        else "the model has no Linear layer, and gradient matching needs one as its last layer"
    )
    if bool((logits >= 0).all()) and torch.allclose(logits.sum(1), torch.ones(1).to(logits)):
        raise ModelError(f"the model returns probabilities: {why}")
    return None, why, logits.shape[1]


def _same(result: Tensor, logits: Tensor) -> bool:
    """The layer's own output, or a view of it. (That nothing changed it in place afterwards, its
    version tells.)
    """
    return result is logits or (
        result.shape == logits.shape and result.data_ptr() == logits.data_ptr()
    )
