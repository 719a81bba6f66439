"""Run folders that an earlier version wrote: read, shown, reported, compared, continued and filled
up as if today's had.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import gcfl
from conformance.test_bits import machine, tensors
from gcfl import cli
from gcfl.report.build import report
from gcfl.results.collect import collect
from gcfl.results.folder import RunFolder

STORED = Path(__file__).parent / "version0"
EXPECTED = json.loads((STORED / "expected.json").read_text())
UNFINISHED = EXPECTED["unfinished"]["folder"]
BEST = next(name for name in EXPECTED["folders"] if "fedavg" in name)  # server.keep = "best"


@pytest.fixture
def old(tmp_path):
    return shutil.copytree(STORED, tmp_path / "old")


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", EXPECTED["folders"])
def test_accuracy_cost_and_curve_are_what_they_were(old, name):
    run, told = gcfl.load(old / "runs" / name), EXPECTED["folders"][name]
    assert run.finished
    assert run.state == "finished"
    assert run.accuracy == told["accuracy"]
    assert run.curve == told["curve"]
    assert len(run.rounds) == told["rounds"]
    assert run.cost["cpu"] == told["cpu"]
    assert run.cost["samples"] == told["samples"]
    assert run.cost["bytes"] == told["bytes"]
    then = json.loads((run.folder / "summary.json").read_text())
    assert run.summary() == {**then, "privacy": run.privacy}  # which is newer
    assert len(run.clients) == 4
    assert run.predict(np.zeros((2, 1, 8, 8), dtype=np.float32)).shape == (2,)
    if "gcfl" in name:
        assert set(run.coresets) == {0, 3}


def test_collect_and_report(old, tmp_path):
    found = collect([old / "runs"])
    assert {run.name for run in found.runs} == {*EXPECTED["folders"], UNFINISHED}
    assert found.left_out == []
    for run in found.runs:
        if run.finished:
            assert run.accuracy == EXPECTED["folders"][run.name]["accuracy"]
        else:
            assert run.state == "unfinished: 4 of 6 rounds"
    for format in ("html", "csv", "json", "md", "png"):
        assert report(old / "runs", tmp_path / f"report.{format}")
    text = (tmp_path / "report.html").read_text()
    assert "Left out" not in text
    with open(tmp_path / "report.csv") as file:
        means = {row["method"]: row["accuracy_mean"] for row in csv.DictReader(file)}
    for name, told in EXPECTED["folders"].items():
        assert float(means[gcfl.load(old / "runs" / name).method]) == told["accuracy"]


def test_every_command_tells_the_accuracy_of_the_model_that_is_kept(old, tmp_path, capsys):
    """0.375 in round 1, which server.keep = "best" keeps; 0.35 in the last."""
    folder = old / "runs" / BEST
    run = gcfl.load(folder)
    assert (run.accuracy, run.curve[-1]) == (0.375, 0.35)

    def printed(*arguments):
        assert cli.main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    assert f"fedavg: accuracy {run.accuracy:.4f} after 10 rounds" in printed("show", folder)
    totals = printed("show", folder).partition("result and cost")[2].splitlines()
    assert next(line for line in totals if "accuracy, %" in line).split()[-2] == "37.50"
    assert f"accuracy {run.accuracy:.4f}" in printed("show", folder, folder)
    line = next(
        line for line in printed("compare", folder, folder).splitlines() if "accuracy, %" in line
    )
    assert line.count("37.50") == 2
    assert f"accuracy {run.accuracy:.4f}" in printed("resume", folder, "--quiet")
    (file,) = report(folder, tmp_path / "a.json")
    assert json.loads(file.read_text())["groups"][0]["accuracy"]["mean"] == run.accuracy
    (file,) = report(folder, tmp_path / "a.md")
    assert "| fedavg | 37.5 |" in file.read_text()
    assert "<td>37.50</td>" in report(folder, tmp_path / "a.html", data=False)[0].read_text()


def test_the_unfinished_one_goes_on_to_the_same_bits(old):
    folder = old / "runs" / UNFINISHED
    before = (folder / "rounds.jsonl").read_text().splitlines()
    run = gcfl.load(folder)
    assert len(run.rounds) == EXPECTED["unfinished"]["rounds"]
    assert run.accuracy == run.curve[-1]
    assert run.how_to_continue == f"gcfl resume {folder}"
    done = gcfl.resume(folder)
    assert done.finished
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    assert lines[:4] == before[:4]  # in the form in which they were written
    assert [json.loads(line).get("format") for line in lines] == [None] * 4 + [1] * 2
    theirs = tensors(STORED / "resumed-model.safetensors")
    ours = tensors(folder / "model.safetensors")
    assert ours.keys() == theirs.keys()
    if EXPECTED["machine"] == machine():
        assert done.curve == EXPECTED["unfinished"]["curve"]
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-4)


def test_a_sweep_plays_only_what_is_missing(old, monkeypatch, capsys):
    monkeypatch.chdir(old)
    before = contents(old / "sweep" / "runs")
    told = json.loads((old / "sweep" / "summary.json").read_text())
    assert cli.main(["sweep", "sweep.toml", "--out", "sweep", "--jobs", "1"]) == 0
    assert capsys.readouterr().err.count("done:") == 2
    after = contents(old / "sweep" / "runs")
    assert before.items() <= after.items()
    assert len(list((old / "sweep" / "runs").iterdir())) == 4
    now = json.loads((old / "sweep" / "summary.json").read_text())
    assert [row["seeds"] for row in now["rows"]] == [2, 2]
    assert now.keys() == told.keys()
    assert now["rows"][0].keys() == told["rows"][0].keys()
    assert (old / "sweep" / "figure.png").exists()


def test_a_lacking_field_is_filled_and_an_unknown_one_ignored(old):
    folder = old / "runs" / BEST
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert "cpu" not in lines[0]["time"]["round"]  # it has a default
    lines[3] |= {"format": 7, "temperature": 21.5}
    lines[3]["samples"]["skipped"] = 3
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = RunFolder(folder).records()
    assert records[0].time.round.cpu == 0.0
    assert records[3].round == 3
    assert not hasattr(records[3], "temperature")
    assert gcfl.load(folder).accuracy == EXPECTED["folders"][BEST]["accuracy"]
    del lines[3]["steps"]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(gcfl.GcflError, match=r"line 4 of .* is not .* a round: it lacks"):
        RunFolder(folder).records()
