"""Sweeps: expansion, gaps, failures, kills; and every recipe of the package at its smallest
scale.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import gcfl
from gcfl.base.errors import ConfigError, Interrupted
from gcfl.cli import main
from gcfl.sweep.plan import SCALES, expand, read_plan, read_recipe, recipe_names
from gcfl.sweep.runner import run_cells

SMALL = """
title = "a small sweep"
[experiment]
rounds = 3
[experiment.data]
samples = 200
clients = 3
validation = 60
test = 40
[experiment.model]
name = "mlp"
hidden = [8]
[experiment.coreset]
every = 2
allow_single = true
[sweep]
"data.noise" = [0.0, 0.4]
method = ["fedavg", "random", "gcfl"]
seed = [0, 1]
[figure]
x = "data.noise"
y = "accuracy"
"""


def write(folder, text=SMALL, name="sweep.toml"):
    (folder / name).write_text(text)
    return folder / name


def steady(summary):
    """A summary without what it cost this time."""
    rows = [
        {key: value for key, value in row.items() if key != "cpu_seconds"}
        for row in summary["rows"]
    ]
    return {**summary, "rows": rows}


def test_products_zips_and_cases():
    raw = {
        "experiment": {"rounds": 2, "data": {"clients": 3}},
        "sweep": {
            "zip": [{"data.source": ["digits", "blobs"], "model.name": ["mlp", "logistic"]}],
            "data.noise": [0.1, 0.2, 0.3],
            "cases": [
                {"label": "A", "method": "fedavg"},
                {"label": "B", "method": "gcfl", "coreset.score": "distance"},
            ],
        },
    }
    cells = expand(raw, 2, "here")
    assert len(cells) == 2 * 3 * 2 * 2
    names = ("data.source", "model.name", "data.noise", "method")
    seen = {(*(cell.settings[name] for name in names), cell.seed) for cell in cells}
    assert len(seen) == 24
    assert {pair[:2] for pair in seen} == {("digits", "mlp"), ("blobs", "logistic")}
    first = cells[0]
    assert dict(first.differs) == {"label": "A", "data.source": "digits", "data.noise": 0.1}
    assert first.settings["model.name"] == "mlp"
    assert all(cell.experiment().rounds == 2 for cell in cells)
    assert len({cell.experiment().folder_name() for cell in cells}) == 24


ONE = "[experiment]\nrounds = 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[swepe]\n", "unknown section 'swepe'.*did you mean sweep"),
        ("[sweep]\nmethod = 'gcfl'\n", "must be a list of values"),
        ("[sweep]\nmethod = []\n", "empty list"),
        ("[sweep]\nmethod = ['gcfl', 'fedavgg']\n", "fedavgg.*did you mean fedavg"),
        ("[sweep]\n'data.nois' = [0.1]\n", "unknown setting.*did you mean data.noise"),
        ("[sweep]\nzip = [{ seed = [1, 2], rounds = [1] }]\n", "equally long"),
        ("[sweep]\ncases = [1]\n", "list of tables"),
        (
            "[experiment]\nrounds = 1\n[figure]\ny = 'acuracy'\n",
            "figure.y 'acuracy' is unknown; did you mean accuracy",
        ),
        (
            "[experiment]\nrounds = 1\n[figure]\nx = 'data.noise'\n",
            "figure.x 'data.noise' must be a setting of the sweep",
        ),
        (f"{ONE}[figure]\ny = 'best'\n", "is one number per run"),
        (
            "[experiment]\nrounds = 1\n[figure]\npanel = 'data.source'\n",
            "figure.panel; did you mean panels",
        ),
    ],
)
def test_bad_sweeps_are_refused_before_any_run(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_plan(str(write(tmp_path, text)))
    with pytest.raises(ConfigError, match="neither a file nor a recipe; did you mean closed"):
        read_plan("closd")
    with pytest.raises(ConfigError, match="has no scale 'small'"):
        read_plan(str(write(tmp_path)), "small")


def test_a_sweep_fills_gaps_only(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(write(tmp_path)), "--jobs", "2"]) == 0
    out = tmp_path / "sweeps" / "sweep"
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary["rows"]) == 6
    assert all(row["seeds"] == 2 for row in summary["rows"])
    folders = {path.name: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(folders) == 12
    for row in summary["rows"]:
        runs = [gcfl.load(out / "runs" / name) for name in folders]
        mine = [
            r.accuracy
            for r in runs
            if r.config["method"] == row["method"]
            and r.config["data"]["noise"] == row["data.noise"]
        ]
        assert row["accuracy"] == pytest.approx(np.mean(mine))
        assert row["sd"] == pytest.approx(np.std(mine, ddof=1))
    picture = np.asarray(Image.open(out / "figure.png").convert("L"))
    assert len(np.unique(picture)) > 20
    assert (out / "summary.csv").read_text().count("\n") == 7
    # A third seed and another method: only the new cells run.
    write(
        tmp_path,
        SMALL.replace("seed = [0, 1]", "seed = [0, 1, 2]").replace('"gcfl"]', '"gcfl", "crust"]'),
    )
    capsys.readouterr()
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--jobs", "2"]) == 0
    assert capsys.readouterr().err.count("done:") == 2 * 3 + 2 * 3
    after = {path.name: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(after) == 24
    assert folders.items() <= after.items()


def test_scenes_are_named_tables_of_settings_too():
    raw = {
        "sweep": {
            "scenes": [
                {"scene": "one", "rounds": 1, "data": {"noise": 0.1}},
                {"scene": "two", "rounds": 2, "data.samples": 100},
            ],
            "cases": [{"label": "A", "method": "fedavg"}, {"label": "B", "method": "gcfl"}],
            "cohort": [1, 2],
        }
    }
    cells = expand(raw, 1, "here")
    assert len(cells) == 8
    assert dict(cells[0].differs) == {"scene": "one", "label": "A", "cohort": 1}
    assert {cell.settings["rounds"] for cell in cells} == {1, 2}
    assert all(cell.settings["rounds"] == 5 for cell in expand(raw, 1, "here", {"rounds": 5}))


def test_the_best_round_is_what_a_sweep_reports(tmp_path, monkeypatch):
    text = SMALL.replace("rounds = 3", "rounds = 8").replace("seed = [0, 1]", "seed = [0]")
    text += '[experiment.server]\nkeep = "best"\nhold_out = 0.5\n[experiment.train]\nlr = 0.3\n'
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(write(tmp_path, text)), "--out", "out", "--quiet"]) == 0
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]
    runs = [gcfl.load(folder) for folder in (tmp_path / "out" / "runs").iterdir()]
    assert any(run.accuracy != run.curve[-1] for run in runs), "this case shows nothing"
    for run in runs:
        noise = run.config["data"]["noise"]
        (row,) = [r for r in rows if (r["method"], r["data.noise"]) == (run.method, noise)]
        assert row["accuracy"] == run.accuracy
        assert f"| {100 * run.accuracy:.1f}" in (tmp_path / "out" / "summary.md").read_text()


def test_nothing_finished_is_a_summary_too(tmp_path, monkeypatch, capsys):
    text = SMALL.replace("clients = 3", "clients = 100").replace("seed = [0, 1]", "seed = [0]")
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(write(tmp_path, text)), "--out", "out"]) == 2
    assert "6 of 6 runs failed" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rows"] == []


def test_one_failed_cell_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = SMALL.replace("seed = [0, 1]", "seed = [0]").replace(
        '"data.noise" = [0.0, 0.4]', '"data.clients" = [3, 100]'
    )
    text = text.replace('x = "data.noise"', 'x = "data.clients"')
    assert main(["sweep", str(write(tmp_path, text))]) == 2
    told = capsys.readouterr()
    assert told.err.count("failed:") == 3
    assert "error: 3 of 6 runs failed" in told.err
    summary = json.loads((tmp_path / "sweeps" / "sweep" / "summary.json").read_text())
    assert len(summary["rows"]) == 3
    assert all("data.min_size" in one["problem"] for one in summary["failed"])


def test_a_process_that_dies_is_a_failed_cell(tmp_path, monkeypatch):
    plan = read_plan(str(write(tmp_path, SMALL.replace("seed = [0, 1]", "seed = [0]"))))
    monkeypatch.setenv("GCFL_FAILPOINT", "round.end:2:kill")
    outcomes = run_cells(plan.cells[:2], tmp_path / "runs", 2, lambda _: None)
    assert all("died (exit code -9)" in outcome.problem for outcome in outcomes)
    monkeypatch.delenv("GCFL_FAILPOINT")
    outcomes = run_cells(plan.cells[:2], tmp_path / "runs", 2, lambda _: None)
    assert all(
        outcome.problem is None and gcfl.load(outcome.folder).finished for outcome in outcomes
    )


def sweep_process(folder, out):
    line = [
        sys.executable,
        "-m",
        "gcfl.cli",
        "sweep",
        str(folder / "sweep.toml"),
        "--jobs",
        "2",
        "--out",
        str(out),
        "--quiet",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        line,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.slow
def test_killed_five_times_it_ends_with_the_same_summary(tmp_path):
    write(tmp_path, SMALL.replace("rounds = 3", "rounds = 40"))
    assert sweep_process(tmp_path, tmp_path / "alone").wait(timeout=1800) == 0
    draw = np.random.default_rng(20_261_116)
    for _ in range(5):
        process = sweep_process(tmp_path, tmp_path / "killed")
        runs = tmp_path / "killed" / "runs"
        records = (
            sum(len(path.read_text().splitlines()) for path in runs.glob("*/rounds.jsonl"))
            if runs.exists()
            else 0
        )
        wanted = records + int(draw.integers(1, 60))
        deadline = time.monotonic() + 1800
        while process.poll() is None and time.monotonic() < deadline:
            if (
                sum(len(path.read_text().splitlines()) for path in runs.glob("*/rounds.jsonl"))
                >= wanted
            ):
                break
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)  # the sweep alone: its runs must end with it
        process.wait()
    assert sweep_process(tmp_path, tmp_path / "killed").wait(timeout=1800) == 0
    summaries = [
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("alone", "killed")
    ]
    assert steady(summaries[0]) == steady(summaries[1])


# ---- recipes


def test_every_result_of_the_paper_is_a_recipe():
    assert set(recipe_names()) == {
        "full",
        "motivation",
        "finetune",
        "closed",
        "open",
        "attribute",
        "composition",
        "efficiency",
        "overhead",
        "communication",
        "validation-size",
        "participation",
        "budget",
        "alpha",
        "heatmap",
    }
    for name in recipe_names():
        assert read_recipe(name)["paper"]["note"]
        for scale in SCALES:
            read_plan(name, scale)  # every cell of every scale is a valid experiment


@pytest.mark.parametrize("name", [n for n in recipe_names(False) if n.startswith("robust")])
def test_rivals_of_the_recommended_method_get_its_help(name):
    """The same images, server momentum, warm start and server as a client: nobody is made weak."""
    helped = [cell for cell in read_plan(name).cells if "robust" in cell.settings["method"]]
    assert helped
    for cell in helped:
        label, found = dict(cell.differs)["label"], cell.experiment()
        left_out = label.startswith(("no ", "server not"))
        assert left_out or (
            found.clean.takes_part,
            bool(found.clean.warm_start),
            found.server.momentum,
            found.train.min_steps,
        ) == (True, True, 0.8, 8), label
        alone = "all samples" in label
        assert found.coreset.budget == (1.0 if alone else 0.1), label


def test_weighted_methods_are_weighted_and_crust_is_what_was_released():
    """As their authors ran them: anything less would be a weak rival. GCFL has none."""
    cells = [cell for name in recipe_names() for s in SCALES for cell in read_plan(name, s).cells]
    chosen = [
        (words, cell.experiment().coreset)
        for cell in cells
        if (words := {*cell.settings["method"].split("+")}) & {"crust", "craig", "gradmatch"}
    ]
    assert len(chosen) > 50
    for words, coreset in chosen:
        assert coreset.weighted, words
        assert getattr(coreset, "crust", "released") == "released"
    for cell in cells:
        if cell.settings["method"] in ("gcfl", "random", "facility"):
            assert not cell.experiment().coreset.weighted


def test_the_papers_set_up():
    for cell in read_plan("finetune", "paper").cells:
        experiment = cell.experiment()
        assert (
            experiment.rounds,
            experiment.data.clients,
            experiment.data.alpha,
            experiment.data.noise,
        ) == (250, 10, 0.4, 0.4)
        train = experiment.train
        assert (train.lr, train.momentum, train.weight_decay, train.batch) == (0.01, 0.9, 5e-4, 32)
        assert (experiment.data.validation, experiment.data.test, experiment.model.name) == (
            5000,
            5000,
            "cnn",
        )
    for cell in read_plan("closed", "small").cells:
        assert cell.experiment().data.samples <= 5000


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_at_smoke_scale(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "run", name, "--scale", "smoke", "--jobs", "1"]) == 0
    out = tmp_path / "sweeps" / f"{name}-smoke"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rows"]
    assert not summary["failed"]
    assert len(np.unique(np.asarray(Image.open(out / "figure.png").convert("L")))) > 15
    capsys.readouterr()
    assert main(["paper", "table"]) == 0
    assert summary["title"] in capsys.readouterr().out


def test_paper_list_names_them_all(capsys):
    assert main(["paper", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in recipe_names())
    assert main(["paper", "run", "closd"]) == 2
    assert "did you mean closed" in capsys.readouterr().err


def test_the_papers_numbers_reach_the_report(tmp_path, monkeypatch):
    """A sweep whose rows have the paper's names: figure by figure in the page, with the
    difference.
    """
    (tmp_path / "mine.toml").write_text(
        """
        [paper]
        note = "as printed"
        rows = [{ label = "FedAvg", value = 0.341 }, { label = "Nobody", value = 0.9 }]
        [experiment]
        rounds = 1
        [experiment.data]
        samples = 200
        clients = 3
        [experiment.model]
        name = "logistic"
        [sweep]
        cases = [{ label = "FedAvg", method = "fedavg" }, { label = "Random", method = "random" }]
        """
    )
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "mine.toml", "--jobs", "1", "--out", "mine"]) == 0
    (paper,) = json.loads((tmp_path / "mine" / "sweep.json").read_text())["paper"]
    (row,) = paper["rows"]
    assert (row["label"], row["paper"]) == ("FedAvg", 0.341)
    assert main(["report", "mine", "-o", "page.html", "--no-data"]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "as printed" in text
    assert "<h1>mine</h1>" in text
    assert all(f"<td>{label}</td>" in text for label in ("FedAvg", "Random"))
    assert "logistic, on digits, clients 3, rounds 1, local epochs 1" in text
    assert f"{row['ours'] - 0.341:+.3g}" in text


_AT_FORK = {"interrupt": False}


def _interrupt_once():
    """What is raised in a fork's hook is lost, as in those of the standard library."""
    if _AT_FORK.pop("interrupt", False):
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_during_a_fork_is_not_lost(tmp_path):
    os.register_at_fork(after_in_parent=_interrupt_once)
    cells = read_plan(str(write(tmp_path))).cells
    _AT_FORK["interrupt"] = True
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted, match="the same command goes on from there"):
            run_cells(cells, tmp_path / "runs", 1, lambda _: None)
    finally:
        signal.signal(signal.SIGINT, before)
