from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import gcfl
from gcfl import cli
from gcfl import experiment as config
from gcfl.report.terminal import chart
from gcfl.results.styles import human
from helpers import ROOT, command, run, tiny


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], []])
def test_help_does_not_import_torch(arguments):
    call = f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass"
    code = f"import sys\nfrom gcfl.cli import main\n{call}\nassert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "gcfl" in done.stdout


def test_a_run_from_a_file_and_flags(tmp_path):
    (tmp_path / "run.toml").write_text(config.build(tiny())[0].to_toml())
    done = command(
        "run",
        "run.toml",
        "--rounds",
        "3",
        "--coreset.score=distance",
        "--workers",
        "2",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"digits-mlp-gcfl-noise40-seed0-[0-9a-f]{10}", folder.name)
    written = config.read_toml(folder / "config.toml")
    assert written["rounds"] == 3
    assert written["coreset"]["score"] == "distance"
    assert re.match(
        r"gcfl \(score distance\): accuracy 0\.\d{4} after 3 rounds, "
        r"\d+\.\d% of the training samples clean; .* CPU-seconds, .* sent\n",
        done.stdout,
    )
    assert "3/3 rounds  accuracy 0." in done.stderr
    assert f"gcfl show runs/{folder.name}" in done.stderr
    # The resolved configuration says everything: it gives the same run.
    again = command("run", f"runs/{folder.name}/config.toml", cwd=tmp_path)
    assert "already finished" in again.stderr
    assert again.stdout == done.stdout


def test_the_run_folder_is_complete(tmp_path):
    folder = run(tmp_path).folder
    names = {path.name for path in folder.iterdir()}
    wanted = {
        "config.toml",
        "environment.json",
        "rounds.jsonl",
        "coresets",
        "checkpoint",
        "model.safetensors",
        "summary.json",
    }
    assert wanted <= names
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["torch"]
    assert environment["processor"]
    summary = json.loads((folder / "summary.json").read_text())
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert summary["accuracy"] == records[-1]["accuracy"]
    assert summary["best_accuracy"] == max(record["accuracy"] for record in records)
    assert summary["cost"]["steps"] == sum(record["steps"] for record in records)
    assert len(records[0]["per_class"]) == 10
    for kind in ("select", "train", "aggregate", "evaluate"):
        assert records[0]["time"][kind]["cpu"] >= 0


def test_show(tmp_path, capsys):
    folder = run(tmp_path).folder
    assert cli.main(["show", str(folder), "--all"]) == 0
    text = capsys.readouterr().out
    for part in ("accuracy on the test set, round 0 to 5", "clean share", "sent down: select", "█"):
        assert part in text


def test_quiet_prints_the_result_only(tmp_path, capsys):
    assert (
        cli.main(
            ["run", "--rounds", "2", "--quiet", "--out", str(tmp_path), "--data.validation", "200"]
        )
        == 0
    )
    captured = capsys.readouterr()
    assert captured.out.startswith("robust: accuracy")
    assert captured.err == ""


def test_an_option_without_effect_is_told(tmp_path, capsys):
    assert (
        cli.main(
            [
                "run",
                "--method",
                "fedavg",
                "--budget",
                "0.2",
                "--rounds",
                "1",
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    assert "warning: coreset.budget has no effect with method fedavg" in capsys.readouterr().err


def test_the_help_of_run_and_the_docs_know_every_short_flag(capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    told = capsys.readouterr().out
    docs = (ROOT / "docs" / "usage.md").read_text().split("Short flags:")[1].split("##")[0]
    for name in (*config.SHORT, "out"):
        assert re.search(rf"^  --{name} ", told, re.M), name
        assert re.search(rf"--{name}\b", docs), name


@pytest.mark.parametrize("what", ["methods", "data", "models", "settings"])
def test_lists(capsys, what):
    assert cli.main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3
    assert all(len(line.split(None, 1)) == 2 for line in lines)


def test_a_listed_model_is_told_in_a_whole_sentence(capsys):
    """Not in the first line of its docstring, wherever that may break."""
    assert cli.main(["list", "models"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("cnn ")]
    assert line.endswith("two convolutions of 5x5, each with pooling, a hidden layer")


def test_every_listed_setting_is_a_flag_and_its_default_is_valid():
    from gcfl.cli.listing import listing

    for name, _ in listing("settings"):
        assert name.split(".")[0] in config.Experiment.model_fields
    for method, _ in listing("methods"):
        config.build({"method": method})


def test_the_progress_bar_on_a_terminal(tmp_path):
    """In a pseudo-terminal: a bar with round, accuracy and time left."""
    script = f"{sys.executable} -m gcfl.cli run --rounds 4 --data.validation 200 --out {tmp_path}"
    done = subprocess.run(
        ["script", "-qec", script, "/dev/null"],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stdout)
    assert re.search(r"rounds\s+4/4 .*accuracy 0\.\d{4} .*left", text)


def test_chart_and_human_numbers():
    lines = chart([0.0, 0.5, 1.0], height=4)
    assert lines[0].endswith("█")
    assert lines[0].startswith(" 1.000")
    assert lines[-1].startswith(" 0.000 ▁")
    assert chart([0.3]) != []
    assert [human(value) for value in (0, 999, 1000, 1_536_000, 2e15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1.54 MB",
        "2e+03 TB",
    ]


def test_the_python_interface(tmp_path):
    result = run(tmp_path, method="gcfl")
    assert result.finished
    assert result.accuracy == result.rounds[-1].accuracy
    assert result.cost["samples"]["backward"] > 0
    assert set(result.coresets) == {0, 2, 4}
    loaded = gcfl.load(result.folder)
    images = gcfl.load(result.folder).model.shape
    assert images == (1, 8, 8)
    import torch

    x = torch.zeros(3, 1, 8, 8)
    assert loaded.predict(x).tolist() == result.predict(x.numpy()).tolist()
    assert loaded.model.predict_proba(x[:0]).shape == (0, 10)
    module = loaded.model.module
    logits = module(loaded.model.network.prepare(x))
    assert logits.argmax(1).tolist() == loaded.predict(x).tolist()
