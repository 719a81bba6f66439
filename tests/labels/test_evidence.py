"""What is kept of each label from look to look, and how strange inputs are: against definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.labels.evidence import NEVER, fits, looked, past, put_together, used
from gcfl.labels.strangeness import fit_strangeness


@settings(deadline=None, max_examples=40)
@given(looks=st.integers(1, 8), n=st.integers(1, 6), classes=st.integers(2, 5), seed=st.integers(0))
def test_the_sum_fades_by_half(looks, n, classes, seed):
    draw = torch.Generator().manual_seed(seed % 2**31)
    posteriors = torch.rand(looks, n, classes, generator=draw, dtype=torch.float64)
    posteriors /= posteriors.sum(-1, keepdim=True)
    memory = {}
    for one in posteriors:
        memory = looked(memory, one)
    weights = torch.tensor([0.5 ** (looks - 1 - place) for place in range(looks)]).double()
    expected = (weights[:, None, None] * posteriors).sum(0) / weights.sum()
    mean, last = past(memory)
    assert torch.allclose(mean, expected, atol=5e-3)  # half precision
    assert torch.allclose(mean.sum(1), torch.ones(n, dtype=torch.float64))
    assert last.tolist() == [NEVER] * n
    final = posteriors[0]
    assert torch.allclose(put_together(final, mean), (final + mean) / 2)
    assert put_together(final, None) is final


def test_the_last_round_of_each_sample_is_known():
    memory = looked({}, torch.full((4, 3), 1 / 3))
    after = used(used(memory, np.array([0, 2]), 3), np.array([2]), 5)
    assert past(after)[1].tolist() == [3, NEVER, 5, NEVER]
    assert past(memory)[1].tolist() == [NEVER] * 4  # what was there does not change
    assert used({}, np.array([0]), 1) == {}
    # Other samples than before: what was kept is of no use.
    assert fits(after, 4, 3)
    assert not fits(after, 5, 3)
    assert past(looked(after, torch.full((5, 3), 1 / 3)))[1].tolist() == [NEVER] * 5


def test_a_few_bytes_a_sample():
    memory = looked({}, torch.full((1000, 10), 0.1))
    assert sum(one.numel() * one.element_size() for one in memory.values()) == 26 * 1000


def test_strangeness_is_the_share_of_clean_samples_that_are_closer():
    draw = np.random.default_rng(0)
    clean = draw.normal(size=(60, 5)) + 4 * np.eye(5)[np.arange(60) % 3]
    labels = np.arange(60) % 3
    unit = clean / np.linalg.norm(clean, axis=1, keepdims=True)
    distances = []
    for j in range(60):  # its own class without the sample itself
        means = [
            unit[(labels == c) & (np.arange(60) != j)].mean(0)
            if labels[j] == c
            else unit[labels == c].mean(0)
            for c in range(3)
        ]
        distances.append(min(np.linalg.norm(unit[j] - mean) for mean in means))
    found = fit_strangeness(torch.from_numpy(clean), torch.from_numpy(labels))
    means = np.stack([unit[labels == c].mean(0) for c in range(3)])
    others = draw.normal(size=(40, 5)) + 2
    scores = found.of(torch.from_numpy(others)).numpy()
    for sample, score in zip(others, scores, strict=True):
        own = min(np.linalg.norm(sample / np.linalg.norm(sample) - mean) for mean in means)
        assert score == pytest.approx(np.mean(np.array(distances) < own), abs=0.03)
    assert found.of(torch.full((1, 5), -3.0)).item() == 1.0


def test_one_clean_sample_of_a_class_will_do():
    found = fit_strangeness(torch.tensor([[1.0, 0.0]]), torch.tensor([3]))
    assert found.of(torch.tensor([[0.0, 1.0]])).item() == 1.0
