"""The released CRUST against the selection of its authors' code, written here from its definition:
a lazy heap that compares values f(X + j), not gains, on D - distance in ∂L/∂h.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import ConfigError, DataError
from gcfl.coreset import CoresetSelector, per_class, select
from gcfl.coreset.facility import most_central


def heap_that_takes_everything(distances, budget):
    """The largest (value, number) is popped; its value in the light of X is f(X + j) as a whole; it
    enters if that reaches the value of the next in the heap.
    """
    similarity = distances.max() - distances
    waiting = [(similarity[j].sum(), j) for j in range(len(distances))]
    covered, chosen = np.zeros(len(distances)), []
    while waiting and len(chosen) < budget:
        waiting.sort()
        _, j = waiting.pop()
        value = np.maximum(covered, similarity[j]).sum()
        if not waiting or value >= waiting[-1][0]:
            chosen.append(j)
            covered = np.maximum(covered, similarity[j])
        else:
            waiting.append((value, j))
    return chosen


def problem(seed, n=70, d=6, classes=3):
    draw = rng.stream(seed, "central")
    body = torch.from_numpy(draw.normal(size=(n, d)))
    head = torch.from_numpy(draw.normal(size=(classes, d)))
    labels = torch.from_numpy(draw.integers(0, classes, n))
    return body, head, labels


def feature_gradients(features, head, labels):
    """∂L/∂h by autograd."""
    h = features.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(h @ head.T, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, h)
    return gradient


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 80), st.sampled_from([2, 6, 12]), st.floats(0.1, 4.0))
def test_released_crust_returns_what_the_heap_returns(seed, budget, width, radius):
    features, head, labels = problem(seed, d=width, classes=5)
    gradients = feature_gradients(features, head, labels)
    found = select(
        "crust",
        features,
        (features @ head.T).softmax(1),
        labels,
        budget,
        head=head,
        crust="released",
        radius=radius,
    )
    shares = per_class(np.bincount(labels, minlength=5), budget, "proportional")
    expected, weights = [], []
    for c in range(5):
        rows = np.flatnonzero(labels == c)
        apart = torch.cdist(
            gradients[rows], gradients[rows], compute_mode="donot_use_mm_for_euclid_dist"
        ).numpy()
        mine = heap_that_takes_everything(apart, shares[c]) if len(rows) else []
        expected += rows[mine].tolist()
        weights += (apart[mine] < radius).sum(1).tolist()
    # A class of two has equal sums, which rounding may tell apart: there the set may differ.
    if min(np.bincount(labels, minlength=5)) > 2:
        assert found.indices.tolist() == expected
        assert found.weights.tolist() == weights
    assert len(found.indices) == min(budget, 70)


@given(st.lists(st.integers(-3, 3), max_size=30), st.integers(0, 35), st.sampled_from([1, 2]))
def test_equal_sums_go_to_the_later_point(places, budget, radius):
    """Whole numbers on a line: sums are exact, and ties are many."""
    points = torch.tensor(places, dtype=torch.float64).reshape(-1, 1)
    apart = np.abs(points.numpy() - points.numpy().T)
    found = most_central(points, budget, radius)
    expected = heap_that_takes_everything(apart, budget) if places else []
    assert found.indices.tolist() == expected
    assert found.weights.tolist() == (apart[expected] < radius).sum(1).tolist()


def test_it_takes_the_crowd_where_medoids_take_everybody():
    """Forty right labels close together, five wrong ones far off."""
    features = torch.eye(2, dtype=torch.float64).repeat_interleave(torch.tensor([40, 5]), 0)
    features = features + torch.arange(45)[:, None] * 1e-4
    head, labels = 3 * torch.eye(2, dtype=torch.float64), torch.zeros(45, dtype=torch.int64)
    arguments = features, (features @ head.T).softmax(1), labels, 5
    released = select("crust", *arguments, head=head, crust="released")
    formula = select("crust", *arguments)
    assert released.indices.max() < 40
    assert formula.indices.max() >= 40


def test_the_scikit_learn_face_has_it():
    features, head, labels = problem(0)
    probabilities = (features @ head.T).softmax(1)
    chosen = CoresetSelector("crust", 9, crust="released", radius=0.5).fit(
        features, labels, probabilities, head=head
    )
    told = {"head": head, "crust": "released", "radius": 0.5}
    expected = select("crust", features, probabilities, labels, 9, **told)
    assert chosen.indices_.tolist() == expected.indices.tolist()
    assert chosen.weights_.tolist() == expected.weights.tolist()


def test_without_the_last_layers_weights_it_says_so():
    features, head, labels = problem(1)
    probabilities = (features @ head.T).softmax(1)
    with pytest.raises(ConfigError, match="pass head=W"):
        select("crust", features, probabilities, labels, 9, crust="released")
    with pytest.raises(DataError, match=r"head must have shape \(3, 6\), got \(6, 3\)"):
        select("crust", features, probabilities, labels, 9, crust="released", head=head.T)
