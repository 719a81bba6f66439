"""What a method is made of: a selector, a local rule and a server rule, each with its server half
and its client half.

A part is a frozen group of options with methods. It keeps nothing: state is passed in and out as
trees, so the engine can write it, send it and restore it without knowing whose it is. Server halves
get a `ServerView`, client halves a `ClientView`; there is no way from a view to the truth, and none
from a client's view to the server's data.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, ValidationInfo
from torch import Tensor

from gcfl.base.data_types import Coreset, Shard, Tree
from gcfl.base.options import Count, NonNegative, Options, Positive, PositiveShare, at_least, within
from gcfl.coreset import Pool
from gcfl.methods.replies import Replies
from gcfl.models.network import Network, Output


def _with_cross_entropy(smoothing: float, info: ValidationInfo) -> float:
    if smoothing and info.data.get("loss") != "cross-entropy":
        raise ValueError(f"has no effect with the loss {info.data.get('loss')!r}")
    return smoothing


class TrainOptions(Options):
    """[train]"""

    lr: Positive = 0.01
    """learning rate of local SGD"""
    momentum: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.9
    """momentum of local SGD; its state is fresh for every client and round"""
    weight_decay: NonNegative = 5e-4
    """weight decay of local SGD"""
    batch: Count = 32
    """samples per step"""
    epochs: Count = 1
    """passes over the coreset per round"""
    steps: Count | None = None
    """fixed number of steps per round instead of epochs"""
    schedule: Literal["cosine", "constant"] = "cosine"
    """learning rate over the rounds"""
    loss: Literal["cross-entropy", "gce", "sce"] = "cross-entropy"
    """loss of a sample; gce and sce (generalised and symmetric cross-entropy) bear with wrong
    labels
    """
    smoothing: Annotated[
        float, AfterValidator(within(0, 1, high_open=True)), AfterValidator(_with_cross_entropy)
    ] = 0.0
    """cross-entropy: share of each label that is spread over all classes"""
    gce_q: PositiveShare = 0.7
    """gce: (1 - p^q) / q; near 0 it is cross-entropy, 1 the mean absolute error"""
    sce_alpha: NonNegative = 0.1
    """sce: weight of cross-entropy"""
    sce_beta: NonNegative = 1.0
    """sce: weight of reverse cross-entropy"""
    clip: Positive | None = None
    """largest norm of a step's gradient; longer ones are shortened to it"""
    augment: Literal["none", "crop", "flip+crop"] = "none"
    """images: each batch shifted by up to 4 pixels, and mirrored at random"""


@dataclass
class Meter:
    """What a party's work has cost, in samples and steps."""

    forward: int = 0
    backward: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Setting:
    """What every party of a run knows: the architecture, the seed, the length, how to train."""

    network: Network
    seed: int
    rounds: int
    train: TrainOptions


def pool_of(outputs: Output, shard: Shard, bias: bool) -> Pool:
    return Pool(outputs.features.cpu(), torch.softmax(outputs.logits, dim=1).cpu(), shard.y, bias)


@dataclass(frozen=True)
class ServerView:
    """What a server half may see. `validation` is D_S: it never leaves the server. `population` is
    N, `clients` the cohort.
    """

    setting: Setting
    round: int
    model: Tree
    validation: Shard
    clients: tuple[int, ...]
    meter: Meter = field(default_factory=Meter)
    population: int = 0

    @cached_property
    def outputs(self) -> Output:
        """Features and logits of D_S under the current model."""
        self.meter.forward += len(self.validation)
        return self.setting.network.outputs(self.model, self.validation.x)

    @cached_property
    def pool(self) -> Pool:
        """D_S as the current model sees it."""
        return pool_of(self.outputs, self.validation, self.setting.network.bias)


@dataclass(frozen=True)
class ClientView:
    """What a client half may see: its own samples and the model it was sent."""

    setting: Setting
    round: int
    client: int
    model: Tree
    shard: Shard
    meter: Meter = field(default_factory=Meter)

    @cached_property
    def outputs(self) -> Output:
        """Features and logits of all its samples under the model it was sent: one pass, no
        autograd, counted.
        """
        self.meter.forward += len(self.shard)
        return self.setting.network.outputs(self.model, self.shard.x)

    @cached_property
    def pool(self) -> Pool:
        """Its samples as the model sees them: features, probabilities, observed labels."""
        return pool_of(self.outputs, self.shard, self.setting.network.bias)


@dataclass(frozen=True)
class Selection:
    """A client's choice, what it tells the server about it, and what it remembers."""

    coreset: Coreset
    tells: Tree
    remembers: Tree


class Part(Options):
    """One idea. `name` is how the catalogue and the configuration call it, `summary` its line in
    `gcfl list methods`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        """Refuse, before any work, what this part cannot work with."""

    def server_init(self, model: Tree) -> Tree:
        """The server's state before the first round."""
        return {}

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        """What the server adds to the message of each client; a client that is missing gets
        nothing.
        """
        return {}


class Selector(Part):
    """Which of its samples a client trains on."""

    whole: ClassVar[bool] = False  # takes everything: there is nothing to choose
    weighted: bool = False
    """use the coreset's weights in local training"""

    @abstractmethod
    def select(self, view: ClientView, told: Tree | None, remembered: Tree) -> Selection:
        """Client half. `told` is what `announce` gave this client (None: nothing), `remembered`
        what it kept last time.
        """

    def kept(self, remembered: Tree, held: int) -> Selection | None:
        """The choice of a client that is told nothing and holds `held` samples, where it follows
        from its memory alone.
        """
        return None

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        """Server half, after the replies."""
        return state


class LocalRule(Part):
    """How a client trains: a loss term plus a gradient correction, over a functional model call.

    All but `merge` are pure functions of tensors, without branches on values, so that one trainer
    serves all rules, for one client or, under torch.func.vmap, for many at once.
    """

    stateful: ClassVar[bool] = False  # remembers something from round to round
    prefers: ClassVar[Mapping[str, Any]] = {}
    """settings of [train] that this rule wants where nobody says otherwise"""

    def start(self, model: Tree, remembered: Tree) -> Tree:
        """Where local training starts: at the model that was sent."""
        return model

    def begin(self, model: Tree, told: Tree, remembered: Tree) -> Tree:
        """Constants of this client's training, handed to `loss`, `correct` and `finish` as
        `fixed`.
        """
        return {}

    def forwards(self, fixed: Tree) -> int:
        """Forward passes per sample and step."""
        return 1

    def loss(self, network: Network, output: Output, x: Tensor, fixed: Tree) -> Tensor | None:
        """A term (n,) to add to the loss of each sample of a batch; None adds nothing."""
        return None

    def correct(self, gradient: Tree, params: Tree, fixed: Tree) -> Tree:
        """The gradient that the optimiser sees."""
        return gradient

    def finish(self, local: Tree, fixed: Tree, steps: Tensor | int, lr: float) -> tuple[Tree, Tree]:
        """(what it tells the server, what it remembers) after training."""
        return {}, {}

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        """Server half, after the replies."""
        return state


class ServerRule(Part):
    """How updates become the next model, and what the server does with its own samples besides."""

    uses_clients: ClassVar[bool] = True
    shares: ClassVar[bool] = True  # models travel
    rate: Annotated[float, AfterValidator(within(0, 1000, low_open=True))] = 1.0
    """η_g, the server's learning rate (fedadam: 0.01)"""
    warm_start: Annotated[int, AfterValidator(at_least(0))] = 0
    """epochs on the server's clean set before the first round"""
    fine_tune: Literal["never", "each", "end"] = "never"
    """train on the server's clean set too: after each round, or after the last"""
    fine_tune_epochs: Count = 1
    """epochs of fine-tuning"""
    fine_tune_lr: Positive | None = None
    """learning rate of fine-tuning; unset: that of the round (each), or a tenth of train.lr
    (end)
    """
    takes_part: bool = False
    """the server trains on its clean set as one more client"""
    hold_out: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.0
    """share of the server's clean set that nothing trains on or selects by, for keep and
    patience
    """
    keep: Literal["last", "best"] = "last"
    """the final model: of the last round, or of the round with the lowest loss on what is
    held out
    """
    patience: Count | None = None
    """stop after so many rounds without a lower loss on what is held out"""

    @abstractmethod
    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        """(state, model) after the replies."""

    def judged(self, view: ServerView, model: Tree, replies: Replies) -> Iterable[Tree]:
        """The models whose mean score is the round's."""
        return (model,)


@dataclass(frozen=True)
class Method:
    """A selector, a local rule and a server rule.

    `clean_only` asks the experiment, which knows the truth, for clean samples; `pooled` for one
    client that holds all.
    """

    name: str
    select: Selector
    local: LocalRule
    server: ServerRule
    clean_only: bool = False
    pooled: bool = False

    @property
    def parts(self) -> dict[str, Part]:
        return {"select": self.select, "local": self.local, "server": self.server}
