"""GCFL for an existing Flower app, the server's half: a strategy around any of Flower's strategies.

    strategy = GCFL(FedAvg(...), model=Net, validation=(x, y), every=10, budget=0.1)
    strategy.start(grid=grid, ...)                           # as before

Whom to ask and how to aggregate stays with the strategy inside. Messages for training get the round
and the settings; those to nodes that are due also get the label-wise gradient of the clean set,
C·(d + 1) numbers, or, where labels are judged, the pooled rate of label noise. A node is due when
its last selection that the server heard of is `every` or more rounds old: so are late joiners, and
nodes whose answer was lost. Answers that the strategy inside could not add up are left out and
named (`fitting.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import nn

from gcfl import experiment as config
from gcfl.base.data_types import Tree, Update
from gcfl.base.errors import ConfigError, RunError, did_you_mean
from gcfl.base.options import LARGEST
from gcfl.base.text import brief
from gcfl.coreset import SELECTORS, Pursuit
from gcfl.flower.fitting import fitting
from gcfl.flower.mod import JUDGE, LABELS, NOISE, SELECT, SELECTED, TARGET, without
from gcfl.flower.network import load, network_of
from gcfl.flower.samples import Read, shard_of
from gcfl.flower.transport import FACTS, sender
from gcfl.methods import NEVER, Periodic, Replies, ServerView, Setting, TrainOptions
from gcfl.methods.answers import is_whole

log = logging.getLogger("flwr.gcfl")  # shown where Flower shows its own


class GCFL(Strategy):  # type: ignore[misc, unused-ignore]
    """A strategy with gradient coresets around it; clients need `gcfl_mod` and `coreset`.

    strategy: whatever does the federated learning now, Flower's privacy wrappers included. model:
    the network, or a function that makes it, whose weights travel in the strategy's arrays; it must
    end in a Linear layer. validation: clean samples as the model eats them: (x, y), a Dataset or a
    DataLoader; they never leave the server. selector: a name of `gcfl.coreset.SELECTORS`. labels:
    settings of [labels]; where given, and always with `sift`, clients estimate their label noise
    when they select, for `corrected_loss`. seed: of what is drawn at random. read: batch -> (x, y),
    for batches of another kind. options: the settings of [coreset] in `gcfl list settings`, by the
    defaults there: every (K, rounds between two selections of a node), budget (share of a client's
    samples in its coreset), score, ridge, split, allow_single, ...
    """

    def __init__(
        self,
        strategy: Strategy,
        model: nn.Module | Callable[[], nn.Module],
        validation: Any,
        *,
        selector: str = "gcfl",
        labels: dict[str, Any] | None = None,
        seed: int = 0,
        read: Read | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ConfigError(
                "strategy must be one of flwr.serverapp.strategy, as FedAvg() is, got "
                f"{type(strategy).__name__}"
            )
        self.strategy = strategy
        if selector not in SELECTORS:
            near = did_you_mean(selector, SELECTORS)
            raise ConfigError(f"selector {selector!r} is unknown{near}")
        settings = {"method": selector, "seed": seed, "coreset": options}
        settings["labels"] = {} if labels is None else labels
        experiment = config.build(settings)[0]
        chosen = experiment.coreset
        if not isinstance(chosen, Periodic):
            raise ConfigError(f"the method {selector} was replaced by another selection rule")
        self._selector, self._seed = chosen, seed
        self._validation = shard_of(validation, read)
        self._network = network_of(model, self._validation)
        if chosen.needs_head:
            self._network.require_head()
        self._noise, self._judging = experiment.labels, labels is not None or chosen.judges
        if self._noise.average:
            raise ConfigError(
                "labels.average cannot be had in an app of one's own: the model is the strategy's"
            )
        if self._noise.guard:
            raise ConfigError(
                "labels.guard cannot be had in an app of one's own: it compares what updates do "
                "for the clean set, and those are the strategy's"
            )
        for part in (self._selector, self._noise) if self._judging else (self._selector,):
            part.check(self._validation, tuple(range(self._network.classes)))
        self._rates = self._noise.server_init({})  # what nodes told of their label noise
        self._numbers: dict[int, int] = {}  # node -> its number there: node ids may need 64 bits
        # node -> the round of its last selection that we heard of
        self._selected: dict[int, int] = {}
        self._asked: list[Metadata] = []  # of this round's messages, without what they hold
        self._sent = RecordDict()  # what one of them held, for training
        self._told: set[int] = set()  # nodes that were to select in this round
        self._warned: set[tuple[int, str]] = set()
        if type(strategy).start is not Strategy.start:
            name = type(strategy).__name__
            log.warning("%s has a start() of its own, which is not used inside GCFL", name)

    def summary(self) -> None:
        rule = self._selector
        score = f", score {rule.score}" if isinstance(rule, Pursuit) else ""
        text = f"a coreset of {100 * rule.budget:g}% every {rule.every} rounds"
        judged = ", labels judged" if self._judging else ""
        log.info("\t├──> GCFL: %s, %s%s%s", rule.name, text, score, judged)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the strategy inside, with ours added to copies of their records."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._asked = [message.metadata for message in messages]
        self._sent = messages[0].content if messages else RecordDict()
        due = [one for one in messages if self._due(one.metadata.dst_node_id, server_round)]
        self._told = {message.metadata.dst_node_id for message in due}
        facts: dict[str, Any] = {
            "round": server_round,
            "seed": self._seed,
            "selector": self._selector.name,
            "options": self._selector.model_dump_json(),
        }
        if self._judging:
            facts[JUDGE] = self._noise.model_dump_json()
        for message in messages:
            asked = ConfigRecord({**facts, SELECT: message in due})
            message.content = RecordDict({**message.content, FACTS: asked})
        records = self._records(server_round, arrays) if due else {}
        for message in due:
            for name, record in records.items():
                message.content[name] = record
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Note who selected, take our records out, leave out what does not fit, and leave the rest
        to the strategy inside.
        """
        received = list(replies)
        failures = self._failures(received)
        for node in self._told - failures.keys():
            self._selected[node] = server_round  # whatever it says: it has been told the target
        received, unfit = fitting(received, self.strategy, self._sent)
        failures |= unfit
        for node, reason in failures.items():
            log.warning("round %d: node %d failed: %s", server_round, node, reason)
        valid = [reply for reply in received if not reply.has_error()]
        if self._asked and not valid:
            node, reason = next(iter(failures.items()))
            hint = " (gcfl_mod must be the first of the mods)" if "Record" in reason else ""
            raise RunError(
                f"round {server_round}: none of {len(self._asked)} nodes gave a valid answer; node "
                f"{node}: {reason}{hint}"
            )
        for reply in valid:
            self._note(server_round, reply)
        arrays, metrics = self.strategy.aggregate_train(server_round, received)
        if valid and arrays is None:
            inner = type(self.strategy).__name__
            log.warning("round %d: %s aggregated nothing", server_round, inner)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        kept, unfit = fitting(replies, self.strategy)
        for node, reason in unfit.items():
            log.warning("round %d: evaluation at node %d failed: %s", server_round, node, reason)
        return self.strategy.aggregate_evaluate(server_round, kept)

    def _due(self, node: int, server_round: int) -> bool:
        last = self._selected.get(node, NEVER)
        # rounds begin again with a second start()
        return last == NEVER or not 0 <= server_round - last < self._selector.every

    def _view(self, server_round: int) -> ServerView:
        """What our parts see. They tell all nodes that are due the same: one stands for them."""
        setting = Setting(self._network, self._seed, server_round, TrainOptions())
        model, clean = self._network.tree(), self._validation
        return ServerView(setting, server_round, model, clean, (), selecting=(NEVER,))

    def _records(self, server_round: int, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """What nodes that are due are sent. The target is for GCFL (C, d + 1): in row c the mean
        gradient of the clean samples of class c.
        """
        load(self._network, arrays)
        view = self._view(server_round)
        told = self._selector.target(view) or {}
        target = {name: one.float() for name, one in told.items()}
        if not all(bool(torch.isfinite(one).all()) for one in target.values()):
            raise RunError(
                f"round {server_round}: the clean set's gradient has NaN or infinite values: the "
                "model has diverged"
            )
        pooled = self._noise.announce(_bounded(self._rates), view)[NEVER] if self._judging else {}
        trees = {TARGET: target, LABELS: pooled}
        return {name: ArrayRecord(tree) for name, tree in trees.items() if tree}

    def _note(self, server_round: int, reply: Message) -> None:
        """Who selected when; our record is taken out of the answer."""
        node, facts = reply.metadata.src_node_id, reply.content.config_records.get(FACTS)
        if facts is None:
            self._warn_once(
                node,
                "answers without gcfl_mod: put it first in its mods, @app.train(mods=[gcfl_mod])",
            )
            return
        reply.content = without(reply.content, FACTS)
        selected = facts.get(SELECTED)
        if not is_whole(selected, NEVER, LARGEST):
            self._warn_once(
                node,
                "trains on all its data: its train function does not call gcfl.flower.coreset(...)",
            )
            return
        if selected == NEVER:
            log.warning(
                "round %d: node %d had no coreset and trained on a random one", server_round, node
            )
        if node not in self._told:
            self._selected[node] = min(selected, server_round)
        if self._judging and self._noise.pooling:
            self._hear(server_round, node, facts)

    def _hear(self, server_round: int, node: int, facts: ConfigRecord) -> None:
        """What a node tells of its label noise, in the words of our label rule."""
        rate, size = (facts.get(f"{NOISE}{name}") for name in ("rate", "size"))
        if not (isinstance(rate, float) and 0 <= rate <= 1 and is_whole(size, 0, LARGEST)):
            self._warn_once(node, "tells no rate of label noise that can be used")
            return
        sent = {"round": torch.tensor(self._selected[node]), "size": torch.tensor(size)}
        sent["rate"] = torch.tensor(rate, dtype=torch.float64)
        number = self._numbers.setdefault(node, len(self._numbers))
        reply = Replies({number: Update({}, {"labels": sent}, size, {})})
        self._rates = self._noise.merge(self._rates, self._view(server_round), reply)

    def _warn_once(self, node: int, sentence: str) -> None:
        if (node, sentence) not in self._warned:
            self._warned.add((node, sentence))
            log.warning("node %d %s", node, sentence)

    def _failures(self, replies: list[Message]) -> dict[int, str]:
        """node -> why it gave no update."""
        nodes = {metadata.message_id: metadata.dst_node_id for metadata in self._asked}
        failed, heard = {}, set()
        for reply in replies:
            node = sender(reply, nodes)
            heard.add(node)
            if reply.has_error():
                failed[node] = brief(reply.error.reason or f"error {reply.error.code}")
        silent = [one.dst_node_id for one in self._asked if one.dst_node_id not in heard]
        return {**failed, **dict.fromkeys(silent, "no answer")}


def _bounded(rates: Tree) -> Tree:
    """Rates of label noise, of which no node's counts for more than ten usual nodes' samples."""
    known = rates["sizes"][rates["sizes"] > 0]
    most = 10 * int(known.median()) if len(known) else 0
    return {**rates, "sizes": rates["sizes"].clamp(max=most)}
