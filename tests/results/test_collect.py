from __future__ import annotations

import json
import shutil

import pytest

import gcfl
from gcfl.base.errors import RunError
from gcfl.base.files import locked
from gcfl.results.collect import collect, read
from helpers import tiny


@pytest.fixture
def one(runs, tmp_path):
    """A copy of one run, to be spoiled, beside another that is whole."""
    whole, spoiled = sorted((runs / "gcfl").iterdir())[:2]
    shutil.copytree(whole, tmp_path / "whole")
    return shutil.copytree(spoiled, tmp_path / "spoiled")


def change(folder, **changes):
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    lines[2] |= changes
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_folders_at_any_depth_each_once(runs):
    found = collect([runs, runs / "gcfl", next((runs / "gcfl").iterdir())])
    assert len(found.runs) == 8
    assert found.left_out == []
    assert {run.name.split("/")[0] for run in found.runs} == {"gcfl", "fedavg"}


DAMAGES = {
    "no config": lambda folder: (folder / "config.toml").unlink(),
    "config is no TOML": lambda folder: (folder / "config.toml").write_bytes(b"\xff\x00 = ["),
    "config lacks the method": lambda folder: (folder / "config.toml").write_text(
        "seed = 0\nrounds = 3\n"
    ),
    "a line torn in the middle": lambda folder: (folder / "rounds.jsonl").write_text(
        '{"round": 0\n{"round": 1}\n'
    ),
    "another file's lines": lambda folder: (folder / "rounds.jsonl").write_text("{}\n[]\n3\n"),
    "text for a number": lambda folder: change(folder, accuracy="high"),
    "not a number": lambda folder: change(folder, loss=float("nan")),
    "no time": lambda folder: change(folder, time={}),
    "bytes of the wrong shape": lambda folder: change(folder, bytes=[1, 2]),
    "a round is missing": lambda folder: change(folder, round=5),
    "environment is no JSON": lambda folder: (folder / "environment.json").write_text("{"),
    "environment is a list": lambda folder: (folder / "environment.json").write_text("[]"),
    "energy is a number": lambda folder: (folder / "energy.json").write_text("3"),
    "rounds are text": lambda folder: (folder / "config.toml").write_text(
        'method = "gcfl"\nseed = 0\nrounds = "x"\n'
    ),
    "clients is a list": lambda folder: (folder / "clients.json").write_text("[]"),
    "rounds is a folder": lambda folder: (
        (folder / "rounds.jsonl").unlink(),
        (folder / "rounds.jsonl").mkdir(),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_named_and_left_out(one, damage):
    DAMAGES[damage](one)
    found = collect([one.parent])
    assert [run.name for run in found.runs] == ["whole"]
    ((name, why),) = found.left_out
    assert name == "spoiled"
    assert why
    assert "\n" not in why
    assert str(one.parent) not in why  # a report goes to others
    with pytest.raises(RunError):
        collect([one])


def test_a_torn_last_line_and_a_missing_summary_are_an_unfinished_run(one):
    (one / "summary.json").unlink()
    whole = (one / "rounds.jsonl").read_text()
    (one / "rounds.jsonl").write_text(whole[:-40])
    run = read(one)
    assert not run.finished
    assert run.state == "unfinished: 5 of 6 rounds"
    with locked(one):
        assert read(one).state == "running: 5 of 6 rounds"


def test_what_was_set_aside_and_copies_do_not_count(one):
    one.rename(one.with_name("spoiled.old1"))
    shutil.copytree(one.parent / "whole", one.parent / "twin")
    found = collect([one.parent])
    assert [run.name for run in found.runs] == ["twin"]
    assert found.left_out == [("whole", "the same settings and seed as twin")]
    assert len(collect([one.with_name("spoiled.old1")]).runs) == 1


def test_nothing_to_report_is_one_sentence(tmp_path):
    for paths, words in [
        ([], "at least one"),
        ([tmp_path / "x"], "does not exist"),
        ([tmp_path], "no run"),
    ]:
        with pytest.raises(RunError, match=words):
            collect(paths)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        collect([tmp_path / "file"])


def test_accuracy_and_cost_are_those_of_the_summary(runs):
    for run in collect([runs]).runs:
        summary = json.loads((run.folder / "summary.json").read_text())
        assert run.accuracy == summary["accuracy"]
        assert run.cost == summary["cost"]
        assert run.clean_share == summary["clean_share"]


def test_a_run_that_is_fine_tuned_at_the_end_has_the_accuracy_of_its_last_round(tmp_path):
    """As gcfl.load has it: the best round's model was trained on after that round was scored."""
    server = {
        "hold_out": 0.5,
        "keep": "best",
        "fine_tune": "end",
        "fine_tune_epochs": 20,
        "fine_tune_lr": 0.01,
    }
    result = gcfl.run(
        out=tmp_path,
        **tiny(method="fedavg", train={"lr": 0.3, "epochs": 5}, rounds=12, server=server),
    )
    assert read(result.folder).accuracy == result.accuracy == result.rounds[-1].accuracy
    losses = [record.validation_loss for record in result.rounds]
    assert result.accuracy != result.rounds[losses.index(min(losses))].accuracy, (
        "this case shows nothing"
    )
