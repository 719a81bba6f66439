"""Facility location against plain greedy, submodlib and apricot on the same similarity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.coreset import facility
from gcfl.coreset.facility import cosine, facility_location, negative_distance, objective


def matrix_rows(similarity):
    return lambda index: similarity[index]


def plain_greedy(similarity, budget):
    """From the definition: at every step, the gain of every point; the first of equals."""
    covered = torch.zeros(len(similarity), dtype=similarity.dtype)
    chosen = []
    for _ in range(min(budget, len(similarity))):
        gains = (similarity - covered).clamp(min=0).sum(1, dtype=torch.float64)
        gains[chosen] = -torch.inf
        chosen.append(int(gains.argmax()))
        covered = torch.maximum(covered, similarity[chosen[-1]])
    return np.array(chosen, dtype=np.int64)


@given(
    st.integers(0, 2**32),
    st.integers(1, 120),
    st.integers(0, 130),
    st.sampled_from(["continuous", "ties", "equal", "zero"]),
)
def test_lazy_is_plain_greedy(seed, n, budget, kind):
    draw = rng.stream(seed, "facility")
    similarity = torch.from_numpy(draw.random((n, n)))
    if kind == "ties":
        similarity = (similarity * 3).round()
    elif kind in ("equal", "zero"):
        similarity = torch.full((n, n), 1.0 if kind == "equal" else 0.0, dtype=torch.float64)
    found = facility_location(matrix_rows(similarity), n, budget)
    expected = plain_greedy(similarity, budget)
    assert found.indices.tolist() == expected.tolist()
    if len(expected):
        # Weights are cluster sizes: every point counts for the chosen one it is most similar to,
        # the first of equals.
        nearest = similarity[torch.from_numpy(expected)].argmax(0)
        assert found.weights.tolist() == np.bincount(nearest, minlength=len(expected)).tolist()
    assert found.weights.sum() == (n if len(expected) else 0)


@pytest.mark.filterwarnings("ignore")  # the oracles are old
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("space", ["cosine", "distance"])
def test_the_oracles_reach_the_same_objective(seed, space):
    from apricot import FacilityLocationSelection
    from submodlib import FacilityLocationFunction

    n, budget = 150, 20
    features = torch.from_numpy(rng.stream(seed, "oracle").normal(size=(n, 6)))
    rows = (
        cosine(features)
        if space == "cosine"
        else negative_distance(features.square().sum(1), lambda index: features[index] @ features.T)
    )
    similarity = rows(torch.arange(n))
    ours = objective(similarity, facility_location(rows, n, budget).indices)
    function = FacilityLocationFunction(
        n=n, mode="dense", sijs=similarity.numpy(), separate_rep=False
    )
    theirs = function.maximize(
        budget=budget, optimizer="LazyGreedy", verbose=False, show_progress=False
    )
    assert ours == pytest.approx(
        objective(similarity, np.array([point for point, _ in theirs])), rel=1e-9
    )
    selection = FacilityLocationSelection(budget, metric="precomputed", optimizer="lazy")
    selection.fit(similarity.numpy())
    assert ours == pytest.approx(objective(similarity, np.array(selection.ranking)), rel=1e-9)


def test_rows_on_demand_choose_the_same(monkeypatch):
    features = torch.from_numpy(rng.stream(1, "demand").normal(size=(200, 4)))
    whole = facility_location(cosine(features), 200, 30)
    monkeypatch.setattr(facility, "_DENSE_LIMIT", 10)
    assert facility_location(cosine(features), 200, 30).indices.tolist() == whole.indices.tolist()


def test_distances_are_distances():
    features = torch.from_numpy(rng.stream(2, "distance").normal(size=(30, 5)))
    rows = negative_distance(features.square().sum(1), lambda index: features[index] @ features.T)(
        torch.arange(30)
    )
    between = torch.cdist(features, features)
    assert torch.allclose(rows, rows[0, 0] - between, atol=1e-6)
    assert rows.min() >= 0
