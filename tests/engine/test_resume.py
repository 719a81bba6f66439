"""kill -9 at any moment, then resume, ends in the same bits as a run that was left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gcfl
from gcfl import experiment as config
from gcfl.base.errors import Interrupted, RunError
from helpers import command, run, same_bits, tiny

METHODS = ["fedavg", "gcfl"]


def settings(method: str) -> dict:
    # Partial participation, so that clients' memories differ in age, and checkpoints that are not
    # taken every round.
    return tiny(method=method, cohort=3, rounds=8, engine={"checkpoint_every": 2})


def write_config(folder: Path, method: str) -> Path:
    path = folder / "run.toml"
    path.write_text(config.build(settings(method))[0].to_toml())
    return path


@pytest.fixture(scope="module", params=METHODS)
def method(request):
    return request.param


@pytest.fixture(scope="module")
def untouched(method, tmp_path_factory):
    return gcfl.run(out=tmp_path_factory.mktemp("untouched"), **settings(method)).folder


FAILPOINTS = [
    "round.end:1",
    "round.end:5",
    "line.before:3",
    "line.middle:4",
    "write.middle:1",  # the environment, before anything else
    "write.rename:2",  # the configuration
    "write.middle:4",
    "checkpoint.before:1",
    "checkpoint.middle:3",
    "checkpoint.rename:2",
    "checkpoint.after:4",
    "write.after:7",  # the last manifest, before older files are forgotten
    "write.after:8",  # the model, before the summary
]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_at_a_failpoint(method, untouched, failpoint, tmp_path):
    path = write_config(tmp_path, method)
    killed = command("run", str(path), "--quiet", cwd=tmp_path, failpoint=f"{failpoint}:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = gcfl.run(config_file=path, out=tmp_path / "runs").folder
    assert folder == tmp_path / "runs" / untouched.name
    same_bits(folder, untouched)


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments(method, untouched, workers, tmp_path):
    """Five kills in one run, each at a random round and a random moment in it."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed of the moments: {seed}")
    draw = np.random.default_rng(seed)
    path = write_config(tmp_path, method)
    folder = tmp_path / "runs" / untouched.name
    line = [
        sys.executable,
        "-m",
        "gcfl.cli",
        "run",
        str(path),
        "--quiet",
        "--workers",
        str(workers),
    ]
    for _ in range(5):
        process = subprocess.Popen(
            line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        rounds = int(draw.integers(0, 7))
        deadline = time.monotonic() + 1800
        while process.poll() is None and lines(folder) < rounds and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(float(draw.uniform(0, 0.02)))  # the moment within the round
        process.kill()
        _, errors = process.communicate(timeout=1800)
        assert b"error" not in errors, errors.decode()
    gcfl.run(config_file=path, out=tmp_path / "runs")
    same_bits(folder, untouched)


def lines(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_workers_end_when_the_run_is_killed(tmp_path):
    path = write_config(tmp_path, "gcfl")
    line = [
        sys.executable,
        "-m",
        "gcfl.cli",
        "run",
        str(path),
        "--quiet",
        "--workers",
        "2",
        "--rounds",
        "100000",
    ]
    process = subprocess.Popen(line, cwd=tmp_path)
    try:
        wait_for(lambda: list((tmp_path / "runs").glob("*/rounds.jsonl")))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(alive(int(child)) for child in children))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds: float = 1800) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_finishes_cleanly_and_says_how_to_resume(tmp_path, number):
    path = write_config(tmp_path, "gcfl")
    line = [
        sys.executable,
        "-m",
        "gcfl.cli",
        "run",
        str(path),
        "--workers",
        "2",
        "--engine.checkpoint_every",
        "1000",
        "--rounds",
        "300",
    ]
    process = subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: sum(lines(folder) for folder in (tmp_path / "runs").glob("*")) >= 3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=1800)
    assert process.returncode == 128 + number
    (folder,) = (tmp_path / "runs").iterdir()
    last = errors.strip().splitlines()[-1]
    assert last.startswith("stopped after ")
    assert last.endswith(f"of 300 rounds; to continue: gcfl resume runs/{folder.name}")
    assert "Traceback" not in errors
    # What was finished is there although no checkpoint was due yet, and the run goes on from it to
    # the same bits.
    done = int(last.split()[2])
    assert lines(folder) == done >= 3
    seen = []
    gcfl.resume(folder, on_start=lambda *facts: seen.append(facts[2]))
    assert seen == [done]
    alone = gcfl.run(config_file=path, out=tmp_path / "alone", rounds=300).folder
    assert (alone / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_an_interrupt_inside_a_round_plays_it_again(tmp_path, monkeypatch):
    """Ctrl-C after the clients' work, before the merge: what they remember must not count."""
    from gcfl.methods.averaging import Average

    straight = run(tmp_path / "straight", method="gcfl")
    merge = Average.merge
    calls = []

    def interrupted(self, state, view, replies):
        calls.append(view.round)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return merge(self, state, view, replies)

    monkeypatch.setattr(Average, "merge", interrupted)
    with pytest.raises(Interrupted, match="stopped after 3 of 6 rounds"):
        run(tmp_path / "stopped", method="gcfl", engine={"checkpoint_every": 10})
    again = run(tmp_path / "stopped", method="gcfl", engine={"checkpoint_every": 10})
    assert calls == [0, 1, 2, 3, 3, 4, 5]
    assert (again.folder / "model.safetensors").read_bytes() == (
        straight.folder / "model.safetensors"
    ).read_bytes()


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run(tmp_path)
    before = (first.folder / "summary.json").stat().st_mtime_ns
    rounds = []
    gcfl.run(out=tmp_path, on_round=rounds.append, **tiny())
    assert rounds == []
    assert (first.folder / "summary.json").stat().st_mtime_ns == before


def test_fresh_sets_the_old_run_aside(tmp_path):
    first = run(tmp_path)
    text = (first.folder / "rounds.jsonl").read_text()
    again = gcfl.run(out=tmp_path, fresh=True, **tiny())
    aside = first.folder.with_name(first.folder.name + ".old1")
    assert (aside / "rounds.jsonl").read_text() == text
    assert again.finished
    assert gcfl.load(aside).accuracy == again.accuracy


def test_only_changed_memories_are_written_and_old_files_go(tmp_path):
    result = run(tmp_path, method="gcfl", cohort=1, rounds=12)
    files = sorted(path.name for path in (result.folder / "checkpoint").glob("clients-*"))
    holders = {}
    for record in result.rounds:
        from helpers import prepared

        (client,) = prepared(cohort=1, rounds=12).rounds(None).draw(record.round)
        if record.coreset.selected:  # a client that keeps its coreset remembers nothing new
            holders[client] = f"clients-{record.round + 1:06d}.safetensors"
    assert files == sorted(set(holders.values()))


def test_a_run_from_python_continues_with_the_same_arrays_only(tmp_path):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(200, 5)), generator.integers(0, 3, 200)
    settings = {"clients": 3, "rounds": 3, "model": "logistic", "out": tmp_path}
    first = gcfl.run(data=(x, y), **settings)
    assert gcfl.run(data=(x, y), **settings).folder == first.folder
    other = x.copy()
    other[0, 0] += 1
    assert gcfl.run(data=(other, y), **settings).folder != first.folder
    with pytest.raises(gcfl.GcflError, match=r"call gcfl\.run again"):
        gcfl.resume(first.folder)


def test_a_changed_configuration_is_noticed(tmp_path):
    folder = run(tmp_path).folder
    (folder / "config.toml").write_text(
        (folder / "config.toml").read_text().replace("seed = 0", "seed = 1")
    )
    with pytest.raises(RunError, match=r"config\.toml is damaged"):
        gcfl.resume(folder)
