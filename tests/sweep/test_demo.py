from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from matplotlib.image import imread

import gcfl
from gcfl import cli
from gcfl.sweep.plan import read_plan, read_recipe, recipe_names
from helpers import command

METHODS = [case["label"] for case in read_recipe("demo")["sweep"]["cases"]]
SCENES = [scene["scene"] for scene in read_recipe("demo")["sweep"]["scenes"]]


def test_a_short_demo(tmp_path, capsys):
    out = tmp_path / "demo"
    arguments = ["demo", "--out", str(out), "--seeds", "2", "--rounds", "2", "--quiet"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    for name in METHODS:
        assert text.count(f"│ {name} ") == len(SCENES)
    for scene in SCENES:
        assert f"{scene}: 10 clients, 40% wrong labels, 2 seeds" in text
    assert "gcfl show" in text or "show " in text
    picture = imread(out / "demo.png")
    assert picture.shape[1] > 1000
    assert np.std(picture[..., :3]) > 0.05
    folders = {path.name for path in (out / "runs").iterdir()}
    cells = read_plan("demo", seeds=2, changes={"rounds": 2}).cells
    assert folders == {cell.experiment().folder_name() for cell in cells}
    assert len(folders) == 2 * len(SCENES) * len(METHODS)
    # A second time only reads.
    times = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("summary.json")}
    assert cli.main(arguments) == 0
    assert times == {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("summary.json")}


def test_the_run_folders_have_the_names_that_they_always_had():
    cells = {dict(cell.differs)["label"]: cell for cell in read_plan("demo", seeds=1).cells[:7]}
    assert len({cell.experiment().folder_name() for cell in cells.values()}) == 7
    first = cells["FedAvg, all samples"].experiment().folder_name()
    assert first == "digits-mlp-fedavg-noise40-seed0-5efc0de735"
    older = read_plan("demo", changes={"coreset.score": "correlation"}, seeds=1).cells[3]
    assert older.experiment().folder_name() == "digits-mlp-gcfl-noise40-seed0-6e325d4ba4"


def test_it_is_no_experiment_of_the_paper(capsys):
    assert "demo" in recipe_names(of_paper=False)
    assert "demo" not in recipe_names()
    assert cli.main(["paper", "list"]) == 0
    assert not any(line.startswith("demo") for line in capsys.readouterr().out.splitlines())
    assert cli.main(["paper", "run", "demo"]) == 2


def test_bad_numbers_are_one_sentence(capsys):
    for name in ("--seeds", "--rounds"):
        assert cli.main(["demo", name, "0"]) == 2
        assert f"{name} must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_stopped_it_goes_on(tmp_path):
    line = [sys.executable, "-m", "gcfl.cli", "demo", "--seeds", "1", "--rounds", "20"]
    # A shell that runs us in the background has Ctrl-C ignored, and what we start inherits that.
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        line, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )
    deadline = time.monotonic() + 1800
    while not list(tmp_path.glob("demo/runs/*/summary.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert "the same command goes on from there" in process.communicate(timeout=1800)[1]
    assert process.returncode == 130
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("demo/runs/*/summary.json")}
    assert before
    done = command("demo", "--seeds", "1", "--rounds", "20", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("demo/runs/*/summary.json")}
    assert before.items() < after.items()


@pytest.mark.slow
def test_the_demo_shows_what_the_readme_says(tmp_path):
    """The recommended method is above everything that needs no truth, in both scenes."""
    done = command("demo", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], list[float]] = {}
    for cell in read_plan("demo").cells:
        folder = tmp_path / "demo" / "runs" / cell.experiment().folder_name()
        named = dict(cell.differs)
        scene = "digits" if named["scene"].startswith("digits") else "blobs"
        found.setdefault((scene, named["label"]), []).append(gcfl.load(folder).accuracy)

    def mean(scene, method):
        assert len(found[scene, method]) == 3
        return np.mean(found[scene, method])

    assert mean("digits", "robust") >= 0.94
    assert mean("blobs", "robust") >= 0.93
    assert mean("digits", "GCFL") >= 0.855
    assert mean("blobs", "GCFL") >= 0.905
    for scene in ("digits", "blobs"):
        for other in (
            "FedAvg, all samples",
            "FedAvg, equal samples",
            "GCE, equal samples",
            "GCFL",
            "server only",
        ):
            assert mean(scene, "robust") > mean(scene, other)
