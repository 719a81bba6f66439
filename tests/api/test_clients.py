"""Data that comes client by client, or with a group for each sample: nobody's samples move."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

import gcfl
from gcfl.api.inputs import take_data
from gcfl.data import DataOptions, build, gathered
from gcfl.data.partition import spread


def blobs(n, seed, classes=(0, 1, 2)):
    """Three classes that are easy to tell apart; every sample is unlike any other."""
    draw = np.random.default_rng(seed)
    place = np.arange(n) % len(classes)
    x = draw.normal(size=(n, 4)) + 4 * place[:, None]
    return x.astype(np.float32), np.asarray(classes)[place]


SITES = {"south": blobs(60, 1), "north": blobs(90, 2), "ward 10": blobs(45, 3)}
FEW = {"rounds": 2, "model": {"name": "logistic"}}


def run(tmp_path, data, **settings):
    return gcfl.run(data=data, out=tmp_path, **{"method": "fedavg", **FEW, **settings})


def sizes(result):
    return [one["samples"] for one in result.clients]


@pytest.mark.parametrize("kind", ["dict", "list", "dataset", "huggingface"])
def test_each_entry_is_a_client_that_keeps_its_samples(kind):
    parts = SITES
    if kind == "list":
        parts = list(SITES.values())
    elif kind == "dataset":
        tensors = {name: tuple(map(torch.from_numpy, pair)) for name, pair in SITES.items()}
        parts = {name: torch.utils.data.TensorDataset(*pair) for name, pair in tensors.items()}
    elif kind == "huggingface":
        library = pytest.importorskip("datasets", reason="datasets is not installed")
        parts = {
            name: library.Dataset.from_dict({"x": x.tolist(), "label": y.tolist()})
            for name, (x, y) in SITES.items()
        }
    explicit = {}
    source = take_data(explicit, parts, None, None, None)
    names = ("0", "1", "2") if kind == "list" else tuple(SITES)
    assert explicit["data.clients"] == 3
    federation = build(source, DataOptions(clients=3, partition="given", test=39, validation=13), 0)
    assert federation.clients.names == names  # in the order that they were given in
    for client, (x, y) in enumerate(SITES.values()):
        shard = federation.clients.shard(client)
        own = {tuple(row): label for row, label in zip(x.tolist(), y.tolist(), strict=True)}
        assert [own[tuple(row)] for row in shard.x.tolist()] == shard.y.tolist()
        # a fifth of everyone's samples is the test set's, a fifteenth the server's
        assert abs(len(shard) - len(x) * 143 / 195) <= 2
        held = [
            sum(tuple(row) in own for row in part.x.tolist())
            for part in (federation.test, federation.validation)
        ]
        assert held == [round(len(x) / 5), round(len(x) / 15)]


def test_a_run_by_its_clients_names(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="gcfl"):
        result = run(tmp_path, SITES, method="robust", noise=0.3)
    assert "no validation=(x, y) and test=(x, y) given: cut from the clients' own" in caplog.text
    assert result.accuracy > 0.8
    assert [one["name"] for one in result.clients] == list(SITES)
    sites = gcfl.audit(result).sites
    assert [site.site for site in sites] == list(SITES)
    for site, (name, (_, y)) in zip(sites, SITES.items(), strict=True):
        rows = [int(sample.removeprefix(f"{name}/")) for sample in site.ids]
        assert np.array_equal(np.asarray(site.right), y[rows])  # a row of what its owner gave
    again = gcfl.load(result.folder)
    assert len(gcfl.audit(again, data=SITES).sites) == 3
    # the same call returns what is there; other samples, or other owners of them, are another run
    assert run(tmp_path, SITES, method="robust", noise=0.3).folder == result.folder
    moved = {"south": SITES["north"], "north": SITES["south"], "ward 10": SITES["ward 10"]}
    assert run(tmp_path, moved, method="robust", noise=0.3).folder != result.folder


def test_sets_of_their_own_leave_the_clients_whole(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="gcfl"):
        result = run(tmp_path, SITES, validation=blobs(20, 5), test=blobs(20, 6))
    assert "cut from the clients" not in caplog.text
    assert sizes(result) == [60, 90, 45]


def test_classes_are_the_union():
    parts = {"one": blobs(20, 0, ["b", "a"]), "two": blobs(20, 1, ["c", "b"])}
    source = gathered(parts)
    assert source.classes == ("a", "b", "c")
    labels = np.concatenate([y for _, y in parts.values()])
    assert np.array_equal(np.asarray(source.classes)[source.y], labels)


X, Y = SITES["south"]


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (SITES, {"clients": 5}, "data.clients is 5, but data was given for 3 clients"),
        ({"source": SITES, "partition": "iid"}, {}, "data.partition has no effect on data that"),
        ({"source": (X, Y), "north": (X, Y)}, {}, "read as settings, but 'north' holds samples"),
        ({"north": (X, Y), "min_size": 5}, {}, "'min_size' is no pair .* settings go beside them"),
        ([(X, Y), (X, Y), 3], {}, "2 is no pair"),
        ({"1": (X, Y), 1: (X, Y)}, {}, "two clients of data have the same name"),
        ({"a": (X, Y), "b": (X[:, :2], Y)}, {}, r"client 'b' has samples of shape \(2,\)"),
        (
            {"a": (X, Y), "b": (X.astype(np.uint8), Y)},
            {},
            "of type uint8, but client 'a'",
        ),
        ({"a": (X, Y), "b": (X, Y.astype(str))}, {}, "client 'b' are names, but those of client"),
        ({"a": (X, Y), "b": (X, Y[1:])}, {}, "x of client 'b' has 60 samples, but y has 59"),
        (SITES, {"groups": ["a"] * 195}, "data given client by client has its owners"),
        ((X, Y), {"groups": ["a"] * 59}, "a name for each of the 60 samples"),
        ((X, Y), {"groups": ["a"] * 59 + [None]}, "samples without a name"),
        ("digits", {"groups": ["a"]}, "go with data="),
    ],
)
def test_what_could_be_meant_otherwise_gets_a_sentence(tmp_path, data, settings, message):
    with pytest.raises(gcfl.GcflError, match=message):
        run(tmp_path, data, **settings)


def test_settings_go_beside_the_clients(tmp_path):
    tiny = {name: (x[:9], y[:9]) for name, (x, y) in SITES.items()}
    with pytest.raises(gcfl.GcflError, match="client south has 6 samples, fewer than"):
        run(tmp_path, tiny)
    assert sizes(run(tmp_path, {"source": tiny, "min_size": 5})) == [6, 7, 7]
    pair = [X.tolist()[:2], Y.tolist()[:2]]  # still x and y, not two clients
    assert len(take_data({}, pair, None, None, None)) == 2


def test_groups_as_an_array(tmp_path):
    x, y = (np.concatenate(part) for part in zip(*SITES.values(), strict=True))
    groups = np.repeat(list(SITES), [60, 90, 45])
    result = run(tmp_path, (x, y), groups=groups)
    assert {one["name"]: one["samples"] for one in result.clients} == {
        "south": 45,
        "north": 67,
        "ward 10": 34,
    }
    two = run(tmp_path, (x, y), groups=groups, clients=2)
    assert sorted(sizes(two)) == [67, 79]
    by_hand = run(tmp_path, {"source": (x, y), "partition": "iid"}, groups=groups)
    assert max(sizes(by_hand)) - min(sizes(by_hand)) <= 1


def test_every_stretch_has_the_same_share_of_each_group():
    draw = np.random.default_rng(0)
    groups = draw.choice(["a", "b", "c"], size=300, p=[0.7, 0.2, 0.1])
    order = draw.permutation(300)
    spreaded = spread(groups, order)
    assert sorted(spreaded) == list(range(300))
    for name in "abc":
        mine = order[groups[order] == name]
        assert np.array_equal(spreaded[groups[spreaded] == name], mine)
        for end in range(1, 301):
            assert abs((groups[spreaded[:end]] == name).sum() - end * len(mine) / 300) <= 1.5


NAMES = ["a", "b", "c", "d"]


def frame(x, y, **more):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    columns = dict(zip(NAMES, x.T, strict=True))
    # another order than the arrays', and the label in the middle
    return pandas.DataFrame({"d": columns["d"], "sick": y, **columns, **more})[
        [*NAMES[:2], "sick", *NAMES[2:], *more]
    ]


def test_dataframes_beside_arrays_are_as_if_all_were_arrays(tmp_path):
    south, north, ward = SITES.values()
    mixed = {
        "south": south,
        "north": frame(*north),
        "ward 10": frame(*ward)[["sick", *NAMES[::-1]]],
    }
    sets = {"validation": blobs(30, 4), "test": blobs(60, 5)}
    kinds = {"validation": frame(*sets["validation"]), "test": sets["test"]}
    plain = run(tmp_path / "arrays", SITES, **sets)
    found = run(tmp_path / "mixed", mixed, **kinds, label="sick")
    assert [one.train_loss for one in found.rounds] == [one.train_loss for one in plain.rounds]
    assert found.accuracy == plain.accuracy
    assert [one["name"] for one in found.clients] == list(SITES)
    x, y = blobs(20, 6)
    assert np.array_equal(found.predict(frame(x, y)), plain.predict(x))  # columns go by name


def test_a_client_of_one_class_may_come_as_a_dataframe(tmp_path):
    x, y = SITES["south"]
    parts = {"south": (x, y), "north": frame(x[y == 2], y[y == 2])}
    federation = build(
        take_data({"data.label": "sick"}, parts, blobs(30, 4), blobs(30, 5), None),
        DataOptions(clients=2, partition="given", validation=30, test=30),
        0,
    )
    assert set(federation.clients.shard(1).y.tolist()) == {2}


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ({"town": ["x"] * 60}, {}, "client 'b': the column 'town' holds other things than numbers"),
        ({"e": [1.0] * 59 + [None]}, {}, "client 'b': the column 'e' holds other things"),
        ({"e": [1.0] * 60}, {}, r"client 'b' has samples of shape \(5,\)"),
        ({}, {"label": "well"}, "client 'b' has no column 'well'"),
        ({}, {"data.schema_file": "schema.json"}, "arrays have none: give every client"),
    ],
)
def test_a_dataframe_that_no_array_can_stand_beside(tmp_path, more, settings, message):
    parts = {"a": (X, Y), "b": frame(X, Y, **more)}
    with pytest.raises(gcfl.GcflError, match=message):
        take_data(
            {"data.label": settings.pop("label", "sick"), **settings}, parts, None, None, None
        )


def test_texts_and_a_column_of_texts(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    texts, y = ["a ship", "an oven", "the sea", "the stove"] * 5, [0, 1] * 10
    parts = {"a": (texts, y), "b": pandas.DataFrame({"words": texts, "kind": y})}
    explicit = {"data.label": "kind", "data.text": "words"}
    found = take_data(explicit, parts, None, None, None)
    alone = take_data({}, {"a": (texts, y), "b": (texts, y)}, None, None, None)
    assert np.array_equal(found.x, alone.x)
    assert np.array_equal(found.y, alone.y)
