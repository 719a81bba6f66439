"""Axes and labels by their definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from gcfl.report.axes import apart, rounded, ticks

NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, st.floats(1e-3, 1e6))
def test_an_axis_starts_and_ends_at_one_of_its_numbers(low, span):
    start, end = rounded(low, low + span)
    assert start <= low + 1e-6 * span
    assert end >= low + (1 - 1e-6) * span
    found = ticks(start, end)
    assert np.isclose(found[0], start)
    assert np.isclose(found[-1], end)


def test_rounded_by_hand():
    assert rounded(37.2, 41.9) == (37, 42)
    assert rounded(0, 96.3) == (0, 100)
    assert rounded(0.0513, 0.0587) == (0.05, 0.06)


LABELS = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 0.2)), min_size=1, max_size=9)


@given(LABELS)
def test_labels_keep_their_order_and_their_distance(labels):
    """Without bounds they are the isotonic regression of what is wanted, less the room below."""
    wanted, sizes = (np.array(column) for column in zip(*labels, strict=True))
    found = np.array(apart(wanted, sizes, -10.0, 10.0))
    order = np.argsort(wanted, kind="stable")
    room = np.cumsum(sizes[order]) - sizes[order] / 2
    assert np.allclose(found[order], isotonic_regression(wanted[order] - room) + room)
    gaps = np.diff(found[order]) - (sizes[order][1:] + sizes[order][:-1]) / 2
    assert (gaps > -1e-9).all()


@given(LABELS)
def test_labels_stay_inside_where_they_fit(labels):
    wanted, sizes = zip(*labels, strict=True)
    found = apart(wanted, sizes, 0.0, sum(sizes) + 0.1)
    for middle, size in zip(found, sizes, strict=True):
        assert middle - size / 2 > -1e-9
        assert middle + size / 2 < sum(sizes) + 0.1 + 1e-9
