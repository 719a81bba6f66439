"""What watches a run: TensorBoard, MLflow (also afterwards, from run folders), an energy estimate.

    gcfl.report.track.TensorBoard("logs").send("runs/digits-...")

    with gcfl.report.track.MLflow("sqlite:///mlflow.db") as sink:
        gcfl.run(..., on_start=sink.start, on_round=sink)

    with gcfl.report.track.measured() as meter:
        gcfl.run(..., on_start=meter.start)

They change nothing in a run, and are no part of what a run is. Steps are rounds, counted from 0.
Energy is codecarbon's estimate, kept in the run folder as energy.json: few machines let a program
read their power, and what cannot be read is guessed from the processor's name.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from gcfl.base.errors import ConfigError, RunError, one_line
from gcfl.base.files import write_json
from gcfl.base.options import flat
from gcfl.base.record import RoundRecord
from gcfl.base.seal import read_sealed, sealed
from gcfl.experiment import Experiment
from gcfl.results.collect import read
from gcfl.results.folder import RunFolder
from gcfl.results.groups import shown
from gcfl.results.measures import scalars
from gcfl.results.run import Run

log = logging.getLogger("gcfl")
_LONGEST = 500  # letters of a parameter that every MLflow takes


class Sink(ABC):
    """Pass `start` as on_start and the sink itself as on_round, and leave the `with` to close it;
    or `send` a run folder afterwards. `begin`, `add` each round, `end`: what a tracker must have.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = False
        self._broken = False

    @abstractmethod
    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """A run begins."""

    @abstractmethod
    def add(self, round: int, values: Mapping[str, float]) -> None:
        """The numbers of a round."""

    @abstractmethod
    def end(self, finished: bool) -> None:
        """The run is over, or was stopped."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._try(lambda: self.end(kind is None))

    def start(self, experiment: Experiment, folder: RunFolder, done: int) -> None:
        """Without it, the run is called what the sink was told, and its settings are not known."""
        self._begun = True
        self._try(lambda: self.begin(folder.path.name, flat(experiment.resolved())))

    def __call__(self, record: RoundRecord) -> None:
        if not self._begun:
            self._begun = True
            self._try(lambda: self.begin(self._name, {}))
        self._try(lambda: self.add(record.round, scalars(record)))

    def _try(self, what: Callable[[], None]) -> None:
        """Whatever a tracker's library raises must not stop a run."""
        if self._broken:
            return
        try:
            what()
        except Exception as error:
            self._broken = True
            log.warning(
                "tracking stopped, the run goes on: %s; gcfl track can send its rounds later",
                one_line(error),
            )

    def send(self, folder: str | os.PathLike[str]) -> None:
        """All rounds of a run folder."""
        run = read(folder)
        try:
            self.begin(run.name, run.settings)
            for record in run.rounds:
                self.add(record.round, scalars(record))
            self.end(run.finished)
        except Exception as error:  # whatever the tracker's library raises
            raise RunError(f"{folder} cannot be sent: {one_line(error)}") from error


class TensorBoard(Sink):
    """Event files in a folder of the run's name below `logdir`. What was written of the same run
    before is hidden by what is written now.
    """

    def __init__(self, logdir: str | os.PathLike[str], name: str = "run") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("tensorboard is not installed: pip install 'gcfl[track]'") from None
        super().__init__(name)
        self._make: Callable[..., Any] = SummaryWriter
        self._logdir, self._settings = Path(logdir), ""
        self._writer: Any = None

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self._name = name
        self._settings = "\n".join(f"    {key} = {shown(value)}" for key, value in settings.items())

    def add(self, round: int, values: Mapping[str, float]) -> None:
        # only now is it known from which step on earlier events no longer count
        if self._writer is None:
            self._writer = self._make(str(self._logdir / self._name), purge_step=round)
            if self._settings:
                self._writer.add_text("settings", self._settings, round)
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)

    def end(self, finished: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class MLflow(Sink):
    """A run of that name in the experiment 'gcfl' of a tracking server or database, which gets the
    rounds that it lacks. Through MLflow's client, which, unlike its functions, keeps no run open
    for the whole process.
    """

    def __init__(self, uri: str, name: str = "run") -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise ConfigError("mlflow is not installed: pip install 'gcfl[track]'") from None
        super().__init__(name)
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._metric, self._param = Metric, Param
        self._run = ""
        self._next = 0

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        client = self._client
        known = client.get_experiment_by_name("gcfl")
        experiment = known.experiment_id if known else client.create_experiment("gcfl")
        # Run folders are named by what they are, so the same name is the same run.
        quoted = name.replace("'", "")
        same = client.search_runs(
            [experiment], filter_string=f"tags.\"gcfl.run\" = '{quoted}'", max_results=1
        )
        if same:
            self._run = same[0].info.run_id
            self._next = int(same[0].data.tags.get("gcfl.next_round", 0))
            return
        self._run = client.create_run(
            experiment, run_name=name, tags={"gcfl.run": quoted}
        ).info.run_id
        params = [self._param(key, shown(value)[:_LONGEST]) for key, value in settings.items()]
        for start in range(0, len(params), 100):  # the most that MLflow takes at once
            client.log_batch(self._run, params=params[start : start + 100])

    def add(self, round: int, values: Mapping[str, float]) -> None:
        if round < self._next:
            return
        now = int(time.time() * 1000)  # when it was told: records hold durations only
        self._client.log_batch(
            self._run,
            metrics=[self._metric(name, value, now, round) for name, value in values.items()],
        )
        self._client.set_tag(self._run, "gcfl.next_round", str(round + 1))
        self._next = round + 1

    def end(self, finished: bool) -> None:
        if self._run:
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


class Meter:
    """Learns from `start`, given as on_start, which folder is written and from which round on."""

    def __init__(self) -> None:
        self.folder: RunFolder | None = None
        self._done = 0

    def start(self, _: Any, folder: RunFolder, done: int) -> None:
        self.folder, self._done = folder, done

    def write(self, kwh: float) -> Path | None:
        """Add to what earlier stretches of the run took; one that was finished gets nothing."""
        if self.folder is None:
            return None
        path = self.folder.energy
        before = read_sealed(path)[0] if self._done and path.exists() else {"kwh": 0.0, "rounds": 0}
        rounds = before["rounds"] + len(self.folder.records()) - self._done
        total = {"kwh": before["kwh"] + kwh, "rounds": rounds, "source": "codecarbon, an estimate"}
        write_json(path, sealed(total))
        return path


@contextmanager
def measured() -> Iterator[Meter]:
    """Estimate the energy of the run started inside; without codecarbon, say so."""
    meter = Meter()
    try:
        from codecarbon import OfflineEmissionsTracker
    except ImportError:
        log.warning(
            "energy is not estimated: codecarbon is not installed (pip install 'gcfl[energy]')"
        )
        yield meter
        return
    # Offline, since a run asks nobody. The country matters for CO2 alone, which we do not tell.
    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU", save_to_file=False, log_level="error", tracking_mode="process"
    )
    tracker.start()
    try:
        yield meter
    finally:
        tracker.stop()
        # codecarbon keeps its own failures to itself
        found = getattr(tracker, "final_emissions_data", None)
        if found is None:
            log.warning("energy is not estimated: codecarbon measured nothing")
        else:
            meter.write(float(found.energy_consumed))


def energy_note(runs: Sequence[Run]) -> list[str]:
    """A sentence for the report, where any run has an estimate."""
    known = [run for run in runs if run.energy]
    if not known:
        return []
    part = [run for run in known if run.energy.get("rounds") != len(run.rounds)]
    note = f"Energy is an estimate (codecarbon), known for {len(known)} of {len(runs)} runs."
    if part:
        note += f" For {len(part)} of them it covers some of the rounds only, and is not shown."
    return [note]
