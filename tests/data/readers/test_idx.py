from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from data_files import source
from gcfl.base.errors import DataError
from gcfl.data import DataOptions, build

DRAW = np.random.default_rng(0)


def write_idx(folder: Path, zipped: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    arrays = {}
    for stem, n in (("train", 30), ("t10k", 12)):
        images, labels = (
            DRAW.integers(0, 256, (n, 28, 28)).astype(np.uint8),
            DRAW.integers(0, 10, n).astype(np.uint8),
        )
        arrays[stem] = (images, labels)
        for name, blob in (
            (f"{stem}-images-idx3-ubyte", struct.pack(">IIII", 2051, n, 28, 28) + images.tobytes()),
            (f"{stem}-labels-idx1-ubyte", struct.pack(">II", 2049, n) + labels.tobytes()),
        ):
            (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(blob) if zipped else blob)
    return arrays


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(tmp_path, zipped):
    arrays = write_idx(tmp_path / "m", zipped)
    found = source(tmp_path / "m")
    assert np.array_equal(found.x[:, 0], arrays["train"][0])
    assert np.array_equal(found.test[1], arrays["t10k"][1])
    federation = build(found, DataOptions(clients=2, validation=6, test=6, min_size=2), 0)
    assert len(federation.validation) == len(federation.test) == 6
    assert not set(federation.validation.ids) & set(federation.test.ids)
    assert len(federation.clients.ids) == 30


def test_bad_idx(tmp_path):
    write_idx(tmp_path / "m", False)
    path = tmp_path / "m" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="is cut off"):
        source(tmp_path / "m")
    path.write_bytes(struct.pack(">IIII", 2051, 0, 28, 28))
    (tmp_path / "m" / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 0))
    with pytest.raises(DataError, match="have no images"):
        source(tmp_path / "m")
    path.write_bytes(b"abcdefgh")
    with pytest.raises(DataError, match="not an IDX file"):
        source(tmp_path / "m")
    path.write_bytes(struct.pack(">IIII", 2051, 1, 1, 1) + b"0")
    with pytest.raises(DataError, match=r"images \(1, 1, 1\), labels \(0,\)"):
        source(tmp_path / "m")
    (tmp_path / "m" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="lacks train-labels-idx1-ubyte"):
        source(tmp_path / "m")


def test_no_more_is_unpacked_than_the_file_announces(tmp_path):
    write_idx(tmp_path / "m", True)
    path = tmp_path / "m" / "train-images-idx3-ubyte.gz"
    for sizes, sentence in (
        ((2, 28, 28), "holds more than the 1568 bytes that it announces"),
        ((2**32 - 1,) * 3, "is cut off"),
    ):
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(struct.pack(">IIII", 2051, *sizes))
            for _ in range(64):
                file.write(bytes(2**20))
        with pytest.raises(DataError, match=sentence):
            source(tmp_path / "m")
