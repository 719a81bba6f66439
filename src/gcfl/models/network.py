"""A body/head view of any nn.Module, called as a pure function of a tree.

The head is the last linear layer: its input is h(x), the features (n, d), and its output is the
module's output, the logits (n, C). Everything that gradient matching needs lives in these two. A
module that ends otherwise has no head: it serves all that needs the logits alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gcfl.base import rng
from gcfl.base.data_types import Tree
from gcfl.base.errors import ModelError
from gcfl.models.head import find_head
from gcfl.models.tokens import check_ids, vocabulary

# inputs per batch without autograd: what fits the caches; 128 photos were 30% faster than 1,024
_BATCH_NUMBERS = 128 * 3 * 32 * 32
_LARGEST_BATCH = 1024


@dataclass(frozen=True)
class Output:
    """features (n, d): the head's input; logits (n, C): its output. Where there is no head, the
    logits are all there is.
    """

    features: Tensor
    logits: Tensor


class Network:
    """The architecture, without weights: those are passed in as a tree at every call.

    A tree holds all parameters and buffers. `trained` are the parameters that take gradients (a
    frozen one has requires_grad = False); `sent` are the tensors that an update carries: those, and
    the floating-point and counting buffers, unless buffers are kept. classes: how many outputs
    there must be; None takes what the module has. as_given: samples are what the module eats
    already, token numbers included. tokens: samples are token ids, which stay whole numbers; None:
    where the module begins with an embedding, of `vocabulary` ids. still: the
    submodules ('' for all) that are in evaluation mode in training, too, and whose buffers stay as
    they are.
    """

    def __init__(
        self,
        module: nn.Module,
        example: Tensor,
        classes: int | None,
        normaliser: tuple[Tensor, Tensor] | None = None,
        head: str | None = None,
        device: str = "cpu",
        keep_buffers: bool = False,
        as_given: bool = False,
        still: tuple[str, ...] = (),
        tokens: bool | None = False,
    ) -> None:
        if any(
            isinstance(part, nn.UninitializedParameter | nn.UninitializedBuffer)
            for _, part in _tensors(module)
        ):
            raise ModelError(
                "the model has lazy layers that have no shape yet; call it once on a sample, or "
                "give the sizes"
            )
        self.device = torch.device(device)
        self.module = module.to(self.device)
        self.normaliser = (
            None if normaliser is None else tuple(part.to(self.device) for part in normaliser)
        )
        self._as_given = as_given
        self.vocabulary: int | None = None
        if tokens is not False:
            with rng.isolated(0, "probe"):
                self.vocabulary = vocabulary(self.module, example[:2].to(self.device))
            if self.vocabulary is not None:
                check_ids(example[:2], self.vocabulary, "x")
        self.tokens = self.vocabulary is not None if tokens is None else tokens
        if self.tokens:
            self.normaliser = None
        self._is_image = example.ndim == 4 and not (as_given or self.tokens)
        if self._is_image:
            self.module = self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.trained = tuple(
            name for name, part in self.module.named_parameters() if part.requires_grad
        )
        if not self.trained:
            raise ModelError(
                "the model has no parameter to train: all are frozen (requires_grad is False)"
            )
        self._dtype = next(
            part.dtype for _, part in self.module.named_parameters() if part.is_floating_point()
        )
        moving = (
            ()
            if keep_buffers
            else tuple(
                name
                for name, part in self.module.named_buffers()
                if _can_average(part) and not {name.rpartition(".")[0], ""} & set(still)
            )
        )
        self._still = [self.module.get_submodule(name) for name in still]
        self.sent = (*self.trained, *moving)
        self.batch_norms = [
            part
            for part in self.module.modules()
            if isinstance(part, _BatchNorm) and part.track_running_stats
        ]
        self._attached: Tree | None = None
        self._slots = self._find_slots()
        self._tied = len(self._slots) > len(dict(_tensors(self.module)))
        with rng.isolated(0, "probe"):
            self.module.eval()
            found = find_head(self.module, self.prepare(example[:2]), classes, head)
        self.head_name, self._no_head, self.classes = found
        self.head: nn.Linear | None = None
        if self.head_name is not None:
            self.head = self.module.get_submodule(self.head_name)  # type: ignore[assignment]

    @property
    def bias(self) -> bool:
        return self.head is not None and self.head.bias is not None

    @property
    def width(self) -> int:
        """d, the number of features that the head sees."""
        return self.classes if self.head is None else self.head.in_features

    def require_head(self) -> str:
        """The head's name, or a sentence that says why there is none."""
        if self.head_name is None:
            raise ModelError(self._no_head)
        return self.head_name

    def head_weights(self, tree: Tree) -> Tensor | None:
        """W (C, d) of the last layer in this tree, on the CPU; None where it has no such tensor."""
        mine = {} if self.head is None else self.head._parameters
        for members, leaf, name in self._slots:
            if members is mine and leaf == "weight":
                return tree[name].detach().cpu()
        return None

    def tree(self) -> Tree:
        """The module's own weights and buffers, copied."""
        return {name: tensor.detach().clone() for name, tensor in _tensors(self.module)}

    def prepare(self, x: Tensor) -> Tensor:
        """Raw samples to what the module eats: device, type, normalised, channels last."""
        x = x.to(self.device)
        if self.tokens:
            return x.long()
        if self._as_given:
            return x.to(self._dtype) if x.is_floating_point() else x
        if self.normaliser is not None:
            mean, deviation = self.normaliser
            x = (x.to(torch.float32) - mean) / deviation
        x = x.to(self._dtype)
        return x.to(memory_format=torch.channels_last) if self._is_image else x

    def __call__(self, tree: Tree, x: Tensor, training: bool = False) -> Output:
        """Prepared samples x (n, ...) to features and logits. In training mode BatchNorm updates
        the tree's buffers in place.
        """
        self._set_mode(training, single=x.shape[0] == 1)
        if self.head is None:
            logits = self._logits(tree, x)
            return Output(logits, logits)
        features: list[Tensor] = []
        hook = self.head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
        try:
            logits = self._logits(tree, x)
        finally:
            hook.remove()
        return Output(features[-1], logits)

    def _logits(self, tree: Tree, x: Tensor) -> Tensor:
        if tree is self._attached:
            found: Tensor = self.module(x)
            return found
        called = torch.func.functional_call(self.module, tree, (x,), tie_weights=self._tied)
        return cast(Tensor, called)

    @contextmanager
    def attached(self, tree: Tree) -> Iterator[None]:
        """Inside, calls with this very tree skip the swapping of tensors, which costs a small model
        as much as its arithmetic.
        """
        before = [members[leaf] for members, leaf, _ in self._slots]
        for members, leaf, name in self._slots:
            members[leaf] = tree[name]
        self._attached = tree
        try:
            yield
        finally:
            self._attached = None
            for (members, leaf, _), tensor in zip(self._slots, before, strict=True):
                members[leaf] = tensor

    def _find_slots(self) -> list[tuple[dict[str, Any], str, str]]:
        """Every place that holds a tensor: the dictionary, the key in it, and the tensor's name in
        a tree (tied ones share it).
        """
        names = {id(tensor): name for name, tensor in _tensors(self.module)}
        return [
            (members, leaf, names[id(tensor)])
            for part in self.module.modules()
            for members in cast(tuple[dict[str, Any], ...], (part._parameters, part._buffers))
            for leaf, tensor in members.items()
            if tensor is not None and id(tensor) in names
        ]

    def _set_mode(self, training: bool, single: bool) -> None:
        """A batch of one has no variance: BatchNorm then uses its running statistics."""
        if self.module.training != training or (training and (self.batch_norms or self._still)):
            self.module.train(training)
            for part in self._still:
                part.eval()
        if training and single:
            for layer in self.batch_norms:
                layer.eval()

    @torch.no_grad()
    def outputs(self, tree: Tree, x: Tensor, batch: int | None = None) -> Output:
        """Features and logits of many raw samples, in evaluation mode, in batches that fit the
        caches, without autograd.

        Written into place batch by batch, so that nothing is held twice.
        """
        n = x.shape[0]
        batch = batch or min(_LARGEST_BATCH, max(16, _BATCH_NUMBERS // max(1, x[0].numel())))
        batch += n % batch == 1  # no batch of one, which some layers cannot take
        # a module that draws even in evaluation mode repeats itself
        with rng.isolated(0, "outputs"):
            first = self(tree, self.prepare(x[:batch]))
            features = first.features.new_empty((n, *first.features.shape[1:]))
            logits = first.logits.new_empty((n, *first.logits.shape[1:]))
            for start in range(0, n, batch):
                part = first if start == 0 else self(tree, self.prepare(x[start : start + batch]))
                features[start : start + batch] = part.features
                logits[start : start + batch] = part.logits
        return Output(features, logits)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _can_average(buffer: Tensor) -> bool:
    """Statistics and counters travel; other buffers, and infinite ones, stay as they are."""
    if buffer.is_floating_point():
        return bool(torch.isfinite(buffer).all())
    return buffer.dtype in (torch.int32, torch.int64)
