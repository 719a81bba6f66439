"""What new users stumbled over, each once."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace

import pytest

from gcfl import cli, experiment
from gcfl.base.errors import ConfigError
from gcfl.cli import sweep
from gcfl.cli.listing import settings_table
from gcfl.cli.settings import overrides
from gcfl.report import progress
from gcfl.report.terminal import hint, one_line
from gcfl.results.run import Run
from helpers import run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs"), method="fedavg", rounds=1, train={"loss": "gce"})


@pytest.mark.parametrize(("accuracy", "said"), [(0.84, False), (0.12, True), (None, True)])
def test_the_hint_about_guessing_is_for_those_who_guess(made, accuracy, said):
    """Wrong labels keep the training loss near log C, however well the model does."""
    guessing = Run(made.folder)
    guessing.rounds = [replace(made.rounds[0], train_loss=2.2, accuracy=accuracy)]
    assert (hint(guessing) is not None) == said
    guessing.rounds = [replace(made.rounds[0], train_loss=0.4, accuracy=0.12)]
    assert hint(guessing) is None


def test_the_hint_about_guessing_is_not_for_a_model_that_was_better_before(made):
    """More rounds do not mend that."""
    worse = Run(made.folder)
    worse.rounds = [
        replace(made.rounds[0], train_loss=2.2, accuracy=accuracy) for accuracy in (0.84, 0.12)
    ]
    assert hint(worse) is None


@pytest.mark.parametrize(
    ("started", "on_the_path", "typed"),
    [
        ("/venv/bin/gcfl", "/venv/bin/gcfl", "gcfl"),
        (".venv/bin/gcfl", None, ".venv/bin/gcfl"),
        ("/src/gcfl/__main__.py", None, f"{sys.executable} -m gcfl"),
    ],
)
def test_the_demo_ends_with_commands_that_can_be_typed(monkeypatch, started, on_the_path, typed):
    monkeypatch.setattr("sys.argv", [started, "demo"])
    monkeypatch.setattr("shutil.which", lambda _: on_the_path)
    assert sweep._command() == typed


def test_a_flag_that_there_is_not(capsys):
    assert cli.main(["--foo"]) == 2
    assert capsys.readouterr().err.startswith("error: gcfl does not take --foo")
    assert cli.main([]) == 0


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--data.nois", "--data.noise"), ("--nois", "--noise"), ("--mu", "--local.mu")],
)
def test_suggestions_are_flags(capsys, flag, meant):
    assert cli.main(["run", flag, "0.3"]) == 2
    assert f"unknown option {flag}; did you mean {meant}?" in capsys.readouterr().err


def test_pages_beside_runs_are_passed_over_in_a_note(made, tmp_path, capsys, caplog):
    """As a shell writes runs/*: comparisons leave their pages there."""
    page = made.folder.parent / "compare-0123456789.html"
    page.write_text("<html>")
    named = [str(page), str(made.folder)]
    for words in (["show"], ["verify"], ["report", "-o", str(tmp_path / "r.html"), "--no-data"]):
        caplog.clear()
        assert cli.main([*words[:1], *named, *words[1:]]) == 0
        assert caplog.text.count("passed over 1 file, which is no run folder") == 1
        assert "error" not in capsys.readouterr().err
        assert cli.main([words[0], str(page)]) == 2  # a file alone is a mistake
        assert "compare-0123456789.html" in capsys.readouterr().err
    page.unlink()


def test_a_folder_of_runs_is_verified_run_by_run(made, tmp_path, capsys):
    shutil.copytree(made.folder, tmp_path / "good" / made.folder.name)
    bad = shutil.copytree(made.folder, tmp_path / "bad" / made.folder.name)
    assert cli.main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(": whole") == 2
    with open(bad / "rounds.jsonl", "ab") as file:
        file.write(b"{}\n")
    assert cli.main(["verify", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out.count(": whole") == 1
    assert str(bad) in shown.err


def test_show_quiet_is_the_line_alone(made, capsys):
    assert cli.main(["show", "--quiet", str(made.folder)]) == 0
    assert capsys.readouterr().out == f"{one_line(made)}\n"


def test_one_round_and_the_loss_in_lines(made, capsys):
    assert re.match(r"fedavg \(gce\): accuracy 0\.\d+ after 1 round, ", one_line(made))
    assert cli.main(["show", str(made.folder.parent)]) == 0
    assert capsys.readouterr().out.startswith(f"{made.folder}: fedavg (gce): ")


def test_show_of_a_folder_without_runs(tmp_path, capsys):
    assert cli.main(["show", str(tmp_path)]) == 2
    assert "there is none in it" in capsys.readouterr().err


def test_smoke_numbers_mean_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", "run", "closed", "--scale", "smoke", "--seeds", "1"]) == 0
    out = capsys.readouterr().out
    assert "its numbers mean nothing" in out
    assert "|--" not in out
    assert cli.main(["paper", "table"]) == 0
    table = capsys.readouterr().out
    assert "its numbers mean nothing" in " ".join(table.split())
    assert "|--" not in table


@pytest.mark.parametrize("engine", [{}, {"workers": 2}, {"vectorised": True}])
def test_a_long_round_tells_how_far_it_is(tmp_path, monkeypatch, capsys, engine):
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 1e9)
    flags = [f"--engine.{name}={str(value).lower()}" for name, value in engine.items()]
    settings = ["--data.samples", "300", "--clients", "4", "--rounds", "1", "--method", "fedavg"]
    assert cli.main(["run", *settings, *flags, "--out", str(tmp_path)]) == 0
    done = re.findall(r"0/1 round  then (\d) of 4 clients done", capsys.readouterr().err)
    assert done == sorted(done)
    assert done[-1] == "4"


def test_settings_say_what_they_may_be():
    """The table's ranges are those that validation has."""
    rows = {row.name: row for row in settings_table() if not row.words}
    wanted = {
        "coreset.budget": "in (0, 1]",
        "rounds": "at least 1",
        "data.noise": "in [0, 1)",
        "clean.lr": "in (0, inf), auto",
        "cohort": "a share in (0, 1] or a count",
        "data.normalise": "true, false",
        "data.severity": "a whole number in [1, 5]",
        "data.noise_rates": "a list, each in [0, 1)",
        "model.hidden": "a list of widths",
    }
    assert {name: rows[name].values for name in wanted} == wanted
    assert all(row.values for row in rows.values())
    for name, owners in experiment.every_setting().items():
        found = re.fullmatch(
            r"in ([\[(])([^,]+), (.+)([\])])", rows[name].values if name in rows else ""
        )
        for bracket, end in ((found[1], found[2]), (found[4], found[3])) if found else ():
            settings = {"method": owners[-1][0] or "fedavg"}
            experiment.assign(settings, name, float(end))
            if bracket in "()":
                with pytest.raises(ConfigError, match=r"must be (in|a finite)"):
                    experiment.build(settings)


def test_a_trial_that_takes_long_is_told_of_now_and_then(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.Trials(quiet=False) as trials:
        trials.trial("robust", 10)
        for _ in range(10):
            clock[0] += 12.0
            trials.round(None)
        trials.trial("gce", 1)
        clock[0] += 100.0
        trials.round(None)
    # every half a minute, not after the last round, which the next line follows at once
    assert capsys.readouterr().err.splitlines() == [
        "trying robust, 10 rounds",
        *(f"robust: {done}/10 rounds" for done in (3, 6, 9)),
        "trying gce, 1 round",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [(".2", 0.2), ("5.", 5.0), ("-.5e1", -5.0), ("1e-3", 1e-3), ("3", 3), ("1.2.3", "1.2.3")],
)
def test_numbers_as_people_write_them(text, value):
    found = overrides(["--noise", text])[1]["data.noise"][1]
    assert (found, type(found)) == (value, type(value))
