"""Images with their channels last, or grey ones without: turned where the shape tells."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import gcfl
from gcfl.base.errors import DataError
from gcfl.data import arrays


def read(shape, channels=None, dtype=np.float32):
    x = np.random.default_rng(0).integers(0, 256, (6, *shape)).astype(dtype)
    return x, arrays((x, [0, 1] * 3), channels=channels)


def test_channels_last_are_turned_and_told(caplog):
    with caplog.at_level(logging.INFO, logger="gcfl.data"):
        x, source = read((9, 12, 3))
    assert np.array_equal(source.x, x.transpose(0, 3, 1, 2))
    assert "has its channels last, and is read as (6, 3, 9, 12)" in caplog.text


@pytest.mark.parametrize(
    ("shape", "channels", "wanted"),
    [
        ((3, 9, 12), None, (3, 9, 12)),
        ((9, 9, 1), None, (1, 9, 9)),
        ((9, 9, 4), None, (4, 9, 9)),
        ((9, 9, 5), None, (9, 9, 5)),  # nobody's channels: as it is
        ((2, 20, 3), None, (2, 20, 3)),  # too few pixels for an image of channels last
        ((3, 4, 4), None, (3, 4, 4)),  # square one way
        ((4, 4, 3), None, (3, 4, 4)),  # and the other
        ((3, 3, 3), "last", (3, 3, 3)),
        ((9, 12, 3), "first", (9, 12, 3)),
        ((9, 12), None, (9, 12)),  # a sequence
        ((9, 12), "grey", (1, 9, 12)),
    ],
)
def test_where_the_channels_are(shape, channels, wanted):
    x, source = read(shape, channels)
    assert source.x.shape == (6, *wanted)
    assert sorted(source.x.ravel()) == sorted(x.ravel())


def test_bytes_without_channels_are_grey_images():
    x, source = read((9, 12), dtype=np.uint8)
    assert np.array_equal(source.x, x[:, None])
    assert read((9, 12), "none", np.uint8)[1].x.shape == (6, 9, 12)


@pytest.mark.parametrize(
    ("shape", "channels", "message"),
    [
        ((3, 3, 3), None, "first or last; say which"),
        ((3, 9, 3), None, "first or last; say which"),
        ((9, 12), "last", "is for arrays of 4 axes"),
    ],
)
def test_what_may_be_either_gets_a_sentence(shape, channels, message):
    with pytest.raises(DataError, match=message):
        read(shape, channels)


@pytest.mark.parametrize("kind", ["last", "grey"])
def test_predict_takes_the_layout_of_the_training(tmp_path, kind):
    draw = np.random.default_rng(0)
    y = np.arange(90) % 2
    x = (draw.integers(0, 99, (90, 8, 10)) + 99 * y[:, None, None]).astype(np.uint8)
    x = x[..., None].repeat(3, axis=3) if kind == "last" else x
    result = gcfl.run(
        "fedavg",
        (x, y),
        model="cnn",
        clients=3,
        rounds=2,
        out=tmp_path,
        lr=0.05,
        test=(x[:20], y[:20]),
    )
    first = np.moveaxis(x, -1, 1) if kind == "last" else x[:, None]
    said = gcfl.load(result.folder).predict(x)
    assert np.array_equal(said, result.predict(first))
    assert np.mean(said == y) > 0.8
    with pytest.raises(DataError, match="got shape"):
        result.predict(x[:, :7])
