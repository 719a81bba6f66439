from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import DataError
from gcfl.data import DataOptions, arrays, build, read
from gcfl.data.add_noise import client_rates, strike
from gcfl.data.noise import confusion, pair, uniform
from gcfl.data.partition import from_owners

pytestmark = pytest.mark.usefixtures("home")


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


@settings(max_examples=25)
@given(
    st.integers(0, 2**32),
    st.floats(0, 0.9),
    st.permutations(["uniform", "pair", "attribute", "similar", "mistakes"]),
    st.integers(1, 3),
)
def test_several_kinds_share_the_noise_evenly(seed, noise, order, kinds):
    names = order[:kinds]
    options = DataOptions(source="blobs", samples=300, clients=4, noise=noise, noise_kind=names)
    source = read(options, seed)
    federation = build(source, options, seed)
    for client in range(4):
        shard = federation.clients.shard(client)
        counts = [int(federation.truth.hit_by(name)[shard.ids].sum()) for name in names]
        assert sum(counts) == round(noise * len(shard))
        assert counts == sorted(counts, reverse=True)
        assert counts[0] - counts[-1] <= 1
        labels, inputs = (
            shard.y.numpy() != source.y[shard.ids],
            (shard.x.numpy() != source.x[shard.ids]).any(axis=1),
        )
        spoiled = federation.truth.hit_by("attribute")[shard.ids]
        assert np.array_equal(inputs, spoiled)
        assert np.array_equal(labels | inputs, federation.truth.noisy[shard.ids])
        assert not (labels & inputs).any()
    assert np.array_equal(federation.validation.x.numpy(), source.x[federation.validation.ids])
    assert np.array_equal(federation.test.y.numpy(), source.y[federation.test.ids])


def test_open_set_and_attribute_noise_together():
    options = DataOptions(clients=4, noise=0.4, noise_kind=["open", "attribute"])
    source = read(options, 0)
    federation = build(source, options, 0)
    assert len(federation.classes) == 8  # half of the noise: 20% of ten classes
    kept = np.array(federation.classes)
    for client in range(4):
        shard = federation.clients.shard(client)
        outside = ~np.isin(source.y[shard.ids], kept)
        assert np.array_equal(federation.truth.hit_by("open")[shard.ids], outside)
        assert int(federation.truth.hit_by("attribute")[shard.ids].sum()) == round(0.2 * len(shard))
    with pytest.raises(DataError, match="that no other noise has hit"):
        build(
            source,
            options.model_copy(
                update={
                    "noise": 0.95,
                    "partition": "shards",
                    "clients": 10,
                    "classes_per_client": 1,
                }
            ),
            0,
        )


@pytest.mark.parametrize(
    "kind", ["uniform", "attribute", ["pair", "attribute"], "similar", ["similar", "mistakes"]]
)
def test_server_and_test_are_noisy_where_asked(kind):
    clean = DataOptions(clients=4, noise=0.2, noise_kind=kind, validation=100, test=200)
    asked = clean.model_copy(update={"validation_noise": 0.3, "test_noise": 0.5})
    source = read(clean, 0)
    before, after = build(source, clean, 0), build(source, asked, 0)
    for name, rate in (("validation", 0.3), ("test", 0.5)):
        one, other = getattr(before, name), getattr(after, name)
        assert np.array_equal(one.x.numpy(), source.x[one.ids])
        assert np.array_equal(one.y.numpy(), source.y[one.ids])
        changed = (one.y != other.y) | (one.x != other.x).flatten(1).any(dim=1)
        assert int(changed.sum()) == round(rate * len(one))
    assert np.array_equal(after.clients.shard(0).y, before.clients.shard(0).y)


@pytest.mark.parametrize("images", [False, True])
def test_the_clients_noise_does_not_depend_on_what_they_do_not_hold(images):
    draw = rng.stream(0, "x")
    x = draw.random((200, 1, 8, 8) if images else (200, 5)).astype(np.float32)
    options = DataOptions(
        noise_kind="attribute", noise=0.5, clients=2, validation=40, test=40, test_noise=0.5
    )
    first = build(arrays((x, np.arange(200) % 2)), options, 0)
    others = np.setdiff1d(np.arange(200), first.clients.ids)
    far = x.copy()
    far[others] = far[others] * 50 + 7
    second = build(arrays((far, np.arange(200) % 2)), options, 0)
    assert np.array_equal(first.clients.x, second.clients.x)
    assert not np.array_equal(first.test.x, second.test.x)
