from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import imread

from gcfl import api, cli, demo
from helpers import command


def test_a_short_demo(tmp_path, capsys):
    out = tmp_path / "demo"
    assert cli.main(["demo", "--out", str(out), "--seeds", "2", "--rounds", "2", "--quiet"]) == 0
    text = capsys.readouterr().out
    for name in demo.METHODS:
        assert name in text
    picture = imread(out / "demo.png")
    assert picture.shape[1] > 1000
    assert np.std(picture[..., :3]) > 0.05
    folders = {path.name for path in (out / "runs").iterdir()}
    assert len(folders) == 2 * len(demo.SCENES) * len(demo.METHODS)
    # A second time only reads.
    times = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("summary.json")}
    assert cli.main(["demo", "--out", str(out), "--seeds", "2", "--rounds", "2", "--quiet"]) == 0
    assert times == {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("summary.json")}


@pytest.mark.slow
def test_the_demo_shows_what_the_readme_says(tmp_path):
    """Digits: GCFL clearly above FedAvg and Random, below Skyline. Blobs: the ordering that
    docs/results.md reports.
    """
    done = command("demo", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = demo._run_all(
        [
            demo.Cell(scene, method, seed, None)
            for seed in range(3)
            for scene in demo.SCENES
            for method in demo.METHODS
        ],
        tmp_path / "demo",
        True,
    )

    def mean(scene, method):
        values = [results[scene, method, seed] for seed in range(3)]
        assert all(isinstance(value, api.Result) for value in values)
        return np.mean([value.accuracy for value in values])

    for rule in ("GCFL (correlation)", "GCFL (distance)"):
        assert mean("digits", rule) > max(mean("digits", "FedAvg"), mean("digits", "Random")) + 0.02
        assert mean("digits", rule) < mean("digits", "Skyline") - 0.05
    assert (
        mean("digits", "GCFL (distance)")
        > max(mean("digits", "FedAvg"), mean("digits", "Random")) + 0.08
    )
    assert (
        mean("blobs", "GCFL (distance)")
        < mean("blobs", "GCFL (correlation)")
        < mean("blobs", "server only")
        < mean("blobs", "Skyline")
    )
    assert mean("blobs", "GCFL (correlation)") < mean("blobs", "FedAvg") + 0.01
