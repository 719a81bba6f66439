from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import DataError
from gcfl.data.noise import OUTSIDE, confusion, open_set, pair, renumbered, uniform


def test_flips_are_uniform_over_the_other_labels():
    labels = np.full(20_000, 3)
    counts = np.bincount(uniform(5)(labels, rng.stream(0)), minlength=5)
    assert counts[3] == 0
    assert np.abs(counts[[0, 1, 2, 4]] / 5000 - 1).max() < 0.06


def test_pairs_and_matrices_flip_as_they_say():
    labels = np.repeat(np.arange(3), 10_000)
    assert np.array_equal(pair(3)(labels, rng.stream(0)), (labels + 1) % 3)
    matrix = np.array([[9, 1, 3], [0, 5, 2], [1, 1, 0]], dtype=float)
    flipped = confusion(matrix)(labels, rng.stream(1))
    for label, odds in enumerate([[0, 0.25, 0.75], [0, 0, 1], [0.5, 0.5, 0]]):
        shares = np.bincount(flipped[labels == label], minlength=3) / 10_000
        assert np.abs(shares - odds).max() < 0.02
    with pytest.raises(DataError, match="at least one class"):
        confusion(np.eye(3))


@given(st.integers(0, 2**32), st.integers(2, 12), st.floats(0, 0.99))
def test_open_set_leaves_only_remaining_classes(seed, classes, rate):
    labels = rng.stream(seed, "labels").integers(0, classes, 300)
    gone = round(rate * classes)
    if classes - gone < 2:
        with pytest.raises(DataError, match="at least two must remain"):
            open_set(labels, classes, rate, rng.stream(seed))
        return
    result = open_set(labels, classes, rate, rng.stream(seed))
    assert len(result.classes) == classes - gone
    assert result.observed.min() >= 0
    assert result.observed.max() < len(result.classes)
    outside = ~np.isin(labels, result.classes)
    assert np.array_equal(result.clean == OUTSIDE, outside)
    # Inside the task, labels are the clean ones in their new numbers.
    assert np.array_equal(result.classes[result.observed[~outside]], labels[~outside])


def test_labels_of_other_classes_are_outside():
    assert renumbered(np.array([4, 0, 2, 9]), np.array([2, 4])).tolist() == [1, OUTSIDE, 0, OUTSIDE]
    assert renumbered(np.array([], dtype=np.int64), np.array([2, 4])).tolist() == []
