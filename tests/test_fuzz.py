"""Damaged files of every format that is read: a sentence or a result, never another exception and
never the end of the interpreter. Seeded; in a process of its own, which a crash would end.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from damage import spoiled
from helpers import ROOT

CASES = {  # how many damaged files of each
    "toml": 1500,
    "csv": 800,
    "leaf": 500,
    "idx": 800,
    "cifar-binary": 150,
    "cifar-python": 1500,
    "cifar-batches": 60,
    "safetensors": 2500,
    "rounds": 800,
}


def formats(folder):
    """By format: a good file, and what reads a damaged one."""
    from data_files import cifar_arrays, source, write_binary, write_python
    from gcfl.base.codec import decode
    from gcfl.data.readers.pickled import read_pickled
    from gcfl.experiment import compose
    from gcfl.results.folder import RunFolder
    from helpers import run

    made = run(folder / "run")

    def reads(path, where=None):
        def read(blob):
            path.write_bytes(blob)
            source(where or path)

        return read

    def pickled(blob):
        # the reader of batches makes a sentence of these
        with suppress(ValueError, LookupError, TypeError, AttributeError, OverflowError):
            read_pickled(blob)

    def settings(blob):
        (folder / "a.toml").write_bytes(blob)
        compose(folder / "a.toml", {})

    def records(blob):
        path = folder / "lines"
        path.mkdir(exist_ok=True)
        (path / "config.toml").write_text("")
        (path / "rounds.jsonl").write_bytes(blob)
        RunFolder.open(path).records()

    def model(blob):
        from gcfl.models.trained import unpack

        unpack(*decode(blob), None)

    table = "a,b,label\n" + "".join(f"{i},{i / 7},{'xyz'[i % 3]}\n" for i in range(12))
    users = {f"u{i}": {"x": [[0.1 * i, 0.5], [1, 0]], "y": [i % 2, 1]} for i in range(4)}
    write_python(folder / "py", 10, cifar_arrays(10, 10, 5))
    write_binary(folder / "bin", 10, cifar_arrays(10, 10, 5))
    (folder / "leaf" / "train").mkdir(parents=True)
    idx = folder / "idx"
    idx.mkdir()
    images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (6, 4, 4)) + bytes(96)
    labels = b"\0\0\x08\x01" + (6).to_bytes(4, "big") + bytes([0, 1, 2, 0, 1, 2])
    for part in ("train", "t10k"):
        (idx / f"{part}-images-idx3-ubyte").write_bytes(images)
        (idx / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    leaf = json.dumps({"users": list(users), "user_data": users}).encode()
    small = np.zeros((2, 8), np.uint8)
    from data.readers.test_cifar import original

    batch, whole = folder / "py" / "data_batch_2", folder / "bin" / "test_batch.bin"
    return {
        "toml": ((made.folder / "config.toml").read_bytes(), settings),
        "csv": (table.encode(), reads(folder / "t.csv")),
        "leaf": (leaf, reads(folder / "leaf" / "train" / "a.json", folder / "leaf")),
        "idx": (images, reads(idx / "train-images-idx3-ubyte", idx)),
        "cifar-binary": (whole.read_bytes(), reads(whole, folder / "bin")),
        "cifar-python": (original(small, [0, 1]), pickled),
        "cifar-batches": (batch.read_bytes(), reads(batch, folder / "py")),
        "safetensors": ((made.folder / "model.safetensors").read_bytes(), model),
        "rounds": ((made.folder / "rounds.jsonl").read_bytes(), records),
    }


def play(folder):
    import logging

    from gcfl.base.errors import GcflError

    logging.disable(logging.CRITICAL)
    for place, (name, (good, read)) in enumerate(formats(folder).items()):
        read(good)
        draw, refused = np.random.default_rng(place), 0
        for number in range(CASES[name]):
            # safetensors and batches are mostly numbers: damage their heads more often
            head = len(good) if number % 2 else min(len(good), 600)
            blob = spoiled(good[:head], draw) + good[head:]
            try:
                read(blob)
            except GcflError as error:
                refused += 1
                if not str(error):
                    raise RuntimeError("an error without a sentence") from error
            except Exception:
                (folder / "culprit").write_bytes(blob)
                print(f"{name}, file {number}: {folder / 'culprit'}", flush=True)
                raise
        print(f"{name}: {refused} of {CASES[name]} refused", flush=True)


@pytest.mark.slow
def test_damaged_files_of_every_format(tmp_path):
    places = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "GCFL_DATA_HOME": str(tmp_path / "home"),
    }
    line = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    for name in CASES:
        assert f"{name}: 0 of" not in done.stdout  # damage is damage
        assert f"{name}: " in done.stdout


if __name__ == "__main__":
    play(Path(sys.argv[1]))
