"""Which node is which client: asked of every node, waited for with a limit, asked again when one
was lost.
"""

from __future__ import annotations

import logging
import time

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from gcfl.base.errors import RunError
from gcfl.flower.records import FACTS

log = logging.getLogger("gcfl")
_LOOK_EVERY_SECONDS = 1.0
_TELL_EVERY_SECONDS = 30.0
_ANSWER_SECONDS = 60.0  # a node starts a process and imports torch for an answer


class Roll:
    """The sites of a federation. nodes: client -> node, of those that have said who they are."""

    def __init__(self, grid: Grid, names: tuple[str, ...]) -> None:
        self.nodes: dict[int, int] = {}
        self.samples: dict[int, int] = {}
        self._grid = grid
        self._names = names
        self._problems: dict[int, str] = {}

    def wait(self, seconds: float) -> dict[int, int]:
        """All clients' nodes; an error that names the missing ones, and why they cannot take part,
        when time is up.
        """
        tell = time.monotonic()
        end, count = tell + seconds, len(self._names)
        while True:
            self.ask(min(_ANSWER_SECONDS, max(1.0, end - time.monotonic())))
            if len(self.nodes) >= count:
                return self.nodes
            # In a simulation all nodes are there before the first of them answers: no more will
            # come.
            if (
                self.nodes
                and type(self._grid).__name__ == "InMemoryGrid"
                and (there := len(list(self._grid.get_node_ids()))) < count
            ):
                raise RunError(
                    f"the experiment has {count} clients, but this simulation has {there} nodes: "
                    "say how many, "
                    f'flwr run ... --federation-config "num-supernodes={count} '
                    'client-resources-num-cpus=1"'
                )
            if time.monotonic() >= end:
                missing = [
                    name for client, name in enumerate(self._names) if client not in self.nodes
                ]
                reasons = "".join(
                    f" ({problem})" for problem in dict.fromkeys(self._problems.values())
                )
                advice = (
                    "mend that there, then run again"
                    if reasons
                    else "start their SuperNodes, then run again"
                )
                raise RunError(
                    f"after {seconds:g} seconds these clients have not come: "
                    f"{', '.join(missing)}{reasons}; {advice}"
                )
            if time.monotonic() >= tell:
                tell = time.monotonic() + _TELL_EVERY_SECONDS
                log.info(
                    "waiting for %s",
                    ", ".join(
                        name for client, name in enumerate(self._names) if client not in self.nodes
                    ),
                )
            time.sleep(min(_LOOK_EVERY_SECONDS, max(0.0, end - time.monotonic())))

    def ask(self, seconds: float = _ANSWER_SECONDS, again: bool = False) -> dict[int, int]:
        """Ask every node that has not said who it is. again: a node may take the place of one that
        is gone.
        """
        there = set(self._grid.get_node_ids())
        known = {node: client for client, node in self.nodes.items()}
        messages = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            for node in sorted(there)
            if node not in known
        ]
        for reply in self._grid.send_and_receive(messages, timeout=seconds) if messages else ():
            node = reply.metadata.src_node_id
            if reply.has_error() or FACTS not in reply.content.config_records:
                continue
            facts = reply.content.config_records[FACTS]
            if "problem" in facts:
                self._told(node, str(facts["problem"]))
                continue
            client = int(facts["client"])  # type: ignore[arg-type]
            if not 0 <= client < len(self._names):
                self._told(
                    node,
                    f"a node says that it is client {client}, but there are {len(self._names)}",
                )
                continue
            other = self.nodes.get(client, node)
            if other != node:
                if other in there and not again:
                    raise RunError(
                        f"two sites say that they are client {self._names[client]}: "
                        "each needs a client of its own in its node config"
                    )
                log.warning("%s has come back as another node", self._names[client])
            self.nodes[client] = node
            self.samples[client] = int(facts.get("samples", 0))  # type: ignore[arg-type]
            self._problems.pop(node, None)
        return self.nodes

    def _told(self, node: int, problem: str) -> None:
        if self._problems.get(node) != problem:
            log.warning("a site cannot take part: %s", problem)
        self._problems[node] = problem
