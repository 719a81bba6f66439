"""Sifting by its definition, alone and in a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcfl.base import rng
from gcfl.coreset import SELECTORS, Pool, select
from gcfl.labels import label_posterior


def pool(seed=0, n=120, classes=4, wrong=0.3):
    draw = rng.stream(seed, "sift")
    truth = draw.integers(0, classes, n)
    logits = torch.from_numpy(draw.normal(size=(n, classes)) + 3.0 * np.eye(classes)[truth])
    labels = truth.copy()
    flipped = draw.permutation(n)[: round(wrong * n)]
    labels[flipped] = (labels[flipped] + 1 + draw.integers(0, classes - 1, len(flipped))) % classes
    features = torch.from_numpy(draw.normal(size=(n, 3)))
    return Pool(features, logits.softmax(1), torch.from_numpy(labels)), truth == labels


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.9])
def test_candidates_are_those_above_the_threshold(threshold):
    samples, _ = pool()
    right = label_posterior(samples.probabilities.double().log(), samples.labels).right
    sift = SELECTORS["sift"](threshold=threshold)
    found, memory = sift.pick(samples, None, 10, rng.stream, {})
    assert found.indices.tolist() == np.flatnonzero(right.numpy() >= threshold).tolist()
    assert memory == {}


def test_a_posterior_that_is_given_is_used():
    samples, _ = pool()
    right = torch.zeros(120, dtype=torch.float64)
    right[[5, 50, 100]] = 1.0
    given = Pool(samples.features, samples.probabilities, samples.labels, right=right)
    found, _ = SELECTORS["sift"]().pick(given, None, 2, rng.stream, {})
    assert found.indices.tolist() == [5, 50, 100]


def test_too_few_are_filled_with_the_likeliest():
    samples, _ = pool()
    right = torch.linspace(0, 0.2, 120, dtype=torch.float64)
    given = Pool(samples.features, samples.probabilities, samples.labels, right=right)
    found, _ = SELECTORS["sift"]().pick(given, None, 7, rng.stream, {})
    assert found.indices.tolist() == list(range(113, 120))


def test_it_is_cleaner_than_chance_and_keeps_its_budget():
    samples, clean = pool(3)
    arguments = (samples.features, samples.probabilities, samples.labels, 30)
    found = select("sift", *arguments, seed=1)
    assert len(set(found.indices)) == 30
    assert clean[found.indices].mean() > 0.85 > clean.mean()
    assert select("sift", *arguments, seed=2).indices.tolist() != found.indices.tolist()
