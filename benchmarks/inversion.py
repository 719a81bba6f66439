"""Gradient inversion: a class's samples from the targets that clients are sent.

With n samples x_i of class c and the known models θ_s, the row that is sent is

    g(s) = 1/n Σ_i (p_c(x_i; θ_s) - 1)·[h(x_i; θ_s), 1]

Both attacks are least squares from many starts, all selections at once, by Levenberg-Marquardt. The
starts are the attacker's own samples of the class: it is a client, and has some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gcfl.base.data_types import Tree
from gcfl.models.network import Network

FITS = 1e-13  # a sum of squares that float32 messages hardly go below
_RANK = 1e-7  # smaller singular values, beside the largest, are rounding
_SCREENED = 200  # combinations of own samples that are looked at for one start


@dataclass(frozen=True)
class Effort:
    """starts: of the attack. steps: of each."""

    starts: int
    steps: int


def features(
    heads: Tensor, rows: Tensor, label: int, count: int, own: Tensor, effort: Effort, seed: int
) -> Tensor:
    """(n, d) the feature vectors of a class where h never changes.

    heads: (S, C, d + 1), weights and bias. rows: (S, d + 1), what was sent. own: (m, d) features of
    the attacker's samples. Every row is a combination of the same n vectors [h_i, 1], so those lie
    in the row space of what was sent, of dimension r <= n: n (r - 1) numbers are unknown, not n d.
    """
    basis = _row_space(rows, count)
    last = basis[:, -1]
    middle = last / last.square().sum()  # [h, 1] = (middle + m @ free) @ basis, for any m
    free = torch.linalg.svd(last[None])[2][1:]
    goal = rows @ basis.T
    weight = 1 / goal.norm(dim=1, keepdim=True)
    seen = heads @ basis.T  # (S, C, r)
    moves = seen @ free.T  # (S, C, r - 1)
    generator = torch.Generator().manual_seed(seed)
    known = torch.cat([own, torch.ones_like(own[:, :1])], 1) @ basis.T
    known = (known - middle) @ free.T
    drawn = torch.randint(len(known), (effort.starts, count), generator=generator)
    noise = torch.randn(*drawn.shape, len(free), generator=generator, dtype=rows.dtype)
    m = known[drawn] + 0.3 * known.std() * noise

    def fit(m: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Places (B, n, r), probabilities (B, S, n, C), p_c - 1 (B, S, n), residuals (B, S, r)."""
        places = middle + m @ free
        p = torch.softmax(torch.einsum("scr,bnr->bsnc", seen, places), -1)
        less = p[..., label] - 1
        told = torch.einsum("bsn,bnr->bsr", less, places) / count
        return places, p, less, (told - goal) * weight

    damping = torch.full((len(m),), 1e-2, dtype=m.dtype)
    now = fit(m)
    cost = now[3].square().sum((1, 2))
    for _ in range(effort.steps):
        places, p, less, residual = now
        slope = p[..., label, None] * (
            moves[None, :, None, label] - torch.einsum("bsnc,scj->bsnj", p, moves)
        )
        jacobian = slope[:, :, None] * places.mT[:, None, :, :, None]
        jacobian = jacobian + less[:, :, None, :, None] * free.T[None, None, :, None, :]
        jacobian = (jacobian * (weight / count)[None, :, :, None, None]).flatten(3).flatten(1, 2)
        square, down = jacobian.mT @ jacobian, jacobian.mT @ residual.flatten(1)[..., None]
        size = square.diagonal(dim1=1, dim2=2)
        damped = square + torch.diag_embed(
            damping[:, None] * size.clamp(min=1e-12 * float(size.max()))
        )
        step, broken = torch.linalg.solve_ex(damped, down)
        tried = torch.where(broken[:, None, None] == 0, m - step[..., 0].reshape(m.shape), m)
        better = fit(tried)[3].square().sum((1, 2)) < cost
        m = torch.where(better[:, None, None], tried, m)
        damping = torch.where(better, damping / 4, damping * 5).clamp(1e-14, 1e8)
        now = fit(m)
        cost = now[3].square().sum((1, 2))
        if float(cost.min()) < FITS:
            break
    return ((middle + m[int(cost.argmin())] @ free) @ basis)[:, :-1]


def _row_space(rows: Tensor, most: int) -> Tensor:
    """(r, d + 1) an orthonormal basis; r is at most so many, and what stands out of rounding."""
    _, sizes, basis = torch.linalg.svd(rows / rows.norm(dim=1, keepdim=True), full_matrices=False)
    return basis[: min(most, int((sizes > _RANK * sizes[0]).sum()))]


def inputs(
    network: Network,
    models: Tree,
    rows: Tensor,
    label: int,
    count: int,
    own: Tensor,
    effort: Effort,
    seed: int,
) -> Tensor:
    """(n, ...) the prepared inputs of a class that fit best, whatever the body is: the models are
    looked through, and may all differ. models: stacked, in float64. own: prepared, too.
    """
    shape, scale = (count, *own.shape[1:]), rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    generator = torch.Generator().manual_seed(seed)

    def residuals(flat: Tensor) -> Tensor:
        return ((told(network, models, flat.reshape(shape), label) - rows) / scale).flatten()

    best, lowest = torch.zeros(shape).double(), torch.inf
    for _ in range(effort.starts):
        drawn = torch.randint(len(own), (_SCREENED, count), generator=generator)
        fits = torch.stack([residuals(own[one].flatten()).square().sum() for one in drawn])
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        start = own[drawn[int(fits.argmin())]] + 0.1 * noise
        found, cost = _descend(residuals, start.flatten(), effort.steps)
        if cost < lowest:
            best, lowest = found.reshape(shape), cost
        if lowest < FITS:
            break
    return best


def told(network: Network, models: Tree, x: Tensor, label: int) -> Tensor:
    """(S, d + 1) what the server would send of n prepared inputs of a class, by stacked models."""

    def one(model: Tree) -> Tensor:
        found = network(model, x)
        own = torch.softmax(found.logits, 1)[:, label : label + 1] - 1
        return (own * torch.cat([found.features, torch.ones_like(own)], 1)).mean(0)

    return torch.func.vmap(one)(models)


def _descend(residuals: Callable[[Tensor], Tensor], x: Tensor, steps: int) -> tuple[Tensor, float]:
    """Levenberg-Marquardt from one start: where it ends, and the sum of squares there."""
    now, damping = residuals(x), 1e-2
    for _ in range(steps):
        slope = torch.func.jacfwd(residuals)(x).detach()
        square, down = slope.T @ slope, slope.T @ now
        size = float(square.diagonal().mean())
        for _ in range(8):
            damped = square + damping * size * torch.eye(len(x), dtype=x.dtype)
            tried = x - torch.linalg.solve(damped, down)
            after = residuals(tried)
            if bool(after.square().sum() < now.square().sum()):
                x, now, damping = tried, after, max(damping / 5, 1e-15)
                break
            damping *= 4
        else:
            break
        if float(now.square().sum()) < FITS:
            break
    return x, float(now.square().sum())
