"""What a method is made of: a selection rule, a local rule and a server rule, each with its server
half and its client half.

A part is a frozen group of options with methods. It keeps nothing: state is passed in and out as
trees, so the engine can write it, send it and restore it without knowing whose it is. Server halves
get a `ServerView`, client halves a `ClientView`; there is no way from a view to the truth, and none
from a client's view to the server's data.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import Coreset, Shard, Tree
from gcfl.base.options import Options, within
from gcfl.coreset import Pool, unweighted
from gcfl.methods.options import TrainOptions
from gcfl.methods.replies import Replies
from gcfl.models.network import Network, Output


@dataclass
class Meter:
    """What a party's work has cost, in samples and steps."""

    forward: int = 0
    backward: int = 0
    steps: int = 0

    def add(self, other: Meter) -> None:
        self.forward += other.forward
        self.backward += other.backward
        self.steps += other.steps


@dataclass(frozen=True)
class Setting:
    """What every party of a run knows: the architecture, the seed, the length, how to train."""

    network: Network
    seed: int
    rounds: int
    train: TrainOptions

    def pool(self, model: Tree, shard: Shard) -> Pool:
        """Samples as a model sees them: one forward pass without autograd."""
        outputs = self.network.outputs(model, shard.x)
        probabilities = torch.softmax(outputs.logits, dim=1)
        return Pool(outputs.features.cpu(), probabilities.cpu(), shard.y, self.network.bias)


@dataclass(frozen=True)
class ServerView:
    """What a server half may see. `validation` is D_S: it never leaves the server. `population` is
    N, `clients` the cohort. held_out: clean samples that nothing trains on. selecting: who is asked
    to select in this round; None where the method never asks.
    """

    setting: Setting
    round: int
    model: Tree
    validation: Shard
    clients: tuple[int, ...]
    meter: Meter = field(default_factory=Meter)
    population: int = 0
    held_out: Shard | None = None
    selecting: tuple[int, ...] | None = None

    @cached_property
    def pool(self) -> Pool:
        """D_S as the current model sees it; counted."""
        self.meter.forward += len(self.validation)
        return self.setting.pool(self.model, self.validation)


@dataclass(frozen=True)
class ClientView:
    """What a client half may see: its own samples and the model it was sent.

    load: its samples, of which there are `size`, fetched when somebody looks at them. whole: how
    many samples a budget is a share of. look: its samples as the model sees them, where one pass
    serves many clients.
    """

    setting: Setting
    round: int
    client: int
    model: Tree
    size: int
    whole: int
    load: Callable[[], Shard]
    meter: Meter = field(default_factory=Meter)
    look: Callable[[], Pool] | None = None

    @classmethod
    def of(cls, setting: Setting, round: int, client: int, model: Tree, shard: Shard) -> ClientView:
        """Of samples that are here."""
        size = len(shard)
        return cls(setting, round, client, model, size, shard.whole or size, lambda: shard)

    @cached_property
    def shard(self) -> Shard:
        return self.load()

    @cached_property
    def pool(self) -> Pool:
        """Its samples as the model sees them: features, probabilities, observed labels; counted."""
        self.meter.forward += self.size
        return self.look() if self.look else self.setting.pool(self.model, self.shard)

    def judged(self, right: Tensor) -> ClientView:
        """The same, with each label's probability of being right (n,) in its pool."""
        other = replace(self)
        other.__dict__["pool"] = replace(
            self.pool, right=right
        )  # looked at already: not counted twice
        return other


@dataclass(frozen=True)
class Selection:
    """A client's choice, what it sends the server about it, and what it remembers.

    fresh: whether the samples were chosen or drawn in this round.
    """

    coreset: Coreset
    sends: Tree
    memory: Tree
    fresh: bool = False


class Part(Options):
    """One idea. `name` is how the catalogue and the configuration call it, `summary` its line in
    `gcfl list methods`, `presets` settings of any section that it wants where nobody says
    otherwise.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    refuses: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # presets that it cannot have

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        """Refuse, before any work, what this part cannot work with."""

    def server_init(self, model: Tree) -> Tree:
        """The server's state before the first round."""
        return {}

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        """What the server adds to the message of each client; who is missing gets nothing."""
        return {}


class ClientPart(Part):
    """A part whose client half works in every round; its server half hears of that."""

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        """Server half, after the replies."""
        return state


class SelectionRule(ClientPart):
    """Which of its samples a client trains on."""

    whole: ClassVar[bool] = False  # takes everything: there is nothing to choose
    asks: ClassVar[bool] = False  # announces to clients when they are to choose
    weighted: bool = False
    """use the coreset's weights in local training"""

    @property
    def judges(self) -> bool:
        """Whether it chooses by which labels are right, and so wants them estimated."""
        return False

    @abstractmethod
    def select(self, view: ClientView, received: Tree | None, memory: Tree) -> Selection:
        """Client half. `received` is what `announce` gave this client (None: nothing), `memory`
        what it remembered last time.
        """


class Everything(SelectionRule):
    """No selection: X_i = D_i, all weights 1."""

    name: ClassVar[str] = "everything"
    summary: ClassVar[str] = "clients train on all their samples"
    whole: ClassVar[bool] = True

    def select(self, view: ClientView, received: Tree | None, memory: Tree) -> Selection:
        return Selection(unweighted(np.arange(view.size)), {}, {})


class LocalRule(ClientPart):
    """How a client trains: a loss term plus a gradient correction, over a functional model call.

    All but `merge` are pure functions of tensors, without branches on values, so that one trainer
    serves all rules, for one client or, under torch.func.vmap, for many at once.
    """

    stateful: ClassVar[bool] = False  # remembers something from round to round

    def start(self, model: Tree, memory: Tree) -> Tree:
        """Where local training starts: at the model that was sent."""
        return model

    def begin(self, model: Tree, received: Tree, memory: Tree) -> Tree:
        """Constants of this client's training, the `fixed` of `loss`, `correct`, `finish`."""
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
        """(what it sends the server, what it remembers) after training."""
        return {}, {}


class Plain(LocalRule):
    """Plain local training (FedAvg): SGD on the loss, nothing added."""

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "local SGD, nothing added"


@dataclass(frozen=True)
class Estimate:
    """What a client thinks of its labels. transition (C, C): T, None where it knows nothing.

    right (n,): each label's probability of being right, and rate: the share of wrong ones, where
    they were estimated in this round.
    """

    transition: Tensor | None
    sends: Tree
    memory: Tree
    right: Tensor | None = None
    rate: float | None = None


class LabelRule(ClientPart):
    """How a client judges its labels."""

    @abstractmethod
    def estimate(self, view: ClientView, received: Tree | None, memory: Tree) -> Estimate:
        """Client half. A new estimate where `received` is not None, else what is remembered."""


class ServerRule(Part):
    """How updates become the next model."""

    uses_clients: ClassVar[bool] = True
    shares: ClassVar[bool] = True  # models travel
    rate: Annotated[float, AfterValidator(within(0, 1000, low_open=True))] = 1.0
    """η_g, the server's learning rate"""

    @abstractmethod
    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        """(state, model) after the replies."""

    def judged(self, view: ServerView, model: Tree, replies: Replies) -> Iterable[Tree]:
        """The models whose mean score is the round's."""
        return (model,)


@dataclass(frozen=True)
class Method:
    """A selection rule, a local rule and a server rule.

    `clean_only` asks the experiment, which knows the truth, for clean samples; `pooled` for one
    client that holds all.
    """

    name: str
    select: SelectionRule
    local: LocalRule
    server: ServerRule
    clean_only: bool = False
    pooled: bool = False
    labels: LabelRule | None = None

    @property
    def client_parts(self) -> dict[str, ClientPart]:
        """Those with a client half, in the order in which the server announces them."""
        parts: dict[str, ClientPart] = {"select": self.select, "local": self.local}
        return parts if self.labels is None else {**parts, "labels": self.labels}

    @property
    def parts(self) -> dict[str, Part]:
        return {**self.client_parts, "server": self.server}
