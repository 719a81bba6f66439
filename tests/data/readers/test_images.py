from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from data_files import photos, pictures, source
from gcfl.base.errors import DataError


def test_image_folders_of_every_kind(tmp_path, home):
    photos(tmp_path / "p", ("RGB", "L", "I;16", "CMYK", "webp", "RGBA", "P", "1"), 8)
    found = source(tmp_path / "p", image_size=16)
    assert found.classes == ("dark ones", "helle Töne")
    assert found.x.shape == (16, 3, 16, 16)
    assert found.x.dtype == np.uint8
    means = found.x.reshape(16, -1).mean(1)
    # Everything but the black-and-white one keeps its shade, whatever its mode.
    kept = [i for i in range(16) if i % 8 != 7]
    assert np.abs(means[kept] - np.where(found.y[kept] == 0, 30, 220)).max() < 4


def test_images_are_decoded_once_and_anew_when_they_change(tmp_path, home, monkeypatch):
    from gcfl.data.readers import images

    photos(tmp_path / "p")
    first = source(tmp_path / "p").x
    decoded = []
    decode = images._decode
    monkeypatch.setattr(
        images, "_decode", lambda file, size: decoded.append(file) or decode(file, size)
    )
    assert np.array_equal(source(tmp_path / "p").x, first)
    assert decoded == []
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "p" / "dark ones" / "0.png")
    source(tmp_path / "p")
    assert len(decoded) == 6


def test_bad_image_folders(tmp_path, home):
    photos(tmp_path / "p")
    (tmp_path / "p" / "dark ones" / "broken.jpg").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"broken\.jpg cannot be read as an image"):
        source(tmp_path / "p")
    (tmp_path / "p" / "dark ones" / "broken.jpg").unlink()
    (tmp_path / "p" / "nothing").mkdir()
    with pytest.raises(DataError, match="a folder without images: 'nothing'"):
        source(tmp_path / "p")
    (tmp_path / "one" / "only").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "one" / "only" / "a.png")
    with pytest.raises(DataError, match="a folder per class, at least two"):
        source(tmp_path / "one")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no data that gcfl can read"):
        source(tmp_path / "empty")


def test_images_in_train_and_test_folders(tmp_path, home, caplog):
    photos(tmp_path / "p" / "train", n=4)
    photos(tmp_path / "p" / "test", n=2)
    (tmp_path / "p" / "train" / "dark ones" / "notes.txt").write_text("x")
    caplog.set_level("INFO", "gcfl.data")
    found = source(tmp_path / "p", image_size=16)
    assert "1 files that are not images" in caplog.text
    assert found.classes == ("dark ones", "helle Töne")
    assert (len(found), len(found.test[1]), found.validation_from_test) == (8, 4, True)
    assert found.test[1].tolist() == [0, 0, 1, 1]
    (tmp_path / "p" / "test" / "dark ones").rename(tmp_path / "p" / "test" / "other")
    with pytest.raises(DataError, match=r"other is a class that .*train does not have"):
        source(tmp_path / "p")


def test_classes_that_are_called_train_test_and_meta(tmp_path, home):
    for name in ("train", "test", "meta"):
        (tmp_path / "p" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "p" / name / "a.png")
    assert source(tmp_path / "p").classes == ("meta", "test", "train")


def test_sixteen_bits_mean_the_same_shade_in_every_image(tmp_path, home):
    for name, shade in (("a", 200), ("b", 40_000)):
        (tmp_path / "p" / name).mkdir(parents=True)
        Image.fromarray(np.full((8, 8), shade, dtype=np.uint16)).save(
            tmp_path / "p" / name / "0.png"
        )
    assert source(tmp_path / "p", image_size=4).x[:, 0, 0, 0].tolist() == [
        round(200 / 257),
        round(40_000 / 257),
    ]


def test_a_monstrous_image_gets_its_sentence(tmp_path, home, monkeypatch):
    photos(tmp_path / "p")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"0\.png cannot be read as an image \(DecompressionBomb"):
        source(tmp_path / "p")


def test_one_broken_photo_is_left_out_and_named(tmp_path, caplog):
    folder = tmp_path / "photos"
    for name, seed in (("cat", 0), ("dog", 1)):
        (folder / name).mkdir(parents=True)
        for place, image in enumerate(pictures(10, seed=seed)):
            image.save(folder / name / f"{place:02}.png")
    whole = source(folder, image_size=8)
    (folder / "cat" / "03.png").write_bytes(b"no image")
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        found = source(folder, image_size=8)
        assert "1 of 20 images are left out" in caplog.text
        assert "03.png cannot be read as an image" in caplog.text
        assert found.names == tuple(name for name in whole.names if name != "cat/03.png")
        assert np.array_equal(found.x, np.delete(whole.x, 3, axis=0))
        assert np.array_equal(found.y, np.delete(whole.y, 3))
    lines = tmp_path / "owners.txt"  # files with a line per sample are still of all of them
    lines.write_text("\n".join(f"owner {place}" for place in range(20)))
    assert found.lines(str(lines), "data.owners")[3] == "owner 4"
    with pytest.raises(DataError, match=r"03\.png cannot be .* 'skip' leaves it out"):
        source(folder, image_size=8, broken="refuse")
    for place in (4, 5):
        (folder / "cat" / f"0{place}.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"03\.png .*more than a tenth of the 20 images are broken"):
        source(folder, image_size=8)
