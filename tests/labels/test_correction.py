"""The corrected loss against its formula, autograd of that formula, and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from gcfl.base import rng
from gcfl.labels import (
    corrected_losses,
    log_columns,
    losses_from_columns,
    posterior_given,
    symmetric_transition,
)
from label_scenes import rough


def matrices(seed, classes, count=None, zeros=False):
    """Rows drawn at random; with zeros, where every label can still come from its own class."""
    draw = rng.stream(seed, "matrix")
    rows = draw.dirichlet(np.ones(classes), (count or 1, classes))
    if zeros:
        rows *= draw.random(rows.shape) < 0.5
        rows += 0.1 * np.eye(classes)
        rows /= rows.sum(-1, keepdims=True)
    return torch.from_numpy(rows if count else rows[0])


def formula(logits, labels, transition):
    """-log Σ_c T[c, ỹ] p_c, as it stands."""
    return -(logits.softmax(-1) @ transition).gather(-1, labels[..., None])[..., 0].log()


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(2, 5), st.booleans())
def test_values_and_gradients_are_those_of_the_formula(seed, n, classes, zeros):
    logits, labels = rough(seed, n, classes, 1.5)
    transition = matrices(seed, classes, zeros=zeros)
    found, plain = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    mine, theirs = (
        corrected_losses(found, labels, transition),
        formula(plain, labels, transition),
    )
    assert torch.allclose(mine, theirs, atol=1e-12)
    mine.sum().backward()
    theirs.sum().backward()
    assert torch.allclose(found.grad, plain.grad, atol=1e-10)
    # The gradient is p - q, with the posterior of the true class under p and T.
    flat = torch.full((classes,), 1 / classes, dtype=torch.float64)
    q = posterior_given(logits, labels, flat, transition)
    assert torch.allclose(found.grad, logits.softmax(1) - q, atol=1e-10)


def test_gradients_by_finite_differences():
    logits, labels = rough(1, 5, 4)
    assert torch.autograd.gradcheck(
        lambda z, t: corrected_losses(z, labels, t),
        (logits.requires_grad_(), matrices(1, 4).requires_grad_()),
    )


@given(st.integers(0, 2**32), st.sampled_from([0.1, 3.0, 300.0]))
def test_the_identity_gives_cross_entropy(seed, scale):
    logits, labels = rough(seed, 8, 5, scale)
    expected = cross_entropy(logits, labels, reduction="none")
    found = corrected_losses(logits, labels, torch.eye(5).double())
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(
        corrected_losses(logits, labels, symmetric_transition(0.0, 5)), found, atol=0
    )


def test_many_clients_at_once_by_broadcasting_and_by_vmap():
    logits, labels = rough(2, 12, 4)
    logits, labels = logits.reshape(3, 4, 4), labels.reshape(3, 4)
    several = matrices(2, 4, count=3)
    expected = torch.stack(
        [corrected_losses(z, y, t) for z, y, t in zip(logits, labels, several, strict=True)]
    )
    assert torch.equal(corrected_losses(logits, labels, several), expected)
    assert torch.allclose(torch.func.vmap(corrected_losses)(logits, labels, several), expected)
    shared = corrected_losses(logits, labels, several[0])
    assert shared.shape == (3, 4)
    assert torch.equal(shared[1], corrected_losses(logits[1], labels[1], several[0]))
    columns = log_columns(several)
    assert torch.equal(losses_from_columns(logits, labels, columns), expected)
    repeated = corrected_losses(logits, labels[0], several)
    assert torch.equal(repeated[2], corrected_losses(logits[2], labels[0], several[2]))
    slopes = torch.func.vmap(torch.func.grad(lambda *given: corrected_losses(*given).mean()))
    assert torch.isfinite(slopes(logits, labels, several)).all()


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_zeros_in_the_matrix_give_no_nan(kind):
    """Exact zeros, certain models and a label that no class can have."""
    transition = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1, 0]], dtype=kind).requires_grad_()
    logits = torch.tensor([[2e4, 0, -2e4], [0, 1, 2.0], [1, 2, 3.0]], dtype=kind).requires_grad_()
    losses = corrected_losses(logits, torch.tensor([1, 0, 2]), transition)
    assert torch.isfinite(losses).all()
    losses.sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert torch.isfinite(transition.grad).all()
    assert torch.allclose(logits.grad[2], torch.zeros(3, dtype=kind), atol=1e-6)
    assert losses.dtype == kind
