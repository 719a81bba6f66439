"""GCFL for an existing Flower app, the client's half: a mod, and coreset and loss for its own
training.

    @app.train(mods=[gcfl_mod])
    def train(message, context):
        ...                                                  # load weights and data, as before
        trainloader = coreset(model, trainloader, context)   # a loader like it, over the coreset
        loss = corrected_loss(context)                       # where the server has labels judged

The mod takes what GCFL's server half added out of the message, so that what comes after it (other
mods, the app) sees the message as it would be without GCFL. Up goes the round of the last selection
and, only where rates of label noise are pooled, this client's rate and number of samples.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, overload

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from gcfl.base import rng
from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Groups, Tree
from gcfl.base.errors import ConfigError
from gcfl.base.options import checked
from gcfl.coreset import SELECTORS, Pool
from gcfl.flower.client import Store, store_of
from gcfl.flower.samples import Read, WeightedSubset, batches, check_labels, dataset_of, narrowed
from gcfl.flower.transport import FACTS, to_tree
from gcfl.labels import log_columns, losses_from_columns
from gcfl.methods import Estimate, LabelNoise, Occasion, Periodic, periodic
from gcfl.models.network import Network

# The ConfigRecord FACTS: down the round and the settings, up the round of the selection.
# ArrayRecords, down, when a selection is due: the gradient (C, d + 1); the pooled rate of label
# noise and its weight.
TARGET, LABELS = "gcfl.target", "gcfl.labels"
SELECT = "select"  # in the facts, down: select now
JUDGE = "judge"  # in the facts, down: the settings of [labels], where labels are to be judged
SELECTED = "selected"  # in the facts, up: the round of the last selection
NOISE = "labels."  # in the facts, up, where rates are pooled: begins the names of rate and size
_STORE, _MEMORY = "gcfl-coreset", "coreset"  # where a node keeps coreset and estimate, and its blob
_T = TypeVar("_T")


def gcfl_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Client mod; the first in the list. Messages that are not for training pass through."""
    if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
        return call_next(message, context)
    content, state = message.content, context.state
    wrapped = FACTS in content.config_records
    state[FACTS] = ConfigRecord(dict(content.config_records[FACTS]) if wrapped else {})
    for name in (TARGET, LABELS):
        if name in content.array_records:
            state[name] = content.array_records[name]
    message.content = without(content, FACTS, TARGET, LABELS)
    try:
        reply = call_next(message, context)
        facts = state.config_records[FACTS]
    finally:
        for name in (FACTS, TARGET, LABELS):
            state.pop(name, None)
    if wrapped and reply.has_content():
        sent = {k: v for k, v in facts.items() if k == SELECTED or k.startswith(NOISE)}
        reply.content = RecordDict({**reply.content, FACTS: ConfigRecord(sent)})
    return reply


def without(content: RecordDict, *names: str) -> RecordDict:
    return RecordDict({name: record for name, record in content.items() if name not in names})


@overload
def coreset(
    model: nn.Module,
    data: DataLoader[_T],
    context: Context,
    budget: float | None = ...,
    read: Read | None = ...,
) -> DataLoader[_T]: ...
@overload
def coreset(
    model: nn.Module,
    data: Dataset[_T],
    context: Context,
    budget: float | None = ...,
    read: Read | None = ...,
) -> WeightedSubset: ...
def coreset(
    model: nn.Module,
    data: Any,
    context: Context,
    budget: float | None = None,
    read: Read | None = None,
) -> Any:
    """What to train on now: of a DataLoader one like it, of a Dataset a `Subset` with `weights`.

    model: with the weights that came in the message; it is left as it is. When the server asks for
    a selection: one forward pass without autograd, by which the selector chooses, and the labels
    are judged where the server wants that. Otherwise the coreset of the last selection, or a fresh
    draw from its candidates; where that was lost, a random one of the same size. budget: share of
    the samples, where it is not to be the server's. read: batch -> (x, y), for batches that are
    neither (x, y) nor a dictionary with a label and one input.
    """
    facts = _facts(context, "coreset")
    n, store = len(dataset_of(data)), store_of(context, _STORE)
    # Node ids are drawn anew for every run.
    client = context.node_config.get("partition-id", context.node_id)
    client = client if isinstance(client, str) else int(client)
    rule = _rule(facts, budget)
    seed, round = int(facts["seed"]), int(facts["round"])  # type: ignore[arg-type]
    asked = bool(facts[SELECT])
    target, pooled = (
        to_tree(context.state.array_records.get(name, ArrayRecord())) for name in (TARGET, LABELS)
    )
    memory, kept = _recall(store, context.run_id)
    memory = memory if kept == n else {}  # what is of other samples is forgotten

    def look() -> Pool:
        # What the dataset draws repeats itself.
        with rng.isolated(seed, "samples", round, client):
            return _pool(model, data, read, target.get("target"))

    samples = _Samples(round, n, look)
    labels = _judged(facts, samples, pooled if asked else None, memory.get("labels", {}))
    occasion = Occasion(
        seed, round, client, n, n, lambda: replace(samples.pool, right=labels.right)
    )
    chosen = rule.choose(occasion, target if asked else None, memory.get("select", {}))
    if asked:
        groups = {"select": chosen.memory, "labels": labels.memory}
        store.write(_MEMORY, encode(groups, {"run": context.run_id, "samples": n}))
    facts[SELECTED] = int(chosen.sends["round"])
    for name, number in labels.sends.items():
        if name != "round":  # which is that of the selection
            facts[f"{NOISE}{name}"] = number.item()
    return narrowed(data, chosen.coreset)


def corrected_loss(context: Context) -> Callable[[Tensor, Tensor], Tensor]:
    """loss(logits, labels): the mean over a batch of ℓ = -log Σ_c T[c, ỹ] p_c, with the T of this
    client's last estimate; cross-entropy before the first, or where it was lost.

    Call it after `coreset`, which makes the estimate. The server asks for estimates with the
    selector `sift`, or with `labels=`.
    """
    if JUDGE not in _facts(context, "corrected_loss"):
        raise ConfigError(
            "corrected_loss(...) has no estimate of the label noise to go by: GCFL(...) makes them "
            "with selector='sift', or with labels={}"
        )
    memory, _ = _recall(store_of(context, _STORE), context.run_id)
    if not memory.get("labels"):
        return cross_entropy
    columns = log_columns(memory["labels"]["transition"])

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return losses_from_columns(logits, labels, columns.to(logits.device)).mean()

    return loss


@dataclass(frozen=True)
class _Samples:
    """A client's samples in one round, looked at when somebody asks, and once."""

    round: int
    size: int
    look: Callable[[], Pool]

    @cached_property
    def pool(self) -> Pool:
        return self.look()

    def seen_by(self, weights: Tree) -> Pool:
        raise ConfigError("labels.average cannot be had in an app of one's own")


def _facts(context: Context, caller: str) -> ConfigRecord:
    """What the server said with this message."""
    facts = context.state.config_records.get(FACTS)
    if facts is None:
        raise ConfigError(
            f"{caller}(...) needs gcfl_mod, first in the mods of the train function: "
            "@app.train(mods=[gcfl_mod])"
        )
    if not facts:
        raise ConfigError(
            "the server's strategy is not wrapped in GCFL(...): there is no gradient to choose a "
            "coreset by"
        )
    return facts


def _judged(
    facts: ConfigRecord, samples: _Samples, received: Tree | None, memory: Tree
) -> Estimate:
    """What the client thinks of its labels, where the server asks for that."""
    if JUDGE not in facts:
        return Estimate(None, {}, {})
    rule = checked(LabelNoise, json.loads(str(facts[JUDGE])))
    return rule.estimate(samples, received, memory)


def _rule(facts: ConfigRecord, budget: float | None) -> Periodic:
    """The selector that the server asks for, by its options, or with a budget of the client's."""
    options = json.loads(str(facts["options"]))
    if budget is not None:
        options["budget"] = budget
    return checked(periodic(SELECTORS[str(facts["selector"])]), options)


def _pool(model: nn.Module, data: Any, read: Read | None, target: Tensor | None) -> Pool:
    """The samples as the model sees them, batch by batch: features and probabilities."""
    device = next((str(part.device) for part in model.parameters()), "cpu")
    classes = None if target is None else target.shape[0]
    network: Network | None = None
    features, probabilities, labels = [], [], []
    for x, y in batches(data, read):
        # A copy: the user's model keeps its mode, its hooks and its memory layout.
        network = network or Network(copy.deepcopy(model), x, classes, device=device, as_given=True)
        check_labels(y, network.classes, "this client's")
        outputs = network.outputs(network.tree(), x)
        features.append(outputs.features.float().cpu())
        probabilities.append(torch.softmax(outputs.logits.float(), dim=1).cpu())
        labels.append(y)
    bias = network is not None and network.bias
    head = None if network is None else network.head_weights(network.tree())
    width = features[0].shape[1] + bias
    if target is not None and width != target.shape[1]:
        raise ConfigError(
            f"the last layer has {target.shape[1]} numbers per class at the server, {width} at "
            "this client"
        )
    seen = torch.cat(features), torch.cat(probabilities), torch.cat(labels)
    return Pool(*seen, bias, head=head)


def _recall(store: Store, run: int) -> tuple[Groups, int]:
    """What the node remembers of this run, and of how many samples."""
    blob = store.read(_MEMORY)
    if blob is None:
        return {}, 0
    groups, facts = decode(blob, "the coreset in the node's state")
    return (groups, facts["samples"]) if facts["run"] == run else ({}, 0)
