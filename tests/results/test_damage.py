"""Every file of a run is covered: damage is noticed, or does no harm."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import gcfl
from gcfl import cli
from gcfl.api import verify
from gcfl.base.errors import GcflError, RunError
from gcfl.base.seal import sealed
from helpers import run, tiny
from results.test_old_folders import STORED

FLIPS = 300
KEPT = ("config.toml", "clients.json", "rounds.jsonl", "summary.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole")).folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after 4 of 6 rounds."""
    out = tmp_path_factory.mktemp("half")

    def stop(record):
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gcfl.run(out=out, on_round=stop, **tiny())
    return next(path for path in out.iterdir() if path.is_dir())


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def spoil(path, draw):
    """A bit flipped, or, every third time, the end cut off."""
    blob = bytearray(path.read_bytes())
    if draw.integers(3) == 0:
        del blob[int(draw.integers(len(blob))) :]
    else:
        blob[int(draw.integers(len(blob)))] ^= 1 << int(draw.integers(8))
    path.write_bytes(blob)


def state(folder):
    found = gcfl.load(folder)
    return (
        found.config,
        [record.to_json() for record in found.rounds],
        found.clients,
        found.environment,
        {t: {c: one.indices.tolist() for c, one in by.items()} for t, by in found.coresets.items()},
        {name: tensor.tolist() for name, tensor in found.model.tree.items()},
    )


def test_what_came_after_the_summary_carries_its_own_digest(finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "runs" / finished.name)
    for name in ("nodes.json", "sites.json", "energy.json"):
        text = json.dumps(sealed({"clients": {"0": {"node": 7}}}))
        (copy / name).write_text(text)
        assert verify(copy) == []
        (copy / name).write_text(text.replace("7", "8", 1))
        with pytest.raises(RunError, match=f"{name} is damaged"):
            verify(copy)
        (copy / name).unlink()


def test_flips_and_cuts_anywhere_in_a_finished_run(finished, tmp_path):
    """Noticed by `verify`, or the run says exactly what it said (a blank of a JSON file)."""
    draw, whole = np.random.default_rng(0), state(finished)
    noticed = {}
    copy = shutil.copytree(finished, tmp_path / "runs" / finished.name)
    every = files(copy)
    for number in range(FLIPS):
        path = every[number % len(every)]
        before = path.read_bytes()
        spoil(path, draw)
        name = str(path.relative_to(copy))
        try:
            verify(copy)
        except RunError:
            noticed[name] = noticed.get(name, 0) + 1
        else:
            assert name == "summary.json"  # whose blanks mean nothing
            assert state(copy) == whole
        path.write_bytes(before)
    assert verify(copy) == []
    assert set(noticed) >= {str(path.relative_to(copy)) for path in every}


def test_flips_in_a_stopped_run_never_change_what_it_becomes(stopped, tmp_path):
    draw = np.random.default_rng(1)
    copy = shutil.copytree(stopped, tmp_path / stopped.name)
    silent = set()
    for path in files(copy) * 4:
        before = path.read_bytes()
        spoil(path, draw)
        try:
            verify(copy)
            silent.add(path.name)
        except GcflError:
            with pytest.raises(GcflError):
                gcfl.resume(copy)
        path.write_bytes(before)
    assert silent <= {"manifest.json", "rounds.jsonl"}  # blanks, or a last line that is torn
    assert gcfl.resume(copy).finished
    assert verify(copy) == []


def test_a_manifest_of_another_round_is_noticed(stopped, tmp_path):
    copy = shutil.copytree(stopped, tmp_path / stopped.name)
    manifest = copy / "checkpoint" / "manifest.json"
    table = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**table, "round": table["round"] - 2}))
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        gcfl.resume(copy)


def test_foreign_files_in_the_checkpoint_stay(stopped, tmp_path):
    copy = shutil.copytree(stopped, tmp_path / stopped.name)
    (copy / "checkpoint" / "notes.txt").write_text("mine")
    gcfl.resume(copy)
    assert (copy / "checkpoint" / "notes.txt").read_text() == "mine"


def cut(folder):
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:3]))
    return "rounds.jsonl is damaged"


def cut_old(folder):
    (folder / "summary.json").write_text(json.dumps({"rounds": 6}))
    return cut(folder)


def empty(folder):
    (folder / "summary.json").write_text("")
    return "summary.json is not valid JSON"


def empty_table(folder):
    (folder / "summary.json").write_text("{}")
    return "summary.json is damaged"


def renamed(folder):
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text.replace('"cost"', '"cots"'))
    return "summary.json is damaged"


def renamed_seal(folder):
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text.replace('"digest"', '"eigest"'))
    return "summary.json is damaged"


def renamed_record(folder):
    text = (folder / "rounds.jsonl").read_text()
    (folder / "rounds.jsonl").write_text(text.replace('"cohort"', '"kohort"'))
    return "rounds.jsonl is damaged"


def without_rounds(folder):
    (folder / "rounds.jsonl").unlink()
    return "rounds.jsonl is missing"


@pytest.mark.parametrize(
    "damage",
    [cut, cut_old, empty, empty_table, renamed, renamed_seal, renamed_record, without_rounds],
)
def test_every_command_says_it_in_a_sentence(finished, tmp_path, capsys, damage):
    copy = shutil.copytree(finished, tmp_path / finished.name)
    sentence = damage(copy)
    for command in ("show", "resume", "report", "verify"):
        more = ["-o", str(tmp_path / "r.html"), "--no-data"] if command == "report" else []
        assert cli.main([command, str(copy), *more]) == 2, command
        error = capsys.readouterr().err
        assert sentence in error, (command, error)
        assert error.count("error: ") == 1
        assert "Traceback" not in error


def test_a_run_kept_without_its_model_is_shown_and_named(finished, tmp_path, capsys):
    kept = tmp_path / finished.name
    kept.mkdir()
    for name in KEPT:
        shutil.copy2(finished / name, kept / name)
    assert cli.main(["show", str(kept)]) == 0
    assert cli.main(["report", str(kept), "-o", str(tmp_path / "r.md")]) == 0
    capsys.readouterr()
    assert cli.main(["verify", str(kept)]) == 2
    assert "lacks environment.json, coresets, model.safetensors" in capsys.readouterr().err
    with pytest.raises(RunError, match="kept without its model"):
        _ = gcfl.load(kept).model


def test_older_runs_are_read_with_a_note(tmp_path, capsys, caplog):
    old = shutil.copytree(STORED / "runs", tmp_path / "runs")
    folder = next(path for path in sorted(old.iterdir()) if (path / "summary.json").exists())
    assert gcfl.load(folder).accuracy
    assert "written before run folders had digests" in caplog.text
    assert cli.main(["verify", str(folder)]) == 0
    assert "written before run folders had digests" in capsys.readouterr().out


def test_digests_cost_one_entry_however_many_rounds(finished):
    names = set(json.loads((finished / "summary.json").read_text())["files"])
    first = {"config.toml", "environment.json", "clients.json", "rounds.jsonl", "coresets"}
    assert names == {*first, "model.safetensors", "checkpoint/manifest.json"}


ODD_META = [
    {},
    {"model": []},
    {"model": {"name": 7}},
    {"model": {"hidden": [10**12]}},
    {"model": {"rm -rf": 1}},
    {"shape": "abc"},
    {"shape": [-1]},
    {"shape": [10**9, 10**9]},
    {"shape": None},
    {"classes": 3},
    {"classes": [[1], [2]]},
    {"classes": []},
    {"architecture": 5, "shape": [[1]]},
]


@pytest.mark.parametrize("odd", ODD_META)
def test_hostile_metadata_of_a_model(finished, tmp_path, odd):
    from gcfl.base.codec import decode, encode

    copy = shutil.copytree(finished, tmp_path / finished.name)
    (copy / "summary.json").write_text(json.dumps({"rounds": 6}))  # no digest stands before it
    groups, meta = decode((copy / "model.safetensors").read_bytes())
    changed = {**meta, **odd} if odd else {}
    (copy / "model.safetensors").write_bytes(encode(groups, changed))
    with pytest.raises(GcflError):
        _ = gcfl.load(copy).model


def test_a_seal_is_of_what_is_said_not_of_how():
    from gcfl.base.seal import unsealed

    table = sealed({"b": [1, 2.5], "a": {"x": None}})
    assert unsealed(json.loads(json.dumps(table, indent=4)), "it") == (
        {"b": [1, 2.5], "a": {"x": None}},
        True,
    )
    with pytest.raises(RunError, match="it is damaged"):
        unsealed({**table, "b": [1, 2]}, "it")
    assert unsealed({"round": 1}, "it") == ({"round": 1}, False)
