from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from data_files import source
from gcfl.base.errors import DataError

DRAW = np.random.default_rng(0)


def test_leaf_keeps_its_writers(tmp_path, home):
    pixels = DRAW.integers(0, 256, (6, 784))
    for part, rows in (("train", slice(0, 4)), ("test", slice(4, 6))):
        (tmp_path / part).mkdir()
        users = {
            f"w{k}": {
                "x": np.round(pixels[rows][k::2] / 255, 4).tolist(),
                "y": [3, 7][: len(pixels[rows][k::2])],
            }
            for k in range(2)
        }
        (tmp_path / part / "a.json").write_text(
            json.dumps({"users": list(users), "user_data": users})
        )
    found = source(tmp_path)
    assert found.x.shape == (6, 1, 28, 28)
    assert set(found.groups) == {"w0", "w1"}
    assert found.classes == (3, 7)
    assert np.array_equal(found.x[0, 0].reshape(-1), pixels[0])
    (tmp_path / "train" / "b.json").write_text("{")
    with pytest.raises(DataError, match="not LEAF json"):
        source(tmp_path)


def leaf(folder: Path, users) -> Path:
    (folder / "train").mkdir(parents=True, exist_ok=True)
    (folder / "train" / "a.json").write_text(json.dumps({"user_data": users}))
    return folder


def test_leaf_data_that_is_not_pixels_stays_numbers(tmp_path, home):
    odd = {"w0": {"x": [[0.1, -2.5], [300.0, 4.0]], "y": [0, 1]}}
    found = source(leaf(tmp_path / "odd", odd))
    assert found.x.dtype == np.float32
    assert np.allclose(found.x, odd["w0"]["x"])
    square = {"w0": {"x": [[0, 0, 0, 7], [1, 2, 3, 4]], "y": [0, 1]}}
    assert source(leaf(tmp_path / "square", square)).x.tolist() == square["w0"]["x"]


def test_leaf_is_parsed_once_and_anew_when_it_changes(tmp_path, home, monkeypatch):
    from gcfl.data.readers import leaf as reader

    users = {"w0": {"x": [[0, 0, 0, 1], [1, 0, 0, 0]], "y": [5, 6]}}
    first = source(leaf(tmp_path / "l", users))
    parse, parsed = reader._parse, []
    monkeypatch.setattr(reader, "_parse", lambda *given: parsed.append(given) or parse(*given))
    again = source(tmp_path / "l")
    assert not parsed
    assert again.digest() == first.digest()
    users["w0"]["y"] = [5, 7]
    os.utime(leaf(tmp_path / "l", users) / "train" / "a.json", ns=(1, 1))
    assert source(tmp_path / "l").classes == (5, 7)
    assert len(parsed) == 1
    for file in (home / "cache").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    assert source(tmp_path / "l").classes == (5, 7)
    assert len(parsed) == 2


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({"w0": {"y": [0, 1]}}, r"a\.json is not LEAF json \(KeyError: 'x'\)"),
        ([1, 2], r"a\.json is not LEAF json"),
        ({"w0": {"x": ["red", "blue"], "y": [0, 1]}}, r"a\.json is not LEAF json"),
        ({"w0": {"x": [[1, 2], [3, 4]], "y": ["a", "b"]}}, r"a\.json is not LEAF json"),
        ({"w0": {"x": [[1, 2], [3]], "y": [0, 1]}}, r"a\.json is not LEAF json"),
        (
            {"w0": {"x": [[1, 2]], "y": [0]}, "w1": {"x": [[1, 2, 3]], "y": [1]}},
            r"a\.json: the samples of w1 do not fit",
        ),
        ({"w0": {"x": [[1, 2]], "y": [0, 1]}}, r"a\.json: the samples of w0 do not fit"),
        ({}, "has no samples"),
    ],
)
def test_bad_leaf(tmp_path, home, users, message):
    with pytest.raises(DataError, match=message):
        source(leaf(tmp_path / "l", users))
