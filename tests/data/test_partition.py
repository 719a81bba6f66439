from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import ConfigError, DataError
from gcfl.base.options import largest_remainder
from gcfl.data import SOURCES, DataOptions, arrays, build, read
from gcfl.data.partition import (
    Partition,
    dirichlet,
    ensure_minimum,
    from_owners,
    iid,
    quantity,
    shards,
    whole_groups,
)


@st.composite
def problems(draw):
    clients = draw(st.integers(1, 12))
    minimum = draw(st.integers(1, 4))
    n = draw(st.integers(clients * minimum, clients * minimum + 150))
    classes = draw(st.integers(2, 5))
    seed = draw(st.integers(0, 2**32))
    alpha = draw(st.sampled_from([1e-4, 0.1, 0.4, 10.0]))
    labels = rng.stream(seed, "labels").integers(0, classes, n)
    return labels, classes, clients, minimum, alpha, seed


@given(problems())
def test_partitions_are_disjoint_complete_seeded_and_respect_the_minimum(problem):
    labels, classes, clients, minimum, alpha, seed = problem

    def deal():
        owners = dirichlet(labels, classes, clients, alpha, rng.stream(seed, "deal"))
        return ensure_minimum(owners, clients, minimum, rng.stream(seed, "mend"))

    owners = deal()
    assert np.array_equal(owners, deal())
    partition = from_owners(np.arange(len(labels)) + 7, owners, clients)
    assert sorted(partition.order) == list(range(7, len(labels) + 7))
    assert partition.sizes.min() >= minimum
    assert partition.sizes.sum() == len(labels)
    for client in range(clients):
        assert np.array_equal(np.sort(partition[client]), np.flatnonzero(owners == client) + 7)


@given(problems())
def test_the_minimum_is_reached_by_taking_from_the_largest_one_by_one(problem):
    labels, classes, clients, minimum, alpha, seed = problem
    owners = dirichlet(labels, classes, clients, alpha, rng.stream(seed, "deal"))
    mended = ensure_minimum(owners, clients, minimum, rng.stream(seed, "mend"))
    sizes = np.bincount(owners, minlength=clients)
    # The definition, slowly: while somebody lacks, the largest of the moment (lowest number first)
    # gives one away.
    missing = int(np.maximum(minimum - sizes, 0).sum())
    expected = np.maximum(sizes, minimum)
    for _ in range(missing):
        expected[int(expected.argmax())] -= 1
    got = np.bincount(mended, minlength=clients)
    assert sorted(got) == sorted(expected)
    assert got.min() >= minimum
    assert int((owners != mended).sum()) == missing


def test_too_many_clients_is_an_error_not_a_loop():
    with pytest.raises(DataError, match=r"lower data\.clients or data.min_size"):
        ensure_minimum(np.zeros(10, dtype=np.int64), 4, 3, rng.stream(0))


@given(st.integers(1, 40), st.integers(1, 500), st.integers(0, 2**32))
def test_iid_sizes_differ_by_at_most_one(clients, n, seed):
    sizes = np.bincount(
        iid(np.zeros(n, dtype=np.int64), clients, rng.stream(seed)), minlength=clients
    )
    assert sizes.max() - sizes.min() <= 1


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda shares: sum(shares) > 1e-3),
    st.integers(0, 1000),
)
def test_largest_remainder(shares, total):
    share = np.array(shares) / sum(shares)
    counts = largest_remainder(share, total)
    assert counts.sum() == total
    assert (np.abs(counts - share * total) < 1 + 1e-9).all()


def test_dirichlet_follows_its_distribution():
    """The share of one class at one client is Beta(α, (N - 1)α): mean and variance over
    many draws.
    """
    alpha, clients, n = 0.4, 10, 2000
    labels = np.zeros(n, dtype=np.int64)
    shares = [
        np.bincount(dirichlet(labels, 1, clients, alpha, rng.stream(seed)), minlength=clients)[0]
        / n
        for seed in range(2000)
    ]
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert abs(np.mean(shares) - 1 / clients) < 4 * np.sqrt(variance / 2000)
    assert abs(np.var(shares) / variance - 1) < 0.2


def test_keep_filters_every_client():
    partition = Partition(np.array([5, 3, 8, 1, 9]), np.array([0, 2, 2, 5]))
    kept = partition.keep(np.array([True, False, False, True, True]))
    assert [kept[client].tolist() for client in range(3)] == [[5], [], [1, 9]]


@given(problems(), st.integers(1, 5))
def test_shards_hold_few_classes_and_share_them_evenly(problem, per_client):
    labels, classes, clients, _, _, seed = problem
    if clients * min(per_client, classes) < classes:
        with pytest.raises(DataError, match="cannot hold all"):
            shards(labels, classes, clients, per_client, rng.stream(seed))
        return
    owners = shards(labels, classes, clients, per_client, rng.stream(seed))
    assert np.array_equal(owners, shards(labels, classes, clients, per_client, rng.stream(seed)))
    held = np.array(
        [
            [((owners == client) & (labels == label)).sum() for label in range(classes)]
            for client in range(clients)
        ]
    )
    assert ((held > 0).sum(1) <= per_client).all()
    assert held.sum() == len(labels)
    for label in range(classes):
        some = held[:, label][held[:, label] > 0]
        assert some.size == 0 or some.max() - some.min() <= 1


@given(problems())
def test_quantity_deals_everything(problem):
    labels, _, clients, _, alpha, seed = problem
    owners = quantity(labels, clients, alpha, rng.stream(seed))
    assert len(owners) == len(labels)
    assert set(owners) <= set(range(clients))
    assert np.array_equal(owners, quantity(labels, clients, alpha, rng.stream(seed)))


def test_quantity_is_skewed_in_size_and_not_in_classes():
    labels = np.arange(20_000) % 5
    owners = quantity(labels, 10, 0.4, rng.stream(0))
    sizes = np.bincount(owners, minlength=10)
    assert sizes.max() > 3 * np.median(sizes)
    largest = labels[owners == sizes.argmax()]
    assert np.abs(np.bincount(largest, minlength=5) / len(largest) - 0.2).max() < 0.03


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(6, 20))
def test_groups_stay_whole_and_clients_even(seed, clients, groups):
    names = np.array([f"writer {k}" for k in rng.stream(seed, "groups").integers(0, groups, 200)])
    names[:groups] = [f"writer {k}" for k in range(groups)]
    owners = whole_groups(names, clients, rng.stream(seed))
    for name in np.unique(names):
        assert len(set(owners[names == name])) == 1
    sizes = np.bincount(owners, minlength=clients)
    largest_group = max((names == name).sum() for name in np.unique(names))
    assert sizes.max() - sizes.min() <= largest_group
    with pytest.raises(DataError, match="only"):
        whole_groups(names, groups + 1, rng.stream(seed))


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
