"""Rounds over Flower's Grid: one message per client, and the name of every client that is silent.

Messages are Flower's records: one ArrayRecord per tree, one ConfigRecord for what is not a tensor.
Bits survive. Down: the model, what each part adds, the round, the client, and the last round of
which the server accepted this client's answer. Up: the update, what each part adds, how many
samples it used, plain numbers. Nothing else travels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from gcfl.base.data_types import Broadcast, Groups, Tree, Update
from gcfl.base.errors import RunError, one_line
from gcfl.base.text import brief
from gcfl.methods import NEVER, Replies

FACTS = "gcfl"  # the ConfigRecord of every message
_PARTS = "told"  # among the facts: the parts that added a tree, be it without tensors
_PAYLOAD = "payload."
_GROUP = "flower"
Answer = TypeVar("Answer")


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
        contents = {}
        for client, broadcast in broadcasts.items():
            accepted = self._accepted.get(client, NEVER)
            contents[client] = from_broadcast(broadcast, client, accepted)
            self._asked[client] = broadcast.round
        updates, failures = ask(
            self._grid, self._nodes, contents, MessageType.TRAIN, to_update, self._timeout
        )
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
        self._accepted = accepted_of(states)

    def close(self) -> None:
        pass

    def _states(self, clients: Iterable[int]) -> dict[int, Groups]:
        return {
            client: {_GROUP: {"accepted": torch.tensor(self._accepted[client])}}
            for client in sorted(clients)
        }


def accepted_of(states: Mapping[int, Groups]) -> dict[int, int]:
    """By client, the last round of which the server accepted its answer, from a checkpoint."""
    return {client: int(groups[_GROUP]["accepted"]) for client, groups in states.items()}


def ask(
    grid: Grid,
    nodes: Mapping[int, int],
    contents: Mapping[int, RecordDict],
    kind: str,
    read: Callable[[RecordDict], Answer],
    timeout: float | None,
) -> tuple[dict[int, Answer], dict[int, str]]:
    """One message per client: what was answered, and why others gave no answer."""
    messages = [
        Message(content, dst_node_id=nodes[client], message_type=kind)
        for client, content in contents.items()
    ]
    received = list(grid.send_and_receive(messages, timeout=timeout)) if messages else []
    silence = f"no answer within {timeout:g} seconds" if timeout else "no answer"
    answers: dict[int, Answer] = {}
    failures = dict.fromkeys(contents, silence)
    clients = {node: client for client, node in nodes.items()}
    asked = {one.metadata.message_id: one.metadata.dst_node_id for one in messages}
    for reply in received:
        client = clients.get(sender(reply, asked), NEVER)
        if client not in contents:
            continue
        problem = _problem(reply)
        if problem is None:
            try:
                answers[client] = read(reply.content)
                failures.pop(client, None)
                continue
            except Exception as error:  # whatever a broken message holds
                problem = f"its answer cannot be read: {one_line(error)}"
        if client not in answers:
            failures[client] = brief(problem)
    return answers, failures


def sender(reply: Message, asked: Mapping[str, int]) -> int:
    """The node whose reply it is. asked: message -> node, by ids that sent messages have."""
    if reply.has_content():
        return reply.metadata.src_node_id  # no node answers in another's name
    # An error may come from the SuperLink in a dead node's place: what it answers says whose.
    return asked.get(reply.metadata.reply_to_message_id, reply.metadata.src_node_id)


def from_broadcast(broadcast: Broadcast, client: int, accepted: int) -> RecordDict:
    """What the server sends one client."""
    facts = {"round": broadcast.round, "client": client, "accepted": accepted}
    return records_of("model", broadcast.model, broadcast.payload, facts)


def to_broadcast(records: RecordDict) -> tuple[Broadcast, int, int]:
    """(the broadcast, the client, the last round that was accepted)."""
    model, payload, facts = contents_of("model", records)
    broadcast = Broadcast(int(facts["round"]), model, payload)
    return broadcast, int(facts["client"]), int(facts["accepted"])


def from_update(update: Update, client: int) -> RecordDict:
    """What a client sends back."""
    facts = {"client": client, "examples": update.examples}
    records = records_of("delta", update.delta, update.payload, facts)
    records["metrics"] = MetricRecord({k: float(value) for k, value in update.metrics.items()})
    return records


def to_update(records: RecordDict) -> Update:
    delta, payload, facts = contents_of("delta", records)
    numbers = records.metric_records.get("metrics", MetricRecord())
    metrics = {name: float(value) for name, value in numbers.items()}  # type: ignore[arg-type]
    return Update(delta, payload, facts["examples"], metrics)


def to_tree(arrays: ArrayRecord) -> Tree:
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


def records_of(name: str, main: Tree, payload: Mapping[str, Tree], facts: Any) -> RecordDict:
    records = RecordDict({FACTS: ConfigRecord({**facts, _PARTS: list(payload)})})
    trees = {name: main, **{_PAYLOAD + part: tree for part, tree in payload.items()}}
    for record, tree in trees.items():
        if tree:
            records[record] = ArrayRecord(tree)
    return records


def contents_of(name: str, records: RecordDict) -> tuple[Tree, Groups, dict[str, Any]]:
    """The inverse of `records_of`."""
    if FACTS not in records.config_records:
        raise RunError("a message without gcfl's facts in it: is another app answering?")
    facts: dict[str, Any] = dict(records.config_records[FACTS])
    arrays = records.array_records

    def tree(record: str) -> Tree:
        return to_tree(arrays[record]) if record in arrays else {}

    return tree(name), {part: tree(_PAYLOAD + part) for part in facts[_PARTS]}, facts


def _problem(reply: Message) -> str | None:
    """What a reply says instead of an answer."""
    if not reply.has_error():
        return None
    return _plain(reply.error.reason or "") or f"error {reply.error.code}"


def _plain(reason: str) -> str:
    """Flower writes <class 'module.Name'>:<'text'>."""
    raised = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>:<'(.*)'>", reason, re.DOTALL)
    return " ".join((f"{raised[1]}: {raised[2]}" if raised else reason).split())
