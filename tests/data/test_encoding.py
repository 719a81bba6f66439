"""Tables of text, gaps and dates: the encoders against scikit-learn's, whose rows they know."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from sklearn.feature_extraction import FeatureHasher
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from data_files import adults, source, write_table
from gcfl.base.cells import cells
from gcfl.base.encoding import Encoding
from gcfl.base.errors import ConfigError, DataError
from gcfl.cli import main
from gcfl.data import DataOptions, build, encoded, read
from gcfl.data.encoding import fit
from gcfl.data.split import split_rows

SETTINGS = {"label": "income", "group": "hospital", "drop": ["row_id", "country"]}


def options(path, **changes):
    asked = {"clients": 3, "partition": "groups", "validation": 120, "test": 60, **SETTINGS}
    return DataOptions(source=str(path), **(asked | changes))


def fitted(columns, most=50):
    return fit({name: cells(values, name) for name, values in columns.items()}, most)


def applied(encoding, columns):
    return encoding.apply({name: cells(column, name) for name, column in columns.items()}, "t")


def test_each_encoder_is_scikit_learns():
    train, other = adults(300), adults(200, seed=1)
    other["job"][:20] = "astronaut"
    encoding = fitted({name: train[name] for name in ("age", "sex", "job", "town")})
    found = applied(encoding, other)
    places = {name: place for place, name in enumerate(encoding.names)}

    def numbers(table):
        return np.array([float(cell or "nan") for cell in table["age"]])[:, None]

    def texts(table, name):
        return np.array([np.nan if one == "?" else one for one in table[name]], object)[:, None]

    filler = SimpleImputer(strategy="median", add_indicator=True).fit(numbers(train))
    expected = filler.transform(numbers(other))
    assert np.array_equal(found[:, [places["age"], places["age (missing)"]]], expected)

    for name, known in (("sex", ["female", "male"]), ("job", sorted(set(train["job"])))):
        most = SimpleImputer(strategy="most_frequent").fit(texts(train, name))
        coder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        coder.fit(most.transform(texts(train, name)))
        expected = coder.transform(most.transform(texts(other, name)))
        assert list(coder.categories_[0]) == known
        assert np.array_equal(found[:, [places[f"{name}={one}"] for one in known]], expected)
        assert np.array_equal(found[:, places[f"{name}=(other)"]], expected.sum(axis=1) == 0)
    assert found[:, places["job=(other)"]].sum() == 20
    assert np.array_equal(found[:, places["sex (missing)"]], np.array(other["sex"]) == "?")

    hasher = FeatureHasher(50, input_type="string", alternate_sign=False)
    expected = hasher.transform([[town] for town in other["town"]]).toarray()
    assert np.array_equal(found[:, places["town#0"] : places["town#49"] + 1], expected)
    assert encoding.unseen({name: cells(other[name], name) for name in other}) == {"job": 20}


def test_values_of_fewer_than_five_rows_are_others():
    encoding = fitted({"a": ["often"] * 5 + ["rare"] * 4 + [""]})
    assert encoding.names == ("a=often", "a=(other)", "a (missing)")
    rows = applied(encoding, {"a": ["often", "rare", "never seen", None]})
    assert rows.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 1]]


def test_dates_and_booleans_become_numbers():
    days = ["2024-02-29", "1970-01-02", "2024-02-29 12:00:00", "2024-02-29T12:00:00+02:00"]
    seen = {"when": days * 2, "smokes": ["True", "false", "TRUE", "True"] * 2}
    encoding = fitted(seen)
    assert [column.kind for column in encoding.columns] == ["date", "boolean"]
    leap = date(2024, 2, 29).toordinal() - date(1970, 1, 1).toordinal()
    found = applied(encoding, {"when": days, "smokes": [True, 0, "true", None]})
    assert found[:, 0].tolist() == pytest.approx([leap, 1, leap + 0.5, leap + 10 / 24])
    assert found[:, 1].tolist() == [1, 0, 1, 1]
    as_moments = np.array(["2024-02-29", "1970-01-02"], "datetime64[ns]")
    again = applied(encoding, {"when": as_moments, "smokes": [1, 1]})
    assert again[:, 0].tolist() == [leap, 1]


LEAP = date(2024, 2, 29).toordinal() - date(1970, 1, 1).toordinal()


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("29 Feb 2024", 0),
        ("29-feb-2024", 0),
        ("29. February 2024", 0),
        ("Feb 29, 2024", 0),
        ("February 29 2024 18:00", 18),
        ("Thu, 29 Feb 2024 12:00:00 GMT", 12),
        ("Thursday, 29 February 2024", 0),
        ("2024-02-29T12:00:00Z", 12),
        ("2024-02-29 12:00:00 UTC", 12),
        ("2024-02-29 12:00:00 +0200", 10),
        ("2024/02/29T00:30-05:30", 6),
    ],
)
def test_dates_that_can_be_read_in_one_way(text, hours):
    encoding = fitted({"when": [text] * 6})
    assert encoding.columns[0].kind == "date"
    assert applied(encoding, {"when": [text]})[0, 0] == pytest.approx(LEAP + hours / 24)


@pytest.mark.parametrize(
    "text", ["30 Feb 2024", "29 Fev 2024", "Feb 2024", "29 Feb", "29 Feb 24", "2024-02-29T", "May"]
)
def test_what_is_no_date_is_a_text(text):
    assert fitted({"when": [text] * 6}).columns[0].kind == "category"


def test_which_number_is_the_day_is_said_or_the_column_is_a_text(caplog):
    days = ["1/2/2024", "29/2/2024", ""] * 4
    encoding = fitted({"seen": days, "town": ["Rome"] * 12})
    assert encoding.columns[0].kind == "category"
    assert "1/2/2024: seen (say how dates are written, data.date_format" in caplog.text
    table = {"seen": days, "since": ["2024-02-29"] * 12, "n": ["1"] * 12, "town": ["1/2"] * 12}
    cell_table = {name: cells(column, name) for name, column in table.items()}
    found = fit(cell_table, 50, "%d/%m/%Y")
    assert [one.kind for one in found.columns] == ["date", "date", "number", "category"]
    assert [one.format for one in found.columns] == ["%d/%m/%Y", None, None, None]
    again = Encoding.from_json(found.to_json(), "here")
    assert again == Encoding.from_plain(json.loads(json.dumps(found.to_plain()))) == found
    moments = np.array(["2024-02-01", "2024-02-29"], "datetime64[ns]")
    rest = {name: column[:2] for name, column in table.items()}
    for seen in (["1/2/2024", "29/2/2024"], ["01/02/2024", "29/02/2024"], moments):
        assert applied(again, rest | {"seen": seen})[:, 0].tolist() == [LEAP - 28, LEAP]
    with pytest.raises(DataError, match=r"'seen' holds '2/29/2024' in row 1, .* such as %d/%m/%Y"):
        applied(again, rest | {"seen": ["1/2/2024", "2/29/2024"]})


def test_a_schema_file_says_how_dates_are_written(tmp_path):
    """Also of numbers, which nobody would take for dates: 20240229."""
    column = {"name": "day", "kind": "date", "format": "%Y%m%d", "fill": 0.0}
    schema = {"format": 1, "columns": [column, {"name": "x", "kind": "number"}]}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    days = ["20240229", "19700101", ""] * 40
    table = {"day": days, "x": np.arange(120), "income": ["a", "b"] * 60}
    path = write_table(tmp_path / "t.csv", table)
    asked = options(path, group=None, drop=None, schema_file=str(tmp_path / "s.json"))
    assert encoded(read(asked, 0), asked, 0).x[:3, 0].tolist() == [LEAP, 0, 0]
    assert Encoding.from_plain([column]).apply({"day": [20240229.0]}, "t")[0, 0] == LEAP
    asked = asked.model_copy(update={"date_format": "%d/%m/%Y"})
    with pytest.raises(ConfigError, match=r"date_format has no effect with data\.schema_file"):
        build(read(asked, 0), asked, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%d/%m", "must name day, month and year"),
        ("day first", "must name day, month and year"),
        ("%Y%m%d", "more than digits, or every number would be a date"),
        ("%d%d%m%Y", "must name day, month and year"),
        pytest.param("%d/%m/%Y" + " " * 80, "must name day, month and year", id="long"),
    ],
)
def test_formats_that_name_no_date(text, message):
    with pytest.raises(ValueError, match=message):
        DataOptions(date_format=text)


def test_a_median_of_fewer_than_five_is_nobodys():
    few = {"income": ["98765", *[""] * 9], "age": [str(age) for age in range(30, 40)]}
    encoding = fitted(few)
    assert [column.fill for column in encoding.columns] == [0.0, 34.5]
    assert "98765" not in encoding.to_json()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_clean_set_alone_is_known(tmp_path, ending):
    """Whatever the clients' rows hold, the encoding is the same; and their values have a place."""
    table = {name: np.array(column, object) for name, column in adults().items()}
    path = write_table(tmp_path / "t.csv", table)
    asked = options(path)
    first = encoded(read(asked, 0), asked, 0)
    clients, clean, _ = split_rows(read(asked, 0), asked, 0)
    assert len(clean) == 120
    table["job"][clients] = "a planted value"
    table["age"][clients] = "77"
    if ending == "parquet":
        import pyarrow
        import pyarrow.parquet

        texts = {name: [str(one) for one in column] for name, column in table.items()}
        path = tmp_path / "t.parquet"
        pyarrow.parquet.write_table(pyarrow.table(texts), path)
    else:
        write_table(path, table)
    asked = options(path)
    second = encoded(read(asked, 0), asked, 0)
    assert second.encoding == first.encoding
    other = second.columns.index("job=(other)")
    assert second.x[clients, other].all()
    federation = build(read(asked, 0), asked, 0)
    assert federation.encoding == first.encoding
    assert sorted(federation.clients.names) == ["east", "north", "south"]
    assert "a planted value" not in first.encoding.to_json()
    allowed = encoded(read(asked, 0), options(path, encode_by="all"), 0)
    assert "a planted value" in allowed.encoding.to_json()


def test_features_that_say_yes_or_no_are_not_scaled(tmp_path):
    asked = options(write_table(tmp_path / "t.csv", adults()))
    found = encoded(read(asked, 0), asked, 0)
    mean, deviation = build(found, asked, 0).normaliser
    scaled = {name for name, one in zip(found.columns, deviation, strict=True) if one != 1}
    assert scaled == {"age", "hours", "since"}
    assert mean[found.columns.index("smoker")] == 0


def test_a_schema_file(tmp_path, capsys):
    path = write_table(tmp_path / "t.csv", adults())
    schema = tmp_path / "schema.json"
    words = ["data", "schema", str(path), "--label", "income", "--group", "hospital"]
    assert main([*words, "--data.drop", "row_id,country,town", "-o", str(schema)]) == 0
    assert "6 columns, 14 features" in capsys.readouterr().out
    found = json.loads(schema.read_text())
    job = next(one for one in found["columns"] if one["name"] == "job")
    job["values"] = ["nurse"]
    job["fill"] = "nurse"
    schema.write_text(json.dumps(found))
    asked = options(path, drop=None, schema_file=str(schema))
    columns = encoded(read(asked, 0), asked, 0).columns
    assert [name for name in columns if "job" in name] == ["job=nurse", "job=(other)"]
    assert not any("town" in name or "row_id" in name for name in columns)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 2, "columns": []}',
        '{"format": 1, "columns": []}',
        '{"format": 1, "columns": [{"name": "a"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "magic"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "number", "fill": "x"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "number", "fill": NaN}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "hashed", "buckets": 1000000000}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "category", "fill": "x"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "date"}, {"name": "a", "kind": "date"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "date", "run": "me"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "date", "format": "%d%d"}]}',
        '{"format": 1, "columns": [{"name": "a", "kind": "number", "format": "%d/%m/%Y"}]}',
    ],
)
def test_bad_schema_files_are_refused(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    path = write_table(tmp_path / "t.csv", adults(100))
    asked = options(path, schema_file=str(tmp_path / "s.json"))
    with pytest.raises(DataError, match=r"s.json \(data.schema_file\) is not a schema"):
        encoded(read(asked, 0), asked, 0)


def test_an_encoding_is_plain_data():
    encoding = fitted({name: column for name, column in adults().items() if name != "income"})
    assert Encoding.from_plain(json.loads(json.dumps(encoding.to_plain()))) == encoding
    assert Encoding.from_json(encoding.to_json(), "here") == encoding


def test_columns_and_drop(tmp_path):
    path = write_table(tmp_path / "t.csv", adults())
    assert source(path, label="income", columns=["hours"]).columns == ("hours",)
    kept = source(path, label="income", drop=["age", "sex", "job", "town"]).columns
    assert kept == ("row_id", "hours", "since", "smoker", "country", "hospital")
    for changes in ({"columns": ["hour"]}, {"drop": ["hour"]}):
        with pytest.raises(DataError, match=r"no column 'hour'; did you mean hours\? \(data\."):
            source(path, label="income", **changes)
    with pytest.raises(ConfigError, match=r"data.drop has no effect"):
        build(read(options(path), 0), options(path, columns=["age"]), 0)
    with pytest.raises(DataError, match=r"no column besides .income. that data.columns or data"):
        source(path, label="income", columns=["income"])


def test_what_a_column_cannot_hold_is_named_with_its_row(tmp_path):
    table = {name: np.array(column, object) for name, column in adults().items()}
    path = write_table(tmp_path / "t.csv", table)
    clients = split_rows(read(options(path), 0), options(path), 0)[0]
    for name, value, what in (
        ("hours", "many", "not a number"),
        ("since", "yesterday", "not a date"),
        ("smoker", "maybe", "not true or false"),
    ):
        changed = table | {name: table[name].copy()}
        changed[name][clients[7]] = value
        write_table(path, changed)
        row = clients[7] + 2
        with pytest.raises(DataError, match=f"'{name}' holds '{value}' in row {row}, .* {what}"):
            build(read(options(path), 0), options(path), 0)
    write_table(path, table | {"hospital": ["", *table["hospital"][1:]]})
    with pytest.raises(DataError, match=r"'hospital' \(data.group\) has 1 missing .* row 2"):
        read(options(path), 0)


def test_infinite_numbers_of_the_clean_set_are_named_with_their_row(tmp_path):
    table = adults() | {"hours": np.full(420, "inf", dtype=object)}
    path = write_table(tmp_path / "t.csv", table)
    with pytest.raises(DataError, match=r"'hours' has 420 infinite values, first in row 2"):
        build(read(options(path), 0), options(path), 0)


def test_constant_and_id_like_columns_are_named(tmp_path, caplog):
    read(options(write_table(tmp_path / "t.csv", adults()), drop=None), 0)
    text = caplog.text
    assert "the same value in every row of country: data.drop leaves columns out" in text
    assert "like an id, in row_id: data.drop" in text
    caplog.clear()
    plain = {"a": np.arange(50) % 7, "b": np.zeros(50), "label": np.arange(50) % 2}
    source(write_table(tmp_path / "p.csv", plain))
    assert "every row of b:" in caplog.text
    assert "like an id" not in caplog.text


def test_dates_are_no_ids(tmp_path, caplog):
    days = [date(2024, 1, 1) + timedelta(days=day) for day in range(30)]
    table = {
        "iso": [day.isoformat() for day in days],
        "months": [day.strftime("%d %b %Y") for day in days],
        "either": [
            f"{day.day % 12 + 1}/{day.day % 28 + 1}/{2000 + n}" for n, day in enumerate(days)
        ],
        "ours": [day.strftime("%d|%m|%Y") for day in days],
        "who": [f"patient {day.day}" for day in days],
        "label": [day.day % 2 for day in days],
    }
    path = write_table(tmp_path / "t.csv", table)
    read(options(path, drop=None, label="label", group=None, date_format="%d|%m|%Y"), 0)
    assert "like an id, in who:" in caplog.text
    caplog.clear()
    read(options(path, drop=None, label="label", group=None), 0)
    assert "like an id, in ours, who:" in caplog.text


def test_empty_and_unknown_columns_are_told(caplog):
    encoding = fitted({"a": [None] * 9, "b": list("abcdefghi"), "c": range(9)})
    assert encoding.names == ("b=(other)", "c")
    assert "no row of the server's has a value there: a (" in caplog.text
    assert "so that all count as other: b (" in caplog.text


def test_numbers_without_gaps_stay_as_they_are(tmp_path):
    table = {"a": np.arange(60) / 7, "b": np.arange(60) % 3, "label": np.arange(60) % 2}
    found = source(write_table(tmp_path / "t.csv", table))
    assert found.encoding.plain
    assert found.x.dtype == np.float32
    assert np.array_equal(found.x[:, 0], np.float32(table["a"]))
    assert replace(found, encoding=None).digest() == found.digest()
