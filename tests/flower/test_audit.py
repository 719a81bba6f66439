"""The audit at the end of a run on Flower: each site writes its own findings, which are those of our
engine, and nothing leaves it that was not agreed to.
"""

from __future__ import annotations

import csv
import json
import shutil

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

import gcfl
from flower_grid import exported, play, sites

SCENE = {
    "method": "robust",
    "rounds": 6,
    "clean": {"warm_start": 5},
    "coreset": {"every": 2, "budget": 0.3},
    "labels": {"evidence": True},
    "audit": {"at_end": True},
}


def test_findings_are_those_of_the_engine(tmp_path):
    ours, app = exported(tmp_path, **SCENE)
    play(app, sites(app, 5, state=str(tmp_path / "state")), tmp_path / "flower")
    found = gcfl.audit(ours)
    for client, site in enumerate(found.sites):
        (folder,) = (tmp_path / "state" / str(client)).glob("*/audit")
        print(sorted(p.name for p in folder.iterdir()))
    print((next((tmp_path / "flower").iterdir()) / "sites.json").read_text())
    print((next((tmp_path / "flower").iterdir()) / "log.txt").read_text())
    assert 0
