"""How messages reach clients and answers come back.

A transport takes one broadcast per client and gives one answer per client. What clients remember is
kept on their side of it and counts only once the server has accepted the answer (`commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch

from gcfl.base.data_types import Broadcast, Groups, Tree
from gcfl.base.errors import one_line
from gcfl.engine.client import ClientSide, Reply
from gcfl.methods import Replies, ServerView

OnClient = Callable[[int, int], None]  # clients of this round that are done, of how many


class Transport(Protocol):
    """What the round loop needs."""

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        """Send each client its broadcast; the answers, sorted by client, and who failed."""

    def holds(self, client: int) -> int | None:
        """How many samples a client has, as far as the server was told."""

    def commit(self, clients: Iterable[int]) -> None:
        """These answers were accepted: what the clients remember from this round counts."""

    def changed(self) -> dict[int, Groups]:
        """What clients remember that changed since the last call, for the checkpoint."""

    def remembered(self) -> dict[int, Groups]:
        """All that clients remember, for a checkpoint that starts a new file."""

    def restore(self, states: Mapping[int, Groups]) -> None:
        """What clients remember, from a checkpoint."""

    def close(self) -> None:
        """End everything that the transport started."""


class ClientMemory:
    """What simulated clients remember, in this process. on_client: who is told of each client that
    is done.
    """

    def __init__(self, side: ClientSide) -> None:
        self._side = side
        self.on_client: OnClient = lambda *_: None
        self._states: dict[int, Groups] = {}
        self._pending: dict[int, Groups] = {}
        self._changed: set[int] = set()

    def holds(self, client: int) -> int | None:
        return int(self._side.data.partition.sizes[client])

    def of(self, client: int) -> Groups:
        return self._states.get(client, {})

    def propose(self, client: int, memory: Groups) -> None:
        """What a client would remember, once the server has accepted its answer."""
        self._pending[client] = {name: tree for name, tree in memory.items() if tree}

    def propose_nothing(self, clients: Iterable[int]) -> None:
        """These have nothing to remember."""
        self._pending.update({client: {} for client in clients})

    def collected(self, replies: Mapping[int, Reply], failures: Mapping[int, str]) -> Replies:
        """Single replies as the round sees them; what they would remember is proposed."""
        for client, reply in replies.items():
            self.propose(client, reply.memory)
        updates = {client: reply.update for client, reply in replies.items()}
        observed = {client: one.observed for client, one in replies.items() if one.observed}
        return Replies(updates, failures, observed)

    def commit(self, clients: Iterable[int]) -> None:
        for client in clients:
            state = self._pending[client]
            if state and not _same(self._states.get(client, {}), state):
                self._states[client] = state
                self._changed.add(client)
        self._pending = {}

    def changed(self) -> dict[int, Groups]:
        changed = {client: self._states[client] for client in sorted(self._changed)}
        self._changed = set()
        return changed

    def remembered(self) -> dict[int, Groups]:
        return dict(sorted(self._states.items()))

    def restore(self, states: Mapping[int, Groups]) -> None:
        self._states = dict(states)

    def close(self) -> None:
        pass


def _same(before: Groups, after: Groups) -> bool:
    """Whether a client remembers just what it remembered: most keep the coreset that they have."""
    return before.keys() == after.keys() and all(
        tree is before[name]
        or (
            tree.keys() == before[name].keys()
            and all(torch.equal(tensor, before[name][leaf]) for leaf, tensor in tree.items())
        )
        for name, tree in after.items()
    )


class InProcess(ClientMemory):
    """One client after the other, in this process."""

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        replies: dict[int, Reply] = {}
        failures: dict[int, str] = {}
        for done, client in enumerate(sorted(broadcasts), start=1):
            try:
                replies[client] = self._side.work(client, broadcasts[client], self.of(client))
            except Exception as error:  # a client that fails must not take the round with it
                failures[client] = one_line(error)
            self.on_client(done, len(broadcasts))
        return self.collected(replies, failures)


def broadcasts_of(
    view: ServerView, announced: Mapping[str, Mapping[int, Tree]]
) -> dict[int, Broadcast]:
    """Each client's message; clients that get the same share one."""
    if all(
        not per or (len(per) == len(view.clients) and len(set(map(id, per.values()))) == 1)
        for per in announced.values()
    ):
        common = {name: next(iter(per.values())) for name, per in announced.items() if per}
        return dict.fromkeys(view.clients, Broadcast(view.round, view.model, common))
    alike: dict[tuple[int, ...], Broadcast] = {}
    found = {}
    for client in view.clients:
        mine = {name: per[client] for name, per in announced.items() if client in per}
        same = tuple(map(id, mine.values()))
        found[client] = alike.setdefault(same, Broadcast(view.round, view.model, mine))
    return found
