"""Trackers: against stand-ins that remember, and against the libraries themselves where they are
installed.
"""

from __future__ import annotations

import json
import sys
import types
from typing import ClassVar

import pytest

import gcfl
from gcfl import cli
from gcfl.base.errors import ConfigError, RunError
from gcfl.report import track
from helpers import tiny


class Writer:
    """Stands in for TensorBoard's SummaryWriter."""

    made: ClassVar[list[Writer]] = []

    def __init__(self, where, purge_step):
        self.where, self.purge_step, self.scalars, self.texts, self.closed = (
            where,
            purge_step,
            {},
            {},
            False,
        )
        Writer.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars[name, step] = value

    def add_text(self, name, text, step):
        self.texts[name] = text

    def close(self):
        self.closed = True


@pytest.fixture
def tensorboard(monkeypatch):
    monkeypatch.setattr(Writer, "made", [])
    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer)
    )
    return Writer.made


class Client:
    """Stands in for MlflowClient; servers by address."""

    servers: ClassVar[dict[str, dict]] = {}

    def __init__(self, tracking_uri):
        if tracking_uri == "dead":
            raise OSError("nobody answers")
        self.runs = Client.servers.setdefault(tracking_uri, {})

    def get_experiment_by_name(self, name):
        return types.SimpleNamespace(experiment_id="1") if self.runs else None

    def create_experiment(self, name):
        return "1"

    def search_runs(self, experiments, filter_string, max_results):
        return [
            run for run in self.runs.values() if f"'{run.data.tags['gcfl.run']}'" in filter_string
        ][:max_results]

    def create_run(self, experiment, run_name, tags):
        run = types.SimpleNamespace(
            info=types.SimpleNamespace(run_id=str(len(self.runs))),
            data=types.SimpleNamespace(tags=dict(tags), params={}),
            metrics=[],
            status="RUNNING",
        )
        self.runs[run.info.run_id] = run
        return run

    def log_batch(self, run_id, metrics=(), params=()):
        assert len(params) <= 100
        self.runs[run_id].metrics += metrics
        self.runs[run_id].data.params.update(params)

    def set_tag(self, run_id, key, value):
        self.runs[run_id].data.tags[key] = value

    def set_terminated(self, run_id, status):
        self.runs[run_id].status = status


@pytest.fixture
def mlflow(monkeypatch):
    monkeypatch.setattr(Client, "servers", {})
    entities = types.SimpleNamespace(
        Metric=lambda *values: values, Param=lambda key, value: (key, value)
    )
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", types.SimpleNamespace(MlflowClient=Client))
    return Client.servers


@pytest.fixture
def folder(runs):
    return next((runs / "gcfl").glob("*noise40-seed0*"))


def recorded(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_tensorboard_gets_every_round(folder, tensorboard, tmp_path):
    track.TensorBoard(tmp_path / "logs").send(folder)
    (writer,) = tensorboard
    assert writer.where == str(tmp_path / "logs" / folder.name)
    assert writer.purge_step == 0
    assert writer.closed
    assert "data.noise = 0.4" in writer.texts["settings"]
    for record in recorded(folder):
        assert writer.scalars["accuracy", record["round"]] == record["accuracy"]
        assert writer.scalars["bytes/up", record["round"]] == sum(record["bytes"]["up"].values())
        assert (
            writer.scalars["cpu_seconds/train", record["round"]] == record["time"]["train"]["cpu"]
        )
    assert not any(name == "validation_loss" for name, _ in writer.scalars)  # nothing was held out


def test_mlflow_gets_every_round_once(folder, mlflow):
    for _ in range(2):
        track.MLflow("sqlite:///x.db").send(folder)
    (run,) = mlflow["sqlite:///x.db"].values()
    told = [(step, value) for name, value, _, step in run.metrics if name == "accuracy"]
    assert told == [(record["round"], record["accuracy"]) for record in recorded(folder)]
    assert run.data.params["coreset.budget"] == "0.2"
    assert run.status == "FINISHED"


def test_sinks_follow_a_run_and_do_not_change_it(tensorboard, mlflow, tmp_path):
    with track.TensorBoard(tmp_path / "logs") as board, track.MLflow("there") as flow:

        def start(*about):
            board.start(*about)
            flow.start(*about)

        def each(record):
            board(record)
            flow(record)

        result = gcfl.run(out=tmp_path / "a", on_start=start, on_round=each, **tiny())
    plain = gcfl.run(out=tmp_path / "b", **tiny())
    assert result.folder.name == plain.folder.name
    assert [
        value for (name, _), value in tensorboard[0].scalars.items() if name == "accuracy"
    ] == plain.curve
    (run,) = mlflow["there"].values()
    assert [value for name, value, _, _ in run.metrics if name == "accuracy"] == plain.curve
    assert run.data.tags["gcfl.run"] == plain.folder.name
    assert run.data.params["method"] == "gcfl"
    assert tensorboard[0].where.endswith(plain.folder.name)


def test_a_tracker_that_breaks_does_not_stop_a_run(tensorboard, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(Writer, "add_scalar", lambda *_: 1 / 0)
    with track.TensorBoard(tmp_path / "logs", name="mine") as board:
        result = gcfl.run(out=tmp_path, on_round=board, **tiny())
    assert result.finished
    assert caplog.text.count("tracking stopped, the run goes on: ZeroDivisionError") == 1
    with pytest.raises(RunError, match="cannot be sent: ZeroDivisionError"):
        track.TensorBoard(tmp_path / "logs").send(result.folder)


def test_without_the_libraries_it_says_what_to_install(folder, monkeypatch, tmp_path):
    for name in ("torch.utils.tensorboard", "mlflow", "mlflow.entities", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (
        lambda: track.TensorBoard(tmp_path).send(folder),
        lambda: track.MLflow("x"),
        lambda: track.TensorBoard(tmp_path),
    ):
        with pytest.raises(ConfigError, match=r"pip install 'gcfl\[track\]'"):
            call()


def test_the_command(runs, tensorboard, mlflow, tmp_path, capsys):
    assert cli.main(["track", str(runs), "--tensorboard", str(tmp_path), "--mlflow", "there"]) == 0
    assert capsys.readouterr().out.count("6 rounds") == 8
    assert len(tensorboard) == 8
    assert len(mlflow["there"]) == 8
    assert cli.main(["track", str(runs)]) == 2
    assert "--tensorboard DIR or --mlflow URI" in capsys.readouterr().err


def test_with_tensorboard_itself(folder, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # the second hides the first
        track.TensorBoard(tmp_path).send(folder)
    events = EventAccumulator(str(tmp_path / folder.name))
    events.Reload()
    assert [event.value for event in events.Scalars("accuracy")] == pytest.approx(
        [r["accuracy"] for r in recorded(folder)]
    )


@pytest.mark.filterwarnings("default")
def test_with_mlflow_itself(folder, tmp_path):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'm.db'}"
    for _ in range(2):
        track.MLflow(uri).send(folder)
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("gcfl").experiment_id])
    history = sorted(
        client.get_metric_history(run.info.run_id, "accuracy"), key=lambda metric: metric.step
    )
    assert [metric.value for metric in history] == [
        record["accuracy"] for record in recorded(folder)
    ]
    assert run.info.status == "FINISHED"
