from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcfl.base import rng


def test_streams_depend_on_seed_and_names_only():
    first = rng.stream(1, "a", 2).random(5)
    np.random.default_rng().random(3)
    assert np.array_equal(first, rng.stream(1, "a", 2).random(5))
    others = [(2, "a", 2), (1, "b", 2), (1, "a", 3), (1, "a", "2"), (1, "a2"), (1, "a", 2, 2)]
    for seed, *names in others:
        assert not np.array_equal(first, rng.stream(seed, *names).random(5)), names


@given(st.integers(0, 2**64), st.integers(0, 1000), st.integers(1, 200))
def test_an_order_is_a_permutation_and_does_not_depend_on_company(base, counter, length):
    order = rng.order(base, counter, length)
    assert sorted(order) == list(range(length))
    together = rng.words(base, np.array([counter, counter + 1]), length + 7)
    assert np.array_equal(order, np.argsort(together[0, :length], kind="stable"))


def test_orders_are_uniform():
    """Each of the 24 permutations of four, over many counters, equally often (chi-square)."""
    counts = np.zeros(4**4)
    for order in np.argsort(rng.words(rng.key(0, "x"), np.arange(24_000), 4), axis=1):
        counts[int("".join(map(str, order)), 4)] += 1
    observed = counts[counts > 0]
    assert len(observed) == 24
    assert stats.chisquare(observed).pvalue > 1e-4


def test_isolated_restores_the_global_generator_and_repeats():
    before = torch.get_rng_state()
    with rng.isolated(3, "init"):
        first = torch.rand(4)
    assert torch.equal(before, torch.get_rng_state())
    with rng.isolated(3, "init"):
        assert torch.equal(first, torch.rand(4))
    with rng.isolated(3, "other"):
        assert not torch.equal(first, torch.rand(4))
