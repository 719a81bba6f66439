from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import ConfigError, DataError
from gcfl.data import SOURCES, DataOptions, arrays, build, read
from gcfl.data.add_noise import client_rates, strike
from gcfl.data.noise import OUTSIDE, confusion, open_set, pair, uniform
from gcfl.data.partition import from_owners


def flipped(labels, partition, rates, flip, draw):
    """Labels after one kind of flips, and which were hit."""
    hit = np.zeros(len(labels), dtype=np.int8)
    rows = strike(partition, rates, ["uniform"], hit, draw)["uniform"]
    noisy = np.zeros(len(labels), dtype=bool)
    noisy[rows] = True
    observed = labels.copy()
    observed[rows] = flip(labels[rows], draw)
    return observed, noisy


@given(st.integers(1, 8), st.integers(2, 6), st.floats(0, 0.99), st.integers(0, 2**32))
def test_noise_is_exact_per_client_and_never_the_clean_label(clients, classes, rate, seed):
    draw = rng.stream(seed, "test")
    n = int(draw.integers(clients, 200))
    labels = draw.integers(0, classes, n)
    partition = from_owners(np.arange(n), draw.integers(0, clients, n), clients)
    rates = np.clip(rate + rng.stream(seed, "rates").uniform(-0.3, 0.3, clients), 0, 0.99)
    matrix = rng.stream(seed, "matrix").random((classes, classes)) + 1e-3
    flip = [uniform(classes), pair(classes), confusion(matrix)][seed % 3]
    observed, noisy = flipped(labels, partition, rates, flip, rng.stream(seed, "noise"))
    assert np.array_equal(observed != labels, noisy)
    assert observed.min() >= 0
    assert observed.max() < classes
    for client in range(clients):
        assert noisy[partition[client]].sum() == round(
            float(rates[client]) * len(partition[client])
        )
    again, _ = flipped(labels, partition, rates, flip, rng.stream(seed, "noise"))
    assert np.array_equal(observed, again)


def test_flips_are_uniform_over_the_other_labels():
    labels = np.zeros(40_000, dtype=np.int64)
    partition = from_owners(np.arange(40_000), np.zeros(40_000, dtype=np.int64), 1)
    observed, _ = flipped(labels, partition, np.array([0.5]), uniform(5), rng.stream(0))
    counts = np.bincount(observed, minlength=5)
    assert counts[0] == 20_000
    assert np.abs(counts[1:] / 5000 - 1).max() < 0.06


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(0, 0.9))
def test_a_federation_is_cut_cleanly(seed, noise):
    options = DataOptions(clients=4, noise=noise, validation=50, test=0.1, samples=400)
    source = read(options, seed)
    federation = build(source, options, seed)
    rows = [
        set(federation.test.ids),
        set(federation.validation.ids),
        set(federation.clients.source_rows.order),
    ]
    assert [len(part) for part in rows] == [40, 50, 310]
    assert set.union(*rows) == set(range(400))
    # The server's set and the test set are clean; the clients' labels are clean exactly where the
    # truth says so.
    assert np.array_equal(federation.validation.y.numpy(), source.y[federation.validation.ids])
    assert np.array_equal(federation.test.y.numpy(), source.y[federation.test.ids])
    for client in range(4):
        shard = federation.clients.shard(client)
        assert np.array_equal(shard.x.numpy(), source.x[shard.ids])
        assert np.array_equal(
            shard.y.numpy() != source.y[shard.ids], federation.truth.noisy[shard.ids]
        )


def test_normalisation_comes_from_the_server_alone():
    x = np.random.default_rng(0).normal(3, 2, (200, 4)).astype(np.float32)
    y = np.arange(200) % 3
    own = (x[:50] * 10, y[:50])
    federation = build(arrays((x, y), validation=own), DataOptions(clients=2), 0)
    mean, deviation = federation.normaliser
    assert np.allclose(mean, own[0].mean(0), rtol=1e-5)
    assert np.allclose(deviation, own[0].std(0), rtol=1e-5)


def test_images_are_normalised_per_channel_and_constants_survive():
    images = np.zeros((60, 3, 5, 5), dtype=np.uint8)
    images[:, 1] = np.random.default_rng(0).integers(0, 255, (60, 5, 5))
    federation = build(
        arrays((images, np.arange(60) % 2)), DataOptions(clients=2, validation=20, test=10), 0
    )
    mean, deviation = federation.normaliser
    assert mean.shape == deviation.shape == (3, 1, 1)
    assert deviation[0] == 1
    part = federation.validation.x[:, 1].double()
    assert torch.allclose(mean[1].double(), part.mean())
    assert torch.allclose(deviation[1].double(), part.std(correction=0))
    assert federation.clients.shard(0).x.dtype == torch.uint8


def test_clean_only_keeps_just_the_clean_samples():
    options = DataOptions(clients=4, noise=0.4, samples=400)
    federation = build(read(options, 0), options, 0)
    clean = federation.clean_only()
    assert not federation.truth.noisy[clean.clients.source_rows.order].any()
    assert (
        len(clean.clients.partition.order)
        == (~federation.truth.noisy[federation.clients.source_rows.order]).sum()
    )


def test_blobs_are_the_papers():
    source = read(DataOptions(source="blobs", samples=20_000), 0)
    assert source.x.shape == (20_000, 10)
    spread = [source.x[source.y == label].std(axis=0).mean() for label in range(10)]
    assert np.allclose(spread, np.linspace(1, 8, 10), rtol=0.03)


def test_class_names_are_kept_in_order():
    source = arrays((np.zeros((6, 2)), np.array(["b", "a", "c", "b", "a", "c"])))
    assert source.classes == ("a", "b", "c")
    assert source.y.tolist() == [1, 0, 2, 1, 0, 2]


def test_no_function_reads_global_random_state(tmp_path, monkeypatch):
    def poisoned(*_, **__):
        raise AssertionError("global random state was read")

    everything = (
        "rand",
        "random",
        "permutation",
        "shuffle",
        "choice",
        "normal",
        "randint",
        "seed",
        "uniform",
        "standard_normal",
    )
    for name in (*everything, "get_state", "set_state"):
        monkeypatch.setattr(np.random, name, poisoned)
    for name in ("rand", "randn", "randperm", "randint"):
        monkeypatch.setattr(torch, name, poisoned)
    np.savetxt(tmp_path / "matrix.txt", np.ones((10, 10)))
    files = {
        "owners": tmp_path / "owners.txt",
        "given": tmp_path / "seen.txt",
        "confusion": tmp_path / "matrix.txt",
    }
    for name in ("digits", "blobs"):
        count = 1797 if name == "digits" else 400
        files["owners"].write_text("\n".join(f"client {row % 4}" for row in range(count)))
        files["given"].write_text("\n".join(str(row % 10) for row in range(count)))
        for partition in ("dirichlet", "iid", "shards", "quantity", "groups", "given"):
            kinds = ("uniform", "pair", "open", "confusion", "given")
            for kind in (*kinds, "attribute") if name == "blobs" else kinds:
                sizes = {
                    "clients": 4,
                    "noise": 0.0 if kind == "given" else 0.4,
                    "samples": 400,
                    "classes_per_client": 3,
                }
                beside = {"noise_file": str(files[kind])} if kind in files else {}
                beside |= {"owners": str(files["owners"])} if partition == "given" else {}
                options = DataOptions(
                    source=name, partition=partition, noise_kind=kind, **sizes, **beside
                )
                source = read(options, 1)
                build(
                    dataclasses.replace(
                        source, groups=np.array([f"g{row % 9}" for row in range(400)])
                    ),
                    options,
                    1,
                )


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_any_number_type_is_taken(dtype):
    source = arrays((np.ones((4, 3), dtype=dtype), [0, 1, 0, 1]))
    assert source.x.dtype == (np.uint8 if dtype == np.uint8 else np.float32)


def test_given_owners_and_groups(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(90, 3)), np.arange(90) % 3
    names = np.array(["north", "south", "Zürich"])[np.arange(90) // 30]
    (tmp_path / "owners.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    own = arrays((x, y))
    options = DataOptions(
        partition="given", owners=str(tmp_path / "owners.txt"), validation=9, test=9, min_size=5
    )
    federation = build(own, options, 0)
    assert len(federation.clients) == 3
    for client, name in enumerate(["Zürich", "north", "south"]):  # sorted by name
        assert set(names[federation.clients.shard(client).ids]) == {name}
    with pytest.raises(DataError, match=r"client .* has .* samples, fewer than data\.min_size"):
        build(own, options.model_copy(update={"min_size": 40}), 0)
    (tmp_path / "owners.txt").write_text("north\n")
    with pytest.raises(DataError, match="has 1 lines, but arrays has 90 samples"):
        build(own, options, 0)
    with pytest.raises(ConfigError, match=r"needs data\.owners"):
        build(own, options.model_copy(update={"owners": None}), 0)
    with pytest.raises(DataError, match="has no groups"):
        build(own, DataOptions(partition="groups", clients=2), 0)
    grouped = dataclasses.replace(own, groups=names)
    federation = build(grouped, DataOptions(partition="groups", clients=3, validation=9, test=9), 0)
    for client in range(3):
        assert len(set(names[federation.clients.shard(client).ids])) == 1


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


def test_dirichlet_on_cifar10_has_the_skew_of_its_distribution():
    """Ten clients, α = 0.4: the share of a client's largest class, and how far the clients' sizes
    differ, against a simulation of the distribution itself.
    """
    options = DataOptions(source="cifar10", clients=10, alpha=0.4)
    if SOURCES["cifar10"].find() is None:
        pytest.skip("cifar10 is not in the data home")
    source = read(options, 0)

    def largest(table):
        return (table.max(1) / table.sum(1)).mean()

    def spread(table):
        return (table.sum(1) / table.sum()).std()

    measured = []
    for seed in range(12):
        federation = build(source, options, seed)
        table = np.array(
            [
                np.bincount(source.y[federation.clients.shard(c).ids], minlength=10)
                for c in range(10)
            ]
        )
        measured.append([largest(table), spread(table)])
    draw = np.random.default_rng(0)
    tables = [draw.dirichlet([0.4] * 10, size=10).T for _ in range(4000)]
    simulated = np.array([[largest(table), spread(table)] for table in tables])
    assert (
        np.abs(np.mean(measured, axis=0) - simulated.mean(axis=0))
        < 4 * simulated.std(axis=0) / np.sqrt(12)
    ).all()


def test_pairs_and_matrices_flip_as_they_say():
    labels = np.repeat(np.arange(3), 20_000)
    partition = from_owners(np.arange(60_000), np.zeros(60_000, dtype=np.int64), 1)
    observed, noisy = flipped(labels, partition, np.array([0.4]), pair(3), rng.stream(0))
    assert np.array_equal(observed[noisy], (labels[noisy] + 1) % 3)
    matrix = np.array([[9, 1, 3], [0, 5, 2], [1, 1, 0]], dtype=float)
    observed, noisy = flipped(labels, partition, np.array([0.5]), confusion(matrix), rng.stream(1))
    for label, odds in enumerate([[0, 0.25, 0.75], [0, 0, 1], [0.5, 0.5, 0]]):
        others = observed[noisy & (labels == label)]
        assert np.abs(np.bincount(others, minlength=3) / len(others) - odds).max() < 0.02
    with pytest.raises(DataError, match="at least one class"):
        confusion(np.eye(3))


@given(st.integers(0, 2**32), st.integers(2, 12), st.floats(0, 0.99))
def test_open_set_leaves_only_remaining_classes(seed, classes, rate):
    labels = rng.stream(seed, "labels").integers(0, classes, 300)
    gone = round(rate * classes)
    if classes - gone < 2:
        with pytest.raises(DataError, match="at least two must remain"):
            open_set(labels, classes, rate, rng.stream(seed))
        return
    result = open_set(labels, classes, rate, rng.stream(seed))
    assert len(result.classes) == classes - gone
    assert result.observed.min() >= 0
    assert result.observed.max() < len(result.classes)
    outside = ~np.isin(labels, result.classes)
    assert np.array_equal(result.clean == OUTSIDE, outside)
    # Inside the task, labels are the clean ones in their new numbers.
    assert np.array_equal(result.classes[result.observed[~outside]], labels[~outside])


def test_open_set_federation():
    options = DataOptions(clients=4, noise=0.4, noise_kind="open")
    source = read(options, 0)
    federation = build(source, options, 0)
    kept = np.array(federation.classes)
    assert len(kept) == 6
    for shard in (federation.validation, federation.test):
        assert np.array_equal(kept[shard.y.numpy()], source.y[shard.ids])
    assert len(federation.clients.ids) == len(source) - round(0.1 * len(source)) - round(
        0.15 * len(source)
    )
    for client in range(4):
        shard = federation.clients.shard(client)
        assert int(shard.y.max()) < 6
        noisy = federation.truth.noisy[shard.ids]
        assert np.array_equal(noisy, ~np.isin(source.y[shard.ids], kept))
        assert np.array_equal(kept[shard.y.numpy()[~noisy]], source.y[shard.ids][~noisy])


def test_rates_per_client():
    assert client_rates(DataOptions(noise=0.4), 3, rng.stream(0)).tolist() == [0.4] * 3
    drawn = client_rates(DataOptions(noise=0.4, noise_spread=0.3), 2000, rng.stream(0))
    assert 0.1 <= drawn.min() < 0.11
    assert 0.69 < drawn.max() <= 0.7
    options = DataOptions(clients=3, noise_rates=[0.0, 0.2, 0.5], samples=600)
    federation = build(read(options, 0), options, 0)
    for client, rate in enumerate([0.0, 0.2, 0.5]):
        ids = federation.clients.shard(client).ids
        assert federation.truth.noisy[ids].sum() == round(rate * len(ids))
    with pytest.raises(DataError, match="2 rates, but there are 3 clients"):
        build(read(options, 0), options.model_copy(update={"noise_rates": [0.1, 0.2]}), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"noise_kind": "open", "noise_spread": 0.1},
        {"noise_kind": "given", "noise": 0.2},
        {"noise_kind": "given", "noise_rates": [0.1]},
        {"noise": 0.2, "noise_rates": [0.1] * 10},
        {"noise_spread": 0.2, "noise_rates": [0.1] * 10},
        {"noise_kind": "pair", "noise_file": "seen.txt"},
        {"noise_kind": "open", "noise": 0.04},
        {"owners": "owners.txt"},
    ],
)
def test_settings_that_a_kind_of_noise_would_ignore_are_refused(options):
    with pytest.raises(ConfigError, match="no effect"):
        build(read(DataOptions(), 0), DataOptions(**options), 0)


@pytest.mark.parametrize("samples", [None, 300])
def test_given_labels(tmp_path, samples):
    """The file is about every sample of the source, however many of them are used."""
    options = DataOptions(
        samples=samples, clients=3, noise_kind="given", noise_file=str(tmp_path / "seen.txt")
    )
    source, whole = read(options, 0), read(DataOptions(), 0)
    everything = (whole.y + (np.arange(1797) % 5 == 0)) % 10
    seen = everything if samples is None else everything[source.rows]
    (tmp_path / "seen.txt").write_text("\n".join(map(str, everything)))
    federation = build(source, options, 0)
    for client in range(3):
        shard = federation.clients.shard(client)
        assert np.array_equal(shard.y.numpy(), seen[shard.ids])
        assert np.array_equal(
            federation.truth.noisy[shard.ids], seen[shard.ids] != source.y[shard.ids]
        )
    assert federation.truth.noisy.any()
    assert np.array_equal(federation.validation.y.numpy(), source.y[federation.validation.ids])
    for text, message in {
        "1\n2": "has 2 lines, but digits has 1797 samples",
        "\n".join(["frog"] * 1797): "the label 'frog', which is not a class",
        "1\n\n2": "nothing in line 2",
    }.items():
        (tmp_path / "seen.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            build(source, options, 0)
    with pytest.raises(DataError, match="cannot be read"):
        build(source, options.model_copy(update={"noise_file": str(tmp_path / "none")}), 0)
    for text, message in {
        "1 2\n3 4": "10 x 10 numbers, got shape",
        "a b": "not a table of numbers",
    }.items():
        (tmp_path / "matrix.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            build(
                source,
                options.model_copy(
                    update={"noise_kind": "confusion", "noise_file": str(tmp_path / "matrix.txt")}
                ),
                0,
            )


@pytest.mark.parametrize("written", [["ash", "elm"], ["0", "1"]])
def test_given_labels_by_name_or_by_number(tmp_path, written):
    y = np.arange(80) % 2
    source = arrays((np.random.default_rng(0).normal(size=(80, 2)), np.array(["ash", "elm"])[y]))
    seen = np.where(np.arange(80) % 10 == 0, 1 - y, y)
    (tmp_path / "seen.txt").write_text(
        "\ufeff" + "\n".join(np.array(written)[seen]) + "\n", encoding="utf-8"
    )
    federation = build(
        source, DataOptions(clients=2, noise_kind="given", noise_file=str(tmp_path / "seen.txt")), 0
    )
    assert np.array_equal(federation.clients.y.numpy(), seen[federation.clients.ids])


def test_few_classes_per_client_stay_few_when_some_are_too_small():
    y = np.repeat([0, 1, 2], [300, 300, 12])
    source = arrays((np.random.default_rng(0).normal(size=(612, 2)), y))
    options = DataOptions(partition="shards", classes_per_client=1, clients=6, min_size=10)
    with pytest.raises(DataError, match=r"fewer than data\.min_size \(10\)"):
        build(source, options, 0)
    federation = build(source, options.model_copy(update={"min_size": 1}), 0)
    assert all(len(set(source.y[federation.clients.shard(client).ids])) == 1 for client in range(6))


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["dirichlet", "iid", "shards", "quantity", "groups"]),
    st.integers(2, 6),
    st.integers(1, 25),
)
def test_every_partition_keeps_the_minimum_or_says_why(seed, partition, clients, minimum):
    draw = rng.stream(seed, "x")
    source = arrays((draw.normal(size=(150, 2)), np.arange(150) % 3))
    source = dataclasses.replace(source, groups=draw.integers(0, 12, 150).astype(str))
    options = DataOptions(partition=partition, clients=clients, min_size=minimum, alpha=0.2)
    federation = None
    with contextlib.suppress(DataError):
        federation = build(source, options, seed)
    if federation is None:
        assert partition in ("shards", "groups") or clients * minimum > 112
        with pytest.raises(DataError, match=r"data\.min_size"):
            build(source, options, seed)
        return
    assert federation.clients.partition.sizes.min() >= minimum
    assert len(federation.clients) == clients
    if partition == "shards":
        for client in range(clients):
            assert len(set(source.y[federation.clients.shard(client).ids])) <= 2


def test_clients_that_lose_all_their_samples_are_told(tmp_path, caplog):
    names = np.array([*["big"] * 60, *["large"] * 60, "tiny"])
    source = dataclasses.replace(
        arrays((np.random.default_rng(0).normal(size=(121, 2)), np.arange(121) % 2)), groups=names
    )
    (tmp_path / "owners.txt").write_text("\n".join(names))
    options = DataOptions(partition="groups", clients=2, validation=20, test=40)
    seed = next(seed for seed in range(50) if 120 not in build(source, options, seed).clients.ids)
    caplog.clear()
    federation = build(source, options, seed)
    assert (
        "1 of 3 groups have no sample left beside the server's and the test set: tiny"
        in caplog.text
    )
    assert federation.clients.names == ("big", "large")
    for client, name in enumerate(federation.clients.names):
        assert set(names[federation.clients.shard(client).ids]) == {name}
    with pytest.raises(
        DataError, match=r"data\.clients is 3, but only 2 groups have samples for clients"
    ):
        build(source, options.model_copy(update={"clients": 3}), seed)
    caplog.clear()
    given = options.model_copy(
        update={"partition": "given", "owners": str(tmp_path / "owners.txt")}
    )
    assert build(source, given, seed).clients.names == ("big", "large")
    assert "1 of 3 clients have no sample left" in caplog.text


def test_clients_are_named_by_their_group_where_each_has_one():
    names = np.array([f"writer {number % 4}" for number in range(120)])
    source = dataclasses.replace(
        arrays((np.random.default_rng(0).normal(size=(120, 2)), np.arange(120) % 3)), groups=names
    )
    options = DataOptions(partition="groups", clients=4, validation=20, test=20)
    clients = build(source, options, 0).clients
    assert sorted(clients.names) == [f"writer {number}" for number in range(4)]
    for client in range(4):
        assert set(names[clients.shard(client).ids]) == {clients.names[client]}
    assert build(source, options.model_copy(update={"clients": 3}), 0).clients.names is None


def test_an_official_test_set_of_one_sample_is_too_small():
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    source = dataclasses.replace(arrays((x, y), test=(x[:1], y[:1])), validation_from_test=True)
    with pytest.raises(
        DataError, match="has 1 sample, too few for the server's clean set and the test set both"
    ):
        build(source, DataOptions(clients=2), 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros((4, 0)), [0, 1, 0, 1]), "samples without values"),
        ((np.full((4, 2), 1e300), [0, 1, 0, 1]), "NaN or infinite values in 4 samples"),
        ((np.zeros((4, 2)), np.array([b"a", b"\xff", b"a", b"b"])), "not UTF-8"),
    ],
)
def test_bad_arrays_get_their_sentence(data, message):
    with pytest.raises(DataError, match=message):
        arrays(data)


def test_classes_must_be_names():
    with pytest.raises(DataError, match="classes must be names or whole numbers"):
        arrays((np.zeros((4, 2)), [0, 1, 0, 1]), classes=[["a"], ["b"]])
    assert arrays((np.zeros((2, 2)), np.array(["ä".encode(), b"b"]))).classes == ("b", "ä")
