"""The checkpoint by itself: what goes in comes out, only changes are written, damage is named."""

from __future__ import annotations

import json

import pytest
import torch

from gcfl.base.errors import RunError
from gcfl.engine import State
from gcfl.engine.checkpoint import _MOST_FILES, Checkpoint
from helpers import equal_trees


def state(round: int) -> State:
    model = {"w": torch.full((2, 3), float(round)), "n": torch.tensor(round)}
    return State(round, model, {"select": {"rounds": torch.arange(round)}, "local": {}})


def memory(client: int, value: float) -> dict:
    return {"select": {"indices": torch.tensor([client])}, "local": {"c": torch.tensor([value])}}


def files(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_goes_in_comes_out(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    assert not checkpoint.exists()
    checkpoint.save(state(1), {0: memory(0, 1.0), 2: memory(2, 1.0)}, dict)
    checkpoint.save(state(2), {2: memory(2, 2.0)}, dict)
    found, remembered = Checkpoint(tmp_path / "checkpoint").load()
    assert found.round == 2
    assert equal_trees(found.model, state(2).model)
    assert set(found.parts) == {"select", "local"}
    assert equal_trees(found.parts["select"], state(2).parts["select"])
    assert set(remembered) == {0, 2}
    for client, value in ((0, 1.0), (2, 2.0)):
        assert equal_trees(remembered[client]["local"], memory(client, value)["local"])
        assert equal_trees(remembered[client]["select"], memory(client, value)["select"])


def test_outdated_files_go_and_a_round_writes_its_cohort_alone(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(state(1), {0: memory(0, 1.0), 1: memory(1, 1.0)}, dict)
    checkpoint.save(state(2), {0: memory(0, 2.0)}, dict)
    assert files(tmp_path) == {
        "manifest.json",
        "server-000002.safetensors",
        "clients-000001.safetensors",  # still holds the newest memory of client 1
        "clients-000002.safetensors",
    }
    checkpoint.save(state(3), {1: memory(1, 3.0)}, dict)
    assert "clients-000001.safetensors" not in files(tmp_path)
    checkpoint.save(state(4), {}, dict)  # nobody's memory changed
    assert "clients-000004.safetensors" not in files(tmp_path)


def test_many_files_become_one(tmp_path):
    checkpoint, everything = Checkpoint(tmp_path), {}
    for round in range(1, _MOST_FILES + 2):
        everything[round] = memory(round, float(round))
        checkpoint.save(state(round), {round: everything[round]}, lambda: everything)
    assert len(files(tmp_path)) == 3
    _, remembered = Checkpoint(tmp_path).load()
    assert {client: float(one["local"]["c"]) for client, one in remembered.items()} == {
        client: float(client) for client in everything
    }


def test_what_a_kill_left_behind_is_removed(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(state(1), {0: memory(0, 1.0)}, dict)
    (tmp_path / "server-000002.safetensors").write_bytes(b"half")
    Checkpoint(tmp_path).load()
    assert "server-000002.safetensors" not in files(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), "does not match its digest"),
        (lambda path: path.unlink(), "cannot be read"),
    ],
)
def test_damage_is_named(tmp_path, spoil, message):
    Checkpoint(tmp_path).save(state(1), {0: memory(0, 1.0)}, dict)
    spoil(tmp_path / "clients-000001.safetensors")
    with pytest.raises(RunError, match=f"{message}|clients-000001"):
        Checkpoint(tmp_path).load()


@pytest.mark.parametrize("manifest", [{}, {"round": 1}, {"round": 1, "files": {}}, [1]])
def test_a_manifest_that_is_none(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match="manifest"):
        Checkpoint(tmp_path).load()
