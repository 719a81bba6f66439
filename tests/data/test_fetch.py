"""Downloads, from a server of the tests' own that can cut connections, refuse ranges and lie."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from gcfl.base.errors import ConfigError, DataError
from gcfl.cli import main
from gcfl.data import DataOptions, read
from gcfl.data.fetch import _ATTEMPTS, BY_HAND, PUBLISHED, Remote, fetch
from gcfl.data.registry import SOURCES


class Publisher:
    """Files by name; how many bytes an answer may have before the connection is cut (None: all of
    them).
    """

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.ranges = True
        self.asked: list[str | None] = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                blob = publisher.files.get(self.path.lstrip("/"))
                if blob is None:
                    self.send_error(404)
                    return
                wanted = self.headers.get("Range")
                publisher.asked.append(wanted)
                start = (
                    int(wanted.removeprefix("bytes=").removesuffix("-"))
                    if wanted and publisher.ranges
                    else 0
                )
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(blob) - start))
                self.end_headers()
                length = publisher.cuts.pop(0) if publisher.cuts else len(blob)
                self.wfile.write(blob[start : start + length])
                self.wfile.flush()
                if start + length < len(blob):
                    self.connection.close()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def remote(self, name, blob, **where):
        self.files[name] = blob
        return Remote(
            f"{self.address}/{name}",
            len(blob),
            hashlib.md5(blob, usedforsecurity=False).hexdigest(),
            **where,
        )


@pytest.fixture
def publisher():
    made = Publisher()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def idx(array):
    return gzip.compress(
        struct.pack(">HBB", 0, 8, array.ndim)
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


@pytest.fixture
def mnist(publisher, monkeypatch):
    draw = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 60), ("t10k", 20)):
        arrays[f"{part}-images-idx3-ubyte.gz"] = draw.integers(0, 255, (count, 28, 28)).astype(
            np.uint8
        )
        arrays[f"{part}-labels-idx1-ubyte.gz"] = (np.arange(count) % 10).astype(np.uint8)
    remotes = tuple(
        publisher.remote(name, idx(array), folder="mnist") for name, array in arrays.items()
    )
    monkeypatch.setitem(PUBLISHED, "mnist", remotes)
    return arrays


def test_fetched_then_read(mnist, publisher, home, capsys):
    with pytest.raises(DataError, match="`gcfl data fetch mnist` gets it"):
        read(DataOptions(source="mnist"), 0)
    assert main(["data", "fetch", "mnist"]) == 0
    assert capsys.readouterr().out.strip() == f"mnist: {home / 'mnist'}"
    source = read(DataOptions(source="mnist"), 0)
    assert np.array_equal(source.x[:, 0], mnist["train-images-idx3-ubyte.gz"])
    assert len(publisher.asked) == 4
    assert main(["data", "fetch", "mnist"]) == 0
    assert len(publisher.asked) == 4, "what is there is not fetched again"


def test_progress_is_told_in_bytes(mnist):
    told = []
    fetch("mnist", lambda *event: told.append(event))
    for name, remote in zip(mnist, PUBLISHED["mnist"], strict=True):
        steps = [(done, total) for file, done, total in told if file == name]
        assert steps[-1] == (remote.size, remote.size)
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_a_cut_connection_goes_on_where_it_was_cut(mnist, publisher):
    size = PUBLISHED["mnist"][0].size
    publisher.cuts = [size // 3, size // 3]
    fetch("mnist")
    assert publisher.asked[:3] == [None, f"bytes={size // 3}-", f"bytes={2 * (size // 3)}-"]


def test_a_command_that_gave_up_is_continued_by_the_next(mnist, publisher, home):
    publisher.cuts = [100] * _ATTEMPTS
    with pytest.raises(
        DataError, match=r"500 of [\d,]+ bytes are kept, and the same command goes on there"
    ):
        fetch("mnist")
    assert not (home / "mnist").exists(), "half a set must not pass for one"
    publisher.asked.clear()
    fetch("mnist")
    assert publisher.asked[0] == "bytes=500-"
    assert len(read(DataOptions(source="mnist"), 0)) == 60


def test_a_server_without_ranges_sends_everything_again(mnist, publisher):
    publisher.ranges = False
    publisher.cuts = [100]
    fetch("mnist")
    assert len(read(DataOptions(source="mnist"), 0)) == 60


def test_a_wrong_checksum_is_refused_and_thrown_away(mnist, publisher, home):
    name = "t10k-labels-idx1-ubyte.gz"
    right = publisher.files[name]
    publisher.files[name] = right[:-1] + bytes([right[-1] ^ 1])
    with pytest.raises(DataError, match="not what the publisher states: md5"):
        fetch("mnist")
    assert not (home / "mnist").exists()
    publisher.files[name] = right
    fetch("mnist")
    assert len(read(DataOptions(source="mnist"), 0)) == 60


def test_a_file_of_another_size_is_refused(mnist, publisher):
    publisher.files["train-images-idx3-ubyte.gz"] += b"more"
    with pytest.raises(DataError, match="larger than"):
        fetch("mnist")
    publisher.files["train-images-idx3-ubyte.gz"] = b"less"
    with pytest.raises(DataError, match="cannot be fetched"):
        fetch("mnist")


def test_a_missing_file_and_a_missing_server(mnist, publisher, monkeypatch):
    del publisher.files["train-labels-idx1-ubyte.gz"]
    with pytest.raises(DataError, match="answers 404"):
        fetch("mnist")
    monkeypatch.setitem(
        PUBLISHED, "mnist", (Remote("http://127.0.0.1:9/nothing.gz", 10, "0", "mnist"),)
    )
    with pytest.raises(DataError, match=r"cannot be fetched \(.*refused.*; 0 of 10 bytes"):
        fetch("mnist")


def flower_archive(names):
    buffer, photo = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(photo, "JPEG")
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(photo.getvalue())
            archive.addfile(entry, io.BytesIO(photo.getvalue()))
    return buffer.getvalue()


def test_archives_are_unpacked_whole(publisher, monkeypatch, home):
    blob = flower_archive(
        [f"flower_photos/{kind}/{i}.jpg" for kind in ("daisy", "roses") for i in range(3)]
    )
    monkeypatch.setitem(
        PUBLISHED,
        "flowers",
        (publisher.remote("flower_photos.tgz", blob, unpacks="flower_photos"),),
    )
    assert fetch("flowers") == home / "flower_photos"
    source = read(DataOptions(source="flowers"), 0)
    assert source.classes == ("daisy", "roses")
    assert not list((home / "downloads").iterdir())


def test_an_archive_that_climbs_out_is_refused(publisher, monkeypatch, home, tmp_path):
    blob = flower_archive(["flower_photos/daisy/0.jpg", "../../../escaped.jpg"])
    monkeypatch.setitem(
        PUBLISHED,
        "flowers",
        (publisher.remote("flower_photos.tgz", blob, unpacks="flower_photos"),),
    )
    with pytest.raises(DataError, match="cannot be unpacked"):
        fetch("flowers")
    assert not list(tmp_path.rglob("escaped.jpg"))
    assert not (home / "flower_photos").exists()


def test_no_room_is_said_before_the_first_byte(mnist, publisher, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(DataError, match="needs 0 MB, but only 0 MB are free"):
        fetch("mnist")
    assert not publisher.asked


def test_every_named_set_can_be_had():
    needed = {name for name, named in SOURCES.items() if named.places}
    assert needed == PUBLISHED.keys() | BY_HAND.keys()
    for name, remotes in PUBLISHED.items():
        for remote in remotes:
            assert len(remote.md5) == 32
            assert (remote.folder or remote.unpacks or remote.name) in SOURCES[name].places


def test_what_has_to_be_made_by_hand_says_how(home):
    with pytest.raises(DataError, match=r"LEAF's own scripts .*leaf/femnist/data"):
        fetch("femnist")
    with pytest.raises(ConfigError, match="no set named 'cifr10'; did you mean cifar10"):
        fetch("cifr10")


def test_list_says_what_is_there_and_what_is_missing(mnist, home, capsys):
    fetch("mnist")
    assert main(["data", "list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "there" in lines["digits"]
    assert f"there    {home / 'mnist'}" in lines["mnist"]
    assert "missing  gcfl data fetch cifar10 (170 MB)" in lines["cifar10"]
    assert "says how to make it" in lines["femnist"]


def test_an_empty_folder_is_not_the_set(mnist, home):
    (home / "mnist").mkdir(parents=True)
    (home / "mnist" / "readme.txt").write_text("to do")
    with pytest.raises(DataError, match="`gcfl data fetch mnist` gets it"):
        read(DataOptions(source="mnist"), 0)
    assert fetch("mnist") == home / "mnist"
    assert len(read(DataOptions(source="mnist"), 0)) == 60
    assert (home / "mnist.before" / "readme.txt").exists(), "what was there is kept"


def test_a_broken_set_is_replaced(mnist, home, capsys):
    fetch("mnist")
    for _ in range(2):
        (home / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"junk")
        with pytest.raises(
            DataError,
            match=r"cannot be unpacked.*`gcfl data fetch mnist --again` replaces what is there",
        ):
            read(DataOptions(source="mnist"), 0)
        assert main(["data", "fetch", "mnist", "--again"]) == 0
        assert len(read(DataOptions(source="mnist"), 0)) == 60


def test_a_broken_archive_is_replaced_though_others_lie_beside(publisher, monkeypatch, home):
    home.mkdir()
    (home / "cifar-10-binary.tar.gz").write_bytes(b"junk")
    (home / "cifar-10-batches-bin").mkdir()
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (home / "cifar-10-batches-bin" / name).write_bytes(b"junk")
    blob = flower_archive(["whatever"])
    monkeypatch.setitem(PUBLISHED, "cifar10", (publisher.remote("cifar-10-binary.tar.gz", blob),))
    assert fetch("cifar10") == home / "cifar-10-batches-bin"
    assert fetch("cifar10", again=True) == home / "cifar-10-binary.tar.gz"
    assert (home / "cifar-10-binary.tar.gz").read_bytes() == blob
    assert (home / "cifar-10-binary.tar.gz.before").read_bytes() == b"junk"


def test_what_comes_with_gcfl_says_so(capsys):
    assert main(["data", "fetch", "digits"]) == 0
    assert capsys.readouterr().out.strip() == "digits: comes with gcfl"
    with pytest.raises(ConfigError, match="did you mean femnist"):
        fetch("femist")
