"""Every format, on files that the tests write, and on the real sets where they lie in the data
home.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gcfl
from gcfl.base.errors import DataError
from gcfl.data import DataOptions, build, read
from gcfl.data.home import data_home

DRAW = np.random.default_rng(0)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def source(path, **options):
    return read(DataOptions(source=str(path), **options), 0)


# ---- CIFAR


def cifar_arrays(classes: int, train: int = 50, test: int = 20):
    draw = np.random.default_rng(1)
    return {
        part: (draw.integers(0, 256, (n, 3, 32, 32)).astype(np.uint8), draw.integers(0, classes, n))
        for part, n in (("train", train), ("test", test))
    }


def write_binary(folder: Path, classes: int, parts) -> None:
    folder.mkdir(parents=True)
    for part, (x, y) in parts.items():
        coarse = [np.zeros((len(y), 1), np.uint8)] if classes == 100 else []
        rows = np.hstack([*coarse, y[:, None].astype(np.uint8), x.reshape(len(x), -1)])
        if classes == 100:
            rows.tofile(folder / f"{part}.bin")
        elif part == "test":
            rows.tofile(folder / "test_batch.bin")
        else:
            for number, chunk in enumerate(np.array_split(rows, 5), start=1):
                chunk.tofile(folder / f"data_batch_{number}.bin")


def write_python(folder: Path, classes: int, parts) -> None:
    """As the publisher did: pickles with byte strings as keys."""
    folder.mkdir(parents=True)
    key = b"labels" if classes == 10 else b"fine_labels"

    def dump(name, x, y):
        batch = {
            b"data": x.reshape(len(x), -1),
            key: [int(label) for label in y],
            b"filenames": [b"x.png"] * len(y),
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))

    x, y = parts["train"]
    if classes == 100:
        dump("train", x, y)
        dump("test", *parts["test"])
        (folder / "meta").write_bytes(
            pickle.dumps({b"fine_label_names": [f"n{i}".encode() for i in range(100)]}, protocol=2)
        )
        return
    for number, rows in enumerate(np.array_split(np.arange(len(y)), 5), start=1):
        dump(f"data_batch_{number}", x[rows], y[rows])
    dump("test_batch", *parts["test"])
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a"] * 10}, protocol=2))


@pytest.mark.parametrize("classes", [10, 100])
def test_both_cifar_formats_and_their_archives_give_equal_arrays(tmp_path, classes):
    parts = cifar_arrays(classes)
    found = []
    for kind, write in (("binary", write_binary), ("python", write_python)):
        folder = tmp_path / f"cifar-{classes}-{kind}-folder"
        write(folder, classes, parts)
        archive = tmp_path / f"cifar-{classes}-{kind}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(folder, arcname=folder.name)
        found += [source(folder), source(archive)]
    for one in found:
        assert np.array_equal(one.x, parts["train"][0])
        assert np.array_equal(one.y, parts["train"][1])
        assert np.array_equal(one.test[0], parts["test"][0])
        assert np.array_equal(one.test[1], parts["test"][1])
        assert len(one.classes) == classes
        assert one.x.dtype == np.uint8


def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/owned",))

    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    with pytest.raises(
        DataError, match=r"asks for (posix|nt)\.system, which no data file needs: refused"
    ):
        source(tmp_path / "c")
    assert not (tmp_path / "owned").exists()


def test_bad_cifar_files(tmp_path):
    write_binary(tmp_path / "cut", 10, cifar_arrays(10))
    blob = (tmp_path / "cut" / "data_batch_2.bin").read_bytes()
    (tmp_path / "cut" / "data_batch_2.bin").write_bytes(blob[:-5])
    with pytest.raises(DataError, match="cut off"):
        source(tmp_path / "cut")
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "cut", arcname="cut")
    archive.write_bytes(archive.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"not a whole \.tar\.gz"):
        source(archive)
    write_python(tmp_path / "junk", 10, cifar_arrays(10))
    (tmp_path / "junk" / "test_batch").write_bytes(b"no pickle")
    with pytest.raises(DataError, match="not a CIFAR batch"):
        source(tmp_path / "junk")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"data": [[0] * 3072] * 2, b"labels": [0, -1]}, "it has the label -1"),
        ({b"data": [[0] * 3072] * 2, b"labels": [0, None]}, "is not a batch of CIFAR-10"),
        ({b"data": [[300] * 3072] * 2, b"labels": [0, 1]}, "is not a batch of CIFAR-10"),
        ({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, "it has no images"),
    ],
)
def test_odd_cifar_batches(tmp_path, batch, message):
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=message):
        source(tmp_path / "c")


def test_odd_cifar_names(tmp_path):
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "batches.meta").write_bytes(pickle.dumps({b"label_names": 7}, protocol=2))
    assert source(tmp_path / "c").classes[0] == "airplane"
    (tmp_path / "c" / "batches.meta.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="c cannot be read: UnicodeDecodeError"):
        source(tmp_path / "c")


# ---- IDX


def write_idx(folder: Path, zipped: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    arrays = {}
    for stem, n in (("train", 30), ("t10k", 12)):
        images, labels = (
            DRAW.integers(0, 256, (n, 28, 28)).astype(np.uint8),
            DRAW.integers(0, 10, n).astype(np.uint8),
        )
        arrays[stem] = (images, labels)
        for name, blob in (
            (f"{stem}-images-idx3-ubyte", struct.pack(">IIII", 2051, n, 28, 28) + images.tobytes()),
            (f"{stem}-labels-idx1-ubyte", struct.pack(">II", 2049, n) + labels.tobytes()),
        ):
            (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(blob) if zipped else blob)
    return arrays


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(tmp_path, zipped):
    arrays = write_idx(tmp_path / "m", zipped)
    found = source(tmp_path / "m")
    assert np.array_equal(found.x[:, 0], arrays["train"][0])
    assert np.array_equal(found.test[1], arrays["t10k"][1])
    federation = build(found, DataOptions(clients=2, validation=6, test=6, min_size=2), 0)
    assert len(federation.validation) == len(federation.test) == 6
    assert not set(federation.validation.ids) & set(federation.test.ids)
    assert len(federation.clients.ids) == 30


def test_bad_idx(tmp_path):
    write_idx(tmp_path / "m", False)
    path = tmp_path / "m" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="is cut off"):
        source(tmp_path / "m")
    path.write_bytes(struct.pack(">IIII", 2051, 0, 28, 28))
    (tmp_path / "m" / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 0))
    with pytest.raises(DataError, match="have no images"):
        source(tmp_path / "m")
    path.write_bytes(b"abcdefgh")
    with pytest.raises(DataError, match="not an IDX file"):
        source(tmp_path / "m")
    (tmp_path / "m" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"lacks train-labels|not an IDX"):
        source(tmp_path / "m")


# ---- LEAF


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
    for file in (home / "cache").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    assert source(tmp_path / "l").classes == (5, 7)


@pytest.mark.parametrize(
    "users",
    [
        {"w0": {"y": [0, 1]}},
        [1, 2],
        {"w0": {"x": ["red", "blue"], "y": [0, 1]}},
        {"w0": {"x": [[1, 2], [3, 4]], "y": ["a", "b"]}},
        {"w0": {"x": [[1, 2], [3]], "y": [0, 1]}},
        {"w0": {"x": [[1, 2]], "y": [0]}, "w1": {"x": [[1, 2, 3]], "y": [1]}},
        {},
    ],
)
def test_bad_leaf(tmp_path, home, users):
    with pytest.raises(
        DataError,
        match=r"a\.json is not LEAF json|a\.json: the samples of w1 do not fit|has no samples",
    ):
        source(leaf(tmp_path / "l", users))


# ---- image folders


def photos(folder: Path, modes=("RGB",), n: int = 3) -> None:
    for name, shade in (("dark ones", 30), ("helle Töne", 220)):
        (folder / name).mkdir(parents=True)
        for number in range(n):
            mode = modes[number % len(modes)]
            grey = np.full((20, 30), shade, dtype=np.uint8)
            if mode == "I;16":
                Image.fromarray(grey.astype(np.uint16) * 257).save(folder / name / f"{number}.png")
            elif mode == "CMYK":
                Image.fromarray(np.stack([grey] * 3, 2)).convert("CMYK").save(
                    folder / name / f"{number}.jpg", quality=95
                )
            elif mode == "webp":
                Image.fromarray(np.stack([grey] * 3, 2)).save(folder / name / f"{number}.webp")
            elif mode == "RGBA":
                Image.fromarray(np.stack([grey] * 3 + [np.full_like(grey, 255)], 2)).save(
                    folder / name / f"{number}.png"
                )
            else:
                Image.fromarray(np.stack([grey] * 3, 2)).convert(mode).save(
                    folder / name / f"{number}.png"
                )


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


# ---- tables


def write_csv(path: Path, rows: int = 80) -> None:
    lines = ["height,weight,label"] + [
        f"{i % 7},{i * 0.5},{'yes' if i % 2 else 'no'}" for i in range(rows)
    ]
    path.write_text("\n".join(lines) + "\n")


def test_csv_and_parquet_agree(tmp_path):
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    write_csv(tmp_path / "t.csv")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(tmp_path / "t.csv"), tmp_path / "t.parquet")
    first, second = source(tmp_path / "t.csv"), source(tmp_path / "t.parquet")
    assert first.classes == second.classes == ("no", "yes")
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.y, second.y)
    assert first.x[3].tolist() == [3, 1.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,label\n1,x\n,y\n", "column 'a' has 1 missing or infinite values, first in row 3"),
        ("a,label\n1,x\nnan,y\n", "missing or infinite"),
        ("a,label\n1,x\nred,y\n", "column 'a' holds something that is not a number"),
        ("a,label\n1,x,3\n", "row 2: 3 values where the header has 2"),
        ("a,lable\n1,x\n", "no column 'label'; did you mean lable"),
        ("label\nx\n", "no column besides"),
        ("a,label\n", "no rows below its header"),
        ("a,label\n1,x\n2,\n3,nan\n", "the label column has 2 missing values, first in row 3"),
        ("a,b,a,label\n1,2,3,x\n", "more than one column 'a'"),
        ("a,label\n1e300,x\n2,y\n", "column 'a' has 1 missing or infinite values, first in row 2"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        source(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["0", "1", "10"], (0, 1, 10)),
        (["0.0", "1.0"], (0, 1)),
        (["-1", "1"], (-1, 1)),
        (["0.1", "0.9"], ("0.1", "0.9")),
        (["7", "007"], ("007", "7")),
        (["1", "1e3"], ("1", "1e3")),
        (["1", "inf"], ("1", "inf")),
    ],
)
def test_labels_are_numbers_only_where_all_are_written_as_such(tmp_path, cells, classes):
    (tmp_path / "t.csv").write_text("a,label\n" + "".join(f"1,{cell}\n" for cell in cells * 2))
    found = source(tmp_path / "t.csv")
    assert found.classes == classes
    assert len(set(found.y[: len(cells)])) == len(cells)


def test_missing_labels_of_parquet_are_told(tmp_path):
    import pyarrow
    import pyarrow.parquet

    for labels in (["x", None, "y"], [1, None, 2]):
        pyarrow.parquet.write_table(
            pyarrow.table({"a": [1.0, 2.0, 3.0], "label": labels}), tmp_path / "t.parquet"
        )
        with pytest.raises(DataError, match="1 missing values, first in row 3"):
            source(tmp_path / "t.parquet")


def test_endings_in_capitals(tmp_path):
    write_csv(tmp_path / "t.csv")
    (tmp_path / "T.TSV").write_text((tmp_path / "t.csv").read_text().replace(",", "\t"))
    found = source(tmp_path / "t.csv")
    assert np.array_equal(source(tmp_path / "T.TSV").x, found.x)
    np.savez(tmp_path / "t.npz", x=found.x, y=found.y)
    (tmp_path / "t.npz").rename(tmp_path / "T.NPZ")
    assert np.array_equal(source(tmp_path / "T.NPZ").x, found.x)


def test_npz(tmp_path):
    x, y = DRAW.normal(size=(40, 3)), np.array(["a", "b"])[np.arange(40) % 2]
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x[:5], y_test=y[:5])
    found = source(tmp_path / "d.npz")
    assert found.classes == ("a", "b")
    assert len(found.test[1]) == 5
    np.savez(tmp_path / "p.npz", x=np.array([{"evil": 1}], dtype=object), y=y[:1])
    with pytest.raises(DataError, match="not an npz file of plain arrays"):
        source(tmp_path / "p.npz")
    np.savez(tmp_path / "n.npz", a=x)
    with pytest.raises(DataError, match="needs arrays x and y, has a"):
        source(tmp_path / "n.npz")


def test_bad_npz(tmp_path):
    x, y = DRAW.normal(size=(40, 3)), np.arange(40) % 2
    np.save(tmp_path / "a.npy", x)
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 but no more")
    for name in ("a", "b"):
        with pytest.raises(DataError, match="not an npz file of plain arrays"):
            source(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "c.npz", x=x, y=y, classes=2)
    with pytest.raises(DataError, match="at least two classes"):
        source(tmp_path / "c.npz")
    np.savez(tmp_path / "g.npz", x=x, y=y, groups=["a", "b"])
    with pytest.raises(DataError, match="a group for each of the 40 samples"):
        source(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", x=x, y=y, groups=np.arange(40) % 4)
    assert set(source(tmp_path / "g.npz").groups) == {"0", "1", "2", "3"}


def test_a_folder_is_no_table(tmp_path):
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(DataError, match="no data that gcfl can read"):
        source(tmp_path / "x.csv")


def test_names_of_the_hub_are_recognised():
    with pytest.raises(DataError, match="a set on the Hugging Face hub is written hf:ylecun/mnist"):
        source("ylecun/mnist")


def test_a_path_from_python(tmp_path):
    write_csv(tmp_path / "t.csv")
    assert gcfl.run(
        "fedavg", tmp_path / "t.csv", "logistic", clients=2, rounds=1, out=tmp_path / "runs"
    ).finished


def test_a_class_with_one_sample_is_told(tmp_path, caplog):
    write_csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text() + "1,2,perhaps\n")
    assert source(tmp_path / "t.csv").classes == ("no", "perhaps", "yes")
    assert (
        "t has a single sample of class perhaps: it cannot be learnt and tested both" in caplog.text
    )


# ---- as a user


def test_own_files_in_one_command(tmp_path, home, monkeypatch):
    from gcfl import cli

    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "photos", n=40)
    write_csv(tmp_path / "patients.csv")
    common = ["--rounds", "2", "--clients", "3", "--data.validation", "20", "--quiet"]
    assert (
        cli.main(["run", "--data", "photos", "--model", "cnn", "--data.image_size", "16", *common])
        == 0
    )
    assert cli.main(["run", "--data", "patients.csv", "--model", "logistic", *common]) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names[0].startswith("patients.csv-logistic-gcfl-seed0-")
    assert names[1].startswith("photos-cnn-gcfl-seed0-")
    result = gcfl.load(tmp_path / "runs" / names[0])
    assert [client["name"] for client in result.clients] == ["0", "1", "2"]
    assert sum(client["samples"] for client in result.clients) == 80 - 20 - 12
    assert set(result.predict(np.zeros((4, 2)))) <= {"yes", "no"}
    assert result.rounds[0].coreset.clean_share is None
    # A run can be resumed from anywhere, and notices when its file has changed.
    (tmp_path / "runs" / names[0] / "summary.json").unlink()
    monkeypatch.chdir("/")
    assert gcfl.resume(tmp_path / "runs" / names[0]).finished
    text = (tmp_path / "patients.csv").read_text()
    (tmp_path / "patients.csv").write_text(text.replace("yes", "no", 1))
    with pytest.raises(gcfl.GcflError, match="made with other files than what is there now"):
        gcfl.resume(tmp_path / "runs" / names[0])
    (tmp_path / "patients.csv").write_text(text)
    # What is in the file counts: the same table elsewhere is the same run, a changed one is
    # another, and resuming notices.
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "patients.csv").write_text((tmp_path / "patients.csv").read_text())
    monkeypatch.chdir(tmp_path / "moved")
    assert (
        gcfl.run(
            data="patients.csv",
            model="logistic",
            rounds=2,
            clients=3,
            validation=20,
            out=tmp_path / "runs",
        ).folder.name
        == names[0]
    )
    write_csv(tmp_path / "moved" / "patients.csv", 90)
    assert (
        gcfl.run(
            data="patients.csv",
            model="logistic",
            rounds=2,
            clients=3,
            validation=20,
            out=tmp_path / "runs",
        ).folder.name
        != names[0]
    )


def test_a_missing_set_says_where_it_belongs(home):
    with pytest.raises(
        DataError, match=r"none of cifar-10-batches-bin, .* lies in .*GCFL_DATA_HOME"
    ):
        source("cifar10")


# ---- the real sets

REAL = {
    "cifar10": ((50000, 3, 32, 32), (10000, 3, 32, 32), 10, "airplane"),
    "cifar100": ((50000, 3, 32, 32), (10000, 3, 32, 32), 100, "apple"),
    "mnist": ((60000, 1, 28, 28), (10000, 1, 28, 28), 10, 0),
    "femnist": ((46093, 1, 28, 28), None, 10, 0),
    "flowers": ((3670, 3, 32, 32), None, 5, "daisy"),
}
CHECKSUMS = {
    "cifar10": "973ef2abb5897efc",
    "cifar100": "3f04bb596c34a28a",
    "mnist": "d18cfd466eb143ac",
    "femnist": "ac2add0a9b4d908e",
}  # not flowers: Pillow's resizing may change by a bit from version to version


TEST_CHECKSUMS = {
    "cifar10": "2c33b053d1cd726a",
    "cifar100": "f5cd69500b4aa53a",
    "mnist": "a0863a96c44e5666",
}


@pytest.mark.parametrize("name", REAL)
def test_the_real_sets(name):
    from gcfl.data import SOURCES

    if SOURCES[name].find() is None:
        pytest.skip(f"{name} is not in {data_home()}: unpack it there to run this test")
    shape, test_shape, classes, first = REAL[name]
    found = source(name)
    assert found.x.shape == shape
    assert (None if found.test is None else found.test[0].shape) == test_shape
    assert len(found.classes) == classes
    assert found.classes[0] == first
    assert found.x.dtype == np.uint8
    counts = np.bincount(found.y, minlength=classes)
    if name.startswith("cifar"):
        assert set(counts) == {50000 // classes}
    if name == "flowers":
        assert counts.tolist() == [633, 898, 641, 699, 799]
    if name == "femnist":
        assert len(np.unique(found.groups)) == 679
    if name in TEST_CHECKSUMS:
        x, y = found.test
        assert hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()[:16] == TEST_CHECKSUMS[name]
    if name in CHECKSUMS:
        assert (
            hashlib.sha256(found.x.tobytes() + found.y.tobytes()).hexdigest()[:16]
            == CHECKSUMS[name]
        )


@pytest.mark.parametrize("classes", [10, 100])
def test_the_real_cifar_in_its_other_format(tmp_path, classes):
    from gcfl.data import SOURCES

    if SOURCES[f"cifar{classes}"].find() is None:
        pytest.skip(f"cifar{classes} is not in {data_home()}: unpack it there to run this test")
    found = source(f"cifar{classes}")
    for write in (write_binary, write_python):
        write(tmp_path / write.__name__, classes, {"train": (found.x, found.y), "test": found.test})
        again = source(tmp_path / write.__name__)
        assert np.array_equal(again.x, found.x)
        assert np.array_equal(again.y, found.y)
        assert all(
            np.array_equal(one, other) for one, other in zip(again.test, found.test, strict=True)
        )
        shutil.rmtree(tmp_path / write.__name__)


def test_a_source_given_from_python_is_told_apart_by_its_content(tmp_path):
    first = source("digits", samples=200)
    import dataclasses

    second = dataclasses.replace(first, x=first.x[::-1].copy())
    settings = {"clients": 3, "rounds": 1, "validation": 60, "test": 40, "out": tmp_path}
    folders = {gcfl.run(data=one, **settings).folder for one in (first, second, first)}
    assert len(folders) == 2
    with pytest.raises(gcfl.GcflError, match=r"call gcfl\.run again"):
        gcfl.resume(folders.pop())
