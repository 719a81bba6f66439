"""GCFL for an existing Flower app, the client's half: a mod, and the coreset for its own training.

    @app.train(mods=[gcfl_mod])
    def train(message, context):
        ...                                                  # load weights and data, as before
        trainloader = coreset(model, trainloader, context)   # a loader like it, over the coreset

The mod takes what GCFL's server half added out of the message, so that what comes after it (other
mods, the app) sees the message as it would be without GCFL. Up goes the round of the last
selection, and nothing else.
"""

from __future__ import annotations

import copy
import json
from typing import Any, TypeVar, overload

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gcfl.base import rng
from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Tree
from gcfl.base.errors import ConfigError
from gcfl.base.options import checked
from gcfl.coreset import SELECTORS, Pool
from gcfl.flower.client import Store, store_of
from gcfl.flower.samples import Read, WeightedSubset, batches, check_labels, dataset_of, narrowed
from gcfl.flower.transport import FACTS, to_tree
from gcfl.methods import Occasion, Periodic, periodic
from gcfl.models.network import Network

# The ConfigRecord FACTS: down the round and the settings, up the round of the selection.
TARGET = "gcfl.target"  # ArrayRecord, down, when a selection is due: the gradient (C, d + 1)
SELECT = "select"  # in the facts, down: select now
SELECTED = "selected"  # in the facts, up: the round of the last selection
_T = TypeVar("_T")


def gcfl_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Client mod; the first in the list. Messages that are not for training pass through."""
    if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
        return call_next(message, context)
    content, state = message.content, context.state
    wrapped = FACTS in content.config_records
    state[FACTS] = ConfigRecord(dict(content.config_records[FACTS]) if wrapped else {})
    if TARGET in content.array_records:
        state[TARGET] = content.array_records[TARGET]
    message.content = without(content, FACTS, TARGET)
    try:
        reply = call_next(message, context)
        facts = state.config_records[FACTS]
    finally:
        for name in (FACTS, TARGET):
            state.pop(name, None)
    if wrapped and reply.has_content():
        sent = {SELECTED: facts[SELECTED]} if SELECTED in facts else {}
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
    a selection: one forward pass without autograd, then matching pursuit per class. Otherwise the
    coreset of the last selection; where that was lost, a random one of the same size. budget: share
    of the samples, where it is not to be the server's. read: batch -> (x, y), for batches that are
    neither (x, y) nor a dictionary with a label and one input.
    """
    facts = context.state.config_records.get(FACTS)
    if facts is None:
        raise ConfigError(
            "coreset(...) needs gcfl_mod, first in the mods of the train function: "
            "@app.train(mods=[gcfl_mod])"
        )
    if not facts:
        raise ConfigError(
            "the server's strategy is not wrapped in GCFL(...): there is no gradient to choose a "
            "coreset by"
        )
    n, store = len(dataset_of(data)), store_of(context, "gcfl-coreset")
    # Node ids are drawn anew for every run.
    client = context.node_config.get("partition-id", context.node_id)
    client = client if isinstance(client, str) else int(client)
    rule = _rule(facts, budget)
    seed, round = int(facts["seed"]), int(facts["round"])  # type: ignore[arg-type]
    target = to_tree(context.state.array_records.get(TARGET, ArrayRecord()))
    received = target if facts[SELECT] else None

    def look() -> Pool:
        # What the dataset draws repeats itself.
        with rng.isolated(seed, "samples", round, client):
            return _pool(model, data, read, target.get("target"))

    occasion = Occasion(seed, round, client, n, n, look)
    chosen = rule.choose(occasion, received, _recall(store, context.run_id, n))
    if received is not None:
        meta = {"run": context.run_id, "samples": n}
        store.write("coreset", encode({"select": chosen.memory}, meta))
    facts[SELECTED] = int(chosen.sends["round"])
    return narrowed(data, chosen.coreset)


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
    width = features[0].shape[1] + bias
    if target is not None and width != target.shape[1]:
        raise ConfigError(
            f"the last layer has {target.shape[1]} numbers per class at the server, {width} at "
            "this client"
        )
    return Pool(torch.cat(features), torch.cat(probabilities), torch.cat(labels), bias)


def _recall(store: Store, run: int, n: int) -> Tree:
    """What the node remembers of this run, unless it is of other samples."""
    blob = store.read("coreset")
    if blob is None:
        return {}
    groups, facts = decode(blob, "the coreset in the node's state")
    return groups["select"] if (facts["run"], facts["samples"]) == (run, n) else {}
