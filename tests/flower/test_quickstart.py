"""examples/flower-quickstart: with ten lines for GCFL, 40% wrong labels cost less accuracy."""

from __future__ import annotations

import difflib
import importlib
import random
import re
import sys
import tomllib

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import Strategy

from flower_grid import Here
from helpers import ROOT

EXAMPLE = ROOT / "examples" / "flower-quickstart"
CLIENTS = 10


def play(variant, monkeypatch, **changes):
    """The app's server and client over the in-process Grid: what `start` returned, the Grid."""
    folder = EXAMPLE / variant
    settings = {
        **tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"],
        **changes,
    }
    results = []
    start = Strategy.start

    def noted(self, *arguments, **options):
        results.append(start(self, *arguments, **options))
        return results[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Strategy, "start", noted)
        patch.syspath_prepend(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "pytorchexample"]:
            patch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        client, server = (
            importlib.import_module(f"pytorchexample.{half}_app").app
            for half in ("client", "server")
        )
        grid = Here(client, CLIENTS)
        for number, node in enumerate(grid.contexts):
            grid.contexts[node] = Context(
                1, node, {"partition-id": number, "num-partitions": CLIENTS}, RecordDict(), settings
            )
        random.seed(settings["seed"])
        server(grid, Context(1, 1, {}, RecordDict(), settings))
        for name in [name for name in sys.modules if name.partition(".")[0] == "pytorchexample"]:
            del sys.modules[name]
    return results[0], grid


def difference():
    """The lines that the variant with GCFL adds, file by file."""
    files = [
        {
            path.relative_to(EXAMPLE / variant): path
            for path in (EXAMPLE / variant).rglob("*")
            if path.suffix in (".py", ".toml")
        }
        for variant in ("plain", "gcfl")
    ]
    assert files[0].keys() == files[1].keys()
    lines = []
    for name, path in sorted(files[0].items()):
        lines += difflib.unified_diff(
            path.read_text().splitlines(), files[1][name].read_text().splitlines(), n=0, lineterm=""
        )
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def test_ten_added_lines_and_the_readme_shows_them():
    changed = difference()
    assert 0 < len([line for line in changed if line.startswith("+")]) <= 10
    (block,) = re.findall(r"```diff\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.S)
    assert [line for line in block.splitlines() if line[:1] in ("+", "-")] == changed


def gains(seed, monkeypatch):
    """What GCFL adds to the accuracy in 40 rounds: on the server's test set, the clients' own."""
    both = []
    for variant in ("plain", "gcfl"):
        result = play(variant, monkeypatch, seed=seed)[0]
        server = result.evaluate_metrics_serverapp[40]["accuracy"]
        both.append((server, result.evaluate_metrics_clientapp[40]["eval_acc"]))
    return [after - before for before, after in zip(*both, strict=True)]


def test_accuracy_rises_where_two_labels_of_five_are_wrong(monkeypatch):
    assert min(gains(0, monkeypatch)) > 0.05  # measured: 0.17 and 0.18


# The lower of the two gains was 0.17, 0.05, 0.05, 0.13 and 0.04. The mean of the limits is 0.05, so
# both gains are above that in the mean of five seeds.
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "least"), [(0, 0.11), (1, 0.02), (2, 0.02), (3, 0.08), (4, 0.02)])
def test_accuracy_rises_on_five_seeds(seed, least, monkeypatch):
    assert min(gains(seed, monkeypatch)) > least


def test_the_clients_train_on_a_tenth(monkeypatch):
    result, grid = play("gcfl", monkeypatch, **{"num-server-rounds": 2})
    used = [
        content["metrics"]["num-examples"]
        for _, content in grid.traffic
        if "train_loss" in content.get("metrics", {})
    ]
    _, whole = play("plain", monkeypatch, **{"num-server-rounds": 1})
    held = [
        content["metrics"]["num-examples"]
        for _, content in whole.traffic
        if "train_loss" in content.get("metrics", {})
    ]
    assert len(used) == 2 * len(held) == 2 * CLIENTS
    assert sorted(used) == sorted(2 * [max(1, round(0.1 * n)) for n in held])
    assert len(result.evaluate_metrics_serverapp) == 3
