"""Methods side by side, from the command line and from Python."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import gcfl
from gcfl.base.errors import ConfigError
from gcfl.cli import main
from gcfl.sweep.comparison import comparison_plan
from helpers import tiny

FLAGS = [
    *("--data", "digits", "--data.samples", "300", "--clients", "3", "--noise", "0.4"),
    *("--data.validation", "80", "--data.test", "60", "--model", "mlp", "--model.hidden", "[8]"),
    *("--rounds", "2", "--jobs", "2"),
]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x)


def arrays():
    draw = np.random.default_rng(0)
    y = np.arange(120) % 2
    return draw.normal(size=(120, 4)).astype(np.float32) + 2 * y[:, None], y


def test_methods_and_seeds_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["run", "--method", "fedavg,gcfl", "--seeds", "2", *FLAGS]
    assert main(line) == 0
    out, err = capsys.readouterr()
    assert "|--" not in out  # a table, no raw Markdown
    rows = [row.split("│")[1:3] for row in out.splitlines() if row.startswith("│")]
    assert [row[0].strip() for row in rows] == ["fedavg", "gcfl"]
    for name, text in rows:
        folders = (tmp_path / "runs").glob(f"digits-mlp-{name.strip()}-noise40-seed?-*")
        found = [100 * gcfl.load(folder).accuracy for folder in folders]
        assert len(found) == 2
        wanted = f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}"
        assert text.strip().removesuffix(" ★") == wanted
    assert "2 seeds" in out
    assert "hint: of " in err
    assert "the training loss is still near that of guessing" in err
    (page,) = (tmp_path / "runs").glob("compare-*.html")
    assert f"report: runs/{page.name}" in out
    assert " points" in page.read_text()
    assert "(4/4, " in err
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")}
    assert main(line) == 0
    assert capsys.readouterr().err.count("finished before") == 4
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")}
    assert main(["show", "runs"]) == 0
    assert capsys.readouterr().out.count("accuracy 0.") == 4


def test_sigterm_to_all_processes_ends_in_one_sentence(tmp_path):
    """As a container, a batch system or a closing terminal sends it."""
    line = [sys.executable, "-m", "gcfl.cli", "run", "--method", "fedavg,robust", "--seeds", "3"]
    line += [*FLAGS[:-4], "--rounds", "100000", "--jobs", "2"]
    process = subprocess.Popen(
        line, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 1800
    while len(list(tmp_path.glob("runs/*/rounds.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    err = process.communicate(timeout=1800)[1]
    assert process.returncode == 128 + signal.SIGTERM
    said = "stopped; what was finished is kept, and the same command goes on from there"
    assert err.splitlines()[-1] == said
    assert "Traceback" not in err
    assert "failed" not in err


def test_runs_in_progress_are_told_of_now_and_then(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gcfl.sweep.runner._TELL_SECONDS", 0.0)
    assert main(["run", "--method", "fedavg,gcfl", "--seeds", "1", *FLAGS]) == 0
    assert "/2 rounds" not in capsys.readouterr().err  # nothing is due in the first half minute
    monkeypatch.setattr("gcfl.report.progress._SELDOM_SECONDS", 0.0)
    assert main(["run", "--method", "fedavg,gcfl", "--seeds", "1", *FLAGS, "--seed", "9"]) == 0
    err = capsys.readouterr().err
    for method in ("fedavg", "gcfl"):
        assert re.search(rf"^{method}.*: 0/2 rounds  then 2 of 3 clients done$", err, re.M)
        assert re.search(rf"^{method}.*: 1/2 rounds$", err, re.M)
    assert main(["run", "--method", "fedavg,gcfl", "--quiet", *FLAGS, "--seed", "10"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--method", "fedavg,gclf"], "did you mean gcfl?"),
        (["--method", "fedavg,fedavg"], "compared with itself"),
        (["--method", "fedavg,,gcfl"], "nothing between two commas"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "2"], "--jobs is for several runs"),
        (["--seeds", "2", "--fresh"], "--fresh is for one run"),
        (["--method", "fedavg,gcfl", "--budget", "7"], "(--budget)"),
    ],
)
def test_bad_comparisons_are_one_sentence(tmp_path, monkeypatch, capsys, line, said):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *line]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_from_python_with_arrays_and_a_class(tmp_path):
    found = gcfl.compare(
        ["fedavg", "gcfl"], data=arrays(), model=Net, seeds=2, jobs=2, out=tmp_path,
        rounds=2, clients=3, validation=20, test=30,
    )  # fmt: skip
    assert [run.seed for run in found.runs] == [0, 1, 0, 1]
    assert [run.method for run in found.runs] == ["fedavg", "fedavg", "gcfl", "gcfl"]
    alone = gcfl.run(
        "gcfl", arrays(), Net, seed=1, out=tmp_path / "alone", rounds=2, clients=3,
        validation=20, test=30,
    )  # fmt: skip
    assert found.runs[3].name == alone.name
    assert found.runs[3].accuracy == alone.accuracy
    frame = found.to_frame()
    means = [np.mean([run.accuracy for run in found.runs[at : at + 2]]) for at in (0, 2)]
    assert frame["accuracy_mean"].tolist() == pytest.approx(means)
    assert found.verdict.endswith(".")
    assert found.verdict in repr(found)
    assert "<table" in found._repr_html_()
    assert found.report.exists()
    runs = gcfl.compare(found.runs[0], str(found.runs[2].folder))
    assert [run.method for run in runs.runs] == ["fedavg", "gcfl"]
    assert "one seed proves nothing" in runs.verdict


def test_cases_have_names_and_settings():
    plan = comparison_plan(
        {"plain": {"method": "fedavg"}, "gce": {"method": "fedavg", "train": {"loss": "gce"}}},
        {"rounds": 2, "seed": 3},
        2,
    )
    assert [cell.label for cell in plan.cells] == [
        "plain, seed 3",
        "plain, seed 4",
        "gce, seed 3",
        "gce, seed 4",
    ]
    assert plan.cells[2].experiment().train.loss == "gce"
    with pytest.raises(ConfigError, match="as a list"):
        gcfl.compare("fedavg", "gcfl")


def test_a_sweep_from_python(tmp_path):
    experiment = tiny(rounds=1)
    del experiment["method"]
    text = {"title": "two", "experiment": experiment, "sweep": {"method": ["fedavg", "random"]}}
    found = gcfl.sweep(text, out=tmp_path, jobs=2)
    assert [group.line for group in found.study.groups] == ["fedavg", "random"]
    assert (tmp_path / "summary.md") == found.report
    with pytest.raises(ConfigError, match="unknown section 'sweeep' in the sweep"):
        gcfl.sweep({"sweeep": {}})
    from gcfl.sweep import read_plan  # the room is still there

    assert read_plan("demo").cells
