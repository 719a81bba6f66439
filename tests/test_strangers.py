"""Files, names and answers of strangers: shown, refused or read, never obeyed; faults of machines
that end in a sentence.
"""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import stat
import tomllib

import numpy as np
import pytest
import torch
from torch import nn

import gcfl
from data_files import source
from gcfl import cli
from gcfl.base import files
from gcfl.base.errors import ConfigError, DataError, ModelError
from gcfl.base.options import read_toml
from gcfl.base.text import csv_bytes, markdown, visible
from gcfl.data.arrays import arrays
from gcfl.results.run import how_to_continue
from helpers import prepared, tiny

CODES = ["\x1b[31mred", "two\nlines", "bell\x07", "\u202eright to left", "\ud800", "a\x9bb", "\r"]


@pytest.mark.parametrize("text", CODES)
def test_what_a_terminal_would_obey_is_shown(text):
    shown = visible(text)
    assert shown.isprintable()
    assert "\\" in shown
    shown.encode()
    assert visible("Größe 数 | <b>") == "Größe 数 | <b>"


def test_a_log_line_cannot_be_forged(caplog):
    log = logging.getLogger("gcfl")
    log.warning("a site cannot take part: %s", "x\n2026-01-01 INFO all is well\x1b[2J\ud800")
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    log.warning("%s", DataError("two\nlines"))
    assert caplog.records[-1].getMessage() == "two\\nlines"


def test_an_error_s_names_reach_the_terminal_as_text(tmp_path, capsys):
    odd = tmp_path / "a\x1b[31mb.toml"
    assert cli.main(["run", str(odd)]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert "\\x1b[31mb.toml does not exist" in error


def test_spreadsheets_run_nothing_and_numbers_stay():
    rows = [{"=cmd": "=1+1", "b": -1.5, "c": "-2.5"}, {"=cmd": "@x", "b": "+a", "c": "\tx\ud800"}]
    lines = csv_bytes(rows).decode().splitlines()
    assert lines == ["'=cmd,b,c", "'=1+1,-1.5,-2.5", "'@x,'+a,'\tx\\ud800"]


def test_markdown_has_no_markup_of_strangers():
    assert markdown("a|b<script>&amp;\x1b") == "a\\|b&lt;script>&amp;amp;\\x1b"


def test_a_sweep_s_files_run_nothing(tmp_path, capsys):
    plan = tmp_path / "sweep.toml"
    plan.write_text(
        'title = "a|<b>"\n[experiment]\nrounds = 1\n[experiment.data]\nsource = "digits"\n'
        'samples = 300\nclients = 3\n[sweep]\ncases = [{label = "=1|<i>", method = "fedavg"}]\n'
    )
    assert cli.main(["sweep", str(plan), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert "\n'=1|<i>," in (tmp_path / "out" / "summary.csv").read_text()
    text = (tmp_path / "out" / "summary.md").read_text()
    assert "<i>" not in text
    assert "# a\\|&lt;b>" in text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        (".".join(["a"] * 5000) + " = 1", "nested too deeply"),
        ("a = " + "9" * 5000, "is not valid TOML"),
        ("a = \x00", "is not valid TOML"),
    ],
)
def test_deep_and_huge_toml(tmp_path, text, sentence):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_toml(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "nothing to run"),
        ('title = "x"', "nothing to run"),
        (
            "[sweep]\n" + "\n".join(f'"train.{name}" = {list(range(1, 210))}' for name in "abc"),
            "asks for 9,129,329 runs; a sweep has 100,000 at most",
        ),
    ],
)
def test_sweeps_that_are_none_or_too_large(tmp_path, capsys, text, sentence):
    (tmp_path / "s.toml").write_text(text)
    assert cli.main(["sweep", str(tmp_path / "s.toml")]) == 2
    assert sentence in capsys.readouterr().err


def test_labels_that_do_not_fit_are_refused(tmp_path):
    x = np.zeros((4, 3), np.float32)
    bad = [
        np.array([0, 1, 2, 2**63 + 5], np.uint64),
        np.array([1e300, 2e300, 0, 1]),
        np.array([0, 1, 2, 2.0**53 + 2]),
        np.ma.array([0, 1, 0, 1], mask=[0, 0, 1, 0]),
    ]
    for y in bad:
        with pytest.raises(DataError, match=r"labels beyond|masked values"):
            arrays((x, y))
    with pytest.raises(DataError, match="x of data has masked values"):
        arrays((np.ma.array(x, mask=x == 0), [0, 1, 0, 1]))
    assert len(arrays((x, np.ma.array([0, 1, 0, 1])))) == 4  # nothing is masked
    assert len(arrays((x, np.array([0, 1, 0, 2**63 - 1], np.uint64)))) == 4


def test_leaf_labels_are_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    (tmp_path / "leaf" / "train").mkdir(parents=True)
    for number, label in enumerate(("0.7", "1e300", '"a"', str(2**64))):
        text = f'{{"user_data": {{"u": {{"x": [[0.5], [1]], "y": [{label}, 1]}}}}}}'
        (tmp_path / "leaf" / "train" / "a.json").write_text(text + " " * number)
        with pytest.raises(DataError, match="is not LEAF json"):
            source(tmp_path / "leaf")


def test_many_columns_and_one_twice(tmp_path):
    names = [f"c{number}" for number in range(60_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join([*names, "c7", "label"]) + "\n" + "1," * 60_001 + "0\n")
    with pytest.raises(DataError, match="more than one column 'c7'"):
        source(path)


def write_cache(path, barrier):
    barrier.wait()
    for number in range(20):
        files.write_npz(path, a=np.full(1000, number))


def test_simultaneous_writers_of_one_cache(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    path = tmp_path / "a.npz"
    writers = [context.Process(target=write_cache, args=(path, barrier)) for _ in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(60)
    assert [one.exitcode for one in writers] == [0] * 4
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_a_full_disk_is_told_before_a_mapped_file_is_filled(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with (
        pytest.raises(OSError, match=r"No space left on device.*a\.npy"),
        files.new_npy(tmp_path / "a.npy", (10, 10), np.uint8),
    ):
        pytest.fail("nothing may be written")
    assert list(tmp_path.iterdir()) == []


def test_what_writers_left_behind_is_cleared(tmp_path):
    old, new = tmp_path / "a.npy.1-ab.tmp", tmp_path / "a.npy.2-cd.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    files.write_npy(tmp_path / "a.npy", np.zeros(3))
    assert {path.name for path in tmp_path.iterdir()} == {"a.npy", new.name}


def test_a_stopped_worker_is_ended():
    ready = prepared(engine={"workers": 2})
    workers = ready.transport()
    pids = [process.pid for process in workers._processes]
    os.kill(pids[0], signal.SIGSTOP)
    workers.close()  # it ends at all
    assert all(not process.is_alive() for process in workers._processes)


def test_a_killed_worker_s_signal_is_named():
    ready = prepared(engine={"workers": 2})
    workers = ready.transport()
    try:
        os.kill(workers._processes[0].pid, signal.SIGKILL)
        assert "(exit code -9): Killed, sent by somebody" in str(workers._died(0, 3))
    finally:
        workers.close()


def test_private_files_are_private_from_the_start(tmp_path):
    before = os.umask(0)
    try:
        (tmp_path / "key.tmp").write_bytes(b"left behind, for all to read")
        files.write_atomic(tmp_path / "key", b"secret", private=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_hints_can_be_pasted(tmp_path):
    assert how_to_continue(tmp_path / "a b;c", None) == f"gcfl resume '{tmp_path}/a b;c'"


def raises():
    raise RuntimeError("no GPU\nhere")


class Negative(torch.utils.data.Dataset):
    def __len__(self):
        return -1

    def __getitem__(self, place):
        return torch.zeros(2), 0


def test_somebody_s_own_code_that_fails(tmp_path):
    with pytest.raises(ModelError, match="given as model failed: RuntimeError: no GPU here"):
        gcfl.run(out=tmp_path, **tiny(model=raises))
    with pytest.raises(ConfigError, match="out must be the path of a folder, got 3"):
        gcfl.run(out=3, **tiny())
    with pytest.raises(DataError, match="data has no length: ValueError"):
        gcfl.run(data=Negative(), model=nn.Linear(2, 2), out=tmp_path)


@pytest.mark.parametrize("site", ["server=x", "ca=x", "superlink=x", "-x=y", ".x=y"])
def test_a_site_cannot_take_the_name_of_a_key(site, tmp_path, capsys):
    pytest.importorskip("flwr")
    assert cli.main(["flower", "up", f"--site={site}", "--in", str(tmp_path / "f")]) == 2
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("name", ['da"ta', "da\nta = 1\n[tool.evil]", "da'ta\\"])
def test_an_exported_app_parses_whatever_its_data_is_called(name, tmp_path):
    pytest.importorskip("flwr")
    from gcfl.experiment import build
    from gcfl.flower import export

    folder = tmp_path / name
    folder.mkdir()
    draw = np.random.default_rng(0)
    np.save(folder / "x.npy", draw.normal(size=(200, 4)).astype(np.float32))
    np.save(folder / "y.npy", np.arange(200) % 2)
    options = {"source": str(folder), "clients": 2, "validation": 40, "test": 40}
    export(build({"method": "fedavg", "data": options})[0], tmp_path / "app")
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert project["project"]["description"] == f"fedavg on {name}, by gcfl"
    assert set(project["tool"]) == {"hatch", "flwr"}


def test_a_site_s_damaged_memory_is_forgotten_and_private(tmp_path, caplog):
    pytest.importorskip("flwr")
    from gcfl.flower.client import InFolder, propose, recall

    store = InFolder(tmp_path / "state")
    propose(store, 0, {"select": {"indices": torch.arange(3)}})
    assert set(recall(store, 0)) == {"select"}
    path = tmp_path / "state" / "waiting.safetensors"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for blob in (b"", b"junk", path.read_bytes()[:-5]):
        path.write_bytes(blob)
        assert set(recall(store, 0)) == {"select"}  # what was accepted is still there
        assert "it is forgotten" in caplog.text
    propose(store, 1, {"select": {"indices": torch.arange(2)}})
    assert len(recall(store, 1)["select"]["indices"]) == 2
    (tmp_path / "state" / "kept.safetensors").write_bytes(b"junk")
    path.write_bytes(b"junk")
    assert recall(store, 1) == {}
