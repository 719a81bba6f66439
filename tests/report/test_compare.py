from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from gcfl import cli
from gcfl.base.errors import RunError
from gcfl.report.terminal import compare


def printed(*folders, width=120):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    compare(*folders, console)
    return console.file.getvalue()


@pytest.fixture
def pair(runs):
    return tuple(next((runs / method).glob("*noise40-seed0*")) for method in ("gcfl", "fedavg"))


def test_settings_result_cost_and_curves(pair):
    text = printed(*pair)
    assert "coreset.budget" in text
    assert "data.noise " not in text  # the same in both
    for folder in pair:
        last = json.loads((folder / "rounds.jsonl").read_text().splitlines()[-1])
        assert f"{100 * last['accuracy']:.2f}" in text
        assert folder.name in text
    line = next(line for line in text.splitlines() if "samples trained on" in line)
    summaries = [
        json.loads((folder / "summary.json").read_text())["cost"]["samples"]["backward"]
        for folder in pair
    ]
    assert [f"{count:,}" in line for count in summaries] == [True, True]
    assert f"{summaries[1] / summaries[0]:.2f}" in line
    assert "A: accuracy, 6 rounds" in text
    assert "█" in text


def test_both_curves_have_one_scale_and_fit_the_terminal(pair):
    for width in (60, 80, 120):
        text = printed(*pair, width=width)
        start = text.index("A: accuracy")
        assert max(map(len, text[start:].splitlines())) <= width
        tops = [line for line in text[start:].splitlines() if line.strip().startswith(("0.", "1."))]
        scales = [word for line in tops for word in line.split() if word[0].isdigit()]
        assert len(set(scales)) == 2


def test_the_same_run_twice_and_one_without_rounds(pair, tmp_path):
    assert "the settings are the same" in printed(pair[0], pair[0])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.toml").write_bytes((pair[0] / "config.toml").read_bytes())
    assert "not evaluated" in printed(pair[0], empty)
    assert "no round was evaluated yet" in printed(empty, empty)


def test_bad_folders_are_one_sentence(pair, tmp_path, capsys):
    with pytest.raises(RunError, match="does not exist"):
        compare(pair[0], tmp_path / "x")
    assert cli.main(["compare", str(pair[0]), str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert cli.main(["compare", str(pair[0])]) == 2
    assert cli.main(["compare", *map(str, pair)]) == 0
