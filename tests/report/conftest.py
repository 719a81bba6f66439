"""Runs to report on: two methods, two noise levels, two seeds; made once."""

from __future__ import annotations

import logging

import pytest

from helpers import run


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    logger = logging.getLogger("gcfl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # a small clean set, on purpose
    out = tmp_path_factory.mktemp("sweep")
    for method in ("gcfl", "fedavg"):
        for noise in (0.0, 0.4):
            for seed in (0, 1):
                run(out / method, method=method, seed=seed, data={"noise": noise, "validation": 90})
    logger.setLevel(level)
    return out
