"""What every reader owes, and what a new one costs."""

from __future__ import annotations

import numpy as np
import pytest

import gcfl
from data_files import photos, source, write_csv
from gcfl.base.errors import DataError
from gcfl.cli import main
from gcfl.data import DataOptions, Schema, arrays, read_as, readers
from gcfl.data.readers import READERS, formats, reader_of


class Words:
    """A toy format: a label and two numbers in every line."""

    eats = "a file of words"

    def recognises(self, path):
        return path.suffix == ".words"

    def read(self, path, options, schema):
        rows = [line.split() for line in path.read_text().splitlines()]
        x = np.array([[float(cell) for cell in row[1:]] for row in rows])
        return arrays((x, np.array([row[0] for row in rows])))


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "READERS", (*READERS, Words()))
    lines = [f"{'ash' if row % 2 else 'elm'} {row % 7} {row % 2 + row / 100}" for row in range(80)]
    (tmp_path / "trees.words").write_text("\n".join(lines))
    return tmp_path / "trees.words"


def test_a_format_of_ones_own_is_a_class_and_a_line(words, tmp_path, capsys):
    result = gcfl.run("fedavg", words, "logistic", clients=2, rounds=1, out=tmp_path / "runs")
    assert result.finished
    assert set(result.predict(np.zeros((3, 2)))) <= {"ash", "elm"}
    assert main(["list", "data"]) == 0
    assert "a file of words" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "other.file").write_text("?")
    with pytest.raises(DataError, match=r"no data that gcfl can read: .* or a file of words"):
        source(tmp_path / "other.file")


def test_a_site_may_use_a_reader_that_knows_no_schema(words):
    options = DataOptions(source=str(words))
    found = read_as(options, 0, Schema(("elm", "oak", "ash"), (2,), "float32"))
    assert found.classes == ("elm", "oak", "ash")
    assert found.y[:4].tolist() == [0, 2, 0, 2]
    assert found.own
    with pytest.raises(DataError, match="has the class 'ash', which the server does not know"):
        read_as(options, 0, Schema(("elm", "oak"), (2,), "float32"))
    with pytest.raises(DataError, match=r"samples of shape \(2,\), but the server's .* \(3,\)"):
        read_as(options, 0, Schema(("elm", "ash"), (3,), "float32"))
    with pytest.raises(DataError, match="numbers of type float32, but the server's are uint8"):
        read_as(options, 0, Schema(("elm", "ash"), (2,), "uint8"))


def test_each_format_is_recognised_by_its_reader_alone(tmp_path, home):
    photos(tmp_path / "photos")
    write_csv(tmp_path / "t.csv")
    np.savez(tmp_path / "t.npz", x=np.zeros((2, 2)), y=[0, 1])
    (tmp_path / "empty").mkdir()
    for name, eats in {
        "photos": "a folder per class of images",
        "t.csv": "a CSV, TSV or parquet table",
        "t.npz": "an npz file, a folder of npy files",
        "empty": None,
    }.items():
        known = [reader.eats for reader in READERS if reader.recognises(tmp_path / name)]
        assert known == ([] if eats is None else [eats])
    assert reader_of(tmp_path / "t.csv") is READERS[0]


def test_formats_name_every_reader_once():
    assert [formats().count(reader.eats) for reader in READERS] == [1] * len(READERS)
