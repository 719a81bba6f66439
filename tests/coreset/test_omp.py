"""Orthogonal matching pursuit against its definition, solved from scratch at every step."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcfl import rng
from gcfl.coreset import Gradients, Pool, Pursuit, match_label_wise, match_whole, per_class, pursue


@st.composite
def problems(draw):
    seed = draw(st.integers(0, 2**32))
    n, d, k = draw(st.integers(1, 14)), draw(st.integers(1, 8)), draw(st.integers(1, 3))
    generator = rng.stream(seed, "problem")
    features = generator.normal(size=(n, d))
    coefficients = generator.normal(size=(n, k))
    if draw(st.booleans()):  # duplicates
        features[n // 2 :] = features[: n - n // 2]
        coefficients[n // 2 :] = coefficients[: n - n // 2]
    if draw(st.booleans()):  # as after a ReLU, with the label's own residual
        features, coefficients = np.abs(features), -np.abs(coefficients)
    if draw(st.booleans()):
        features[0] = 0
        coefficients[0] = 0
    target = generator.normal(size=(k, d + 1)) * draw(st.sampled_from([0.0, 1e-3, 1.0, 100.0]))
    how = Pursuit(
        score=draw(st.sampled_from(["correlation", "distance"])),
        ridge=draw(st.sampled_from([0.0, 0.01, 0.5, 10.0])),
        nonnegative=draw(st.booleans()),
    )
    budget = draw(st.integers(0, n + 2))
    return torch.from_numpy(features), torch.from_numpy(coefficients), torch.from_numpy(target), budget, how


def objective(chosen, weights, target, ridge):
    return float(np.sum((weights @ chosen - target) ** 2) + ridge * np.sum(weights**2))


def best_weights(chosen, target, ridge, nonnegative):
    """Least squares with the ridge as extra rows."""
    rows = np.concatenate([chosen.T, np.sqrt(ridge) * np.eye(len(chosen))])
    goal = np.concatenate([target, np.zeros(len(chosen))])
    if nonnegative:
        return scipy.optimize.nnls(rows, goal, maxiter=1000)[0]
    return np.linalg.lstsq(rows, goal, rcond=None)[0]


@given(problems())
def test_every_step_is_the_best_by_definition(problem):
    features, coefficients, target, budget, how = problem
    gradients = Gradients(coefficients, features)
    ones = torch.cat([features, torch.ones(len(features), 1, dtype=features.dtype)], dim=1)
    dense = (coefficients[:, :, None] * ones[:, None, :]).flatten(1).numpy()
    goal = target.flatten().numpy()
    steps = []
    found = pursue(gradients, target, budget, how, trace=lambda indices, weights: steps.append((indices.copy(), weights.copy())))
    assert len(found) == min(budget, len(dense))
    assert len(set(found.indices)) == len(found)
    scale = max(1.0, float(np.abs(dense).max()) ** 2, float(np.abs(goal).max()) ** 2)
    before_indices, before_weights = np.empty(0, dtype=int), np.empty(0)
    last = float(goal @ goal)
    for indices, weights in steps:
        residual = goal - before_weights @ dense[before_indices]
        free = np.setdiff1d(np.arange(len(dense)), before_indices)
        if how.score == "distance":
            scores = -np.sum((dense - residual) ** 2, axis=1)
        else:
            scores = dense @ residual if how.nonnegative else np.abs(dense @ residual)
        assert scores[indices[-1]] >= scores[free].max() - 1e-8 * scale
        best = best_weights(dense[indices], goal, how.ridge, how.nonnegative)
        got = objective(dense[indices], weights, goal, how.ridge)
        assert got <= objective(dense[indices], best, goal, how.ridge) + 1e-6 * scale
        assert got <= last + 1e-9 * scale
        assert not how.nonnegative or (weights >= 0).all()
        before_indices, before_weights, last = indices, weights, got


def test_points_that_only_fill_the_budget_weigh_nothing():
    features = torch.eye(4, dtype=torch.float64)
    gradients = Gradients(torch.ones(4, 1, dtype=torch.float64), features, bias=False)
    target = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    found = pursue(gradients, target, 3, Pursuit(ridge=0.0))
    assert found.indices[0] == 0
    assert np.allclose(found.weights, [1, 0, 0])


def test_nearest_takes_the_points_nearest_to_the_target():
    generator = rng.stream(0, "nearest")
    features = torch.from_numpy(generator.normal(size=(30, 4)))
    target = torch.from_numpy(generator.normal(size=(1, 5)))
    gradients = Gradients(torch.ones(30, 1, dtype=torch.float64), features)
    distance = ((torch.cat([features, torch.ones(30, 1)], 1) - target) ** 2).sum(1)
    found = pursue(gradients, target, 7, Pursuit(score="nearest"))
    assert found.indices.tolist() == torch.argsort(distance)[:7].tolist()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 120), st.sampled_from(["proportional", "equal"]))
def test_the_budget_over_classes_is_exact(counts, budget, split):
    counts = np.array(counts)
    shares = per_class(counts, budget, split)
    assert shares.sum() == min(budget, counts.sum())
    assert (shares <= counts).all()
    if split == "equal" and budget <= counts.sum():
        # Equal means: nobody has two more than one who could still take some.
        open_classes = shares < counts
        assert not open_classes.any() or shares.max() <= shares[open_classes].min() + 1
    if split == "proportional" and counts.sum():
        assert (np.abs(shares - counts / counts.sum() * min(budget, counts.sum())) < 1 + 1e-9).all()


@pytest.mark.parametrize("budget", [1, 7, 20, 60])
def test_matching_keeps_its_budget_and_the_labels_apart(budget):
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(60, 5, generator=generator)
    probabilities = torch.rand(60, 4, generator=generator).softmax(1)
    labels = torch.randint(0, 3, (60,), generator=generator)  # class 3 is absent here
    target = torch.randn(4, 6, generator=generator)
    target[1] = 0  # absent at the server
    how = Pursuit()
    pool = Pool(features, probabilities, labels)
    found = match_label_wise(pool, target, budget, how, "proportional", rng.stream(0, "x"))
    assert len(set(found.indices)) == budget
    counts = np.bincount(labels, minlength=4)
    assert np.array_equal(np.bincount(labels[found.indices], minlength=4), per_class(counts, budget, "proportional"))
    assert len(set(match_whole(pool, target, budget, how).indices)) == budget
