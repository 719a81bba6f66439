"""A run keeps its name while the package grows: new settings, renamed settings, old folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gcfl import experiment as config
from gcfl.base.errors import ConfigError
from gcfl.base.options import flat, read_toml, renamed
from helpers import ROOT, run, tiny

OLD = ROOT / "tests" / "results" / "version0"
ANCHOR = "    lr: Positive = 0.01\n"
DUMMY = '    dummy: float = 0.5\n    """nothing"""\n'


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """The package with one more setting, in a folder of its own."""
    folder = tmp_path_factory.mktemp("grown")
    shutil.copytree(ROOT / "src" / "gcfl", folder / "gcfl")
    options = folder / "gcfl" / "methods" / "options.py"
    text = options.read_text()
    assert text.count(ANCHOR) == 1
    options.write_text(text.replace(ANCHOR, DUMMY + ANCHOR))
    return folder


def command(grown: Path, *words: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(grown), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "gcfl.cli", *words]
    done = subprocess.run(
        line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stamps(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/summary.json")}


def test_a_new_setting_orphans_no_run_and_no_sweep(grown, tmp_path):
    shutil.copytree(OLD, tmp_path / "old")
    assert "train.dummy" in command(grown, "list", "settings", cwd=tmp_path)
    unfinished = json.loads((OLD / "expected.json").read_text())["unfinished"]
    folder = tmp_path / "old" / "runs" / unfinished["folder"]
    command(grown, "resume", str(folder), "--quiet", cwd=tmp_path)
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [record["accuracy"] for record in records] == pytest.approx(unfinished["curve"])
    sweep = tmp_path / "old" / "sweep"
    before = stamps(sweep / "runs")
    assert len(before) == 2
    told = ["sweep", str(tmp_path / "old" / "sweep.toml"), "--out", str(sweep), "--quiet"]
    command(grown, *told, cwd=tmp_path)
    after = stamps(sweep / "runs")
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    command(grown, *told, cwd=tmp_path)
    assert stamps(sweep / "runs") == after


def test_a_new_setting_counts_once_it_is_used(grown, tmp_path):
    source = tmp_path / "run.toml"
    source.write_text(next(OLD.glob("runs/digits-mlp-gcfl-*/config.toml")).read_text())
    for value in (0.5, 0.25):
        line = ["run", str(source), "--rounds", "1", "--train.dummy", str(value), "--quiet"]
        command(grown, *line, cwd=tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 2
    run_as_now = config.compose(source, {"rounds": 1})[0].folder_name()
    assert (tmp_path / "runs" / run_as_now).is_dir()


@pytest.mark.parametrize("path", sorted(OLD.glob("**/config.toml")), ids=lambda p: p.parent.name)
def test_folders_of_the_first_format_keep_their_names(path):
    assert config.compose(path, {})[0].folder_name() == path.parent.name


def test_old_names_of_settings_are_read_everywhere(tmp_path):
    old = {"method": "fedavg", "server": {"warm_start": 2, "hold_out": 0.3, "keep": "best"}}
    new = {"method": "fedavg", "clean": {"warm_start": 2, "hold_out": 0.3, "keep": "best"}}
    assert config.build(old)[0] == config.build(new)[0]
    file = tmp_path / "old.toml"
    file.write_text('method = "fedavg"\n[server]\nwarm_start = -1\n')
    with pytest.raises(ConfigError, match=r"warm_start must be .* \(clean.warm_start in .*old"):
        config.compose(file, {})
    with pytest.raises(ConfigError, match=r"\(--server.warm_start\)"):
        config.compose(
            None, {"server.warm_start": -1}, {"server.warm_start": "--server.warm_start"}
        )
    assert run(tmp_path, **tiny(method="fedavg", server={"warm_start": 1})).config["clean"]


@pytest.mark.parametrize("written", [{"clean.lr": None}, {"clean.lr": "unset"}])
def test_what_a_preset_sets_can_be_unset(written, tmp_path):
    """robust chooses clean.lr; without it the server trains at train.lr. TOML has no null."""
    unset, _ = config.compose(None, {"method": "robust", **written})
    assert unset.clean.lr is None
    file = tmp_path / "run.toml"
    file.write_text(unset.to_toml())
    again, _ = config.compose(file, {})
    assert again == unset
    assert again.folder_name() == unset.folder_name()
    assert config.compose(None, {"method": "robust"})[0].clean.lr == "auto"


def test_todays_name_wins_over_an_old_one():
    both = {"server": {"warm_start": 1, "rate": 0.5}, "clean": {"warm_start": 3}}
    assert renamed(both, config.RENAMED) == {"server": {"rate": 0.5}, "clean": {"warm_start": 3}}
    assert renamed({"server": 3}, config.RENAMED) == {"server": 3}


def test_every_renamed_setting_exists_and_its_old_name_does_not():
    settings = config.every_setting()
    for old, new in config.RENAMED.items():
        assert new in settings
        assert old not in settings


def test_flat_and_back():
    nested = read_toml(next(OLD.glob("runs/*/config.toml")))
    assert config.nested(flat(nested)) == nested
