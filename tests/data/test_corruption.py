from __future__ import annotations

import sys

import imagecorruptions
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import DataError
from gcfl.data import DataOptions, arrays, build, corruption, read
from gcfl.data.corruption import NINE, Corruption, chosen, image_of, measure

WORD = 20_231_117


pytestmark = pytest.mark.usefixtures("home")


def corrupt(x, rows, names, severity, seed, purpose="clients"):
    how = Corruption(chosen(x, names), severity, measure(x, np.arange(len(x))))
    return corruption.corrupt(x, rows, how, seed, purpose)


def picture(channels, side, seed=0):
    """Something smooth with an edge in it, so that no corruption leaves it as it is."""
    across, down = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side))
    planes = [
        100 + 80 * np.sin(5 * across + shade) * np.cos(4 * down) + 60 * (across > down)
        for shade in range(channels)
    ]
    speckle = rng.stream(seed, "speckle").integers(-6, 7, (channels, side, side))
    return np.clip(np.stack(planes) + speckle, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("name", NINE)
def test_each_of_the_nine_is_the_librarys_own_for_the_same_draw(name):
    image = picture(3, 40)
    seeded = {"seed": WORD} if name == "impulse_noise" else {}
    with rng.fenced(WORD):
        expected = imagecorruptions.corrupt(
            image.transpose(1, 2, 0).copy(), 5, name, **seeded
        ).transpose(2, 0, 1)
    ours = image_of(image, name, 5, WORD)
    assert np.array_equal(ours, expected)
    assert not np.array_equal(ours, image)
    if name not in ("brightness", "pixelate", "jpeg_compression"):  # those draw nothing
        assert not np.array_equal(ours, image_of(image, name, 5, WORD + 1))


@pytest.mark.parametrize("name", [*NINE, *corruption._OTHERS])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 8, 8), (3, 32, 48), (2, 33, 20)])
def test_any_size_and_number_of_channels(name, shape):
    image = picture(shape[0], max(shape[1:]))[:, : shape[1], : shape[2]]
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (image_of(image, name, 5, WORD) for _ in range(2))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert first.shape == shape
    assert first.dtype == np.uint8
    assert np.array_equal(first, second)
    assert not np.array_equal(first, image)


def test_a_grey_image_is_the_green_channel_of_what_the_library_makes_of_it():
    image = picture(1, 64)
    with rng.fenced(WORD):
        expected = imagecorruptions.corrupt(np.stack([image[0]] * 3, axis=-1), 3, "frost")[..., 1]
    assert np.array_equal(image_of(image, "frost", 3, WORD)[0], expected)


def test_what_a_sample_becomes_depends_on_its_row_alone():
    x = np.stack([picture(3, 32, seed) for seed in range(20)])
    everything = corrupt(x, np.arange(20), None, 5, 7)
    some = np.array([3, 11, 17])
    assert np.array_equal(corrupt(x, some, None, 5, 7), everything[some])
    assert not np.array_equal(corrupt(x, some, None, 5, 8), everything[some])
    assert not np.array_equal(corrupt(x, some, None, 5, 7, "test"), everything[some])


def test_made_once_then_read(monkeypatch):
    x = np.stack([picture(3, 32, seed) for seed in range(6)])
    first = corrupt(x, np.arange(6), ["fog"], 5, 0)

    def never(*_, **__):
        raise AssertionError("made again")

    monkeypatch.setattr(corruption, "image_of", never)
    assert np.array_equal(corrupt(x, np.arange(6), ["fog"], 5, 0), first)
    changed = x.copy()
    changed[2, 0, 0, 0] ^= 1
    for again in (
        (x, ["fog"], 4, 0),
        (x, ["frost"], 5, 0),
        (x, ["fog"], 5, 1),
        (changed, ["fog"], 5, 0),
    ):
        with pytest.raises(AssertionError, match="made again"):
            corrupt(again[0], np.arange(6), *again[1:])


def test_a_damaged_cache_is_made_anew(tmp_path):
    x = np.stack([picture(1, 28, seed) for seed in range(4)])
    first = np.array(corrupt(x, np.arange(4), None, 5, 0))
    (file,) = (tmp_path / "home" / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert np.array_equal(corrupt(x, np.arange(4), None, 5, 0), first)


def test_images_that_are_not_bytes_keep_their_type_and_range():
    bytes_ = np.stack([picture(3, 32, seed) for seed in range(3)])
    floats = (bytes_ / 255).astype(np.float32)
    rows = np.arange(3)
    spoiled = corrupt(floats, rows, ["gaussian_noise"], 5, 0)
    assert spoiled.dtype == np.float32
    assert spoiled.min() >= 0
    assert spoiled.max() <= floats.max()
    assert np.abs(spoiled - floats).mean() > 0.1
    sixteen = (bytes_ // 16).astype(np.uint8)  # like scikit-learn's digits: 0 to 16
    assert corrupt(sixteen, rows, ["brightness"], 5, 0).max() <= sixteen.max()


def test_tables_by_their_definition():
    x = rng.stream(0, "x").normal(5, [1, 2, 4, 8, 3, 3, 3, 3, 3, 3], (5000, 10)).astype(np.float32)
    rows = np.arange(0, 5000, 2)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    missing = corrupt(x, rows, ["missing"], 3, 0)
    hit = missing != x[rows]
    assert (hit.sum(axis=1) == 3).all()
    assert np.allclose(missing[hit], np.broadcast_to(mean, missing.shape)[hit], rtol=1e-5)
    assert hit.mean(axis=0).min() > 0.25
    scaled = corrupt(x, rows, ["scale"], 5, 0)
    factors = scaled / x[rows]
    assert np.isin(np.round(np.log10(factors), 3), [-1, 0, 1]).all()
    assert (np.abs(np.log10(factors)) > 0.5).sum(axis=1).tolist() == [5] * len(rows)
    noisy = corrupt(x, rows, ["gaussian"], 2, 0)
    assert np.allclose((noisy - x[rows]).std(axis=0) / deviation, 0.8, rtol=0.08)
    assert {a.dtype for a in (missing, scaled, noisy)} == {np.dtype(np.float32)}


@given(st.integers(0, 2**32), st.sampled_from([np.float32, np.uint8]))
def test_a_spoiled_row_of_a_table_is_never_what_it_was(seed, dtype):
    draw = rng.stream(seed, "x")
    x = draw.integers(0, 256, (60, 4)) * (draw.random((60, 4)) < 0.4)  # many zeros
    x[:, 1] = 7  # never varies
    x[:5, [0, 2, 3]] = 0
    x = x.astype(dtype)
    spoiled = corrupt(x, np.arange(60), None, 2, seed)
    assert (spoiled != x).any(axis=1).all()
    for name, changed in (("missing", 1), ("scale", 1)):
        assert ((corrupt(x, np.arange(60), [name], 2, seed) != x).sum(axis=1) == changed).all()


def test_a_row_that_nothing_can_spoil_is_told():
    x = np.zeros((20, 3), dtype=np.float32)
    x[:10] = 1
    with pytest.raises(DataError, match="row 10 of the data stays as it is under scale"):
        corrupt(x, np.arange(20), ["scale"], 5, 0)
    with pytest.raises(DataError, match="under missing and scale and gaussian"):
        corrupt(np.zeros((20, 3), dtype=np.float32), np.arange(20), None, 5, 0)


def test_odd_shapes_are_refused():
    source = arrays((np.zeros((40, 2, 5), dtype=np.float32), np.arange(40) % 2))
    options = DataOptions(noise_kind="attribute", noise=0.2, clients=2)
    with pytest.raises(DataError, match=r"tables .* and images"):
        build(source, options, 0)


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "imagecorruptions", None)
    options = DataOptions(noise_kind="attribute", noise=0.2, clients=2)
    with pytest.raises(DataError, match=r"pip install 'gcfl\[corruptions\]'"):
        build(read(options, 0), options, 0)
