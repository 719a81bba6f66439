"""The server of a federation on Flower: waits for its sites, plays the rounds over the Grid, writes an ordinary run folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from gcfl.engine import Observer, RunFolder, drive, one_thread
from gcfl.environment import describe
from gcfl.errors import RunError
from gcfl.experiment import Experiment
from gcfl.files import locked
from gcfl.flower.records import FACTS
from gcfl.flower.transport import OverGrid
from gcfl.prepare import Given, Prepared, prepare
from gcfl.summary import summarise
from gcfl.trained import parcel

log = logging.getLogger("gcfl")
_LOOK_EVERY_SECONDS = 1.0
_DEFAULT_WAIT = 300.0


def server_app(experiment_of: Callable[[Context], Experiment]) -> ServerApp:
    """The app of the server. Settings of the run: `out`, `wait-seconds` for sites to come, `round-seconds` for their answers."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings = context.run_config
        out = Path(str(settings.get("out", "runs"))).expanduser()
        wait, deadline = float(settings.get("wait-seconds", _DEFAULT_WAIT)), float(settings.get("round-seconds", 0.0))
        folder = serve(experiment_of(context), grid, out, wait, deadline or None)
        log.info("finished: %s", folder)

    return app


def serve(experiment: Experiment, grid: Grid, out: Path, wait: float, deadline: float | None) -> Path:
    """All rounds of an experiment over a Grid; the same experiment again goes on after its last checkpoint."""
    with one_thread():
        prepared = prepare(experiment, Given())
        folder = RunFolder(out / prepared.experiment.folder_name())
        folder.path.mkdir(parents=True, exist_ok=True)
        with locked(folder.path):
            if not folder.finished:
                _play(prepared, grid, folder, wait, deadline)
    return folder.path


def _play(prepared: Prepared, grid: Grid, folder: RunFolder, wait: float, deadline: float | None) -> None:
    experiment = prepared.experiment
    if not folder.config.exists():
        folder.create(experiment.to_toml(), describe(experiment.engine.device, 1), prepared.holdings)
    clients = len(prepared.federation.clients) if prepared.method.server.uses_clients else 0
    transport = OverGrid(grid, find_sites(grid, clients, wait), deadline)
    rounds = prepared.rounds(transport)
    # Which samples sites choose stays with them, so nobody can tell how clean those are.
    observer = Observer(None, prepared.federation.clients.source_rows)
    drive(
        rounds,
        folder,
        observer,
        experiment.engine.checkpoint_every,
        lambda record: log.info("round %d of %d: accuracy %s", record.round + 1, experiment.rounds, record.accuracy),
        lambda state: folder.finish(*parcel(prepared, rounds.final(state)), summarise(folder.records(), experiment.server.keep)),
    )


def find_sites(grid: Grid, clients: int, wait: float) -> dict[int, int]:
    """client -> node, once every client has said who it is; an error that names the missing ones when time is up."""
    nodes: dict[int, int] = {}
    asked: set[int] = set()
    end = time.monotonic() + wait
    while len(nodes) < clients:
        fresh = [node for node in grid.get_node_ids() if node not in asked]
        messages = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in fresh]
        for reply in grid.send_and_receive(messages, timeout=max(1.0, end - time.monotonic())) if messages else ():
            if reply.has_error() or FACTS not in reply.content.config_records:
                continue
            client, node = int(reply.content.config_records[FACTS]["client"]), reply.metadata.src_node_id  # type: ignore[arg-type]
            if client in nodes and nodes[client] != node:
                raise RunError(f"two sites say that they are client {client}: each needs a client of its own in its node config")
            nodes[client] = node
            asked.add(node)
        if len(nodes) >= clients:
            break
        # In a simulation all nodes are there before the first of them answers: no more will come.
        if nodes and type(grid).__name__ == "InMemoryGrid" and (there := len(list(grid.get_node_ids()))) < clients:
            raise RunError(
                f"the experiment has {clients} clients, but this simulation has {there} nodes: say how many, "
                f'flwr run ... --federation-config "num-supernodes={clients} client-resources-num-cpus=1"'
            )
        if time.monotonic() >= end:
            missing = [str(client) for client in range(clients) if client not in nodes]
            raise RunError(
                f"after {wait:g} seconds these clients have not come: {', '.join(missing)}; start their SuperNodes, then run again"
            )
        time.sleep(min(_LOOK_EVERY_SECONDS, max(0.0, end - time.monotonic())))
    return nodes
