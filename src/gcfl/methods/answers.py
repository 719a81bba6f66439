"""What a client's answer must look like: nobody's word is taken.

Names, shapes and types of the update are the model's; those of what parts add are what each part
says (`ClientPart.sends`); all values are finite and in range. A client trained on at least one
sample and at most on those that it said it has; the work that it tells of is what its training can
cost, and its seconds are no more than went by. What does not fit has a reason, in one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

import torch
from torch import Tensor

from gcfl.base.data_types import Tree, Update
from gcfl.base.options import LARGEST
from gcfl.methods.options import TrainOptions

_WORK = ("forward", "backward", "steps")
_SECONDS = ("select_cpu", "select_wall", "train_cpu", "train_wall")
METRICS = ("loss", *_WORK, *_SECONDS)
_NAMES = frozenset(METRICS)
_LARGEST_LOSS = 1e12
_LOOKS = 100  # no rule takes so many passes per sample and step, or looks so often at all samples
_CORES = 1024  # that a client may have
_SLACK_SECONDS = 60.0  # between two clocks


@dataclass(frozen=True)
class Like:
    """One tensor of a message: its shape, its type, the range of its values.

    held: no value is above the number of the client's samples.
    """

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float64
    low: float = -math.inf
    high: float = math.inf
    held: bool = False

    @classmethod
    def of(cls, tensor: Tensor) -> Like:
        """What has the shape and type of this one; counts that fit a machine's."""
        whole = not tensor.is_floating_point()
        low, high = (-LARGEST, LARGEST) if whole else (-math.inf, math.inf)
        return cls(tuple(tensor.shape), tensor.dtype, low, high)

    def problem(self, tensor: Tensor, samples: int) -> str | None:
        if tensor.shape != self.shape:
            return f"has shape {tuple(tensor.shape)}, expected {self.shape}"
        if tensor.dtype != self.dtype:
            kinds = (str(kind).removeprefix("torch.") for kind in (tensor.dtype, self.dtype))
            return "is of type {}, expected {}".format(*kinds)
        high = min(self.high, samples) if self.held else self.high
        if tensor.numel() and (self.low > -math.inf or high < math.inf):
            least, most = (float(end) for end in torch.aminmax(tensor))
            # Written so that NaN is left to the next check.
            if least < self.low or most > high:
                return f"is {least if least < self.low else most:g}, out of range"
        return None


Sent = Mapping[str, Like]


@dataclass(frozen=True)
class Form:
    """The answers of one round. holds: how many samples a client said it has, None where nobody
    said. seconds: what went by while clients were waited for.
    """

    delta: Sent
    payload: Mapping[str, Sent]
    train: TrainOptions
    holds: Callable[[int], int | None] = field(default=lambda _: None)
    seconds: float = math.inf

    def problem(self, client: int, update: Update) -> str | None:
        """Why an answer of which `told` has nothing to say cannot be used, or None."""
        known = self.holds(client)
        samples = LARGEST if known is None else known
        # A model that diverges shows in the update first: that is the better sentence.
        return (
            _unlike("update", self.delta, update.delta, samples)
            or self._added(update, samples)
            or _beyond("loss", update.metrics["loss"], -_LARGEST_LOSS, _LARGEST_LOSS)
        )

    def told(self, client: int, update: Update) -> str | None:
        """Why not even what an answer cost can be told, or None."""
        if not isinstance(update.payload, Mapping):
            return "what its parts add cannot be read"
        strange = next((part for part in update.payload if part not in self.payload), None)
        if strange is not None:
            return f"it adds {shown(strange)}, which no part of the method asks for"
        for tree in (update.delta, *update.payload.values()):
            if not isinstance(tree, Mapping) or not all(
                isinstance(one, Tensor) for one in tree.values()
            ):
                return "it holds something else than tensors"
        known = self.holds(client)
        examples, metrics = update.examples, update.metrics
        if not is_whole(examples, 1, LARGEST if known is None else known):
            said = "" if known is None else f", but that it holds {known}"
            return f"it says that it trained on {shown(examples)} samples{said}"
        if not isinstance(metrics, Mapping) or metrics.keys() != _NAMES:
            return f"its numbers are not {', '.join(METRICS)}"
        work = self._work(LARGEST if known is None else known)
        seconds = _CORES * (self.seconds + _SLACK_SECONDS)
        for names, high in ((_WORK, work), (_SECONDS, seconds)):
            for name in names:
                if problem := _beyond(name, metrics[name], 0.0, high):
                    return problem
        return None

    def _work(self, samples: int) -> float:
        """More samples than a round can cost a client of so many."""
        batches = -(-samples // self.train.batch)
        steps = self.train.steps or self.train.passes(batches) * batches
        return float(_LOOKS * (steps * self.train.batch + samples))

    def _added(self, update: Update, samples: int) -> str | None:
        for part, sent in self.payload.items():
            problem = _unlike(part, sent, update.payload.get(part, {}), samples)
            if problem is not None:
                return problem
        return None


def _beyond(name: str, value: object, low: float, high: float) -> str | None:
    """Why a number cannot be, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fits = False
    else:  # written so that NaN fails; infinite limits let nothing infinite pass
        fits = low <= value <= high and abs(value) < math.inf
    return None if fits else f"its {name} is {shown(value)}, which cannot be"


def _unlike(group: str, sent: Sent, tree: Tree, samples: int) -> str | None:
    """Why a tree is not what is to be sent, or None."""
    if tree.keys() != sent.keys():
        if group == "update":
            return "the update does not have the model's tensors"
        names = ", ".join(sent) if sent else "nothing"
        return f"the part {group} does not hold what it must: {names}"
    for name, like in sent.items():
        tensor = tree[name]
        problem = like.problem(tensor, samples)
        if problem is not None:
            place = f"the {group} of {name}" if group == "update" else f"the part {group}: {name}"
            return f"{place} {problem}"
        if tensor.is_floating_point() and not _finite(tensor):
            return f"the {group} has NaN or infinite values in {name}"
    return None


def _finite(tensor: Tensor) -> bool:
    # A sum is the quicker look; it may be too large where no value is.
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())


def is_whole(value: object, low: int, high: int) -> TypeGuard[int]:
    """Whether it is a whole number in that range, whatever a stranger sent."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def shown(value: object) -> str:
    """For a sentence: what a stranger sent, in one short line."""
    if isinstance(value, int) and abs(value) >= 10**15:
        return f"{'-' if value < 0 else ''}2^{value.bit_length()}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
