"""Tables from Python and from the command line, to the model file, predictions and sites."""

from __future__ import annotations

import csv
import io
import subprocess
import sys

import numpy as np
import pytest

import gcfl
from data_files import adults, write_table
from gcfl.api.predicting import predict
from gcfl.base.codec import decode
from gcfl.base.errors import ConfigError, DataError, RunError
from gcfl.cli import main
from gcfl.engine.prepare import Given, prepare
from gcfl.experiment import build
from gcfl.models.trained import unpack

pd = pytest.importorskip("pandas", reason="pandas is not installed")
QUICK = {"rounds": 3, "model": "logistic", "train": {"lr": 0.1, "epochs": 3}}
PLANTED = "Zanzibarquux"


def frame(rows=420, seed=0):
    text = io.StringIO()
    table = {name: list(column) for name, column in adults(rows, seed).items()}
    pd.DataFrame(table).to_csv(text, index=False)
    text.seek(0)
    found = pd.read_csv(text, parse_dates=["since"], na_values=["?"])
    return found.drop(columns=["row_id", "country"])


def parts():
    whole = frame()
    return {"validation": whole[:120], "test": whole[120:200], "data": whole[200:]}


@pytest.fixture(scope="module")
def by_hospital(tmp_path_factory):
    """One command; a value and a name that only clients have stand in their rows."""
    folder = tmp_path_factory.mktemp("hospitals")
    pieces = parts()
    pieces["data"] = pieces["data"].assign(job=pieces["data"]["job"].replace("clerk", PLANTED))
    for name, file in (("data", "t"), ("validation", "clean"), ("test", "test")):
        pieces[name].to_csv(folder / f"{file}.csv", index=False)
    words = ["run", "--data", str(folder / "t.csv"), "--label", "income", "--group", "hospital"]
    words += ["--rounds", "4", "--model", "mlp", "--out", str(folder / "runs")]
    sets = ["--data.validation", str(folder / "clean.csv"), "--data.test", str(folder / "test.csv")]
    assert main([*words, *sets]) == 0
    (run,) = (folder / "runs").iterdir()
    return folder, gcfl.load(run)


def test_a_mixed_table_by_hospital_in_one_command(by_hospital):
    _, run = by_hospital
    assert sorted(one["name"] for one in run.clients) == ["east", "north", "south"]
    assert run.config["data"]["clients"] == 3
    assert run.accuracy > 0.75
    assert "job=clerk" in run.model.encoding.names


def test_dates_of_another_form_are_the_same_dates(by_hospital, tmp_path, capsys):
    """From the command line to predictions: 5/11/2023 as 2023-11-05 is."""
    folder, run = by_hospital
    for file in ("t", "clean", "test"):
        table = pd.read_csv(folder / f"{file}.csv", parse_dates=["since"])
        since = table["since"]
        written = [f"{one.day}/{one.month}/{one.year}" for one in since.dropna()]
        table["since"] = pd.Series(written, index=since.dropna().index, dtype=object)
        table.to_csv(tmp_path / f"{file}.csv", index=False)
    words = ["run", "--data", str(tmp_path / "t.csv"), "--label", "income", "--group", "hospital"]
    words += ["--rounds", "4", "--model", "mlp", "--out", str(tmp_path / "runs")]
    sets = ["--data.validation", str(tmp_path / "clean.csv")]
    sets += ["--data.test", str(tmp_path / "test.csv"), "--data.date_format", "%d/%m/%Y"]
    assert main([*words, *sets]) == 0
    (other,) = (tmp_path / "runs").iterdir()
    found = predict(other, tmp_path / "test.csv")
    expected = predict(run, folder / "test.csv")
    assert np.array_equal(found.probabilities, expected.probabilities)
    assert [one.format for one in gcfl.load(other).model.encoding.columns if one.format] == [
        "%d/%m/%Y"
    ]
    capsys.readouterr()
    assert main([*words, *sets[:-1], "%d/%m"]) == 2
    assert "date_format must name day, month and year" in capsys.readouterr().err


def test_every_group_is_a_client_unless_fewer_are_asked_for(by_hospital):
    folder, run = by_hospital
    data = {"source": str(folder / "t.csv"), "label": "income", "group": "hospital"}

    def prepared(**more):
        settings = {**run.config, "data": {**data, **more}, "given": {}}
        return prepare(build(settings)[0], Given())

    by_name = prepared()
    assert sorted(by_name.federation.clients.names) == ["east", "north", "south"]
    assert prepared(clients=3).experiment.identity() == by_name.experiment.identity()
    assert len(prepared(clients=2).federation.clients) == 2
    assert len(prepared(partition="iid").federation.clients) == 10


def test_nothing_of_the_clients_cells_leaves(by_hospital):
    """The model file, the checkpoint and all that a run leaves: without the planted value."""
    folder, run = by_hospital
    assert PLANTED in (folder / "t.csv").read_text()
    files = [file for file in run.folder.rglob("*") if file.is_file()]
    assert len(files) > 5
    for file in files:
        assert PLANTED.encode() not in file.read_bytes(), file


def test_predict_on_a_file_with_new_categories(by_hospital, capsys):
    folder, run = by_hospital
    table = pd.read_csv(folder / "test.csv").drop(columns="income")
    table["job"] = table["job"].where(table.index >= 7, "=astronaut")
    table[sorted(table.columns)].to_csv(folder / "new.csv", index=False)
    out = folder / "out.csv"
    words = ["predict", str(run.folder), str(folder / "new.csv")]
    assert main([*words, "-o", str(out), "--proba"]) == 0
    captured = capsys.readouterr()
    assert "7 cells with a value that is new to the model, as other: job (7)" in captured.err
    lines = list(csv.DictReader(out.read_text().splitlines()))
    assert [line["id"] for line in lines] == [str(row) for row in range(80)]
    expected = run.model.predict_proba(table)
    assert [line["class"] for line in lines] == run.predict(table).tolist()
    for line, row in zip(lines, expected, strict=True):
        assert float(line["probability"]) == pytest.approx(row.max(), abs=1e-4)
        assert float(line["p(<=50K)"]) == pytest.approx(row[0], abs=1e-4)
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[0] == "id,class,probability"
    table.drop(columns="hours").to_csv(folder / "new.csv", index=False)
    assert main(words) == 2
    assert "no column 'hours', which the model's table has" in capsys.readouterr().err


def test_predict_takes_arrays_and_pictures_without_labels(tmp_path, capsys, caplog):
    from PIL import Image

    x, y = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32), np.arange(80) % 2
    run = gcfl.run("fedavg", (x, np.array(["=a", "b"])[y]), clients=2, out=tmp_path, **QUICK)
    np.savez(tmp_path / "x.npz", x=x)
    assert main(["predict", str(run.folder), str(tmp_path / "x.npz")]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(",")[1].removeprefix("'") for line in lines] == run.predict(x).tolist()
    assert not any(line.split(",")[1].startswith("=") for line in lines)
    for name, shade in (("dark", 20), ("light", 220)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            picture = np.full((8, 8, 3), shade + number, np.uint8)
            Image.fromarray(picture).save(tmp_path / "photos" / name / f"{name}{number}.png")
    photos = {"source": tmp_path / "photos", "image_size": 8, "min_size": 1}
    run = gcfl.run("fedavg", data=photos, clients=2, out=tmp_path, **QUICK)
    assert main(["predict", str(run.folder), str(tmp_path / "photos" / "dark")]) == 0
    whole = capsys.readouterr().out.splitlines()
    assert whole[1].startswith("dark0.png,dark,")
    (tmp_path / "photos" / "dark" / "dark1.png").write_bytes(b"no image")
    assert main(["predict", str(run.folder), str(tmp_path / "photos" / "dark")]) == 0
    left = capsys.readouterr().out.splitlines()
    assert left == [line for line in whole if not line.startswith("dark1.png")]
    assert "1 of 12 images are left out" in caplog.text
    assert "dark1.png cannot be read as an image" in caplog.text
    assert main(["predict", str(run.folder), str(tmp_path / "photos" / "dark" / "dark1.png")]) == 2
    assert "dark1.png cannot be read as an image" in capsys.readouterr().err


def test_a_frame_is_what_its_file_is(tmp_path):
    pieces = parts()
    run = gcfl.run("fedavg", label="income", group="hospital", out=tmp_path, **pieces, **QUICK)
    for name, piece in pieces.items():
        piece.to_csv(tmp_path / f"{name}.csv", index=False)
    sets = {name: tmp_path / f"{name}.csv" for name in pieces}
    settings = {"label": "income", "group": "hospital", "clients": 3, "out": tmp_path}
    again = gcfl.run("fedavg", **sets, **settings, **QUICK)
    for name, tensor in run.model.tree.items():
        assert tensor.equal(again.model.tree[name])
    assert run.model.encoding == again.model.encoding
    assert sorted(one["name"] for one in run.clients) == ["east", "north", "south"]
    shuffled = pieces["test"][sorted(pieces["test"].columns)]
    assert run.predict(shuffled).tolist() == again.predict(pieces["test"]).tolist()
    with pytest.raises(DataError, match="x has no column 'age'"):
        run.predict(pieces["test"].drop(columns="age"))
    loaded = gcfl.load(run.folder)
    found = gcfl.audit(loaded, **pieces)
    ids = {one for site in found.sites for one in site.ids}
    assert ids == set(map(str, pieces["data"].index))
    assert "sex=female" in found.columns
    with pytest.raises(ConfigError, match="other data than what is there now"):
        gcfl.audit(loaded, **pieces | {"data": pieces["data"][:-3]})


def test_each_clients_frame(tmp_path):
    pieces = parts()
    clients = dict(iter(pieces["data"].groupby("hospital")))
    sets = {"validation": pieces["validation"], "test": pieces["test"]}
    settings = {"label": "income", "out": tmp_path}
    run = gcfl.run("fedavg", clients, **sets, **settings, **QUICK)
    sizes = {one["name"]: one["samples"] for one in run.clients}
    assert sizes == {name: len(part) for name, part in clients.items()}
    lacking = {"north": clients["north"], "east": clients["east"].drop(columns="age")}
    with pytest.raises(DataError, match="client 'east' has no column 'age', which client 'north'"):
        gcfl.run("fedavg", lacking, **settings)


def test_bad_frames(tmp_path):
    pieces = parts()
    with pytest.raises(DataError, match="no column 'label'"):
        gcfl.run(data=pieces["data"], out=tmp_path)
    with pytest.raises(ConfigError, match="validation must be a DataFrame as data is"):
        gcfl.run(data=pieces["data"], label="income", validation=([[1]], [1]), out=tmp_path)
    with pytest.raises(ConfigError, match="name a column, group="):
        gcfl.run(data=pieces["data"], label="income", groups=[1], out=tmp_path)
    odd = pieces["data"].assign(hours=[[1]] * len(pieces["data"]))
    with pytest.raises(DataError, match="the column 'hours' holds a list in row 0"):
        gcfl.run(data=odd, label="income", out=tmp_path)


def test_pandas_is_not_imported_without_a_frame():
    code = "import gcfl, sys; gcfl.run; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_the_clean_set_teaches_is_not_covered(tmp_path):
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    path = write_table(tmp_path / "t.csv", adults())
    data = {"source": path, "label": "income", "drop": ["row_id", "country", "hospital"]}
    private = {"clean_epsilon": 8.0, "input_range": [-3.0, 3.0]}
    settings = {"clients": 2, "out": tmp_path, "method": "gcfl", "noise": 0.1, **QUICK}
    with pytest.raises(ConfigError, match=r"clean_epsilon does not cover .* schema file"):
        gcfl.run(data=data, privacy=private, **settings)
    everybody = {**settings, "method": "fedavg", "data": data | {"encode_by": "all"}}
    with pytest.raises(ConfigError, match=r"client_epsilon does not cover .* schema file"):
        gcfl.run(privacy={"client_epsilon": 8.0}, **everybody)
    schema = tmp_path / "s.json"
    drop = "row_id,country,hospital"
    words = ["data", "schema", str(path), "--label", "income", "--data.drop", drop]
    assert main([*words, "-o", str(schema)]) == 0
    data["schema_file"] = str(schema)
    assert gcfl.run(data=data, privacy=private, **settings).finished
    with pytest.raises(ConfigError, match=r"input_range.*, or set data.normalise = false"):
        gcfl.run(data=data, privacy={"clean_epsilon": 8.0}, **settings)
    as_it_is = gcfl.run(
        data=data | {"normalise": False}, privacy={"clean_epsilon": 8.0}, **settings | {"rounds": 1}
    )
    assert as_it_is.model.network.normaliser is None


def test_what_travels_with_the_model_is_said(by_hospital, tmp_path):
    """Of a mixed table; not of one that a schema file describes, or of plain numbers."""
    travels = "values that at least 5 rows of its table have, medians and commonest values"
    _, run = by_hospital
    clean, clients = run.privacy
    assert travels in clean
    assert "medians" not in clients
    assert run.summary()["privacy"] == run.privacy
    path = write_table(tmp_path / "t.csv", adults(200))
    schema = tmp_path / "s.json"
    kept = {"label": "income", "columns": ["age", "sex", "job"]}
    words = ["data", "schema", str(path), "--label", "income", "--data.columns", "age,sex,job"]
    assert main([*words, "-o", str(schema)]) == 0
    settings = {"clients": 2, "out": tmp_path, "method": "fedavg", **QUICK, "rounds": 1}

    def said(**data):
        return gcfl.run(data={"source": path, **kept, **data}, **settings).privacy

    assert "medians" not in "".join(said(schema_file=str(schema)))
    assert "medians" not in "".join(said(columns=["hours"]))
    everybody = said(encode_by="all")
    assert travels in everybody[0]
    assert "values that at least 5 rows of their tables have" in everybody[1]


@pytest.mark.parametrize("own", [False, True])
def test_what_is_held_out_is_unknown_to_the_encoding(tmp_path, own):
    """Whatever cells the held-out rows have: the same encoding."""
    table = {name: np.array(column, object) for name, column in adults(300).items()}
    table = {name: table[name] for name in ("age", "job", "hours", "income")}
    clean = {name: column[200:] for name, column in table.items()} if own else None

    def prepared():
        data = {"source": str(write_table(tmp_path / "t.csv", table)), "label": "income"}
        if own:
            data["validation"] = str(write_table(tmp_path / "clean.csv", clean))
        settings = {"data": {**data, "clients": 2}, "method": "fedavg"}
        settings |= {"clean": {"hold_out": 0.4}, "model": {"name": "logistic"}}
        return prepare(build(settings)[0], Given())

    first = prepared()
    held = first.held_out.ids
    seen = clean if own else table
    seen["job"][held], seen["age"][held] = PLANTED, "99"
    second = prepared()
    assert np.array_equal(second.held_out.ids, held)
    assert second.federation.encoding == first.federation.encoding
    assert PLANTED not in second.federation.encoding.to_json()
    assert len(held) > 5  # enough to be known, were they looked at
    place = second.federation.encoding.names.index("job=(other)")
    assert second.held_out.x[:, place].all()


def test_models_of_earlier_versions_and_of_strangers(by_hospital, tmp_path):
    _, run = by_hospital
    groups, meta = decode((run.folder / "model.safetensors").read_bytes(), "model")
    assert unpack(groups, meta, None).encoding == run.model.encoding
    old = {name: value for name, value in meta.items() if name != "encoding"}
    model = unpack(groups, old, None)
    assert model.encoding is None
    assert len(model.predict(np.zeros((2, run.model.encoding.width)))) == 2
    with pytest.raises(DataError, match="not trained on a table"):
        model.predict(frame(5))
    for odd in ({}, [], [{}], [{"name": "a", "kind": "number"}], "x", meta["encoding"][1:], None):
        with pytest.raises(RunError, match="the model's file is damaged"):
            unpack(groups, meta | {"encoding": odd}, None)


def test_plain_tables_keep_their_name_and_their_bits(tmp_path, monkeypatch):
    """As recorded before tables had encodings."""
    monkeypatch.chdir(tmp_path)
    lines = ["height,weight,hospital,label"] + [
        f"{i % 7},{i * 0.5},{'ABC'[i % 3]},{'yes' if i % 2 else 'no'}" for i in range(120)
    ]
    (tmp_path / "plain.csv").write_text("\n".join(lines) + "\n")
    data = {"source": "plain.csv", "group": "hospital", "partition": "groups"}
    run = gcfl.run("fedavg", data, "logistic", clients=3, rounds=2, out=tmp_path)
    assert run.folder.name == "plain.csv-logistic-fedavg-seed0-90fe764997"
    assert run.predict(pd.DataFrame({"weight": [3.0], "height": [1]})).shape == (1,)


@pytest.mark.parametrize("dtype", ["int64", "Int64"])
def test_numbers_that_are_called_categories(tmp_path, dtype):
    """Codes without an order: the middle one is of a class of its own."""
    code = pd.Series(np.tile([10, 20, 30], 60)).astype(dtype)
    table = pd.DataFrame({"y": (code == 20).astype(int).astype("category"), "code": code})
    table["code"] = table["code"].astype("category")
    table.loc[3, "code"] = None
    sets = {"validation": table[:60], "test": table[60:120]}
    more = {"label": "y", "clients": 2, "out": tmp_path}
    run = gcfl.run("fedavg", table[60:], **sets, **more, **QUICK)
    assert run.model.encoding.names[:3] == ("code=10", "code=20", "code=30")
    assert run.model.classes == (0, 1)
    assert run.accuracy > 0.95
    plain = pd.DataFrame({"code": [10, 20, 30]})
    assert run.predict(plain).tolist() == run.predict(plain.astype("category")).tolist()


def test_a_frame_and_its_labels_apart(tmp_path):
    """As scikit-learn takes them: the same as a column of labels, by the names of the columns."""
    pieces = {name: piece.drop(columns="hospital") for name, piece in parts().items()}
    pairs = {name: (one.drop(columns="income"), one["income"]) for name, one in pieces.items()}
    more = {"clients": 2, "out": tmp_path, **QUICK}
    x, y = pairs["test"]
    pairs["validation"] = pairs["validation"][0][x.columns[::-1]], pairs["validation"][1]
    whole = gcfl.run("fedavg", label="income", **pieces, **more)
    apart = gcfl.run("fedavg", **pairs, **more)
    assert apart.model.encoding == whole.model.encoding
    assert apart.predict(x[x.columns[::-1]]).tolist() == whole.predict(x).tolist()
    assert len(gcfl.audit(gcfl.load(apart.folder), **pairs).sites) == 2
    sites = {"north": pairs["data"], "south": pairs["test"]}
    each = gcfl.run("fedavg", sites, validation=pairs["validation"], test=(x, y), **more)
    assert [one["name"] for one in each.clients] == ["north", "south"]
    with pytest.raises(DataError, match="y must be one row of 80 labels"):
        gcfl.run("fedavg", (x, y[1:]), **more)


def test_a_frame_of_numbers_and_its_labels_apart(tmp_path):
    """Also with a column that is called label, groups, and names that are numbers."""
    draw, y = np.random.default_rng(0), np.repeat(["a", "b"], 100)
    values = draw.normal(size=(200, 3)) * [1, 1, 50] + 3 * (y == "b")[:, None]
    x = pd.DataFrame(values, columns=["label", 7, "noise"])
    sets = {"validation": (x[x.columns[::-1]], y), "test": (x, y)}
    run = gcfl.run("fedavg", (x, y), groups=np.tile(["n", "s"], 100), out=tmp_path, **sets, **QUICK)
    assert run.accuracy > 0.9
    assert run.predict(x[x.columns[::-1]]).tolist() == run.predict(x.to_numpy()).tolist()
    assert {one["name"] for one in run.clients} == {"n", "s"}
    digits = np.where(y == "a", "1", "2")
    kept = gcfl.run("fedavg", (x, digits), clients=2, out=tmp_path, **QUICK)
    assert kept.model.classes == ("1", "2")
    ages = np.where(y == "a", "7", "18-25")
    named = gcfl.run("fedavg", (x, ages), clients=2, out=tmp_path, **QUICK)
    assert set(named.predict(x)) == {"7", "18-25"}
    same = {"frame": (x[[7, "noise"]], y), "array": (x[[7, "noise"]].to_numpy(), y)}
    runs = [gcfl.run("fedavg", pair, out=tmp_path / name, **QUICK) for name, pair in same.items()]
    assert runs[0].folder.name == runs[1].folder.name
