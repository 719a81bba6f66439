"""Apps with a model of one's own code, and with a frozen body."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

import torch

import gcfl
from flower_grid import exported, play, sites
from gcfl.cli import main

NETS = """
from torch import nn

def make(shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(shape[1] * shape[2], 12), nn.Tanh(), nn.Linear(12, classes)
    )
"""


def test_the_file_travels_in_the_app(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    result, app = exported(tmp_path, model={"name": "nets.py:make"}, rounds=3)
    assert (app / "nets.py").read_text() == NETS
    assert str(tmp_path) not in (app / "experiment.toml").read_text()
    (tmp_path / "nets.py").unlink()
    play(app, sites(app, 5), tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    assert folder.name == result.folder.name
    theirs = gcfl.load(folder)
    assert theirs.curve == result.curve
    assert theirs.predict(torch.zeros(1, 1, 8, 8)).shape == (1,)


def test_a_part_of_a_package_cannot_travel(tmp_path, capsys):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "nets.py").write_text(NETS)
    words = ["--model", f"{tmp_path}/pack/nets.py:make", "--data", "digits"]
    assert main(["flower", "export", *words, "--to", str(tmp_path / "app")]) == 2
    assert "is part of a package, and cannot be copied into the app" in capsys.readouterr().err
    assert not (tmp_path / "app").exists()


def test_a_frozen_body_gives_the_same_model(tmp_path):
    first = gcfl.run("fedavg", "digits", "mlp", rounds=2, out=tmp_path / "first")
    model = {"weights": str(first.folder), "freeze": "body", "hidden": [128]}
    result, app = exported(tmp_path, method="gcfl", rounds=3, model=model)
    play(app, sites(app, 5), tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    theirs, ours = gcfl.load(folder).model.tree, result.model.tree
    assert torch.equal(ours["1.weight"], first.model.tree["1.weight"])
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-5)
