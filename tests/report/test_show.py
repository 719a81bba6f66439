"""What is printed of runs: what matters first, the rest when asked for; hints where due."""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest
from rich.console import Console

import gcfl
from gcfl.api.estimator import GCFLClassifier
from gcfl.cli import main
from gcfl.report.terminal import hint, show
from helpers import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return gcfl.run(**{**tiny(method="gcfl"), "out": out}).folder


def printed(run, **more):
    console = Console(file=io.StringIO(), width=140)
    show(run, console, **more)
    return console.file.getvalue()


def test_rounds_and_parts_of_the_cost_are_shown_when_asked_for(folder, capsys):
    run = gcfl.load(folder)
    brief, whole = printed(run), printed(run, every=True)
    for text in ("accuracy on the test set, round 0 to", "CPU-seconds", "sent down", "clean set:"):
        assert text in brief
        assert text in whole
    for text in ("train loss", "sent down: model", "  evaluate"):
        assert text not in brief
        assert text in whole
    assert main(["show", str(folder)]) == 0
    assert f"gcfl show {folder} --all" in capsys.readouterr().err
    assert main(["show", str(folder), "--all"]) == 0
    captured = capsys.readouterr()
    assert "sent down: model" in captured.out
    assert "--all" not in captured.err


def test_a_comparison_of_runs_that_hardly_began_says_so(tmp_path, capsys):
    words = ["run", "--method", "fedavg,random", "--clients", "3", "--data.samples", "300"]
    words += ["--model", "logistic", "--jobs", "1"]
    early = ["--rounds", "1", "--lr", "0.0001", "--out", str(tmp_path / "early")]
    assert main([*words, *early]) == 0
    err = capsys.readouterr().err
    assert "hint: of " in err
    assert "so this tells little of how methods compare" in err
    late = ["--rounds", "3", "--lr", "0.1", "--epochs", "5", "--out", str(tmp_path / "late")]
    assert main([*words, *late]) == 0
    runs = [gcfl.load(one.parent) for one in (tmp_path / "late").rglob("summary.json")]
    assert len(runs) == 2
    assert [hint(run) for run in runs] == [None, None]  # else this test tests nothing
    assert "hint" not in capsys.readouterr().err


def test_clients_that_have_learnt_alarm_nobody(caplog):
    """Most updates are near zero then, and that of one who still learns is long beside them."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    with caplog.at_level(logging.WARNING, "gcfl"):
        model = GCFLClassifier(rounds=8, random_state=0).fit(np.asarray(x), y)
    assert model.score(x, y) > 0.95
    assert "as long as" not in caplog.text
