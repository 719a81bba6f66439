"""The server on Flower: waits for its sites, plays rounds over the Grid, writes a run folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from gcfl.base.errors import ConfigError, one_line
from gcfl.base.record import RoundRecord
from gcfl.engine import Given, Lifecycle, Observer, one_thread, prepare
from gcfl.engine.audit import check_audit
from gcfl.experiment import Experiment
from gcfl.flower.app import log_as_flower, read_experiment
from gcfl.flower.audit import audit_sites
from gcfl.flower.nodes import NodeRegistry, named
from gcfl.flower.site_data import Terms, serve_sites
from gcfl.flower.transport import OverGrid
from gcfl.methods.privacy_checks import check_deployed
from gcfl.results.folder import RunFolder

log = logging.getLogger("gcfl")
_WAIT_SECONDS = 300.0


def server_app(folder: Path) -> ServerApp:
    """The app. Run config: `out`, `wait-seconds` for sites, `round-seconds` for replies, `rebind`:
    sites that may come back as another node.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        log_as_flower()
        settings = context.run_config
        experiment, terms = read_experiment(folder, context), Terms.read(folder)
        out = Path(str(settings.get("out", "runs"))).expanduser()
        wait = float(settings.get("wait-seconds", _WAIT_SECONDS))
        deadline = float(settings.get("round-seconds", 0.0)) or None
        rebind = str(settings.get("rebind", ""))
        log.info("finished: %s", serve(experiment, grid, out, wait, deadline, terms, rebind))

    return app


def serve(
    experiment: Experiment,
    grid: Grid,
    out: Path,
    wait: float,
    deadline: float | None = None,
    terms: Terms | None = None,
    rebind: str = "",
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
            check_audit(prepared.experiment)
        folder = RunFolder(out / f"{prepared.experiment.folder_name()}{suffix}")
        folder.path.mkdir(parents=True, exist_ok=True)
        clients = prepared.federation.clients
        count = len(clients) if prepared.method.server.uses_clients or audits else 0
        names = clients.names or tuple(map(str, range(count)))
        registry = NodeRegistry(grid, names, folder.nodes, named(rebind, names))

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
