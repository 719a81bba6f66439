"""Labels in the light of labels nearby, against a definition in plain loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from gcfl.base import rng
from gcfl.labels import with_neighbours
from gcfl.labels.neighbours import NEAREST, nearest


def problem(seed, n=60, classes=4, width=5):
    draw = rng.stream(seed, "neighbours")
    features = torch.from_numpy(draw.normal(size=(n, width)))
    posterior = torch.from_numpy(draw.dirichlet(np.full(classes, 0.3), size=n))
    return posterior, torch.from_numpy(draw.integers(0, classes, n)), features


def in_plain_words(posterior, labels, features, passes=30):
    q, y = posterior.numpy().copy(), labels.numpy()
    unit = features.numpy() / np.linalg.norm(features.numpy(), axis=1, keepdims=True)
    n = len(y)
    k = min(NEAREST, n - 1)
    near = []
    for j in range(n):
        others = [i for i in range(n) if i != j]
        near.append(sorted(others, key=lambda i: -unit[i] @ unit[j])[:k])
    start = np.clip(np.mean([1 - q[j, y[j]] for j in range(n)]), 1e-3, 1 - 1e-3)
    wrong = np.array([1 - q[j, y[j]] for j in range(n)])
    for _ in range(passes):
        before = wrong
        mean = np.clip(wrong.mean(), 1e-3, 1 - 1e-3)
        local = np.array([np.mean([wrong[i] for i in near[j]]) for j in range(n)])
        above = np.mean((local - local.mean()) ** 2) - mean * (1 - mean) / k
        if above <= 0:
            break
        m = max(1, mean * (1 - mean) / above - 1)
        rate = np.clip((k * local + m * mean) / (k + m), 1e-3, 1 - 1e-3)
        first = np.array([1 - q[j, y[j]] for j in range(n)])
        odds = first / (1 - first) * rate / (1 - rate) * (1 - start) / start
        wrong = odds / (1 + odds)
        if np.abs(wrong - before).max() < 1e-4:
            break
    return wrong


@given(st.integers(0, 2**32), st.integers(3, 40))
def test_it_is_what_its_definition_says(seed, n):
    posterior, labels, features = problem(seed, n)
    found = with_neighbours(posterior, labels, features)
    wrong = 1 - found[torch.arange(n), labels]
    assert np.allclose(wrong, in_plain_words(posterior, labels, features), atol=1e-6)
    assert torch.allclose(found.sum(1), torch.ones(n, dtype=found.dtype))
    # Among the other classes the shares stay as they were.
    for j in range(n):
        others = [c for c in range(4) if c != labels[j]]
        before, after = posterior[j, others], found[j, others]
        if before.sum() > 1e-6 and after.sum() > 1e-6:
            assert torch.allclose(before / before.sum(), after / after.sum(), atol=1e-6)


@pytest.mark.parametrize("width", [3, 40, 128])
def test_the_nearest_are_scikit_learns(width):
    _, _, features = problem(1, 300, width=width)
    unit = features / features.norm(dim=1, keepdim=True)
    oracle = NearestNeighbors(n_neighbors=8).fit(unit).kneighbors(return_distance=False)
    assert (np.sort(nearest(features, 8), 1) == np.sort(oracle, 1)).all()


def test_wide_features_keep_their_neighbours():
    """Twenty groups far apart in 2,000 dimensions: neighbours are of the own group."""
    draw = rng.stream(2, "groups")
    group = np.repeat(np.arange(20), 15)
    features = draw.normal(size=(20, 2000))[group] + 0.3 * draw.normal(size=(300, 2000))
    near = nearest(torch.from_numpy(features), 10)
    assert (group[near.numpy()] == group[:, None]).all()


def scene(seed, strangers):
    """Four classes; `strangers` samples of a fifth kind that lie between two of them, with labels
    at random. Each posterior sees its own sample alone.
    """
    draw = rng.stream(seed, "strangers")
    middles = np.vstack([4 * np.eye(4, 6), 2.0 * np.ones((1, 6)) * [1, 1, 0, 0, 1, 1]])
    kind = np.concatenate([draw.integers(0, 4, 400), np.full(strangers, 4)])
    x = middles[kind] + draw.normal(size=(len(kind), 6))
    logits = x[:, :4] * 1.5
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    flipped = draw.random(len(kind)) < 0.15
    y = np.where(flipped | (kind == 4), draw.integers(0, 4, len(kind)), kind)
    rate = 0.25
    right = (1 - rate) * p[np.arange(len(kind)), y]
    q = p * rate / 3
    q[np.arange(len(kind)), y] = right
    q /= q.sum(1, keepdims=True)
    return torch.from_numpy(q), torch.from_numpy(y), torch.from_numpy(x), y != kind


def auroc(q, y, wrong):
    return roc_auc_score(wrong, 1 - q[torch.arange(len(y)), y])


def test_strangers_that_look_alike_are_found():
    for seed in range(5):
        q, y, x, wrong = scene(seed, 120)
        before, after = auroc(q, y, wrong), auroc(with_neighbours(q, y, x), y, wrong)
        print(seed, before, after)
        assert 1 - after < (1 - before) / 2


def test_flips_by_chance_are_left_as_they_are():
    """Where labels are wrong by chance, no place has a rate of its own."""
    for seed in range(5):
        q, y, x, wrong = scene(seed, 0)
        assert auroc(with_neighbours(q, y, x), y, wrong) > auroc(q, y, wrong) - 0.005


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_samples_stay_as_they_are(n):
    posterior, labels, features = problem(3, n)
    assert torch.equal(with_neighbours(posterior, labels, features), posterior)


def test_features_of_zeros_are_no_trouble():
    posterior, labels, _ = problem(4, 30)
    assert with_neighbours(posterior, labels, torch.zeros(30, 5)).isfinite().all()
