"""What a method is made of: a selection rule, a local rule and a server rule, each with its server
half and its client half.

A part is a frozen group of options with methods. It keeps nothing: state is passed in and out as
trees, so the engine can write it, send it and restore it without knowing whose it is. Server halves
get a `ServerView`, client halves a `ClientView`; there is no way from a view to the truth, and none
from a client's view to the server's data.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import Coreset, IntArray, Shard, Tree
from gcfl.base.options import Options, within
from gcfl.coreset import unweighted
from gcfl.methods.answers import Sent
from gcfl.methods.replies import Replies
from gcfl.methods.views import ClientView, ServerView
from gcfl.models.network import Network, Output


@dataclass(frozen=True)
class Selection:
    """A client's choice, what it sends the server about it, and what it remembers.

    fresh: whether the samples were chosen or drawn in this round. steady: whether it stays the
    same until the server asks for another.
    """

    coreset: Coreset
    sends: Tree
    memory: Tree
    fresh: bool = False
    steady: bool = False


class Part(Options):
    """One idea. `name` is how the catalogue and the configuration call it, `summary` its line in
    `gcfl list methods`, `presets` settings of any section that it wants where nobody says
    otherwise.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    refuses: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # presets that it cannot have

    @property
    def needs_head(self) -> bool:
        """Whether it works on the input of a last linear layer, which a model may not have."""
        return False

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

    def sends(self, view: ServerView) -> Sent:
        """What every client's answer must hold of this part in this round: nothing, or tensors by
        name. An answer that holds something else is left out.
        """
        return {}

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

    What takes no view is a pure function of tensors, without branches on values, so that one
    trainer serves all rules, for one client or, under torch.func.vmap, for many at once.
    """

    views: ClassVar[int] = 1  # of each sample in a step, 1 or 2, each with its gradient
    keeps: ClassVar[bool] = False  # keeps C numbers of each sample, which never leave the client
    doubts: ClassVar[bool] = False  # for labels in doubt: a server that takes part trains plainly
    stackable: ClassVar[bool] = True  # many clients at once: it neither relabels nor reflects

    def candidates(self, state: Tree, view: ServerView) -> Sequence[int] | None:
        """Server half, before anything else: the clients, sorted, among whom the round's are drawn;
        None for all.

        The others get no message, cost nothing and have no weight in the round's mean.
        """
        return None

    def relabel(self, view: ClientView, received: Tree, memory: Tree) -> tuple[Tensor | None, Tree]:
        """(the labels (n,) that count in this round, or None for the observed ones; what it
        remembers), before the client selects and trains.
        """
        return None, memory

    def reflect(self, view: ClientView, memory: Tree) -> tuple[Tree, Tree]:
        """(what else it sends the server, what else it remembers) after training; the view's model
        is the local one, `memory` what `relabel` returned.
        """
        return {}, {}

    def start(self, model: Tree, memory: Tree) -> Tree:
        """Where local training starts: at the model that was sent."""
        return model

    def begin(self, model: Tree, received: Tree, memory: Tree) -> Tree:
        """Constants of this client's training, the `fixed` of `loss`, `correct`, `finish`."""
        return {}

    def forwards(self, fixed: Tree) -> int:
        """Forward passes per sample and step."""
        return 1

    def note(self, output: Output, kept: Tensor) -> Tensor:
        """(n, C) what a rule that `keeps` keeps of a batch's samples now, from what it kept of them
        (at first 0). `loss` finds it in `fixed`, as "kept".
        """
        return kept

    def logits(self, output: Output, fixed: Tree) -> Tensor:
        """(n, C) what the loss of a sample is taken of: the model's. With two `views`, `fixed` has
        the "second" one's logits too, and a random "share" in (0, 1), drawn for each batch.
        """
        return output.logits

    def loss(self, network: Network, output: Output, x: Tensor, fixed: Tree) -> Tensor | None:
        """A term (n,) to add to the loss of each sample of a batch; None adds nothing."""
        return None

    def correct(self, gradient: Tree, params: Tree, fixed: Tree) -> Tree:
        """The gradient that the optimiser sees."""
        return gradient

    def finish(
        self, local: Tree, fixed: Tree, steps: Tensor | float, lr: float
    ) -> tuple[Tree, Tree]:
        """(what it sends the server, what it remembers) after training. steps: so many plain ones;
        with momentum, as many as would have moved the model as far.
        """
        return {}, {}


class Plain(LocalRule):
    """Plain local training (FedAvg): SGD on the loss, nothing added."""

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "local SGD, nothing added"


@dataclass(frozen=True)
class Estimate:
    """What a client thinks of its labels. transition (C, C): T, None where it knows nothing.

    right (n,): each label's probability of being right, and rate: the share of wrong ones, where
    they were estimated in this round. plain: whether the client is to train as if it knew nothing.
    """

    transition: Tensor | None
    sends: Tree
    memory: Tree
    right: Tensor | None = None
    rate: float | None = None
    plain: bool = False


class LabelRule(ClientPart):
    """How a client judges its labels."""

    @abstractmethod
    def estimate(self, view: ClientView, received: Tree | None, memory: Tree) -> Estimate:
        """Client half. A new estimate where `received` asks for one, else what is remembered."""

    def trained(self, memory: Tree, rows: IntArray, round: int) -> Tree:
        """Client half, after training on these rows: what it remembers."""
        return memory

    def ignored(self, state: Tree, view: ServerView, replies: Replies) -> Collection[int]:
        """Server half: the clients whose updates do not enter the model."""
        return ()

    def told(self, state: Tree, round: int) -> dict[str, float] | None:
        """Server half: what the record of a round says of it."""
        return None


class ServerRule(Part):
    """How updates become the next model."""

    uses_clients: ClassVar[bool] = True
    trains: ClassVar[bool] = False  # on the server's clean set, in every round
    wary: ClassVar[bool] = False  # holds whatever one of the clients sends
    shares: ClassVar[bool] = True  # models travel
    rate: Annotated[float, AfterValidator(within(0, 1000, low_open=True))] = 1.0
    """η_g, the server's learning rate"""

    @property
    def by_examples(self) -> bool:
        """Whether clients weigh by the samples they trained on, or equally."""
        return False

    @property
    def bound(self) -> float | Literal["median"] | None:
        """The largest norm of an update; median: that of the round's."""
        return None

    @property
    def fewest(self) -> int:
        """Clients that a round needs."""
        return 1

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
