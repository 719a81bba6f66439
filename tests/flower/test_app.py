"""The exported app, through the in-process Grid: a run folder with our engine's bits."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

import gcfl
from flower_grid import exported, play, sites
from gcfl.cli import main


@pytest.mark.parametrize("method", ["fedavg", "gcfl", "scaffold+gcfl", "moon", "server-only"])
def test_an_exported_app_gives_the_same_model(method, tmp_path):
    result, app = exported(tmp_path, method=method, cohort=3)
    assert {path.name for path in app.iterdir()} == {
        "pyproject.toml",
        "server_app.py",
        "client_app.py",
        "experiment.toml",
        "README.md",
    }
    play(app, sites(app, 5), tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    assert folder.name == result.folder.name
    assert (folder / "model.safetensors").read_bytes() == (
        result.folder / "model.safetensors"
    ).read_bytes()
    ours, theirs = (gcfl.load(path).curve for path in (result.folder, folder))
    assert ours == theirs


def test_what_cannot_be_exported_says_so(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    assert main(["flower", "export", "--to", str(tmp_path / "full")]) == 2
    assert "is not empty" in capsys.readouterr().err
    for words in ([], [str(tmp_path / "full" / "file")], ["--data", "digits"]):
        assert main(["flower", "export", *words]) == 2
        assert "say where the app shall go" in capsys.readouterr().err


def test_the_folder_may_be_a_word_or_a_flag(tmp_path):
    (tmp_path / "my.toml").write_text('method = "gcfl"\n[data]\nclients = 4\n')
    flags = ["--data", "digits", "--rounds", "3"]
    lines = (
        [str(tmp_path / "a"), *flags],
        [str(tmp_path / "my.toml"), str(tmp_path / "b")],
        ["--to", str(tmp_path / "c"), *flags],
    )
    for words in lines:
        assert main(["flower", "export", *words]) == 0
    assert "clients = 4" in (tmp_path / "b" / "experiment.toml").read_text()
    assert "rounds = 3" in (tmp_path / "a" / "experiment.toml").read_text()
