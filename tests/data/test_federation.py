from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl import rng
from gcfl.data import DataOptions, arrays, build, read
from gcfl.data.noise import closed_set
from gcfl.data.partition import from_owners


@given(st.integers(1, 8), st.integers(2, 6), st.floats(0, 0.99), st.integers(0, 2**32))
def test_noise_is_exact_per_client_and_never_the_clean_label(clients, classes, rate, seed):
    draw = rng.stream(seed, "test")
    n = int(draw.integers(clients, 200))
    labels = draw.integers(0, classes, n)
    partition = from_owners(np.arange(n), draw.integers(0, clients, n), clients)
    observed, truth = closed_set(labels, partition, classes, rate, rng.stream(seed, "noise"))
    assert np.array_equal(truth.labels, labels)
    assert np.array_equal(observed != labels, truth.noisy)
    assert observed.min() >= 0
    assert observed.max() < classes
    for client in range(clients):
        assert truth.noisy[partition[client]].sum() == round(rate * len(partition[client]))
    again, _ = closed_set(labels, partition, classes, rate, rng.stream(seed, "noise"))
    assert np.array_equal(observed, again)


def test_flips_are_uniform_over_the_other_labels():
    labels = np.zeros(40_000, dtype=np.int64)
    partition = from_owners(np.arange(40_000), np.zeros(40_000, dtype=np.int64), 1)
    observed, _ = closed_set(labels, partition, 5, 0.5, rng.stream(0))
    counts = np.bincount(observed, minlength=5)
    assert counts[0] == 20_000
    assert np.abs(counts[1:] / 5000 - 1).max() < 0.06


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(0, 0.9))
def test_a_federation_is_cut_cleanly(seed, noise):
    options = DataOptions(clients=4, noise=noise, validation=50, test=0.1, samples=400)
    source = read(options, seed)
    federation = build(source, options, seed)
    rows = [set(federation.test.ids), set(federation.validation.ids), set(federation.clients.source_rows.order)]
    assert [len(part) for part in rows] == [40, 50, 310]
    assert set.union(*rows) == set(range(400))
    # The server's set and the test set are clean; the clients' labels are clean exactly where the truth says so.
    assert np.array_equal(federation.validation.y.numpy(), source.y[federation.validation.ids])
    assert np.array_equal(federation.test.y.numpy(), source.y[federation.test.ids])
    for client in range(4):
        shard = federation.clients.shard(client)
        assert np.array_equal(shard.x.numpy(), source.x[shard.ids])
        assert np.array_equal(shard.y.numpy() != source.y[shard.ids], federation.truth.noisy[shard.ids])


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
    federation = build(arrays((images, np.arange(60) % 2)), DataOptions(clients=2, validation=20, test=10), 0)
    mean, deviation = federation.normaliser
    assert mean.shape == deviation.shape == (3, 1, 1)
    assert deviation[0] == 1
    part = federation.validation.x[:, 1].double()
    assert torch.allclose(mean[1].double(), part.mean())
    assert torch.allclose(deviation[1].double(), part.std(correction=0))
    assert federation.clients.x.dtype == torch.uint8


def test_clean_only_keeps_just_the_clean_samples():
    options = DataOptions(clients=4, noise=0.4, samples=400)
    federation = build(read(options, 0), options, 0)
    clean = federation.clean_only()
    assert not federation.truth.noisy[clean.clients.source_rows.order].any()
    assert len(clean.clients.partition.order) == (~federation.truth.noisy[federation.clients.source_rows.order]).sum()


def test_blobs_are_the_papers():
    source = read(DataOptions(source="blobs", samples=20_000), 0)
    assert source.x.shape == (20_000, 10)
    spread = [source.x[source.y == label].std(axis=0).mean() for label in range(10)]
    assert np.allclose(spread, np.linspace(1, 8, 10), rtol=0.03)


def test_class_names_are_kept_in_order():
    source = arrays((np.zeros((6, 2)), np.array(["b", "a", "c", "b", "a", "c"])))
    assert source.classes == ("a", "b", "c")
    assert source.y.tolist() == [1, 0, 2, 1, 0, 2]


def test_no_function_reads_global_random_state(monkeypatch):
    def poisoned(*_, **__):
        raise AssertionError("global random state was read")

    for name in ("rand", "random", "permutation", "shuffle", "choice", "normal", "randint", "seed"):
        monkeypatch.setattr(np.random, name, poisoned)
    for name in ("rand", "randn", "randperm", "randint"):
        monkeypatch.setattr(torch, name, poisoned)
    for name in ("digits", "blobs"):
        options = DataOptions(source=name, clients=4, noise=0.4, samples=400)
        build(read(options, 1), options, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_any_number_type_is_taken(dtype):
    source = arrays((np.ones((4, 3), dtype=dtype), [0, 1, 0, 1]))
    assert source.x.dtype == (np.uint8 if dtype == np.uint8 else np.float32)
