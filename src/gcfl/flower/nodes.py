"""Which node is which client: asked of every node, bound at first contact, kept with the run.

nodes.json of the run folder has, for each client, the node that it is bound to and a digest of that
node's public key. A server that starts again knows its clients by them.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from gcfl.base.errors import ConfigError, RunError, did_you_mean
from gcfl.base.files import write_json
from gcfl.base.options import LARGEST
from gcfl.base.seal import read_sealed, sealed
from gcfl.base.text import brief
from gcfl.flower.transport import FACTS
from gcfl.methods.answers import is_whole, shown

log = logging.getLogger("gcfl")
_LOOK_EVERY_SECONDS = 1.0
_LOG_EVERY_SECONDS = 30.0
_ANSWER_SECONDS = 60.0  # a node starts a process and imports torch for an answer
_ALL = "all"


@dataclass(frozen=True)
class Bound:
    """Whom a client's number belongs to. key: SHA-256, empty where the Grid shows no key."""

    node: int
    key: str

    def is_of(self, node: int, key: str) -> bool:
        """By the key where both show one: the SuperLink checks it, and may give it another id."""
        return self.key == key if self.key and key else self.node == node


def named(text: str, names: tuple[str, ...]) -> frozenset[str]:
    """The sites of a list with commas; "all" is all of them."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if wanted == [_ALL]:
        return frozenset(names)
    for name in wanted:
        if name not in names:
            raise ConfigError(f"rebind names {name!r}{did_you_mean(name, names)}")
    return frozenset(wanted)


class NodeRegistry:
    """Who has come.

    nodes: client -> node, and samples: client -> how many, of those that have said who they are.
    file: where the bindings are kept. rebind: the sites whose number another node may have, with
    another key, once the SuperLink says that the first is gone.
    """

    def __init__(
        self,
        grid: Grid,
        names: tuple[str, ...],
        file: Path | None = None,
        rebind: Collection[str] = (),
    ) -> None:
        self.nodes: dict[int, int] = {}
        self.samples: dict[int, int] = {}
        self._grid = grid
        self._names = names
        # A simulation's nodes are new in every run, and all in this process.
        self._file = None if _is_simulation(grid) else file
        self._rebind = rebind
        self._bound = {} if self._file is None else _read(self._file)
        self._problems: dict[int, str] = {}
        self._silent: set[int] = set()  # asked, and no answer in time

    def wait(self, seconds: float) -> dict[int, int]:
        """All clients' nodes; when time is up, an error that names the missing ones, and why."""
        log_next = time.monotonic()
        end = log_next + seconds
        patience = _ANSWER_SECONDS
        while True:
            self.ask(min(patience, max(1.0, end - time.monotonic())))
            if self._silent:
                patience *= 2  # an answer that comes too late is lost, and so would the next be
            if len(self.nodes) >= len(self._names):
                return self.nodes
            self._check_simulation()
            absent = [name for client, name in enumerate(self._names) if client not in self.nodes]
            missing = ", ".join(absent)
            if time.monotonic() >= end:
                reasons = "".join(f" ({one})" for one in dict.fromkeys(self._problems.values()))
                advice = "mend that there" if reasons else "start their SuperNodes"
                if self._silent and not reasons:
                    advice = (
                        f"{len(self._silent)} of the SuperNodes that are there did not answer in "
                        "time: look at their logs, or give them longer (wait-seconds)"
                    )
                raise RunError(
                    f"after {seconds:g} seconds these clients have not come: {missing}{reasons}; "
                    f"{advice}, then run again"
                )
            if time.monotonic() >= log_next:
                log_next = time.monotonic() + _LOG_EVERY_SECONDS
                log.info("waiting for %s", missing)
            time.sleep(min(_LOOK_EVERY_SECONDS, max(0.0, end - time.monotonic())))

    def present(self, seconds: float) -> dict[int, int]:
        """The nodes of those that are there, after a run; of a run that was finished before, those
        that come within so many seconds.
        """
        if self.nodes:
            return self.ask()
        try:
            return self.wait(seconds)
        except RunError as error:
            log.warning("%s", error)
            return self.nodes

    def ask(self, seconds: float = _ANSWER_SECONDS) -> dict[int, int]:
        """Ask the nodes that are not known yet who they are."""
        online = set(self._grid.get_node_ids())
        messages = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            for node in sorted(online - set(self.nodes.values()))
        ]
        before = dict(self._bound)
        keys = self._keys() if messages else {}
        self._silent = {message.metadata.dst_node_id for message in messages}
        for reply in self._grid.send_and_receive(messages, timeout=seconds) if messages else ():
            self._silent.discard(reply.metadata.src_node_id)
            if reply.has_error() or FACTS not in reply.content.config_records:
                continue
            node, facts = reply.metadata.src_node_id, reply.content.config_records[FACTS]
            key = keys.get(node, "")
            problem = self._problem(node, key, facts, online)
            if problem is None:
                self._register(node, key, facts)
            elif self._problems.get(node) != problem:
                log.warning("a site cannot take part: %s", problem)
                self._problems[node] = problem
        if self._file is not None and self._bound != before:
            _write(self._file, self._bound)
        return self.nodes

    def _keys(self) -> dict[int, str]:
        """Digests of the nodes' public keys, as far as the Grid shows them."""
        return {
            one.node_id: hashlib.sha256(one.public_key).hexdigest()
            for one in self._grid.get_nodes()
            if one.public_key
        }

    def _problem(self, node: int, key: str, facts: ConfigRecord, online: set[int]) -> str | None:
        """Why a node cannot take part. A client's number is bound to the first that claims it."""
        if "problem" in facts:
            return brief(" ".join(str(facts["problem"]).split()))
        client, samples, count = facts.get("client"), facts.get("samples"), len(self._names)
        if not is_whole(client, 0, count - 1):
            return f"a node says that it is client {shown(client)}, but there are {count}"
        name, bound = self._names[client], self._bound.get(client)
        if not is_whole(samples, 1, LARGEST):
            return f"{name} says that it holds {shown(samples)} samples"
        if bound is None or bound.is_of(node, key):
            return None
        if bound.node in online:
            return (
                f"two sites say that they are client {name}: node {bound.node} came first, so node "
                f"{node} is refused; each needs a client of its own in its node config"
            )
        if name not in self._rebind:
            return (
                f"{name} was node {bound.node}, which is gone, and node {node} has not its key, so "
                f"it is refused; if it is that site, run again with -c \"rebind='{name}'\""
            )
        return None

    def _register(self, node: int, key: str, facts: ConfigRecord) -> None:
        client = cast(int, facts["client"])
        bound = self._bound.get(client)
        if bound is not None and bound.node != node:
            name = self._names[client]
            log.warning("%s has come back as another node: %d, after %d", name, node, bound.node)
        self._bound[client] = Bound(node, key)
        self.nodes[client] = node
        self.samples[client] = cast(int, facts["samples"])
        self._problems.pop(node, None)

    def _check_simulation(self) -> None:
        """In a simulation all nodes are there before the first of them answers: no more come."""
        if not self.nodes or not _is_simulation(self._grid):
            return
        count, online = len(self._names), len(list(self._grid.get_node_ids()))
        if online < count:
            raise RunError(
                f"the experiment has {count} clients, but this simulation has {online} nodes: "
                f'say how many, flwr run ... --federation-config "num-supernodes={count} '
                'client-resources-num-cpus=1"'
            )


def _is_simulation(grid: Grid) -> bool:
    # By name: Flower offers no public way to tell, its class moves between private modules
    # from release to release, and importing it would load its database and web server.
    return type(grid).__name__ == "InMemoryGrid"


def _write(path: Path, bound: dict[int, Bound]) -> None:
    table = {str(client): asdict(one) for client, one in sorted(bound.items())}
    write_json(path, sealed({"clients": table}), private=True)


def _read(path: Path) -> dict[int, Bound]:
    """What an earlier start of the server knew."""
    if not path.exists():
        return {}
    try:
        clients = read_sealed(path)[0]["clients"].items()
        return {int(client): Bound(int(one["node"]), str(one["key"])) for client, one in clients}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RunError(f"{path} is damaged: it does not say which node is which client") from None
