from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base.errors import DataError
from gcfl.data import DataOptions, arrays, build, read


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(0, 0.9))
def test_a_federation_is_cut_cleanly(seed, noise):
    options = DataOptions(clients=4, noise=noise, validation=50, test=0.1, samples=400)
    source = read(options, seed)
    federation = build(source, options, seed)
    rows = [
        set(federation.test.ids),
        set(federation.validation.ids),
        set(federation.clients.source_rows.order),
    ]
    assert [len(part) for part in rows] == [40, 50, 310]
    assert set.union(*rows) == set(range(400))
    # The server's set and the test set are clean; the clients' labels are clean exactly where the
    # truth says so.
    assert np.array_equal(federation.validation.y.numpy(), source.y[federation.validation.ids])
    assert np.array_equal(federation.test.y.numpy(), source.y[federation.test.ids])
    for client in range(4):
        shard = federation.clients.shard(client)
        assert np.array_equal(shard.x.numpy(), source.x[shard.ids])
        assert np.array_equal(
            shard.y.numpy() != source.y[shard.ids], federation.truth.noisy[shard.ids]
        )


def test_an_official_test_set_of_one_sample_is_too_small():
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    source = dataclasses.replace(arrays((x, y), test=(x[:1], y[:1])), validation_from_test=True)
    with pytest.raises(
        DataError, match="has 1 sample, too few for the server's clean set and the test set both"
    ):
        build(source, DataOptions(clients=2), 0)
