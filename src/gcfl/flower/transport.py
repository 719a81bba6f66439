"""Rounds over Flower's Grid: who is which node, one message per client, answers sorted by client,
silence told by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import torch
from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from gcfl.base.data_types import Broadcast, Coreset, Failure, Groups, Update
from gcfl.base.errors import one_line
from gcfl.flower.records import from_broadcast, to_update
from gcfl.flower.store import NEVER
from gcfl.methods.replies import Stacked

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

    def exchange(
        self, broadcasts: Mapping[int, Broadcast]
    ) -> dict[int, Update | Failure] | Stacked:
        if self._lost and self._again is not None:
            self._nodes |= self._again()
        messages = []
        for client, broadcast in broadcasts.items():
            content = from_broadcast(broadcast, client, self._accepted.get(client, NEVER))
            message = Message(
                content, dst_node_id=self._nodes[client], message_type=MessageType.TRAIN
            )
            messages.append(message)
            self._asked[client] = broadcast.round
        by_node = {node: client for client, node in self._nodes.items()}
        replies = list(self._grid.send_and_receive(messages, timeout=self._timeout))
        # ids come with sending
        sent = {
            message.metadata.message_id: by_node[message.metadata.dst_node_id]
            for message in messages
        }
        answers: dict[int, Update | Failure] = {}
        for reply in replies:
            # An error may come from the SuperLink in a dead node's place: what it answers says
            # whose turn it was.
            known = sent.get(reply.metadata.reply_to_message_id)
            client = by_node.get(reply.metadata.src_node_id, NEVER) if known is None else known
            if client in broadcasts:
                answers[client] = _read(reply)
        for client in broadcasts:
            if client not in answers:
                answers[client] = Failure(
                    f"no answer within {self._timeout:g} seconds" if self._timeout else "no answer"
                )
        self._lost = any(isinstance(answer, Failure) for answer in answers.values())
        return dict(sorted(answers.items()))

    def commit(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._accepted[client] = self._asked[client]
            self._changed.add(client)

    def coreset(self, client: int) -> Coreset | None:
        return None  # it never leaves the site

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


def _read(reply: Message) -> Update | Failure:
    if reply.has_error():
        return Failure(_plain(reply.error.reason or "") or f"error {reply.error.code}")
    try:
        return to_update(reply.content)
    except Exception as error:  # whatever a broken message holds
        return Failure(f"its answer cannot be read: {one_line(error)}")


def _plain(reason: str) -> str:
    """Flower writes <class 'module.Name'>:<'text'>."""
    raised = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>:<'(.*)'>", reason, re.DOTALL)
    return " ".join((f"{raised[1]}: {raised[2]}" if raised else reason).split())
