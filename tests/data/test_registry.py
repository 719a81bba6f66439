"""Sources by name and by path, as a user has them; the real sets where they are."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil

import numpy as np
import pytest

import gcfl
from data_files import photos, source, write_binary, write_csv, write_python
from gcfl.base.errors import DataError
from gcfl.data import SOURCES, DataOptions, read
from gcfl.data.source import data_home


def test_blobs_are_the_papers():
    source = read(DataOptions(source="blobs", samples=20_000), 0)
    assert source.x.shape == (20_000, 10)
    spread = [source.x[source.y == label].std(axis=0).mean() for label in range(10)]
    assert np.allclose(spread, np.linspace(1, 8, 10), rtol=0.03)


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
    assert names[0].startswith("patients.csv-logistic-robust-seed0-")
    assert names[1].startswith("photos-cnn-robust-seed0-")
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


def test_a_source_given_from_python_is_told_apart_by_its_content(tmp_path):
    first = source("digits", samples=200)

    second = dataclasses.replace(first, x=first.x[::-1].copy())
    settings = {"clients": 3, "rounds": 1, "validation": 60, "test": 40, "out": tmp_path}
    folders = {gcfl.run(data=one, **settings).folder for one in (first, second, first)}
    assert len(folders) == 2
    with pytest.raises(gcfl.GcflError, match=r"call gcfl\.run again"):
        gcfl.resume(folders.pop())


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
