"""Every test process uses one torch thread; hypothesis has no deadline and prints what reproduces a
failure.
"""

from __future__ import annotations

import logging
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile(
    "gcfl", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gcfl")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)  # some libraries set it anew when they are imported


@pytest.fixture
def own_words():
    """Methods that a test registers are forgotten after it."""
    from gcfl.methods import WORDS

    before = dict(WORDS)
    yield
    WORDS.clear()
    WORDS.update(before)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Runs to report on: two methods, two noise levels, two seeds; made once."""
    from helpers import run

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


@pytest.fixture
def made(tmp_path):
    """A run of one round with these settings, that nobody played; __ stands for a dot."""
    import tomli_w

    from gcfl import experiment as config
    from gcfl.base.record import Clock, CoresetUse, RoundRecord, Samples, Times, Traffic
    from gcfl.results.folder import RunFolder
    from gcfl.results.run import Run

    folders = (tmp_path / str(number) for number in range(100))

    def make(accuracy=0.5, finished=True, **settings):
        nested = {"method": "gcfl", "seed": 0, "rounds": 1}
        for name, value in settings.items():
            config.assign(nested, name.replace("__", "."), value)
        folder = RunFolder(next(folders))
        folder.create(tomli_w.dumps(nested), {})
        clock = Clock(0.1, 0.1)
        folder.add_round(
            RoundRecord(
                round=0,
                cohort=1,
                left_out={},
                lr=0.1,
                train_loss=None,
                accuracy=accuracy,
                loss=None,
                per_class=None,
                validation_loss=None,
                samples=Samples(1, 1),
                steps=1,
                bytes=Traffic({"model": 4}, {"model": 4}),
                coreset=CoresetUse(1, 0, None),
                time=Times(clock, clock, clock, clock, Clock(1.0)),
            )
        )
        if finished:
            folder.summary.write_text('{"rounds": 1}')
        return Run(folder.path)

    return make
