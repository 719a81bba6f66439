"""A body/head view of any nn.Module that ends in a Linear, called as a pure function of a tree.

The head is the last linear layer: its input is h(x), the features (n, d), and its output is the module's output, the
logits (n, C). Everything that gradient matching needs lives in these two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gcfl.errors import ModelError
from gcfl.types import Tree

EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class Output:
    """features (n, d): the head's input; logits (n, C): its output."""

    features: Tensor
    logits: Tensor


class Network:
    """The architecture, without weights: those are passed in as a tree at every call."""

    def __init__(
        self,
        module: nn.Module,
        example: Tensor,
        classes: int,
        normaliser: tuple[Tensor, Tensor] | None = None,
        head: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self.module = module.to(self.device)
        self.normaliser = None if normaliser is None else tuple(part.to(self.device) for part in normaliser)
        self._is_image = example.ndim == 4
        if self._is_image:
            self.module = self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = tuple(name for name, _ in self.module.named_parameters())
        self.buffers = tuple(name for name, _ in self.module.named_buffers())
        self.batch_norms = [part for part in self.module.modules() if isinstance(part, _BatchNorm)]
        self.head_name = self._find_head(example[:2], classes, head)
        self.head: nn.Linear = self.module.get_submodule(self.head_name)  # type: ignore[assignment]
        self.classes = classes
        self._tied = len(self.parameters) < sum(1 for _ in self.module.named_parameters(remove_duplicate=False))
        self._attached: Tree | None = None
        self._slots = {name: self._slot(name) for name in (*self.parameters, *self.buffers)}
        self._features: list[Tensor] = []  # the head's input in the call under way
        self.head.register_forward_pre_hook(self._remember)

    @property
    def bias(self) -> bool:
        return self.head.bias is not None

    @property
    def width(self) -> int:
        """d, the number of features that the head sees."""
        return self.head.in_features

    def tree(self) -> Tree:
        """The module's own weights and buffers, copied."""
        return {name: tensor.detach().clone() for name, tensor in self._named_tensors()}

    def _named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.module.named_parameters()
        yield from self.module.named_buffers()

    def prepare(self, x: Tensor) -> Tensor:
        """Raw samples to what the module eats: on the device, float, normalised, channels last."""
        x = x.to(self.device).to(torch.float32)
        if self.normaliser is not None:
            mean, deviation = self.normaliser
            x = (x - mean) / deviation
        return x.to(memory_format=torch.channels_last) if self._is_image else x

    def __call__(self, tree: Tree, x: Tensor, training: bool = False) -> Output:
        """Prepared samples x (n, ...) to features and logits. In training mode BatchNorm updates the tree's buffers in place."""
        self._set_mode(training, single=x.shape[0] == 1)
        self._features.clear()
        if tree is self._attached:
            logits = self.module(x)
        else:
            logits = torch.func.functional_call(self.module, tree, (x,), tie_weights=self._tied)
        return Output(self._features.pop(), logits)

    @contextmanager
    def attached(self, tree: Tree) -> Iterator[None]:
        """Inside, calls with this very tree skip the swapping of tensors, which costs a small model as much as its arithmetic."""
        slots = [(getattr(owner, kind), leaf, tree[name]) for name, (owner, kind, leaf) in self._slots.items()]
        before = [members[leaf] for members, leaf, _ in slots]
        for members, leaf, tensor in slots:
            members[leaf] = tensor
        self._attached = tree
        try:
            yield
        finally:
            self._attached = None
            for (members, leaf, _), tensor in zip(slots, before, strict=True):
                members[leaf] = tensor

    def _slot(self, name: str) -> tuple[nn.Module, str, str]:
        """Which submodule holds a tensor, in which of its dictionaries, under which name."""
        path, _, leaf = name.rpartition(".")
        return self.module.get_submodule(path), "_parameters" if name in self.parameters else "_buffers", leaf

    def _remember(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._features.append(inputs[0])

    def _set_mode(self, training: bool, single: bool) -> None:
        """A batch of one has no variance: BatchNorm then uses its running statistics."""
        if self.module.training != training:
            self.module.train(training)
        for layer in self.batch_norms:
            layer.train(training and not single)

    @torch.no_grad()
    def outputs(self, tree: Tree, x: Tensor, batch: int = EVALUATION_BATCH) -> Output:
        """Features and logits of many raw samples, in evaluation mode, in large batches, without autograd."""
        parts = [self(tree, self.prepare(x[start : start + batch])) for start in range(0, x.shape[0], batch)]
        return Output(torch.cat([part.features for part in parts]), torch.cat([part.logits for part in parts]))

    def _find_head(self, example: Tensor, classes: int, wanted: str | None) -> str:
        linears = {name: part for name, part in self.module.named_modules() if isinstance(part, nn.Linear)}
        if not linears:
            raise ModelError("the model has no Linear layer, and gradient matching needs one as its last layer")
        if wanted is not None and wanted not in linears:
            raise ModelError(f"model.head {wanted!r} is not a Linear layer of the model; candidates: {', '.join(linears)}")
        results: dict[str, Tensor] = {}
        hooks = [
            part.register_forward_hook(lambda _, __, output, name=name: results.__setitem__(name, output))
            for name, part in linears.items()
        ]
        self.module.eval()
        try:
            with torch.no_grad():
                logits = self.module(self.prepare(example))
        except Exception as error:
            shape = tuple(example.shape[1:])
            raise ModelError(f"the model cannot take samples of shape {shape} ({type(error).__name__}: {error})") from error
        finally:
            for hook in hooks:
                hook.remove()
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise ModelError("the model must return one tensor of logits (n, classes)")
        ends = [name for name, result in results.items() if result is logits]
        if wanted is not None:
            ends = [name for name in ends if name == wanted]
        if not ends:
            raise ModelError(
                "the model does not end in a Linear layer: its output is not that of any one of "
                f"{', '.join(linears)}; return the logits of one of these as they are (no softmax after it)"
            )
        if logits.shape[1] != classes:
            raise ModelError(f"the model gives {logits.shape[1]} outputs ({ends[-1]}), but the data has {classes} classes")
        return ends[-1]
