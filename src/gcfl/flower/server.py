"""The server of a federation on Flower: waits for its sites, plays the rounds over the Grid, writes
an ordinary run folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from gcfl.base.environment import describe
from gcfl.base.errors import ConfigError, one_line
from gcfl.base.files import locked
from gcfl.base.record import RoundRecord
from gcfl.engine import Observer, drive, one_thread
from gcfl.engine.prepare import Given, Prepared, prepare
from gcfl.experiment import Experiment
from gcfl.flower.app import read_experiment, speak
from gcfl.flower.nodes import Roll
from gcfl.flower.site_data import Terms, serve_sites
from gcfl.flower.transport import OverGrid
from gcfl.results.folder import RunFolder
from gcfl.results.measures import keeps, summarise

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
        with locked(folder.path), _written(folder.path / "log.txt"):
            if not folder.finished:
                _play(prepared, grid, folder, wait, deadline)
    return folder.path


def _play(
    prepared: Prepared, grid: Grid, folder: RunFolder, wait: float, deadline: float | None
) -> None:
    experiment = prepared.experiment
    clients = prepared.federation.clients
    count = len(clients) if prepared.method.server.uses_clients else 0
    roll = Roll(grid, clients.names or tuple(map(str, range(count))))
    nodes = roll.wait(wait) if count else {}
    if not folder.config.exists():
        told = (
            {"sizes": [roll.samples[client] for client in range(count)]}
            if not len(clients.y)
            else {}
        )
        folder.create(
            experiment.to_toml(),
            describe(experiment.engine.device, 1),
            {**prepared.holdings, **told},
        )
    rounds = prepared.rounds(OverGrid(grid, nodes, deadline, lambda: roll.ask(again=True)))
    # Which samples sites choose stays with them, so nobody can tell how clean those are.
    observer = Observer(None, clients.source_rows)
    keep = keeps(experiment.server.model_dump())
    drive(
        rounds,
        folder,
        observer,
        1,  # sites remember as of the last accepted round, so the server must not fall behind that
        lambda record: log.info("%s", _told(record, experiment.rounds)),
        lambda state: folder.finish(
            *prepared.parcel(rounds.final(state)), summarise(folder.records(), keep)
        ),
    )


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
