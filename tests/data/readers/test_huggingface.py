from __future__ import annotations

import sys

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

import gcfl
from data_files import adults, pictures, write_table
from gcfl.api.predicting import predict
from gcfl.base.cells import cells
from gcfl.base.errors import ConfigError, DataError
from gcfl.base.layout import hashed
from gcfl.data import DataOptions, Schema, build, is_huggingface, read, read_as
from gcfl.data.encoding import fit
from gcfl.data.split import split_official_rows

pytestmark = pytest.mark.usefixtures("home")

datasets.disable_progress_bars()
NAMES = ["ash", "birch", "Ärger mit Eiche"]


def numbers(**columns):
    return datasets.Dataset.from_dict(columns)


def dataset(count=30, seed=0):
    columns = {
        "image": pictures(count, seed=seed),
        "label": [i % 3 for i in range(count)],
        "site": [f"s{i % 4}" for i in range(count)],
    }
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=NAMES),
            "site": datasets.Value("string"),
        }
    )
    return datasets.Dataset.from_dict(columns, features=features)


def test_a_saved_folder_with_images(tmp_path, home):
    held = datasets.DatasetDict({"train": dataset(), "test": dataset(12, 1)})
    held.save_to_disk(tmp_path / "trees")
    options = DataOptions(
        source=str(tmp_path / "trees"),
        image_size=16,
        group="site",
        partition="groups",
        clients=4,
        min_size=1,
    )
    source = read(options, 0)
    assert source.x.shape == (30, 3, 16, 16)
    assert source.x.dtype == np.uint8
    assert source.classes == tuple(NAMES)
    assert source.y.tolist() == [i % 3 for i in range(30)]
    assert len(source.test[1]) == 12
    assert source.validation_from_test
    assert source.groups.tolist() == [f"s{i % 4}" for i in range(30)]
    expected = np.asarray(pictures()[7].resize((16, 16), Image.Resampling.BILINEAR)).transpose(
        2, 0, 1
    )
    assert np.array_equal(source.x[7], expected)
    assert len(list((home / "cache").glob("images-*.npy"))) == 2
    again = read(options, 0)
    assert np.array_equal(again.x, source.x)
    federation = build(source, options.model_copy(update={"validation": 6}), 0)
    assert len(federation.clients) == 4


def test_the_object_itself_and_its_columns_of_numbers(tmp_path):
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 2)).astype(np.float32), draw.integers(0, 3, 60)
    held = datasets.Dataset.from_dict({"height": x[:, 0], "width": x[:, 1], "label": y})
    source = gcfl.from_huggingface(held)
    assert np.array_equal(source.x, x)
    assert np.array_equal(np.array(source.classes)[source.y], y)
    vectors = gcfl.from_huggingface(
        datasets.Dataset.from_dict({"embedding": x.tolist(), "species": y}), label="species"
    )
    assert np.array_equal(vectors.x, x)
    result = gcfl.run("fedavg", held, "logistic", clients=2, rounds=1, out=tmp_path)
    assert len(result.rounds) == 1


def test_a_name_on_the_hub(monkeypatch, tmp_path):
    asked = []

    def load(name, configuration):
        asked.append((name, configuration))
        return datasets.DatasetDict({"train": dataset(90)})

    monkeypatch.setattr(datasets, "load_dataset", load)
    settings = {"clients": 3, "rounds": 1, "model": "mlp", "out": tmp_path}
    result = gcfl.run("gcfl", "hf:someone/trees", **settings)
    assert result.config["data"]["source"] == "hf:someone/trees"
    assert gcfl.resume(result.folder).finished
    read(DataOptions(source="hf:someone/trees:small"), 0)
    assert asked[0] == ("someone/trees", None)
    assert asked[-1] == ("someone/trees", "small")

    def refuse(*_):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(
        DataError, match=r"hf:a/b cannot be had from the Hugging Face hub: .*Couldn't reach"
    ):
        read(DataOptions(source="hf:a/b"), 0)


def test_bad_datasets_get_their_sentence(tmp_path, monkeypatch):
    held = dataset()
    with pytest.raises(DataError, match=r"no column 'labl'; did you mean label.*data.label"):
        gcfl.from_huggingface(held, label="labl")
    with pytest.raises(DataError, match="no column 'town'"):
        gcfl.from_huggingface(held, group="town")
    with pytest.raises(DataError, match="splits left, right, and none of them is 'train'"):
        gcfl.from_huggingface(datasets.DatasetDict({"left": held, "right": held}))
    with pytest.raises(DataError, match=r"neither images nor numbers .* \(data\.text\)"):
        gcfl.from_huggingface(numbers(text=["a", "b"], size=[[1], [2]], label=[0, 1]))
    with pytest.raises(DataError, match="several columns of images"):
        gcfl.from_huggingface(
            datasets.concatenate_datasets(
                [held, held.select_columns("image").rename_column("image", "second")], axis=1
            )
        )
    with pytest.raises(DataError, match="without a label"):
        gcfl.from_huggingface(held.map(lambda row: {**row, "label": -1}))
    with pytest.raises(DataError, match="streamed"):
        gcfl.from_huggingface(held.to_iterable_dataset())
    broken = held.cast_column("image", datasets.Image(decode=False)).map(
        lambda _: {"image": {"bytes": b"no", "path": None}}
    )
    with pytest.raises(DataError, match="row 0: the image cannot be read"):
        gcfl.from_huggingface(broken.cast_column("image", datasets.Image()))
    held.save_to_disk(tmp_path / "cut")
    next((tmp_path / "cut").glob("*.arrow")).unlink()
    with pytest.raises(DataError, match="not a whole folder of save_to_disk"):
        read(DataOptions(source=str(tmp_path / "cut")), 0)
    with pytest.raises(ConfigError, match="brings its own sets"):
        gcfl.run("fedavg", held, validation=(np.zeros((2, 3)), [0, 1]))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"gcfl\[huggingface\]"):
        read(DataOptions(source="hf:a/b"), 0)


def test_settings_of_data_that_comes_from_python(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    held = numbers(
        height=x[:, 0],
        width=x[:, 1],
        species=np.arange(60) % 2,
        site=[f"s{i % 2}" for i in range(60)],
    )
    table = {
        "source": held,
        "label": "species",
        "group": "site",
        "partition": "groups",
        "clients": 2,
    }
    result = gcfl.run("fedavg", table, "logistic", rounds=1, out=tmp_path)
    assert sorted(client["name"] for client in result.clients) == ["s0", "s1"]
    assert result.config["data"]["label"] == "species"
    assert gcfl.run(
        "fedavg",
        {"source": (x, np.arange(60) % 2), "clients": 3},
        "logistic",
        rounds=1,
        out=tmp_path,
    ).finished
    with pytest.raises(ConfigError, match="image_size must be a whole number"):
        gcfl.run("fedavg", {"source": dataset(), "image_size": "16"})
    own = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.arange(60) % 2)
    result = gcfl.run("fedavg", own, "logistic", validation=own, clients=2, rounds=1, out=tmp_path)
    assert result.config["data"]["validation"] == 60


def test_columns_and_classes_of_every_split_go_by_name():
    train = numbers(a=[1, 2, 3, 4], b=[10, 20, 30, 40], label=[0, 1, 0, 1])
    test = numbers(label=[1, 0], b=[50, 60], a=[5, 6])
    source = gcfl.from_huggingface(datasets.DatasetDict({"train": train, "test": test}))
    assert source.x[0].tolist() == [1, 10]
    assert source.test[0].tolist() == [[5, 50], [6, 60]]
    assert source.test[1].tolist() == [1, 0]
    with pytest.raises(DataError, match="split test has no column 'b', which the train split has"):
        gcfl.from_huggingface(
            datasets.DatasetDict({"train": train, "test": test.remove_columns("b")})
        )
    other = [datasets.ClassLabel(names=names) for names in (["no", "yes"], ["yes", "no"])]
    parts = [
        part.cast_column("label", kind) for part, kind in zip((train, test), other, strict=True)
    ]
    source = gcfl.from_huggingface(
        datasets.DatasetDict(dict(zip(("train", "test"), parts, strict=True)))
    )
    assert source.classes == ("no", "yes")
    assert source.test[1].tolist() == [0, 1]


def test_a_split_without_labels_is_left_out_and_told(caplog):
    train = numbers(a=[1, 2, 3, 4], label=[0, 1, 0, 1]).cast_column(
        "label", datasets.ClassLabel(names=["no", "yes"])
    )
    blank = numbers(a=[5, 6], label=[-1, -1]).cast_column(
        "label", datasets.ClassLabel(names=["no", "yes"])
    )
    for test in (blank, blank.remove_columns("label")):
        caplog.clear()
        assert (
            gcfl.from_huggingface(datasets.DatasetDict({"train": train, "test": test})).test is None
        )
        assert "the split test has no labels and is left out" in caplog.text
    with pytest.raises(DataError, match="2 samples without a label, first in row 0"):
        gcfl.from_huggingface(blank)
    features = datasets.Features(
        {"a": datasets.Value("int64"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    with pytest.raises(DataError, match="1 samples without a label, first in row 1"):
        gcfl.from_huggingface(
            datasets.Dataset.from_dict({"a": [1, 2], "label": [0, None]}, features=features)
        )
    with pytest.raises(DataError, match="is empty"):
        gcfl.from_huggingface(datasets.Dataset.from_dict({"a": [], "label": []}, features=features))


def test_a_module_of_ones_own_that_is_named_datasets(monkeypatch):
    class Dataset(torch.utils.data.TensorDataset):
        """In somebody's own datasets.py."""

    Dataset.__module__ = "datasets"
    own = Dataset(torch.zeros(4, 2), torch.arange(4) % 2)
    assert not is_huggingface(own)
    monkeypatch.setitem(sys.modules, "datasets", type(sys)("datasets"))
    sys.modules["datasets"].Dataset = Dataset
    assert not is_huggingface(own)


def test_texts_and_tokenisers():
    texts = ["The ship sails", "a recipe", "one two three four five"]
    held = numbers(sentence=texts, size=[1, 2, 3], label=[0, 1, 1])
    by_words = gcfl.from_huggingface(held, text="sentence", length=4)
    assert np.array_equal(by_words.x, hashed(texts, 4))
    assert by_words.layout.words == 4
    alone = numbers(sentence=texts, label=[0, 1, 1])  # the only column: no need to name it
    assert np.array_equal(gcfl.from_huggingface(alone, length=4).x, by_words.x)

    def letters(text):
        return [ord(letter) for letter in text]

    makers = (
        letters,
        lambda text: {"input_ids": letters(text), "attention_mask": []},
        lambda text: {"input_ids": torch.tensor([letters(text)])},
    )
    for tokenizer in makers:
        found = gcfl.from_huggingface(held, text="sentence", tokenizer=tokenizer, length=9).x
        wanted = [letters(text)[:9] + [0] * (9 - len(text)) for text in texts]
        assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "size"}, "the column 'size' of huggingface holds no texts"),
        ({"text": "sentense"}, "did you mean sentence"),
        ({"tokenizer": len}, "a tokenizer needs a column of texts"),
        ({"text": "sentence", "tokenizer": len}, "must give a list of whole numbers; in row 0"),
        ({"text": "sentence", "tokenizer": lambda _: [-1]}, "ids below 0"),
        ({"text": "sentence", "tokenizer": lambda _: 1 / 0}, "fails on the text in row 0: ZeroDiv"),
    ],
)
def test_bad_texts_get_their_sentence(options, message):
    held = numbers(sentence=["a b", "c"], size=[1, 2], label=[0, 1])
    with pytest.raises(DataError, match=message):
        gcfl.from_huggingface(held, **options)


def test_a_broken_image_is_left_out_and_named(tmp_path, caplog):
    held = dataset(30).cast_column("image", datasets.Image(decode=False))
    spoiled = held.map(
        lambda row, place: {
            "image": {"bytes": b"no", "path": None} if place == 7 else row["image"]
        },
        with_indices=True,
    ).cast_column("image", datasets.Image())
    spoiled.save_to_disk(tmp_path / "trees")
    for given in (
        spoiled,
        datasets.load_from_disk(str(tmp_path / "trees")),
        spoiled.select(range(30)),
    ):
        caplog.clear()
        for _ in range(2):  # the second time from the cache
            source = gcfl.from_huggingface(given, group="site", image_size=8)
            assert "1 of 30 images are left out: huggingface, row 7" in caplog.text
            rest = np.delete(np.arange(30), 7)
            assert source.y.tolist() == [place % 3 for place in rest]
            assert source.groups.tolist() == [f"s{place % 4}" for place in rest]
            assert source.ids_of(np.array([6, 7])) == ["6", "8"]
            whole = gcfl.from_huggingface(dataset(30), image_size=8)
            assert np.array_equal(source.x, whole.x[rest])
        with pytest.raises(DataError, match=r"row 7: .* 'skip' leaves it out"):
            gcfl.from_huggingface(given, image_size=8, broken="refuse")


def people(rows=300, seed=0):
    """A table of texts, numbers with gaps, dates and classes; and the same as a CSV has it."""
    columns = {name: list(column) for name, column in adults(rows, seed).items()}
    held = datasets.Dataset.from_dict(
        {
            "age": [float(one) if one else None for one in columns["age"]],
            "sex": [None if one == "?" else one for one in columns["sex"]],
            "job": columns["job"],
            "since": [one.astype(object) for one in columns["since"]],
            "hospital": columns["hospital"],
            "income": columns["income"],
        }
    )
    return held, {name: columns[name] for name in held.column_names}


SETTINGS = {"label": "income", "group": "hospital", "partition": "groups", "clients": 3}


@pytest.mark.parametrize("saved", [True, False])
def test_texts_beside_numbers_are_encoded_as_a_csv_is(tmp_path, saved):
    held, columns = people()
    path = write_table(tmp_path / "people.csv", columns)
    expected = build(read(DataOptions(source=str(path), **SETTINGS), 0), DataOptions(**SETTINGS), 0)
    if saved:
        held.save_to_disk(tmp_path / "people")
        source = read(DataOptions(source=str(tmp_path / "people"), **SETTINGS), 0)
    else:
        source = gcfl.from_huggingface(held, label="income", group="hospital")
    found = build(source, DataOptions(**SETTINGS), 0)
    assert found.encoding == expected.encoding
    assert [one.kind for one in found.encoding.columns] == ["number", *["category"] * 2, "date"]
    assert found.clients.names == expected.clients.names
    for name in ("clients", "validation", "test"):
        mine, theirs = getattr(found, name), getattr(expected, name)
        assert torch.equal(mine.x, theirs.x)
        assert torch.equal(mine.y, theirs.y)


def test_the_clean_set_of_an_official_test_split_alone_is_known():
    train, _ = people()
    test, _ = people(200, 1)
    train = train.map(lambda row: {"job": "a planted value" if row["age"] else row["job"]})
    held = datasets.DatasetDict({"train": train, "test": test})
    source = gcfl.from_huggingface(held, label="income", group="hospital")
    asked = DataOptions(**SETTINGS, validation=150)
    federation = build(source, asked, 0)
    jobs = next(one for one in federation.encoding.columns if one.name == "job")
    clean, _ = split_official_rows(source, source.test[1], asked, 0)
    assert jobs.values == sorted({test["job"][row] for row in clean.tolist()})
    places = dict(zip(federation.encoding.names, range(99), strict=False))
    rows = federation.validation.x[:, [places[f"job={name}"] for name in jobs.values]]
    expected = np.array([[test["job"][row] == name for name in jobs.values] for row in clean])
    assert np.array_equal(rows.numpy().astype(bool), expected)


def test_a_run_on_a_table_its_names_and_its_predictions(tmp_path):
    held, _ = people()
    sick = held.cast_column("income", datasets.ClassLabel(names=["<=50K", ">50K"]))
    data = {"source": sick, "drop": ["hospital"]}
    quick = {"model": "logistic", "clients": 3, "rounds": 2, "out": tmp_path / "runs"}
    run = gcfl.run("fedavg", data, label="income", **quick)
    assert not any("hospital" in name for name in run.model.encoding.names)
    sick.save_to_disk(tmp_path / "new")
    found = predict(run, tmp_path / "new").probabilities
    assert np.array_equal(found, run.model.predict_proba(held.to_pandas()))
    plain = numbers(a=[0.5, 1.5] * 30, b=[1, 2] * 30, label=[0, 1] * 30)
    by_name = gcfl.run("fedavg", plain, **quick).model
    frame = plain.to_pandas()
    assert np.array_equal(
        by_name.predict(frame[["b", "a"]]), by_name.predict(frame.to_numpy()[:, :2])
    )


def test_a_sites_dataset_is_encoded_as_the_servers(tmp_path):
    held, columns = people()
    table = {name: cells(column, name) for name, column in columns.items() if name != "income"}
    encoding = fit(table, 50)
    schema = Schema(("<=50K", ">50K"), (encoding.width,), "float32", encoding.names, encoding)
    site = held.filter(lambda row: row["income"] == ">50K")  # one class, other order, one more
    site = site.select_columns(held.column_names[::-1]).add_column("extra", ["x"] * len(site))
    site.save_to_disk(tmp_path / "site")
    found = read_as(DataOptions(source=str(tmp_path / "site"), label="income"), 0, schema)
    rows = [row for row, income in enumerate(columns["income"]) if income == ">50K"]
    assert np.array_equal(found.x, encoding.apply(table, "t")[rows])
    assert set(found.y.tolist()) == {1}


def test_classes_among_the_columns_count_by_name_and_gaps_are_filled():
    features = {"kind": datasets.ClassLabel(names=NAMES), "label": datasets.Value("int64")}
    held = datasets.Dataset.from_dict(
        {"kind": [0, 2, -1] * 20, "label": [0, 1, 1] * 20}, features=datasets.Features(features)
    ).add_column("size", [1.0, None, 3.0] * 20)
    found = gcfl.from_huggingface(held)
    assert found.x[:3].tolist() == [["ash", 1.0], [NAMES[2], None], [None, 3.0]]
    assert gcfl.from_huggingface(held.select_columns(["kind", "label"])).x.dtype == np.float32


def test_tables_client_by_client_get_their_sentence():
    held, _ = people(60)
    with pytest.raises(ConfigError, match=r"give every client a DataFrame \(dataset.to_pandas"):
        gcfl.run("fedavg", {"a": held, "b": held}, label="income")
