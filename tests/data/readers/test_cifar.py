from __future__ import annotations

import os
import pickle
import tarfile

import numpy as np
import pytest

from data_files import cifar_arrays, source, write_binary, write_python
from gcfl.base.errors import DataError


@pytest.mark.parametrize("classes", [10, 100])
def test_both_cifar_formats_and_their_archives_give_equal_arrays(tmp_path, classes):
    parts = cifar_arrays(classes)
    found = []
    for kind, write in (("binary", write_binary), ("python", write_python)):
        folder = tmp_path / f"cifar-{classes}-{kind}-folder"
        write(folder, classes, parts)
        archive = tmp_path / f"cifar-{classes}-{kind}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(folder, arcname=folder.name)
        found += [source(folder), source(archive)]
    for one in found:
        assert np.array_equal(one.x, parts["train"][0])
        assert np.array_equal(one.y, parts["train"][1])
        assert np.array_equal(one.test[0], parts["test"][0])
        assert np.array_equal(one.test[1], parts["test"][1])
        assert len(one.classes) == classes
        assert one.x.dtype == np.uint8


def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/owned",))

    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    with pytest.raises(
        DataError, match=r"asks for (posix|nt)\.system, which no data file needs: refused"
    ):
        source(tmp_path / "c")
    assert not (tmp_path / "owned").exists()


def test_bad_cifar_files(tmp_path):
    write_binary(tmp_path / "cut", 10, cifar_arrays(10))
    blob = (tmp_path / "cut" / "data_batch_2.bin").read_bytes()
    (tmp_path / "cut" / "data_batch_2.bin").write_bytes(blob[:-5])
    with pytest.raises(DataError, match="cut off"):
        source(tmp_path / "cut")
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "cut", arcname="cut")
    archive.write_bytes(archive.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"not a whole \.tar\.gz"):
        source(archive)
    write_python(tmp_path / "junk", 10, cifar_arrays(10))
    (tmp_path / "junk" / "test_batch").write_bytes(b"no pickle")
    with pytest.raises(DataError, match="not a CIFAR batch"):
        source(tmp_path / "junk")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"data": [[0] * 3072] * 2, b"labels": [0, -1]}, "it has the label -1"),
        ({b"data": [[0] * 3072] * 2, b"labels": [0, None]}, "is not a batch of CIFAR-10"),
        ({b"data": [[300] * 3072] * 2, b"labels": [0, 1]}, "is not a batch of CIFAR-10"),
        ({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, "it has no images"),
    ],
)
def test_odd_cifar_batches(tmp_path, batch, message):
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=message):
        source(tmp_path / "c")


def test_odd_cifar_names(tmp_path):
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "batches.meta").write_bytes(pickle.dumps({b"label_names": 7}, protocol=2))
    assert source(tmp_path / "c").classes[0] == "airplane"
    (tmp_path / "c" / "batches.meta.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="c cannot be read: UnicodeDecodeError"):
        source(tmp_path / "c")
