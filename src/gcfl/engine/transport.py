"""How messages reach clients and answers come back.

A transport takes one broadcast per client and gives one answer per client. What clients remember is
kept on their side of it and counts only once the server has accepted the answer (`commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch

from gcfl.base.data_types import Broadcast, Coreset, Failure, Groups, Update
from gcfl.base.errors import one_line
from gcfl.engine.client import ClientSide, Reply
from gcfl.methods.replies import Stacked

Answers = dict[int, Update | Failure] | Stacked


class Transport(Protocol):
    """What the round loop needs."""

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Answers:
        """Send each client its broadcast; the answers, sorted by client. A client that fails gives
        a `Failure`.
        """

    def commit(self, clients: Iterable[int]) -> None:
        """The server accepted these clients' answers: what they remember from this round now
        counts.
        """

    def coreset(self, client: int) -> Coreset | None:
        """A simulated client's current coreset, for observers; None where there is none or it
        cannot be seen.
        """

    def changed(self) -> dict[int, Groups]:
        """What clients remember that changed since the last call, for the checkpoint."""

    def remembered(self) -> dict[int, Groups]:
        """All that clients remember, for a checkpoint that starts a new file."""

    def restore(self, states: Mapping[int, Groups]) -> None:
        """What clients remember, from a checkpoint."""

    def close(self) -> None:
        """End everything that the transport started."""


class ClientMemory:
    """What simulated clients remember, in this process."""

    def __init__(self) -> None:
        self._states: dict[int, Groups] = {}
        self._pending: dict[int, Groups] = {}
        self._changed: set[int] = set()

    def of(self, client: int) -> Groups:
        return self._states.get(client, {})

    def propose(self, client: int, reply: Reply) -> None:
        self._pending[client] = {name: tree for name, tree in reply.remembers.items() if tree}

    def commit(self, clients: Iterable[int]) -> None:
        for client in clients:
            if (state := self._pending[client]) and not _same(self._states.get(client, {}), state):
                self._states[client] = state
                self._changed.add(client)
        self._pending = {}

    def coreset(self, client: int) -> Coreset | None:
        kept = self.of(client).get("select")
        return None if not kept else Coreset(kept["indices"].numpy(), kept["weights"].numpy())

    def changed(self) -> dict[int, Groups]:
        changed = {client: self._states[client] for client in sorted(self._changed)}
        self._changed = set()
        return changed

    def remembered(self) -> dict[int, Groups]:
        return dict(sorted(self._states.items()))

    def restore(self, states: Mapping[int, Groups]) -> None:
        self._states = dict(states)


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

    def __init__(self, side: ClientSide) -> None:
        super().__init__()
        self._side = side

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Answers:
        answers: dict[int, Update | Failure] = {}
        for client in sorted(broadcasts):
            try:
                reply = self._side.work(client, broadcasts[client], self.of(client))
            except Exception as error:  # a client that fails must not take the round with it
                answers[client] = Failure(one_line(error))
                continue
            self.propose(client, reply)
            answers[client] = reply.update
        return answers

    def close(self) -> None:
        pass
