"""The server's clean set and the test set as files."""

from __future__ import annotations

import numpy as np
import pytest

import gcfl
from data_files import adults, write_table
from gcfl.base.errors import DataError
from gcfl.data import DataOptions, build, read

LABEL = {"label": "income", "group": "hospital", "drop": ["row_id", "country"]}


@pytest.fixture
def parts(tmp_path):
    """train.csv, validation.csv and test.npz of one table of numbers; their rows."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 3)).astype(np.float32), np.arange(120) % 2
    rows = {"train": slice(0, 80), "validation": slice(80, 100), "test": slice(100, 120)}
    for part, one in rows.items():
        names = dict(zip("abc", x[one].T, strict=True))
        write_table(tmp_path / f"{part}.csv", {**names, "label": y[one]})
    (tmp_path / "test.csv").unlink()
    np.savez(tmp_path / "test.npz", x=x[rows["test"]], y=y[rows["test"]])
    return tmp_path, x, y


def federation(source, **more):
    options = DataOptions(source=str(source), clients=2, min_size=1, **more)
    return build(read(options, 0), options, 0)


def test_sets_from_files_of_any_format_and_from_a_folder(parts):
    folder, x, y = parts
    named = {"validation": str(folder / "validation.csv"), "test": str(folder / "test.npz")}
    for found in (federation(folder / "train.csv", **named), federation(folder)):
        assert len(found.clients.x) == 80
        assert np.array_equal(found.validation.x, x[80:100])
        assert np.array_equal(found.validation.y, y[80:100])
        assert np.array_equal(found.test.x, x[100:])
        assert found.truth is None
    only = federation(folder / "train.csv", validation=named["validation"])
    assert (len(only.clients.x), len(only.validation), len(only.test)) == (68, 20, 12)


def test_a_gap_in_the_clean_set_alone(parts):
    folder, *_ = parts
    lines = (folder / "validation.csv").read_text().splitlines()
    lines[1] = "," + lines[1].split(",", 1)[1]
    (folder / "validation.csv").write_text("\n".join(lines))
    (folder / "test.npz").unlink()
    found = federation(folder)
    assert found.encoding.names == ("a", "a (missing)", "b", "c")
    assert found.validation.x[:, 1].sum() == 1
    assert found.clients.x[:, 1].sum() == 0


def test_bad_sets(parts):
    folder, *_ = parts
    train = folder / "train.csv"
    with pytest.raises(DataError, match=r"data.validation must be a share, a count"):
        federation(train, validation="nowhere.csv")
    text = (folder / "validation.csv").read_text()
    (folder / "v.csv").write_text(text.replace(",1\n", ",7\n", 1))
    with pytest.raises(DataError, match="has the class '7', which train does not know"):
        federation(train, validation=str(folder / "v.csv"))
    (folder / "v.csv").write_text(text.replace("a,b", "a,bb", 1))
    with pytest.raises(DataError, match="no column 'b', which train's table has"):
        federation(train, validation=str(folder / "v.csv"))
    (folder / "val.csv").write_text(text)
    with pytest.raises(DataError, match="more than one file for validation"):
        federation(folder)


def test_what_is_in_the_files_counts_and_where_they_lie_does_not(parts, monkeypatch):
    folder, *_ = parts
    monkeypatch.chdir(folder)

    def run(**sets):
        settings = {"clients": 2, "rounds": 1, "model": "logistic", "out": folder / "runs"}
        return gcfl.run("fedavg", "train.csv", **settings, **sets)

    first = run(validation="validation.csv")
    (folder / "moved.csv").write_bytes((folder / "validation.csv").read_bytes())
    assert run(validation="moved.csv").folder == first.folder
    assert gcfl.resume(first.folder).folder.resolve() == first.folder.resolve()
    text = (folder / "validation.csv").read_text().splitlines()
    (folder / "moved.csv").write_text("\n".join(text[:-1]))
    other = run(validation=folder / "moved.csv")
    assert other.folder != first.folder
    assert other.config["data"]["validation"] == str(folder / "moved.csv")


def test_labels_that_may_be_wrong_already_are_warned_about(tmp_path, caplog):
    write_table(tmp_path / "t.csv", adults())

    def told(**changes):
        caplog.clear()
        settings = {"clients": 3, "rounds": 1, "model": "logistic", "out": tmp_path / "runs"}
        gcfl.run("fedavg", data={"source": tmp_path / "t.csv", **LABEL}, **settings, **changes)
        return [line for line in caplog.messages if "cut from t, with the labels" in line]

    (line,) = told()
    assert "the server's clean set and the test set are cut" in line
    assert "data.validation = PATH" in line
    (line,) = told(validation=tmp_path / "t.csv")
    assert line.startswith("the test set is cut")
    assert not told(validation=tmp_path / "t.csv", test=tmp_path / "t.csv")
    assert not told(noise=0.2)
    x, y = np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 2
    caplog.clear()
    gcfl.run("fedavg", (x, y), "logistic", clients=2, rounds=1, out=tmp_path / "runs")
    assert "are cut from arrays, with the labels" in caplog.text
    caplog.clear()
    gcfl.run("fedavg", "digits", "logistic", clients=2, rounds=1, out=tmp_path / "runs")
    assert "with the labels" not in caplog.text
