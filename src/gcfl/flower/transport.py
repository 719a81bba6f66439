"""Rounds over Flower's Grid: who is which node, one message per client, answers sorted by client,
silence told by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import torch
from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from gcfl.base.data_types import Broadcast, Groups, Update
from gcfl.base.errors import one_line
from gcfl.flower.records import from_broadcast, to_update
from gcfl.methods import NEVER, Replies

_GROUP = "flower"


class OverGrid:
    """The transport of the round loop. Clients keep their memory; the server knows only which of
    their answers it accepted.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[int, int],
        timeout: float | None = None,
        again: Callable[[], Mapping[int, int]] | None = None,
    ) -> None:
        """nodes: client -> node. again: who is which node now, asked after somebody gave no
        answer.
        """
        self._grid = grid
        self._nodes = dict(nodes)
        self._again = again
        self._lost = False
        self._timeout = timeout
        self._accepted: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._changed: set[int] = set()

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        if self._lost and self._again is not None:
            self._nodes |= self._again()
        messages = []
        for client, broadcast in broadcasts.items():
            content = from_broadcast(broadcast, client, self._accepted.get(client, NEVER))
            node = self._nodes[client]
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
            self._asked[client] = broadcast.round
        by_node = {node: client for client, node in self._nodes.items()}
        received = list(self._grid.send_and_receive(messages, timeout=self._timeout))
        # Messages get their ids when they are sent.
        sent = {one.metadata.message_id: by_node[one.metadata.dst_node_id] for one in messages}
        silence = f"no answer within {self._timeout:g} seconds" if self._timeout else "no answer"
        updates: dict[int, Update] = {}
        failures = dict.fromkeys(broadcasts, silence)
        for reply in received:
            # An error may come from the SuperLink in a dead node's place: what it answers says
            # whose turn it was.
            known = sent.get(reply.metadata.reply_to_message_id)
            client = by_node.get(reply.metadata.src_node_id, NEVER) if known is None else known
            if client not in broadcasts:
                continue
            answer = _read(reply)
            if isinstance(answer, Update):
                updates[client] = answer
                failures.pop(client, None)
            elif client not in updates:
                failures[client] = answer
        self._lost = bool(failures)
        return Replies(updates, failures)

    def commit(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._accepted[client] = self._asked[client]
            self._changed.add(client)

    def changed(self) -> dict[int, Groups]:
        changed = {client: self._fate(client) for client in sorted(self._changed)}
        self._changed = set()
        return changed

    def remembered(self) -> dict[int, Groups]:
        return {client: self._fate(client) for client in sorted(self._accepted)}

    def restore(self, states: Mapping[int, Groups]) -> None:
        self._accepted = {
            client: int(groups[_GROUP]["accepted"]) for client, groups in states.items()
        }

    def _fate(self, client: int) -> Groups:
        return {_GROUP: {"accepted": torch.tensor(self._accepted[client])}}

    def close(self) -> None:
        pass


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
