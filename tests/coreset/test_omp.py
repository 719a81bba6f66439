"""Orthogonal matching pursuit against its definition, solved from scratch at every step, and
against brute force.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import DataError
from gcfl.coreset import GradientMatching, Gradients, Pool, Pursuit, per_class, pursue
from gcfl.coreset.omp import Singles


def dense(gradients: Gradients) -> np.ndarray:
    """(n, k(d + 1)): the matrix that the product never builds."""
    features = gradients.features
    if gradients.bias:
        features = torch.cat([features, torch.ones(len(features), 1, dtype=features.dtype)], dim=1)
    return (gradients.coefficients[:, :, None] * features[:, None, :]).flatten(1).numpy()


@st.composite
def problems(draw):
    seed = draw(st.integers(0, 2**32))
    n, d, k = draw(st.integers(1, 16)), draw(st.integers(1, 8)), draw(st.integers(1, 3))
    generator = rng.stream(seed, "problem")
    features = generator.normal(size=(n, d))
    coefficients = generator.normal(size=(n, k))
    kind = draw(
        st.sampled_from(["plain", "duplicates", "multiples", "zeros", "one direction", "low rank"])
    )
    half = n - n // 2
    if kind in ("duplicates", "multiples"):
        features[n // 2 :] = features[:half]
        coefficients[n // 2 :] = coefficients[:half] * (-2.0 if kind == "multiples" else 1.0)
    elif kind == "zeros":
        features[::2] = 0
        coefficients[::3] = 0
    elif kind == "one direction":
        features[:] = features[0]
    elif kind == "low rank":
        features = features[:, :1] * generator.normal(size=(1, d))
    if draw(st.booleans()):  # as after a ReLU, with the label's own residual
        features, coefficients = np.abs(features), -np.abs(coefficients)
    bias = draw(st.booleans())
    if not bias:  # with one, a scale makes all gradients parallel to within rounding
        features *= draw(st.sampled_from([1e-6, 1.0, 1e6]))
    gradients = Gradients(torch.from_numpy(coefficients), torch.from_numpy(features), bias)
    matrix = dense(gradients)
    goal = draw(st.sampled_from(["random", "zero", "mean", "a point", "negative"]))
    target = {
        "random": generator.normal(size=matrix.shape[1]) * max(1e-3, np.abs(matrix).max()),
        "zero": np.zeros(matrix.shape[1]),
        "mean": matrix.mean(0),
        "a point": matrix[0],
        "negative": -matrix.sum(0),
    }[goal]
    how = Pursuit(
        score=draw(st.sampled_from(["correlation", "distance"])),
        ridge=draw(st.sampled_from([0.0, 0.01, 0.5, 10.0])),
        nonnegative=draw(st.booleans()),
    )
    return gradients, matrix, target, draw(st.integers(0, n + 2)), how


def value(chosen, weights, target, ridge):
    """The objective ‖Σ w g - target‖² + λ‖w‖²."""
    return float(np.sum((weights @ chosen - target) ** 2) + ridge * np.sum(weights**2))


def best_weights(chosen, target, ridge, nonnegative):
    """Least squares with the ridge as extra rows, from scratch."""
    rows = np.concatenate([chosen.T, np.sqrt(ridge) * np.eye(len(chosen))])
    goal = np.concatenate([target, np.zeros(len(chosen))])
    if nonnegative:
        size = np.abs(rows).max() or 1.0  # scipy's nnls has absolute tolerances
        return scipy.optimize.nnls(rows / size, goal / size, maxiter=1000)[0]
    return np.linalg.lstsq(rows, goal, rcond=None)[0]


@settings(max_examples=400)
@given(problems())
def test_every_step_is_the_best_by_definition(problem):
    gradients, matrix, goal, budget, how = problem
    target = torch.from_numpy(goal).reshape(gradients.coefficients.shape[1], -1)
    steps = []
    found = pursue(
        gradients,
        target,
        budget,
        how,
        trace=lambda indices, weights: steps.append((indices, weights)),
    )
    assert len(found) == min(budget, len(matrix))
    assert len(set(found.indices)) == len(found)
    norms = np.linalg.norm(matrix, axis=1)
    size = float(np.linalg.norm(goal))
    last = size**2
    indices, weights = np.empty(0, dtype=int), np.empty(0)
    for following, solved in steps:
        residual = goal - weights @ matrix[indices]
        free = np.setdiff1d(np.arange(len(matrix)), indices)
        if how.score == "distance":
            scores = matrix @ residual - norms**2 / 2
        else:
            scores = matrix @ residual if how.nonnegative else np.abs(matrix @ residual)
        scale = float(norms.max() * max(size, norms.max() if how.score == "distance" else 0.0))
        assert scores[following[-1]] >= scores[free].max() - 1e-9 * scale
        ideal = value(
            matrix[following],
            best_weights(matrix[following], goal, how.ridge, how.nonnegative),
            goal,
            how.ridge,
        )
        got = value(matrix[following], solved, goal, how.ridge)
        assert got <= ideal + 1e-6 * size**2
        assert got <= last + 1e-9 * size**2, "the objective grew"
        assert not how.nonnegative or (solved >= 0).all()
        indices, weights, last = following, solved, got
    # What stopped early had nothing left that lowers the objective.
    if len(indices) < len(found):
        assert (found.weights[len(indices) :] == 0).all()
        gain = matrix @ (goal - weights @ matrix[indices])
        free = np.setdiff1d(np.arange(len(matrix)), indices)
        assert (
            (gain if how.nonnegative else np.abs(gain))[free] <= 1e-8 * norms[free] * size + 1e-300
        ).all()


@st.composite
def rough_problems(draw):
    """Points that are equal, or nearly, or far apart in size; single and double precision; tiny
    ridges; several points per step.
    """
    seed = draw(st.integers(0, 2**32))
    generator = rng.stream(seed, "rough")
    kinds, n, d = draw(st.integers(1, 12)), draw(st.integers(2, 40)), draw(st.integers(1, 12))
    features = np.abs(generator.normal(size=(kinds, d)))[generator.integers(0, kinds, n)]
    features += draw(st.sampled_from([0.0, 1e-12, 1e-6, 1e-3])) * generator.normal(size=(n, d))
    coefficients = (
        -generator.random((n, 1)) if draw(st.booleans()) else generator.normal(size=(n, 2))
    )
    if draw(st.booleans()):
        coefficients[:] = coefficients[0]
    kind = draw(st.sampled_from([torch.float32, torch.float64]))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3, 1e6]))
    gradients = Gradients(
        torch.from_numpy(coefficients).to(kind),
        torch.from_numpy(features * scale).to(kind),
        bias=draw(st.booleans()),
    )
    wide = Gradients(gradients.coefficients.double(), gradients.features.double(), gradients.bias)
    matrix = dense(wide)
    goal = (
        matrix.mean(0)
        if draw(st.booleans())
        else generator.normal(size=matrix.shape[1]) * np.abs(matrix).max()
    )
    how = Pursuit(
        score=draw(st.sampled_from(["correlation", "distance", "nearest"])),
        ridge=draw(st.sampled_from([0.0, 1e-8, 1e-3, 0.5])),
        nonnegative=draw(st.booleans()),
        points_per_step=draw(st.sampled_from([1, 1, 3])),
    )
    return gradients, matrix, goal, draw(st.integers(1, n)), how


@settings(max_examples=400)
@given(rough_problems())
def test_rough_problems_end_keep_the_budget_and_never_get_worse(problem):
    gradients, matrix, goal, budget, how = problem
    target = (
        torch.from_numpy(goal)
        .reshape(gradients.coefficients.shape[1], -1)
        .to(gradients.features.dtype)
    )
    goal = target.double().flatten().numpy()
    values = [float(goal @ goal)]
    found = pursue(
        gradients,
        target,
        budget,
        how,
        lambda indices, weights: values.append(value(matrix[indices], weights, goal, how.ridge)),
    )
    assert len(set(found.indices)) == len(found) == budget
    assert np.isfinite(found.weights).all()
    assert not how.nonnegative or (found.weights >= 0).all()
    for before, after in pairwise(values):
        # To within what the squares of these numbers can tell apart.
        assert after <= before + 1e-5 * values[0], values


def brute_force(matrix, goal, budget, ridge):
    return min(
        value(
            matrix[list(subset)], best_weights(matrix[list(subset)], goal, ridge, True), goal, ridge
        )
        for subset in combinations(range(len(matrix)), budget)
    )


def test_against_brute_force(record_property):
    """On tiny problems greedy is compared with the best of all subsets; the ratio is reported, and
    never below 1.
    """
    ratios = {"correlation": [], "distance": []}
    for seed in range(60):
        generator = rng.stream(seed, "tiny")
        n, budget = int(generator.integers(4, 13)), int(generator.integers(1, 4))
        gradients = Gradients(
            -torch.from_numpy(generator.random((n, 1))),
            torch.from_numpy(np.abs(generator.normal(size=(n, 5)))),
        )
        matrix = dense(gradients)
        goal = matrix[: n // 2].mean(0)
        best = brute_force(matrix, goal, budget, 0.01)
        for score, found in ratios.items():
            chosen = pursue(
                gradients, torch.from_numpy(goal)[None], budget, Pursuit(score=score, ridge=0.01)
            )
            got = value(matrix[chosen.indices], chosen.weights, goal, 0.01)
            assert got >= best * (1 - 1e-9)
            found.append(got / best)
            if budget == 1 and score == "correlation":
                # One point: the best has the largest ⟨g, t⟩² / (‖g‖² + λ), which greedy by ⟨g, t⟩
                # need not take.
                gains = np.maximum(matrix @ goal, 0) ** 2 / (np.sum(matrix**2, axis=1) + 0.01)
                assert best == pytest.approx(goal @ goal - gains.max())
    for score, found in ratios.items():
        print(
            f"{score}: objective over the best subset's, median {np.median(found):.2f}, worst "
            f"{max(found):.2f}"
        )
        record_property(f"{score} median ratio", float(np.median(found)))
        assert np.median(found) < {"correlation": 6, "distance": 12}[score]


@pytest.mark.parametrize("per_step", [2, 3, 7])
def test_several_points_per_step(per_step):
    generator = rng.stream(3, "many")
    gradients = Gradients(
        -torch.from_numpy(generator.random((40, 1))),
        torch.from_numpy(np.abs(generator.normal(size=(40, 6)))),
    )
    matrix = dense(gradients)
    goal = matrix[:9].mean(0)
    sizes = []
    found = pursue(
        gradients,
        torch.from_numpy(goal)[None],
        20,
        Pursuit(points_per_step=per_step),
        lambda indices, _: sizes.append(len(indices)),
    )
    assert sizes == [min(20, per_step * (step + 1)) for step in range(len(sizes))]
    ideal = best_weights(matrix[found.indices], goal, 0.5, True)
    assert (
        value(matrix[found.indices], found.weights, goal, 0.5)
        <= value(matrix[found.indices], ideal, goal, 0.5) + 1e-9
    )


def test_a_long_pursuit_does_not_drift():
    """300 points with many entering and leaving, no ridge to speak of: still the solution from
    scratch.
    """
    generator = rng.stream(5, "long")
    gradients = Gradients(
        -torch.from_numpy(generator.random((600, 1))),
        torch.from_numpy(np.abs(generator.normal(size=(600, 400)))),
    )
    matrix = dense(gradients)
    goal = matrix[:300].mean(0) + 0.3 * generator.normal(size=401)
    for score in ("correlation", "distance"):
        found = pursue(
            gradients, torch.from_numpy(goal)[None], 300, Pursuit(score=score, ridge=1e-8)
        )
        ideal = best_weights(matrix[found.indices], goal, 1e-8, True)
        got = value(matrix[found.indices], found.weights, goal, 1e-8)
        assert got <= value(matrix[found.indices], ideal, goal, 1e-8) * (1 + 1e-6) + 1e-9
        assert (found.weights >= 0).all()


def test_single_precision_finds_the_same_quality():
    generator = rng.stream(6, "single")
    features = np.abs(generator.normal(size=(300, 50)))
    coefficients = -generator.random((300, 1))
    goal = (coefficients * np.concatenate([features, np.ones((300, 1))], 1))[:60].mean(0)
    values = []
    for kind in (torch.float64, torch.float32):
        gradients = Gradients(
            torch.from_numpy(coefficients).to(kind), torch.from_numpy(features).to(kind)
        )
        found = pursue(gradients, torch.from_numpy(goal).to(kind)[None], 40, Pursuit())
        matrix = coefficients * np.concatenate([features, np.ones((300, 1))], 1)
        values.append(value(matrix[found.indices], found.weights, goal, 0.5))
    assert values[1] == pytest.approx(values[0], rel=1e-3)


def test_points_that_only_fill_the_budget_weigh_nothing():
    gradients = Gradients(
        torch.ones(4, 1, dtype=torch.float64), torch.eye(4, dtype=torch.float64), bias=False
    )
    target = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    found = pursue(gradients, target, 3, Pursuit(ridge=0.0))
    assert found.indices.tolist() == [0, 1, 2]
    assert np.allclose(found.weights, [1, 0, 0])


DEGENERATE = {
    "budget 0": (Gradients(torch.ones(3, 1), torch.ones(3, 2)), torch.ones(1, 3), 0, [], []),
    "one sample": (
        Gradients(torch.ones(1, 1), torch.zeros(1, 1)),
        torch.tensor([[0.0, 3.0]]),
        5,
        [0],
        [2.0],
    ),
    "budget over n": (
        Gradients(torch.ones(2, 1), torch.tensor([[1.0], [0.0]]), bias=False),
        torch.tensor([[3.0]]),
        9,
        [0, 1],
        [2.0, 0.0],
    ),
    "target zero": (
        Gradients(torch.ones(3, 1), torch.arange(3.0)[:, None]),
        torch.zeros(1, 2),
        2,
        [0, 1],
        [0, 0],
    ),
    "all gradients zero": (
        Gradients(torch.zeros(3, 1), torch.ones(3, 2)),
        torch.ones(1, 3),
        2,
        [0, 1],
        [0, 0],
    ),
    "target behind": (
        Gradients(torch.ones(3, 1), torch.zeros(3, 1)),
        torch.tensor([[0.0, -1.0]]),
        2,
        [0, 1],
        [0, 0],
    ),
    "no samples": (Gradients(torch.ones(0, 1), torch.ones(0, 2)), torch.ones(1, 3), 2, [], []),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_problems_have_defined_results(name):
    gradients, target, budget, indices, weights = DEGENERATE[name]
    found = pursue(gradients, target, budget, Pursuit(ridge=0.5))
    assert found.indices.tolist() == indices
    assert np.allclose(found.weights, weights)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_huge_features_are_handled_and_too_huge_ones_refused(kind):
    draw = rng.stream(0, "huge")
    features = torch.from_numpy(np.abs(draw.normal(size=(20, 4)))).to(kind)
    gradients = Gradients(torch.ones(20, 1, dtype=kind), features, bias=False)
    usual = pursue(gradients, features[:5].mean(0)[None], 3, Pursuit(ridge=0.0))
    huge = Gradients(gradients.coefficients, features * 1e25, bias=False)
    assert (
        pursue(huge, huge.features[:5].mean(0)[None], 3, Pursuit(ridge=0.0)).indices.tolist()
        == usual.indices.tolist()
    )
    broken = Gradients(gradients.coefficients, features * torch.inf, bias=False)
    with pytest.raises(DataError, match="too large to square"):
        pursue(broken, features[:1], 3, Pursuit())


def test_duplicates_share_the_weight():
    """λ > 0: two equal points carry half each; λ = 0: one carries all, the other fills."""
    gradients = Gradients(
        torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64), bias=False
    )
    target = torch.tensor([[2.0]], dtype=torch.float64)
    assert np.allclose(pursue(gradients, target, 2, Pursuit(ridge=1.0)).weights, [2 / 3, 2 / 3])
    assert np.allclose(pursue(gradients, target, 2, Pursuit(ridge=0.0)).weights, [2, 0])


def test_nearest_takes_the_points_nearest_to_the_target():
    generator = rng.stream(0, "nearest")
    features = torch.from_numpy(generator.normal(size=(30, 4)))
    target = torch.from_numpy(generator.normal(size=(1, 5)))
    gradients = Gradients(torch.ones(30, 1, dtype=torch.float64), features)
    distance = ((torch.cat([features, torch.ones(30, 1)], 1) - target) ** 2).sum(1)
    found = pursue(gradients, target, 7, Pursuit(score="nearest"))
    assert found.indices.tolist() == torch.argsort(distance)[:7].tolist()


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
    st.integers(0, 120),
    st.sampled_from(["proportional", "equal"]),
)
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
    pool, draw = Pool(features, probabilities, labels), partial(rng.stream, 0)
    found, _ = GradientMatching().pick(pool, target, budget, draw, {})
    assert len(set(found.indices)) == budget
    counts = np.bincount(labels, minlength=4)
    assert np.array_equal(
        np.bincount(labels[found.indices], minlength=4), per_class(counts, budget, "proportional")
    )
    whole, _ = GradientMatching(variant="whole").pick(pool, target, budget, draw, {})
    assert len(set(whole.indices)) == budget


@given(
    st.integers(0, 2**32),
    st.integers(1, 9),
    st.sampled_from(["correlation", "distance", "nearest"]),
    st.booleans(),
    st.booleans(),
)
def test_a_budget_of_one_by_its_definition(seed, n, score, nonnegative, bias):
    """The point, by brute force over all, and its weight in closed form; as a pursuit alone and as
    one class of a pool.
    """
    draw = np.random.default_rng(seed)
    labels = torch.from_numpy(draw.integers(0, 3, n))
    pool = Pool(
        torch.from_numpy(draw.normal(size=(n, 4)).astype(np.float32)),
        torch.softmax(torch.from_numpy(draw.normal(size=(n, 3)).astype(np.float32)), 1),
        labels,
        bias,
    )
    target = torch.from_numpy(draw.normal(size=(3, 5 if bias else 4)).astype(np.float32))
    how = Pursuit(score=score, nonnegative=nonnegative)
    singles = Singles(pool, target, how)
    ones = np.ones((n, 1)) if bias else np.empty((n, 0))
    gradients = (pool.probabilities.double().numpy()[np.arange(n), labels] - 1)[
        :, None
    ] * np.hstack([pool.features.double(), ones])
    for label in np.unique(labels).tolist():
        rows, aim = np.flatnonzero(labels.numpy() == label), target[label].double().numpy()
        mine = gradients[rows]
        inner = mine @ aim
        gain = inner if nonnegative else np.abs(inner)
        worth = gain if score == "correlation" else -np.linalg.norm(mine - aim, axis=1)
        for found in (
            singles.best(rows, label),
            pursue(
                pool.own_label().rows(torch.from_numpy(rows)), target[label : label + 1], 1, how
            ),
        ):
            (j,), (weight,) = found.indices, found.weights
            assert worth[j] >= worth.max() - 1e-5
            best = inner[j] / (mine[j] @ mine[j] + how.ridge)
            assert weight == pytest.approx(max(best, 0.0) if nonnegative else best, abs=1e-6)
