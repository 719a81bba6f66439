"""Tables and figures from the runs that are there: nothing is played, gaps are counted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gcfl.base.errors import ConfigError
from gcfl.base.record import Clock
from gcfl.cli import main
from gcfl.report.charts import figure
from gcfl.sweep import grouped, read_plan
from gcfl.sweep.plan import expand
from gcfl.sweep.runner import run_cells
from gcfl.sweep.summary import there

NOTHING = Clock(wall=0.0, cpu=0.0)
KEPT = Path(__file__).parents[2] / "docs" / "results"
SWEEP = """
title = "a small sweep"
[experiment]
rounds = 4
[experiment.data]
samples = 200
clients = 3
validation = 60
test = 40
[experiment.model]
name = "mlp"
hidden = [8]
[sweep]
cases = [
  { label = "all", method = "fedavg" },
  { label = "a tenth", method = "random" },
  { label = "server", method = "server-only" },
]
seed = [0, 1]
[figure]
x = "client-cpu"
y = "accuracy"
highlight = "a tenth"
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return read_plan(str(tmp_path / "sweep.toml"))


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_what_is_there_is_drawn_and_the_rest_is_counted(plan, tmp_path, capsys):
    deep = tmp_path / "out" / "some" / "where"
    run_cells([plan.cells[0], plan.cells[2], plan.cells[4]], deep, 1, lambda _: None)
    before = files(tmp_path / "out")
    source, out = str(tmp_path / "sweep.toml"), str(tmp_path / "out")
    picture = tmp_path / "new" / "curves.svg"
    line = ["sweep", source, "--out", out, "--draw", "--figure", str(picture)]
    assert main(line) == 0
    told = capsys.readouterr().out
    assert "3 of 6 runs not there" in told
    assert all(name in told for name in ("all", "a tenth", "server"))
    assert files(tmp_path / "out") == before
    text = picture.read_text()
    assert text.startswith("<?xml")
    assert main([*line[:-2], "--quiet"]) == 0
    drawn = {path.name for path in files(tmp_path / "out").keys() - before.keys()}
    assert drawn == {"figure.png"}
    pixels = np.asarray(Image.open(tmp_path / "out" / "figure.png").convert("L"))
    assert len(np.unique(pixels)) > 20
    outcomes = there(plan, tmp_path / "out")
    assert [one.cell for one in outcomes] == [plan.cells[0], plan.cells[2], plan.cells[4]]


def test_the_papers_table_tells_of_runs_that_were_kept(plan, tmp_path, monkeypatch, capsys):
    """Kept without their models and without a summary of the sweep."""
    monkeypatch.setattr("gcfl.sweep.plan.recipe_names", lambda: ["kept"])
    monkeypatch.setattr("gcfl.sweep.plan.read_recipe", lambda _: {"scale": {"small": {}}})
    monkeypatch.setattr("gcfl.sweep.read_plan", lambda *_: plan)
    for folder in ("kept", "kept-small", "kept-large"):
        run_cells(plan.cells[:2], tmp_path / folder / "runs", 1, lambda _: None)
    assert main(["paper", "table", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.count("a small sweep") == 2  # a folder of no scale is nobody's
    assert told.count("2 of 6 runs") == 2


def test_the_papers_table_of_a_checkout(capsys):
    assert main(["paper", "table", "--out", str(KEPT)]) == 0
    told = capsys.readouterr().out
    assert "Motivation" in told
    assert "18 of 18 runs" in told


def test_an_unfinished_run_is_not_drawn(plan, tmp_path):
    (outcome,) = run_cells(plan.cells[:1], tmp_path / "runs", 1, lambda _: None)
    assert there(plan, tmp_path)
    (outcome.folder / "summary.json").unlink()
    assert there(plan, tmp_path) == []


def test_nothing_to_draw_is_one_sentence(plan, tmp_path, capsys):
    source = str(tmp_path / "sweep.toml")
    assert main(["sweep", source, "--out", str(tmp_path / "none"), "--draw"]) == 2
    assert "none of the 6 runs of sweep is finished" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert main(["sweep", source, "--draw", "--figure", "x.jpg"]) == 2
    assert "--figure must end in .png or .svg, got x.jpg" in capsys.readouterr().err


def timed(run):
    """The run as if each round had cost the clients what its method stands for here, in seconds."""
    seconds = {"fedavg": 1.0, "random": 0.25, "server-only": 0.0}[run.method]
    for place, record in enumerate(run.rounds):
        spent = Clock(wall=seconds, cpu=seconds)
        time = dataclasses.replace(
            record.time, select=NOTHING, train=spent, aggregate=NOTHING, server_cpu=0.0
        )
        run.rounds[place] = dataclasses.replace(record, time=time)


def test_the_equal_cost_and_those_who_cost_nothing(plan, tmp_path):
    study = grouped(run_cells(plan.cells, tmp_path / "runs", 1, lambda _: None))
    for run in study.runs:
        timed(run)
    (chart,) = figure(study, plan.title, plan.figure).plots
    lines = {line.name: line for line in chart.lines}
    assert {name: (line.level, line.strong) for name, line in lines.items()} == {
        "all": (False, False),
        "a tenth": (False, True),
        "server": (True, False),
    }
    assert chart.equal == pytest.approx(4 * 0.25)
    assert lines["server"].y == [np.mean([run.accuracy for run in study.runs[4:]])]
    ((line, height),) = chart.by_then()
    assert (line.name, line.x) == ("all", [1.0, 2.0, 3.0, 4.0])
    assert height == pytest.approx(line.y[0])


def test_unset_takes_back_what_was_said():
    raw = {
        "experiment": {"train": {"lr": 0.3}},
        "sweep": {
            "zip": [{"data.noise": [0.1, 0.2], "clean.warm_start": [3, 4]}],
            "cases": [
                {"label": "a", "method": "robust"},
                {"label": "b", "method": "robust", "clean.warm_start": "unset", "train.lr": 0.2},
            ],
        },
    }
    found = [cell.experiment() for cell in expand(raw, 1, "here")]
    assert [one.clean.warm_start for one in found] == [3, "auto", 4, "auto"]
    assert [one.train.lr for one in found] == [0.3, 0.2, 0.3, 0.2]


@pytest.mark.parametrize("name", ["robust", "robust-sizes", "robust-noise"])
def test_the_kept_runs_are_cells_of_their_recipes(name):
    """No setting's default may change under them: their names come from their settings."""
    outcomes = there(read_plan(name, seeds=2), KEPT)
    found = {outcome.folder.name for outcome in outcomes}
    kept = {path.name for path in (KEPT / name / "runs").iterdir()}
    assert kept <= found
    labels = {dict(outcome.cell.differs).get("label") for outcome in outcomes}
    assert {"robust", "FedAvg, equal samples"} <= labels


def test_only_the_lines_that_are_asked_for_are_drawn(plan, tmp_path):
    run_cells(plan.cells[:4], tmp_path / "runs", 1, lambda _: None)
    study = grouped(there(plan, tmp_path))
    (chart,) = figure(study, "", {**plan.figure, "x": "round", "lines": ["a tenth"]}).plots
    assert [line.name for line in chart.lines] == ["a tenth"]
    assert len(figure(study, "", {**plan.figure, "x": "round"}).plots[0].lines) == 2
    # A case that is not played yet is no mistake; one that there is not, is.
    assert figure(study, "", {**plan.figure, "x": "round", "lines": ["server"]}).plots == []
    wrong = SWEEP + 'lines = ["a tent"]\n'
    (tmp_path / "wrong.toml").write_text(wrong)
    with pytest.raises(ConfigError, match=r"no case is 'a tent'; did you mean a tenth"):
        read_plan(str(tmp_path / "wrong.toml"))
