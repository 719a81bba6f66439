from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from gcfl.base.errors import DataError
from gcfl.data import DataOptions, arrays, build, federation, read

pytestmark = pytest.mark.usefixtures("home")


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
            kinds = ("uniform", "pair", "open", "confusion", "given", "similar", "mistakes")
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


def in_a_file(array):
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


@pytest.mark.parametrize("limit", [2 << 30, 1000])
def test_a_folder_of_npy_is_mapped_and_gives_the_same_federation(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(federation, "LARGEST_IN_MEMORY", limit)
    draw = np.random.default_rng(3)
    x, y = draw.integers(0, 255, (200, 3, 12, 12)).astype(np.uint8), draw.integers(0, 4, 200)
    folder = tmp_path / "big"
    folder.mkdir()
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    options = DataOptions(
        source=str(folder), clients=5, noise=0.4, noise_kind=["uniform", "attribute"], min_size=5
    )
    on_disk = read(options, 0)
    assert in_a_file(on_disk.x)
    assert in_a_file(federation._empty((40, 100), x.dtype)) == (limit == 1000)
    built = [build(source, options, 0) for source in (on_disk, arrays((x, y)))]
    for client in range(5):
        first, second = (one.clients.shard(client) for one in built)
        assert torch.equal(first.x, second.x)
        assert torch.equal(first.y, second.y)
        assert (first.x.numpy() != x[first.ids]).any()
    assert torch.equal(built[0].test.x, built[1].test.x)
    assert np.array_equal(np.load(folder / "x.npy"), x), "the file was written to"
    (folder / "y.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match="not a whole npy file"):
        read(options, 0)
