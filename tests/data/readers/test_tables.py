from __future__ import annotations

import csv
import gzip
import io

import numpy as np
import pytest

from data_files import source, write_csv
from gcfl.base.errors import DataError
from gcfl.data import DataOptions, build, read
from gcfl.data.readers import tables

DRAW = np.random.default_rng(0)


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
        ("a,label\n1,x,3\n", "row 2: 3 values where the header has 2"),
        ("a,lable\n1,x\n", "no column 'label'; did you mean lable"),
        ("label\nx\n", "no column besides"),
        ("a,label\n", "no rows below its header"),
        ("a,label\n1,x\n2,\n3,nan\n", "the label column has 2 missing values, first in row 3"),
        ("a,b,a,label\n1,2,3,x\n", "more than one column 'a'"),
        ("a,label\n1e300,x\n2,y\n", "column 'a' has 1 infinite values, first in row 2"),
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


def test_a_table_with_a_group_column(tmp_path):
    lines = ["age,hospital,label"] + [f"{i},{'AB'[i % 2]},{i % 3}" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    options = DataOptions(
        source=str(tmp_path / "t.csv"),
        group="hospital",
        partition="groups",
        clients=2,
        validation=10,
        test=10,
    )
    federation = build(read(options, 0), options, 0)
    assert federation.clients.shard(0).x.shape[1] == 1
    for client in range(2):
        assert len({int(i) % 2 for i in federation.clients.shard(client).ids}) == 1


@pytest.mark.parametrize("sign", [";", "\t", ","])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_table_by_any_separator_packed_or_not(tmp_path, sign, ending):
    write_csv(tmp_path / "t.csv")
    expected = source(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as file:
        rows = [*csv.reader(file)]
    rows[0][0] = "a, or; b"  # quoted where it must be
    text = io.StringIO()
    csv.writer(text, delimiter=sign).writerows(rows)
    packed = ending.endswith("gz")
    data = text.getvalue().encode()
    (tmp_path / f"other.{ending}").write_bytes(gzip.compress(data) if packed else data)
    found = source(tmp_path / f"other.{ending}")
    assert found.name == "other"
    assert found.columns == ("a, or; b", *expected.columns[1:])
    assert np.array_equal(found.x, expected.x)
    assert found.classes == expected.classes


def test_a_table_that_is_not_utf8(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,label\n1,x\n2,Köln\n".encode("latin1"))
    with pytest.raises(DataError, match=r"t.csv is not in UTF-8 \(first seen in line 3\): save it"):
        source(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(lambda data: data[:-9], "not a text table"), (lambda data: data, "unpacks to more")],
)
def test_a_packed_table_that_is_broken_or_a_trap(tmp_path, monkeypatch, spoil, message):
    monkeypatch.setattr(tables, "_MOST", 1000)
    data = gzip.compress(b"a,label\n" + b"1,x\n2,y\n" * 1000)
    (tmp_path / "t.csv.gz").write_bytes(spoil(data))
    if message == "not a text table":
        monkeypatch.setattr(tables, "_MOST", 10**6)
    with pytest.raises(DataError, match=message):
        source(tmp_path / "t.csv.gz")
