"""Token ids over Flower's messages."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flower_grid import federation, over_grid, rounds, same
from gcfl import experiment as config
from gcfl.api.inputs import take_data
from gcfl.engine import ClientSide, Given, InProcess, prepare


def test_texts_over_flower_as_in_process():
    draw = np.random.default_rng(0)
    texts = [" ".join(row) for row in draw.choice(list("abcdefghij"), (160, 6))]
    explicit = {}
    data = {"source": (texts, [0, 1] * 80), "length": 8}
    source = take_data(explicit, data, 30, 30, None)
    settings = {**explicit, "model.name": "text", "model.hidden": [8], "data.clients": 3}
    experiment, _ = config.compose(None, {**settings, "method": "gcfl", "rounds": 3})
    ready = prepare(experiment, Given(source))
    side = ClientSide(ready.setting, ready.method, ready.federation.clients)
    ours, _ = rounds(ready, InProcess(side), 3)
    flowers, _ = rounds(ready, over_grid(ready, federation(ready)), 3)
    same(ours, flowers)
