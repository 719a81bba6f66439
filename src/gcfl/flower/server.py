"""The server on Flower: waits for its sites, plays rounds over the Grid, writes a run folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from gcfl.base.errors import ConfigError, RunError, one_line
from gcfl.base.options import LARGEST
from gcfl.base.record import RoundRecord
from gcfl.engine import Given, Lifecycle, Observer, one_thread, prepare
from gcfl.engine.audit import check_audit
from gcfl.experiment import Experiment
from gcfl.flower.app import log_as_flower, read_experiment
from gcfl.flower.audit import audit_sites
from gcfl.flower.site_data import Terms, serve_sites
from gcfl.flower.transport import FACTS, OverGrid
from gcfl.methods.answers import is_whole, shown
from gcfl.methods.privacy_checks import check_deployed
from gcfl.results.folder import RunFolder

log = logging.getLogger("gcfl")
_WAIT_SECONDS = 300.0
_LOOK_EVERY_SECONDS = 1.0
_LOG_EVERY_SECONDS = 30.0
_ANSWER_SECONDS = 60.0  # a node starts a process and imports torch for an answer


def server_app(folder: Path) -> ServerApp:
    """The app. Run config: `out`, `wait-seconds` for sites, `round-seconds` for replies."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        log_as_flower()
        settings = context.run_config
        experiment, terms = read_experiment(folder, context), Terms.read(folder)
        out = Path(str(settings.get("out", "runs"))).expanduser()
        wait = float(settings.get("wait-seconds", _WAIT_SECONDS))
        deadline = float(settings.get("round-seconds", 0.0)) or None
        log.info("finished: %s", serve(experiment, grid, out, wait, deadline, terms))

    return app


def serve(
    experiment: Experiment,
    grid: Grid,
    out: Path,
    wait: float,
    deadline: float | None = None,
    terms: Terms | None = None,
) -> Path:
    """All rounds over a Grid; the same experiment again goes on after its last checkpoint.

    terms: sites bring their own data, and the experiment's source is the server's alone.
    """
    check_deployed(experiment.privacy)
    with one_thread():
        if terms is None:
            prepared, suffix = prepare(experiment, Given()), ""
        else:
            prepared, now = serve_sites(experiment, terms.sites, terms.seed)
            suffix = f"-{terms.digest}"
            if now.to_toml() != terms.to_toml():
                raise ConfigError(
                    "the server's data is not what it was when this app was exported; export it "
                    "again"
                )
        audits = prepared.experiment.audit.asked
        if audits:
            check_audit(prepared)
        folder = RunFolder(out / f"{prepared.experiment.folder_name()}{suffix}")
        folder.path.mkdir(parents=True, exist_ok=True)
        clients = prepared.federation.clients
        count = len(clients) if prepared.method.server.uses_clients or audits else 0
        names = clients.names or tuple(map(str, range(count)))
        registry = NodeRegistry(grid, names)

        def connect() -> OverGrid:
            nodes = registry.wait(wait) if count else {}
            return OverGrid(grid, nodes, deadline, registry.ask, registry.samples)

        def holdings() -> dict[str, Any]:
            if len(clients.y):
                return prepared.holdings
            sizes = [registry.samples[client] for client in range(count)]
            return {**prepared.holdings, "sizes": sizes}

        def on_round(record: RoundRecord) -> None:
            accuracy = "" if record.accuracy is None else f": accuracy {record.accuracy:.4f}"
            done, rounds = record.round + 1, prepared.experiment.rounds
            # Rounds count from 0, in every log and record.
            log.info("round %d%s (%d of %d played)", record.round, accuracy, done, rounds)

        with _log_file(folder.path / "log.txt"):
            Lifecycle(
                prepared,
                folder,
                connect,
                # What sites choose stays with them, so nobody can tell how clean it is.
                observer=Observer(None, clients.source_rows),
                holdings=holdings,
                again="run the app again",
                # Sites remember as of the last accepted round: the server must not fall behind.
                checkpoint_every=1,
                on_round=on_round,
            ).run()
            if audits:
                nodes = partial(registry.present, wait)
                audit_sites(prepared, folder, grid, names, nodes, deadline)
    return folder.path


class NodeRegistry:
    """Which node is which client, asked of every node.

    nodes: client -> node, and samples: client -> how many, of those that have said who they are.
    """

    def __init__(self, grid: Grid, names: tuple[str, ...]) -> None:
        self.nodes: dict[int, int] = {}
        self.samples: dict[int, int] = {}
        self._grid = grid
        self._names = names
        self._problems: dict[int, str] = {}

    def wait(self, seconds: float) -> dict[int, int]:
        """All clients' nodes; when time is up, an error that names the missing ones, and why."""
        log_next = time.monotonic()
        end = log_next + seconds
        while True:
            self.ask(min(_ANSWER_SECONDS, max(1.0, end - time.monotonic())))
            if len(self.nodes) >= len(self._names):
                return self.nodes
            self._check_simulation()
            absent = [name for client, name in enumerate(self._names) if client not in self.nodes]
            missing = ", ".join(absent)
            if time.monotonic() >= end:
                reasons = "".join(f" ({one})" for one in dict.fromkeys(self._problems.values()))
                advice = "mend that there" if reasons else "start their SuperNodes"
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
        for reply in self._grid.send_and_receive(messages, timeout=seconds) if messages else ():
            if reply.has_error() or FACTS not in reply.content.config_records:
                continue
            node, facts = reply.metadata.src_node_id, reply.content.config_records[FACTS]
            problem = self._problem(node, facts, online)
            if problem is None:
                self._register(node, facts)
            elif self._problems.get(node) != problem:
                log.warning("a site cannot take part: %s", problem)
                self._problems[node] = problem
        return self.nodes

    def _problem(self, node: int, facts: ConfigRecord, online: set[int]) -> str | None:
        """Why a node cannot take part. A client's number is bound to the first node that claims
        it: another may have it once the SuperLink says that the first is gone.
        """
        if "problem" in facts:
            return " ".join(str(facts["problem"]).split())
        client, samples, count = facts.get("client"), facts.get("samples"), len(self._names)
        if not is_whole(client, 0, count - 1):
            return f"a node says that it is client {shown(client)}, but there are {count}"
        if not is_whole(samples, 1, LARGEST):
            return f"{self._names[client]} says that it holds {shown(samples)} samples"
        before = self.nodes.get(client, node)
        if before != node and before in online:
            return (
                f"two sites say that they are client {self._names[client]}: node {before} came "
                f"first, so node {node} is refused; each needs a client of its own in its node "
                "config"
            )
        return None

    def _register(self, node: int, facts: ConfigRecord) -> None:
        client = cast(int, facts["client"])
        before = self.nodes.get(client, node)
        if before != node:
            log.warning(
                "%s has come back as another node: %d, after %d", self._names[client], node, before
            )
        self.nodes[client] = node
        self.samples[client] = cast(int, facts["samples"])
        self._problems.pop(node, None)

    def _check_simulation(self) -> None:
        """In a simulation all nodes are there before the first of them answers: no more come."""
        # By name: Flower offers no public way to tell, its class moves between private modules
        # from release to release, and importing it would load its database and web server.
        if not self.nodes or type(self._grid).__name__ != "InMemoryGrid":
            return
        count, online = len(self._names), len(list(self._grid.get_node_ids()))
        if online < count:
            raise RunError(
                f"the experiment has {count} clients, but this simulation has {online} nodes: "
                f'say how many, flwr run ... --federation-config "num-supernodes={count} '
                'client-resources-num-cpus=1"'
            )


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """What gcfl logs, with the time, in a file of the run too: it outlives the SuperLink."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    try:
        yield
    except Exception as error:
        log.error("stopped: %s", one_line(error))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()
