"""A real deployment on loopback, with TLS and node keys: our engine's bits; strangers refused."""

from __future__ import annotations

import csv
import json
import os
import subprocess

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import gcfl
from flower_deployment import LIMIT_SECONDS, finish, online, start_run, wait_until
from gcfl import experiment as config
from gcfl.flower import export, local
from helpers import tiny

pytestmark = pytest.mark.slow
SETTINGS = tiny(
    method="scaffold+gcfl", rounds=2, data={"clients": 3}, coreset={"every": 2, "budget": 0.2}
)


def stranger(folder, name, *line):
    """A SuperNode that must not get in: it is given time, and ended."""
    log = folder / f"{name}.log"
    words = [
        "flower-supernode",
        "--superlink",
        f"127.0.0.1:{json.loads((folder / 'up.json').read_text())['port']}",
        *line,
    ]
    words += [
        "--host",
        "127.0.0.1",
        "--port",
        str(local.free_port()),
        "--node-config",
        "partition-id=0",
    ]
    settings = local.environment(folder)
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, cwd=folder, env=settings, stdout=file, stderr=file, start_new_session=True
        )
    try:
        refused = (
            "permission",
            "unauthenticated",
            "denied",
            "unavailable",
            "connection attempt failed",
            "error",
            "retry",
        )
        wait_until(
            lambda: (
                process.poll() is not None
                or any(word in log.read_text().lower() for word in refused)
            ),
            name,
        )
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.wait()


def test_two_rounds_on_real_processes(tmp_path):
    ours = gcfl.run(out=tmp_path / "ours", **SETTINGS)
    export(config.build({**SETTINGS, "rounds": 5})[0], tmp_path / "app")
    place = tmp_path / "federation"
    local.up(place, 3)
    try:
        wait_until(lambda: online(place) == ["online"] * 3, "three nodes online")
        start_run(
            place,
            tmp_path / "app",
            **{"out": str(tmp_path / "theirs"), "wait-seconds": LIMIT_SECONDS, "rounds": 2},
        )
        assert finish(place) == "finished:completed"
        (folder,) = (tmp_path / "theirs").iterdir()
        assert (folder / "model.safetensors").read_bytes() == (
            ours.folder / "model.safetensors"
        ).read_bytes()
        # The SuperLink shows the nodes' keys, so numbers are bound to them.
        known = json.loads((folder / "nodes.json").read_text())["clients"]
        assert len({one["key"] for one in known.values()} - {""}) == 3
        # Somebody without a key, a key that nobody registered, and somebody without TLS.
        local.make_node_key(place / "stranger")
        certificate = ("--root-certificates", "ca.crt")
        stranger(place, "unregistered", *certificate)
        stranger(place, "wrong-key", *certificate, "--auth-supernode-private-key", "stranger")
        stranger(place, "plain", "--insecure")
        assert online(place) == ["online"] * 3
    finally:
        ended = local.down(place)
    assert set(ended) == {"superlink", "node0", "node1", "node2"}
    assert not (place / "up.json").exists()


def test_findings_lie_at_the_sites_and_nowhere_else(tmp_path):
    """Two sites with photos of their own; one lets nothing out."""
    digits = load_digits()
    for row, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        site = ("server", "north", "south")[row % 3]
        if label < 3 and row < 600:
            (tmp_path / site / str(label)).mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray((pixels * 15).astype(np.uint8))
            picture.save(tmp_path / site / str(label) / f"{row}.png")
    settings = {
        "data": {"source": str(tmp_path / "server"), "image_size": 8},
        "model": {"name": "mlp", "hidden": [16]},
        "clean": {"warm_start": 2, "lr": 0.05},
        "rounds": 1,
        "audit": {"share": "rate"},
    }
    export(config.build(settings)[0], tmp_path / "app", ("north", "south"))
    place = tmp_path / "federation"
    quiet = {"south": {"audit-share": "none"}}
    local.up(place, 2, {site: tmp_path / site for site in ("north", "south")}, quiet)
    try:
        wait_until(lambda: online(place) == ["online"] * 2, "two nodes online")
        start_run(
            place,
            tmp_path / "app",
            **{"out": str(tmp_path / "theirs"), "wait-seconds": LIMIT_SECONDS},
        )
        assert finish(place) == "finished:completed"
    finally:
        local.down(place)
    files = {"audit.csv", "audit.json", "cleaned.csv", "audit.html"}
    for site in ("north", "south"):
        (folder,) = (place / "state" / site).glob("*/audit")
        assert {path.name for path in folder.iterdir()} == files
        photos = {str(path.relative_to(tmp_path / site)) for path in (tmp_path / site).glob("*/*")}
        with (folder / "audit.csv").open() as file:
            assert {line["id"] for line in csv.DictReader(file)} == photos
    (run,) = (tmp_path / "theirs").iterdir()
    assert not {path.name for path in run.rglob("*")} & files
    north, south = json.loads((run / "sites.json").read_text())["sites"]
    assert set(north) == {"name", "samples", "rate", "interval"}
    assert south == {"name": "south"}
