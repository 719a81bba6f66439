"""Rounds over Flower's Grid: one message per client, and the name of every client that is silent.

Messages are Flower's records: one ArrayRecord per tree, one ConfigRecord for what is not a tensor.
Bits survive. Down: the model, what each part adds, the round, the client, and the last round of
which the server accepted this client's answer. Up: the update, what each part adds, how many
samples it used, plain numbers. Nothing else travels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from gcfl.base.data_types import Broadcast, Groups, Tree, Update
from gcfl.base.errors import RunError, one_line
from gcfl.methods import NEVER, Replies

FACTS = "gcfl"  # the ConfigRecord of every message
_PARTS = "told"  # among the facts: the parts that added a tree, be it without tensors
_PAYLOAD = "payload."
_GROUP = "flower"


class OverGrid:
    """The transport of the round loop. It knows which answers counted; memory is the sites'."""

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[int, int],
        timeout: float | None = None,
        refresh: Callable[[], Mapping[int, int]] | None = None,
        samples: Mapping[int, int] | None = None,
    ) -> None:
        """nodes: client -> node. refresh: the nodes of now, asked after a client gave no answer.
        samples: client -> how many it said it holds.
        """
        self._grid = grid
        self._nodes = dict(nodes)
        self._refresh = refresh
        self._samples = {} if samples is None else samples
        self._stale = False
        self._timeout = timeout
        self._accepted: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._changed: set[int] = set()

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        if self._stale and self._refresh is not None:
            self._nodes |= self._refresh()
        messages = []
        for client, broadcast in broadcasts.items():
            content = from_broadcast(broadcast, client, self._accepted.get(client, NEVER))
            node = self._nodes[client]
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
            self._asked[client] = broadcast.round
        received = list(self._grid.send_and_receive(messages, timeout=self._timeout))
        silence = f"no answer within {self._timeout:g} seconds" if self._timeout else "no answer"
        updates: dict[int, Update] = {}
        failures = dict.fromkeys(broadcasts, silence)
        clients = {node: client for client, node in self._nodes.items()}
        asked = {one.metadata.message_id: one.metadata.dst_node_id for one in messages}
        for reply in received:
            client = clients.get(sender(reply, asked), NEVER)
            if client not in broadcasts:
                continue
            answer = _read(reply)
            if isinstance(answer, Update):
                updates[client] = answer
                failures.pop(client, None)
            elif client not in updates:
                failures[client] = answer
        self._stale = bool(failures)
        return Replies(updates, failures)

    def holds(self, client: int) -> int | None:
        return self._samples.get(client)

    def commit(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._accepted[client] = self._asked[client]
            self._changed.add(client)

    def changed(self) -> dict[int, Groups]:
        changed = self._states(self._changed)
        self._changed = set()
        return changed

    def remembered(self) -> dict[int, Groups]:
        return self._states(self._accepted)

    def restore(self, states: Mapping[int, Groups]) -> None:
        self._accepted = {
            client: int(groups[_GROUP]["accepted"]) for client, groups in states.items()
        }

    def close(self) -> None:
        pass

    def _states(self, clients: Iterable[int]) -> dict[int, Groups]:
        return {
            client: {_GROUP: {"accepted": torch.tensor(self._accepted[client])}}
            for client in sorted(clients)
        }


def sender(reply: Message, asked: Mapping[str, int]) -> int:
    """The node whose reply it is. asked: message -> node, by ids that sent messages have."""
    if reply.has_content():
        return reply.metadata.src_node_id  # no node answers in another's name
    # An error may come from the SuperLink in a dead node's place: what it answers says whose.
    return asked.get(reply.metadata.reply_to_message_id, reply.metadata.src_node_id)


def from_broadcast(broadcast: Broadcast, client: int, accepted: int) -> RecordDict:
    """What the server sends one client."""
    facts = {"round": broadcast.round, "client": client, "accepted": accepted}
    return _records("model", broadcast.model, broadcast.payload, facts)


def to_broadcast(records: RecordDict) -> tuple[Broadcast, int, int]:
    """(the broadcast, the client, the last round that was accepted)."""
    model, payload, facts = _contents("model", records)
    broadcast = Broadcast(int(facts["round"]), model, payload)
    return broadcast, int(facts["client"]), int(facts["accepted"])


def from_update(update: Update, client: int) -> RecordDict:
    """What a client sends back."""
    facts = {"client": client, "examples": update.examples}
    records = _records("delta", update.delta, update.payload, facts)
    records["metrics"] = MetricRecord({k: float(value) for k, value in update.metrics.items()})
    return records


def to_update(records: RecordDict) -> Update:
    delta, payload, facts = _contents("delta", records)
    numbers = records.metric_records.get("metrics", MetricRecord())
    metrics = {name: float(value) for name, value in numbers.items()}  # type: ignore[arg-type]
    return Update(delta, payload, facts["examples"], metrics)


def to_tree(arrays: ArrayRecord) -> Tree:
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


def _records(name: str, main: Tree, payload: Mapping[str, Tree], facts: Any) -> RecordDict:
    records = RecordDict({FACTS: ConfigRecord({**facts, _PARTS: list(payload)})})
    trees = {name: main, **{_PAYLOAD + part: tree for part, tree in payload.items()}}
    for record, tree in trees.items():
        if tree:
            records[record] = ArrayRecord(tree)
    return records


def _contents(name: str, records: RecordDict) -> tuple[Tree, Groups, dict[str, Any]]:
    """The inverse of `_records`."""
    if FACTS not in records.config_records:
        raise RunError("a message without gcfl's facts in it: is another app answering?")
    facts: dict[str, Any] = dict(records.config_records[FACTS])
    arrays = records.array_records

    def tree(record: str) -> Tree:
        return to_tree(arrays[record]) if record in arrays else {}

    return tree(name), {part: tree(_PAYLOAD + part) for part in facts[_PARTS]}, facts


def _read(reply: Message) -> Update | str:
    """The update, or why there is none."""
    if reply.has_error():
        return _plain(reply.error.reason or "") or f"error {reply.error.code}"
    try:
        return to_update(reply.content)
    except Exception as error:  # whatever a broken message holds
        return f"its answer cannot be read: {one_line(error)}"


def _plain(reason: str) -> str:
    """Flower writes <class 'module.Name'>:<'text'>."""
    raised = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>:<'(.*)'>", reason, re.DOTALL)
    return " ".join((f"{raised[1]}: {raised[2]}" if raised else reason).split())
