"""Dimensions, mixtures and relabelling against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from gcfl.labels import intrinsic_dimensions, mixture, relabelled, upper_component


def by_definition(points: list[list[float]], place: int, k: int) -> float:
    """-(1/k Σ log(r_j / r_k))⁻¹, one distance after the other."""
    distances = sorted(
        math.dist(points[place], other) for j, other in enumerate(points) if j != place
    )[:k]
    return -1 / (sum(math.log(r / distances[-1]) for r in distances) / len(distances))


@pytest.mark.parametrize(("n", "k"), [(60, 20), (60, 5), (8, 20), (3, 2)])
def test_dimensions_equal_their_definition(n, k):
    points = torch.randn(n, 4, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    expected = [by_definition(points.tolist(), place, k) for place in range(n)]
    found = intrinsic_dimensions(points, k)
    assert np.allclose(found.numpy(), expected, rtol=1e-4)


def test_the_dimension_of_a_plane_is_that_of_the_plane(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    frame = torch.linalg.qr(torch.randn(8, 8, generator=draw)).Q
    dimensions = []
    for d in (1, 2, 4):
        points = torch.rand(1500, d, generator=draw) @ frame[:d]
        dimensions.append(intrinsic_dimensions(points, 30).median().item())
    assert dimensions[0] == pytest.approx(1, abs=0.25)
    assert dimensions[1] == pytest.approx(2, abs=0.4)
    assert dimensions[2] == pytest.approx(4, abs=0.8)
    whole = intrinsic_dimensions(points[:100], 10)
    monkeypatch.setattr(mixture, "_ROWS", 700)  # seven rows at a time
    assert torch.equal(intrinsic_dimensions(points[:100], 10), whole)


def test_points_that_coincide_have_no_dimension():
    assert torch.equal(intrinsic_dimensions(torch.ones(30, 3), 5), torch.zeros(30))
    assert torch.equal(intrinsic_dimensions(torch.ones(1, 3), 5), torch.zeros(1))
    some = torch.cat([torch.ones(5, 3), torch.rand(20, 3)])
    found = intrinsic_dimensions(some, 10)
    assert torch.isfinite(found).all()
    assert (found > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_upper_component_is_scikit_learns(seed):
    draw = np.random.default_rng(seed)
    values = np.concatenate([draw.normal(1, 0.4, 80), draw.normal(2, 0.8, 40)])
    fitted = GaussianMixture(2, random_state=seed).fit(values[:, None])
    upper = int(fitted.means_[1, 0] > fitted.means_[0, 0])
    expected = fitted.predict_proba(values[:, None])[:, upper] > 0.5
    assert np.array_equal(upper_component(torch.from_numpy(values), seed).numpy(), expected)
    assert 0 < expected.sum() < len(values)


def test_two_heaps_are_told_apart_and_one_is_not_split():
    scores = torch.tensor([4.1, 2.0, 2.1, 4.0, 1.9, 4.2])
    assert upper_component(scores, 0).tolist() == [True, False, False, True, False, True]
    assert not upper_component(torch.full((9,), 3.0), 0).any()
    assert not upper_component(torch.tensor([3.0]), 0).any()


@pytest.mark.parametrize("share", [0.0, 0.33, 1.0])
def test_relabelling_equals_a_plain_loop(share):
    draw = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 5, (50,), generator=draw)
    losses = torch.rand(50, generator=draw)
    probabilities = torch.softmax(2 * torch.randn(50, 5, generator=draw), dim=1)
    expected = labels.tolist()
    for place in sorted(range(50), key=lambda j: -float(losses[j]))[: round(share * 50)]:
        answer = max(range(5), key=lambda c: float(probabilities[place, c]))
        if probabilities[place, answer] > 0.5:
            expected[place] = answer
    before = labels.clone()
    assert relabelled(labels, losses, probabilities, share, 0.5).tolist() == expected
    assert torch.equal(labels, before)
    assert (share > 0) == (expected != labels.tolist())
