"""Every example of examples/ runs, and shows what it says that it shows."""

from __future__ import annotations

import ast
import csv
import importlib.util
import re
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from gcfl.coreset import Pool
from helpers import ROOT

EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))


def load(name, monkeypatch):
    """An example as a module, until the test ends."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def play(tmp_path, monkeypatch):
    """An example as a module, and what its `main` returns."""
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))

    def played(name):
        module = load(name, monkeypatch)
        return module, module.main(tmp_path)

    return played


def test_a_table_of_two_hospitals(play, capsys):
    pytest.importorskip("pandas", reason="pandas is not installed")
    module, runs = play("hospitals_table")
    assert sorted(one["name"] for one in runs["robust"].clients) == sorted(module.WRONG)
    assert runs["robust"].accuracy > runs["fedavg"].accuracy
    encoding = runs["robust"].model.encoding
    assert "pressure (missing)" in encoding.names
    assert not [name for name in encoding.names if "oncology" in name]
    # a ward that is new counts as no known one
    new = module.patients(40, seed=6)
    known = [runs["robust"].predict_proba(new.assign(ward=ward)) for ward in ("x", "y", "surgery")]
    assert np.array_equal(known[0], known[1])
    assert not np.array_equal(known[0], known[2])
    assert re.search(r"oncology .* (at risk|healthy)", capsys.readouterr().out)


def test_photos_are_audited_and_mended(play, tmp_path):
    _, found = play("photos_audit")
    assert min(found["precision"], found["recall"]) > 0.9
    assert found["after"] > found["before"] + 0.05
    # the labels of the second run, against what is drawn on each photo
    truth = load_digits().target
    lines = [
        line
        for file in (tmp_path / "audit").glob("*/cleaned.csv")
        for line in csv.DictReader(file.read_text().splitlines())
    ]
    number = [int(re.search(r"(\d+)\.png", line["id"])[1]) for line in lines]
    right = [line["label"] == f"digit {truth[n]}" for line, n in zip(lines, number, strict=True)]
    assert len(set(number)) == len(number) > 1200
    assert np.mean(right) > 0.95


def test_a_frozen_body_stays_and_costs_less(play, tmp_path):
    _, (runs, spent) = play("frozen_backbone")
    whole, frozen = runs["everything, pretrained"], runs["the last layer, pretrained"]
    body = load_file(tmp_path / "body.safetensors")
    assert body.keys() == {name for name in frozen.model.tree if name.startswith("body.")}
    for name, tensor in body.items():
        assert torch.equal(frozen.model.tree[name], tensor)
        assert not torch.equal(whole.model.tree[name], tensor)
    assert frozen.accuracy > 0.9
    sent = [sum(run.cost["bytes"]["up"].values()) for run in (frozen, whole)]
    assert sent[0] < sent[1] / 2
    assert spent.keys() == runs.keys()


def test_a_selector_of_ones_own(play, own_words):
    _, found = play("new_selector")
    assert not found.failed
    by_method: dict[str, list] = {}
    for run in found.runs:
        by_method.setdefault(next(w for w in run.method.split("+") if w != "warmstart"), []).append(
            run
        )
    assert {name: len(runs) for name, runs in by_method.items()} == {
        "random": 3,
        "gcfl": 3,
        "neighbours": 3,
    }
    share = {name: np.mean([run.clean_share for run in runs]) for name, runs in by_method.items()}
    assert share["neighbours"] > share["gcfl"] > share["random"]
    accuracy = {name: np.mean([one.accuracy for one in runs]) for name, runs in by_method.items()}
    assert accuracy["neighbours"] > accuracy["random"]


def test_the_selector_is_its_formula(monkeypatch):
    """Against the definition, sample by sample."""
    module = load("new_selector", monkeypatch)
    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.normal(size=(60, 4)).astype(np.float32))
    labels = torch.from_numpy(draw.integers(0, 2, 60))
    pool = Pool(features, torch.full((60, 2), 0.5), labels)
    agree = []
    for i, h in enumerate(features.double().numpy()):
        angle = [
            h @ other / np.linalg.norm(h) / np.linalg.norm(other)
            for other in features.double().numpy()
        ]
        near = [j for j in np.argsort(angle)[::-1] if j != i][:5]
        agree.append(np.mean([labels[j] == labels[i] for j in near]))
    most = set(np.flatnonzero(np.array(agree) > 0.5))
    assert 10 < len(most) < 50
    for budget in (10, 55):
        chosen = module.Neighbours().pick(pool, None, budget, None, {})[0].indices
        assert len(chosen) == max(budget, len(most))
        assert most <= set(chosen)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_short_and_says_what_it_shows(path):
    text = path.read_text()
    assert 40 <= len(text.splitlines()) <= 100
    said = ast.get_docstring(ast.parse(text))
    assert "Shows:" in said
    assert re.search(rf"python examples/{path.name} +# about \d+ seconds", said)


def test_the_page_lists_them_all():
    named = re.findall(r"\| \[[^]]+\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text())
    folders = {f"{path.name}/README.md" for path in EXAMPLES.iterdir() if path.is_dir()}
    assert set(named) == {path.name for path in FILES} | folders
