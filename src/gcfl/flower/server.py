"""The server of a federation on Flower: waits for its sites, plays the rounds over the Grid, writes
an ordinary run folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from gcfl.base.errors import ConfigError, one_line
from gcfl.base.record import RoundRecord
from gcfl.engine import Given, Lifecycle, Observer, one_thread, prepare
from gcfl.experiment import Experiment
from gcfl.flower.app import read_experiment, speak
from gcfl.flower.nodes import Roll
from gcfl.flower.site_data import Terms, serve_sites
from gcfl.flower.transport import OverGrid
from gcfl.results.folder import RunFolder

log = logging.getLogger("gcfl")
_DEFAULT_WAIT = 300.0


def server_app(folder: Path) -> ServerApp:
    """The app of the server. Settings of the run: `out`, `wait-seconds` for sites to come,
    `round-seconds` for their answers.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        speak()
        settings = context.run_config
        out = Path(str(settings.get("out", "runs"))).expanduser()
        wait, deadline = (
            float(settings.get("wait-seconds", _DEFAULT_WAIT)),
            float(settings.get("round-seconds", 0.0)),
        )
        made = serve(
            read_experiment(folder, context), grid, out, wait, deadline or None, Terms.read(folder)
        )
        log.info("finished: %s", made)

    return app


def serve(
    experiment: Experiment,
    grid: Grid,
    out: Path,
    wait: float,
    deadline: float | None = None,
    terms: Terms | None = None,
) -> Path:
    """All rounds of an experiment over a Grid; the same experiment again goes on after its last
    checkpoint.

    terms: sites bring their own data, and the experiment's source is the server's alone.
    """
    with one_thread():
        if terms is None:
            prepared, suffix = prepare(experiment, Given()), ""
        else:
            prepared, now = serve_sites(experiment, terms.sites)
            suffix = f"-{terms.digest}"
            if now.to_toml() != terms.to_toml():
                raise ConfigError(
                    "the server's data is not what it was when this app was exported; export it "
                    "again"
                )
        folder = RunFolder(out / f"{prepared.experiment.folder_name()}{suffix}")
        folder.path.mkdir(parents=True, exist_ok=True)
        clients = prepared.federation.clients
        count = len(clients) if prepared.method.server.uses_clients else 0
        roll = Roll(grid, clients.names or tuple(map(str, range(count))))

        def connect() -> OverGrid:
            nodes = roll.wait(wait) if count else {}
            return OverGrid(grid, nodes, deadline, lambda: roll.ask(again=True))

        def holdings() -> dict[str, Any]:
            if len(clients.y):
                return prepared.holdings
            return {**prepared.holdings, "sizes": [roll.samples[one] for one in range(count)]}

        rounds = prepared.experiment.rounds
        with _written(folder.path / "log.txt"):
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
                on_round=lambda record: log.info("%s", _told(record, rounds)),
            ).run()
    return folder.path


@contextmanager
def _written(path: Path) -> Iterator[None]:
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


def _told(record: RoundRecord, rounds: int) -> str:
    """Rounds count from 0, in every log and record."""
    accuracy = "" if record.accuracy is None else f": accuracy {record.accuracy:.4f}"
    return f"round {record.round}{accuracy} ({record.round + 1} of {rounds} played)"
