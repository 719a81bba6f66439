"""A private run as a whole: its secret, kill and resume, what its files and messages hold, and the
attack on it.
"""

from __future__ import annotations

import importlib.util
import shutil
import stat

import pytest
import torch

import gcfl
from gcfl import experiment as config
from gcfl.base.errors import ConfigError
from gcfl.engine.checkpoint import Checkpoint
from gcfl.methods.noise import SECRET
from gcfl.methods.privacy import STATE
from gcfl.report.build import report as build
from helpers import ROOT, command, run, same_bits, tiny

CLEAN = {"clean_epsilon": 8.0, "input_range": [0.0, 16.0]}
KINDS = {
    "clean": {"method": "gcfl", "privacy": CLEAN},
    "central": {"method": "gcfl", "privacy": {**CLEAN, "client_epsilon": 8.0}},
    "local": {"method": "fedavg", "privacy": {"client_epsilon": 8.0, "client_where": "local"}},
}


def killed(folder, failpoint: str, **changes):
    """A run that died; its folder."""
    path = folder / "run.toml"
    settings = tiny(cohort=3, rounds=6, **changes)
    path.write_text(config.build(settings)[0].to_toml())
    ended = command("run", str(path), "--quiet", cwd=folder, failpoint=f"{failpoint}:kill")
    assert ended.returncode == -9, ended.stderr
    return next((folder / "runs").iterdir())


@pytest.mark.parametrize("kind", ["clean", "central"])
def test_killed_twice_it_ends_in_the_same_bits(kind, tmp_path):
    """A copy taken in the first round goes on alone; the other is killed once more."""
    folder = killed(tmp_path, "line.before:1", **KINDS[kind])
    alone = tmp_path / "alone" / folder.name
    shutil.copytree(folder, alone)
    gcfl.resume(alone)
    again = command(
        "resume", str(folder), "--quiet", cwd=tmp_path, failpoint="checkpoint.after:3:kill"
    )
    assert again.returncode == -9, again.stderr
    gcfl.resume(folder)
    same_bits(folder, alone)


@pytest.mark.parametrize("kind", KINDS)
def test_the_secret_is_in_the_checkpoint_alone_and_goes_with_the_run(kind, tmp_path):
    folder = killed(tmp_path, "round.end:3", **KINDS[kind])
    state, memory = Checkpoint(folder / "checkpoint").load()
    secrets = [state.parts[STATE][SECRET]]
    secrets += [groups[STATE][SECRET] for groups in memory.values() if STATE in groups]
    assert (kind == "local") == (len(secrets) > 1)
    for secret in secrets:
        assert len(set(secret.tolist())) > 8
        blob = secret.numpy().tobytes()
        texts = [blob, blob.hex().encode(), str(int.from_bytes(blob, "little")).encode()]
        for path in tmp_path.rglob("*"):
            if path.is_file() and path.parent.name != "checkpoint":
                assert not any(text in path.read_bytes() for text in texts), path
    for path in (folder / "checkpoint").glob("*.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    gcfl.resume(folder)
    final, remembered = Checkpoint(folder / "checkpoint").load()
    assert SECRET not in final.parts[STATE]
    assert not any(SECRET in groups.get(STATE, {}) for groups in remembered.values())
    for path in (folder / "checkpoint").iterdir():
        assert not any(secret.numpy().tobytes() in path.read_bytes() for secret in secrets)


def test_two_runs_have_other_noise_and_a_public_seed_the_same(tmp_path):
    first, second = (run(tmp_path / name, **KINDS["central"]) for name in "ab")
    assert first.rounds[-1].loss != second.rounds[-1].loss
    simulated = {**KINDS["central"]["privacy"], "simulated_seed": True}
    repeated = [run(tmp_path / name, method="gcfl", privacy=simulated).folder for name in "cd"]
    same_bits(*repeated)
    assert all("simulated" in line for line in gcfl.load(repeated[0]).privacy)


def test_a_private_run_says_what_left(tmp_path):
    found = run(tmp_path, **KINDS["clean"])
    lines = "\n".join(found.privacy)
    assert "clean set: ε = 8 of 8 at δ = 1e-05; what leaves: gradients of it" in lines
    assert "clients: ε = ∞" in lines
    assert found.summary()["privacy"] == found.privacy
    plain = run(tmp_path, method="robust")
    assert "ε = ∞: the server trains on its clean set" in plain.privacy[0]
    build([found.folder, plain.folder], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "ε = ∞: the server trains on its clean set" in page
    command_line = command("show", str(plain.folder), cwd=tmp_path)
    assert "the server trains on its clean set" in command_line.stdout
    with pytest.raises(ConfigError, match="clean_epsilon"):
        gcfl.audit(found)


@pytest.mark.parametrize("method", ["fltrust", "server-only"])
def test_a_server_rule_that_trains_on_the_clean_set_is_told(method, tmp_path):
    found = run(tmp_path, method=method, data={"normalise": False})
    assert found.privacy[0] == (
        "clean set: ε = ∞: the server trains on its clean set; what leaves: models that the server "
        f"trains on it ({method})"
    )
    without = run(tmp_path, method="median", data={"normalise": False})
    assert "ε = 0" in without.privacy[0]


def test_the_attack_is_at_chance(monkeypatch):
    """What rebuilds most of an unprotected clean set finds next to nothing of a protected one."""
    path = ROOT / "benchmarks" / "reconstruction.py"
    monkeypatch.syspath_prepend(path.parent)  # as when it is run
    spec = importlib.util.spec_from_file_location("reconstruction", path)
    attack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(attack)
    torch.set_num_threads(1)
    effort = attack.Effort(starts=4, steps=60)
    small = {"seed": 0, "rounds": 40, "effort": effort, "classes": 5}
    bare, total, _ = attack.trial("logistic", 2, 4, None, **small)
    assert bare >= 0.6 * total
    kept, total, _ = attack.trial("logistic", 2, 4, 8.0, **small)
    assert kept <= 1  # chance: 10 samples, 2 / 500 each
