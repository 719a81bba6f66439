from __future__ import annotations

import os
import pickle
import tarfile

import numpy as np
import pytest

from data_files import cifar_arrays, source, write_binary, write_python
from gcfl.base.errors import DataError
from gcfl.data.readers import cifar
from gcfl.data.readers.pickled import read_pickled

BLACK = np.zeros((2, 3072), np.uint8)


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


def original(array, labels):
    """A batch as Python 2 wrote it: protocol 2, strings of bytes, numpy's names of that time."""

    def short(word):
        return b"U" + bytes([len(word)]) + word

    shape = b"(" + b"".join(b"M" + size.to_bytes(2, "little") for size in array.shape) + b"t"
    kind = b"cnumpy\ndtype\nq\x05" + short(b"u1") + b"K\x00K\x01\x87Rq\x06"
    kind += b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    pixels = array.tobytes()
    data = b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85"
    data += short(b"b") + b"\x87Rq\x04(K\x01" + shape + kind + b"\x89"
    data += b"T" + len(pixels).to_bytes(4, "little") + pixels + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items = short(b"batch_label") + short(b"testing batch 1 of 1")
    items += short(b"labels") + listed + short(b"data") + data
    return b"\x80\x02}q\x01(" + items + b"u."


def test_a_batch_of_the_publisher_s_own_making(tmp_path):
    x, y = cifar_arrays(10)["test"]
    blob = original(x.reshape(len(x), -1), y.tolist())
    theirs = pickle.loads(blob, encoding="bytes")  # noqa: S301  (our own)
    assert np.array_equal(theirs[b"data"], x.reshape(len(x), -1))
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "test_batch").write_bytes(blob)
    assert np.array_equal(source(tmp_path / "c").test[0], x)
    assert np.array_equal(source(tmp_path / "c").test[1], y)


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("order", ["C", "F"])
def test_whatever_pickle_wrote_is_read_as_it_was(protocol, order):
    draw = np.random.default_rng(protocol)
    array = np.asarray(draw.integers(0, 256, (7, 5)).astype(np.uint8), order=order)
    table = {"data": array, "labels": [0, 255, 70000, -3, 2**70], "names": ["ä", b"\xff"], "t": ()}
    found = read_pickled(pickle.dumps(table, protocol=protocol))
    assert np.array_equal(found.pop("data"), table.pop("data"))
    assert found == table


def test_types_with_forged_flags_and_objects_in_buffers_are_refused():
    """Each of these made a live object of the file's bytes, or ended the interpreter."""
    good = original(np.zeros((1, 8), np.uint8), [0])
    read_pickled(good)
    flags = good.replace(b"K\x00tb\x89", b"K\x3ftb\x89")  # "these bytes are pointers"
    assert flags != good
    objects = good.replace(b"U\x02u1", b"U\x02O8")
    pointers = good.replace(b"U\x01|NNN", b"U\x01|N}N")
    direct = b"\x80\x02cnumpy\nndarray\n(K\x01\x85U\x02O8U\x08AAAAAAAAtR."
    call_of_type = b"\x80\x02cnumpy\ndtype\nU\x02O8\x85R."
    for blob in (flags, objects, pointers, direct, call_of_type):
        with pytest.raises(ValueError, match=r"plain|array of bytes"):
            read_pickled(blob)


def nested(levels):
    """Lists that hold the one before twice: few bytes, and 2 ** levels letters when told."""
    blob = b"X\x01\x00\x00\x00aq\x00"
    for level in range(levels):
        blob += b"(h" + bytes([level]) + b"h" + bytes([level]) + b"lq" + bytes([level + 1])
    return blob


def test_lists_that_hold_themselves_many_times_are_never_told(tmp_path):
    """With 100 levels, whoever makes text of it never comes back."""
    deep, last = nested(100), b"h\x64"
    with pytest.raises(ValueError, match="a name is not text"):
        read_pickled(b"\x80\x04" + deep + b"X\x01\x00\x00\x00b\x93.")
    junk = b"U\x04junk(" + deep + b"l"
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    names = b"U\x0blabel_names](" + last + b"e"
    (tmp_path / "c" / "batches.meta").write_bytes(b"\x80\x02}(" + junk + names + b"u.")
    assert len(source(tmp_path / "c").classes) == 10
    good = original(cifar_arrays(10)["test"][0].reshape(-1, 3072)[:1], [3])
    bad = good.replace(b"}q\x01(", b"}q\x01(" + junk).replace(b"](K\x03e", b"](" + last + b"e")
    (tmp_path / "c" / "test_batch").write_bytes(bad)
    with pytest.raises(DataError, match=r"it has the label \[\.\.\.\]"):
        source(tmp_path / "c")


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
        ({b"data": BLACK, b"labels": [0, -1]}, "it has the label -1"),
        ({b"data": BLACK, b"labels": [0, None]}, "it has the label None"),
        ({b"data": BLACK, b"labels": [0, True]}, "it has the label True"),
        ({b"data": BLACK, b"labels": [0]}, "with 1 labels"),
        ({b"data": [[300] * 3072] * 2, b"labels": [0, 1]}, "is not a batch of CIFAR-10"),
        ({b"data": BLACK.astype(np.uint16), b"labels": [0, 1]}, "something else than an array of"),
        ({b"data": BLACK.astype(object), b"labels": [0, 1]}, "something else than an array of"),
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


def test_an_archive_unpacks_to_no_more_than_cifar_has(tmp_path, monkeypatch):
    write_python(tmp_path / "c", 10, cifar_arrays(10))
    (tmp_path / "c" / "zeros").write_bytes(bytes(2**22))
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "c", arcname="c")
    for path in (tmp_path / "c", archive):  # what CIFAR has no name for is not kept
        assert "zeros" not in cifar._files(path)
        assert "test_batch" in cifar._files(path)
    monkeypatch.setattr(cifar, "_LARGEST", 2**21)
    with pytest.raises(DataError, match=r"no archive of CIFAR: it unpacks to over 2,097,152 bytes"):
        source(archive)
    long = tarfile.TarInfo("c/x")
    long.pax_headers = {"comment": "x" * 2**22}  # read whole by whoever reads the archive
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(long)
    with pytest.raises(DataError, match="it unpacks to over"):
        source(archive)
