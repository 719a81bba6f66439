"""The trainer for many clients at once: `training.train` with clients as the first dimension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import FloatArray, IntArray, Tree
from gcfl.base.errors import ModelError, one_line
from gcfl.methods.augmentation import StackInputs
from gcfl.methods.base import LocalRule
from gcfl.methods.losses import sample_losses
from gcfl.methods.schedule import rows_of, schedule
from gcfl.methods.training import SGD, look, plain_steps
from gcfl.methods.views import Setting


def check_stackable(setting: Setting, x: torch.Tensor) -> None:
    """Refuse models that cannot be stacked, or mix samples of a batch, or draw at random."""
    network = setting.network
    batch = network.prepare(x[torch.arange(3) % len(x)]).clone()
    batch[1:] += torch.arange(1, 3, device=batch.device, dtype=batch.dtype).reshape(
        -1, *(1,) * (batch.ndim - 1)
    )
    if network.vocabulary is not None:  # still ids of it
        batch %= network.vocabulary
    tree = network.tree()
    before = {name: tensor.clone() for name, tensor in tree.items()}
    stack = {name: torch.stack([tree[name], tree[name]]) for name in network.trained}
    rest = {name: tensor for name, tensor in tree.items() if name not in stack}

    def logits(params: Tree, samples: torch.Tensor) -> torch.Tensor:
        return network({**params, **rest}, samples, training=True).logits

    try:
        with rng.isolated(0, "vectorised"):
            alone = [
                logits({name: tree[name] for name in stack}, batch[[0, other]])[0]
                for other in (1, 2)
            ]
            many = torch.vmap(logits)(stack, torch.stack([batch[[0, 1]], batch[[0, 2]]]))
    except Exception as error:  # whatever a module raises under vmap
        raise ModelError(
            f"engine.vectorised cannot train this model ({one_line(error)[:200]}); run it without"
        ) from error
    mixes = not torch.allclose(alone[0], alone[1])
    mixes = mixes or not torch.allclose(many[:, 0], torch.stack(alone), atol=1e-5)
    if mixes or any(not torch.equal(tensor, before[name]) for name, tensor in tree.items()):
        raise ModelError(
            "engine.vectorised cannot train this model: what it makes of a sample depends on the "
            "rest of the batch, on chance or on what it saw before (BatchNorm, Dropout, counters); "
            "run it without"
        )


@dataclass(frozen=True)
class Job:
    """Local training of m clients in one round.

    x, y: their samples one after the other, sizes (m,) how many each has; weights: of each client's
    samples, where used. received: what the server added, stacked if `apart`, else the same for all;
    memory: what they remember, stacked, or empty; kept: what the rule kept of each row of x.
    """

    round: int
    clients: IntArray
    x: Tensor
    y: Tensor
    sizes: IntArray
    weights: list[FloatArray] | None
    model: Tree
    received: Tree
    apart: bool
    memory: Tree
    lr: float
    columns: Tensor | None = None
    kept: Tensor | None = None


@dataclass(frozen=True)
class Stack:
    """m clients after training: local models, what they send, remember and keep, and the cost."""

    clients: IntArray
    local: Tree
    sends: Tree
    memory: Tree
    examples: IntArray
    steps: FloatArray
    forward: FloatArray
    backward: FloatArray
    loss: FloatArray
    kept: Tensor | None = None


def train_stack(setting: Setting, rule: LocalRule, job: Job) -> Stack:
    """All clients of a job at once."""
    network, options = setting.network, setting.train
    rows, counts, scale = rows_of(job.sizes, job.weights)
    draws = rule.views == 2 or bool(options.mixup) or options.augment != "none"
    table, steps = schedule(setting.seed, job.round, job.clients, counts, options, ordered=draws)
    # Clients that have finished are at the end, and drop out.
    order = np.argsort(-steps, kind="stable")
    # Per client, step and place in the batch: the row of x, or -1.
    flat = table.reshape(len(table), -1)
    places = np.where(flat >= 0, np.take_along_axis(rows, np.maximum(flat, 0), axis=1), -1)
    places, steps = places.reshape(table.shape)[order], steps[order]
    model = {name: tensor.detach() for name, tensor in job.model.items()}
    memory = _ordered(job.memory, order)
    received = _ordered(job.received, order) if job.apart else job.received

    fixed, apart = _begin(rule, model, received, job.apart, memory)
    start = rule.start(model, memory)
    local = {name: _spread(tensor, model[name], len(order)) for name, tensor in start.items()}
    params = {name: local[name] for name in network.trained}
    rest = {name: tensor for name, tensor in model.items() if name not in params}
    optimiser = SGD(list(params.values()), job.lr, options.momentum, options.weight_decay)
    gradient = _gradient(setting, rule, rest, apart)
    correct = torch.vmap(rule.correct, in_dims=(0, 0, 0 if apart else None))
    columns = None if job.columns is None else job.columns[torch.from_numpy(order)]
    clients = job.clients[order].tolist()
    inputs = StackInputs(options, setting.seed, job.round, clients, rule.views)
    kept = None if job.kept is None else job.kept.clone()
    totals = torch.zeros(len(order), dtype=torch.float64)
    for step in range(int(steps.max(initial=0))):
        active = int((steps > step).sum())
        at = torch.from_numpy(places[:active, step])
        real = at >= 0
        mask = real.to(job.x.dtype)
        # A short batch is filled with a sample of its own, which counts for nothing.
        rows_now = torch.where(real, at, at[:, :1])
        weights = mask / mask.sum(dim=1, keepdim=True)
        if scale is not None:
            weights = weights * scale[rows_now]
        now = {name: tensor[:active] for name, tensor in params.items()}
        fixed_now = {name: tensor[:active] for name, tensor in fixed.items()} if apart else fixed
        taken = rows_now.flatten()
        batch_x = job.x.index_select(0, taken).reshape(*rows_now.shape, *job.x.shape[1:])
        batch_y = job.y.index_select(0, taken).reshape(rows_now.shape)
        batch_x, extra, mix = inputs.of(batch_x, real, step)
        targets = [(batch_y, weights)] if mix is None else mix.targets(batch_y, weights)
        if kept is not None:
            extra["kept"] = kept[rows_now]
        columns_now = None if columns is None else columns[:active]
        slopes, losses, noted = gradient(
            now, batch_x, extra, targets, weights, fixed_now, columns_now
        )
        if kept is not None and noted is not None:
            kept[at[real]] = noted[real]
        totals[:active] += losses.double()
        slopes = correct(slopes, now, fixed_now)
        if options.clip is not None:
            slopes = _clipped(slopes, options.clip)
        optimiser.step([slopes[name] for name in params], active)

    ended = {
        name: local[name] if name in local else _spread(tensor, tensor, len(order))
        for name, tensor in model.items()
    }
    moved = np.array([plain_steps(int(one), options.momentum) for one in steps])
    sends, remembers = _finish(rule, ended, fixed, apart, moved, job.lr)
    back = np.argsort(order)
    seen = (table >= 0).sum(axis=(1, 2)).astype(np.float64)
    made = steps[back].astype(np.float64)
    return Stack(
        clients=job.clients,
        local=_ordered(ended, back),
        sends=_ordered(sends, back),
        memory={name: tensor.clone() for name, tensor in _ordered(remembers, back).items()},
        examples=counts,
        steps=made,
        forward=seen * rule.forwards(fixed),
        backward=seen * rule.views,
        loss=totals[torch.from_numpy(back)].numpy() / np.maximum(made, 1),
        kept=kept,
    )


def _ordered(tree: Tree, order: IntArray) -> Tree:
    places = torch.from_numpy(order)
    return {name: tensor[places] for name, tensor in tree.items()}


def _finish(
    rule: LocalRule, ended: Tree, fixed: Tree, apart: bool, steps: FloatArray, lr: float
) -> tuple[Tree, Tree]:
    """The rule's `finish` for all clients."""

    def one(local: Tree, fixed: Tree, steps: Tensor) -> tuple[Tree, Tree, Tensor]:
        return (*rule.finish(local, fixed, steps, lr), steps)  # vmap wants a tensor back

    done = torch.from_numpy(steps.astype(np.float32))
    together = torch.vmap(one, in_dims=(0, 0 if apart else None, 0))
    sends, memory, _ = together(ended, fixed, done)
    return sends, memory


def _begin(
    rule: LocalRule, model: Tree, received: Tree, received_apart: bool, memory: Tree
) -> tuple[Tree, bool]:
    """The rule's constants, and whether they differ from client to client."""
    if not received_apart and not memory:
        return rule.begin(model, received, memory), False
    apart = (None, 0 if received_apart else None, 0 if memory else None)
    return torch.vmap(rule.begin, in_dims=apart)(model, received, memory), True


def _spread(tensor: Tensor, like: Tensor, clients: int) -> Tensor:
    """One copy for each client, unless there is one already."""
    copies = tensor if tensor.ndim > like.ndim else tensor.expand(clients, *tensor.shape)
    return copies.clone()


def _gradient(
    setting: Setting, rule: LocalRule, rest: Tree, apart: bool
) -> Callable[..., tuple[Tree, Tensor, Tensor | None]]:
    """(params, x, extra, targets, weights, fixed), all stacked, to (gradients, losses without the
    rule's term, what the rule noted). targets: labels and by how much each counts.

    Only the network and the rule run under vmap. A client's loss depends on its own parameters
    alone, so the gradient of the sum of all losses is every client's gradient.
    """
    network, options = setting.network, setting.train

    def forward(params: Tree, x: Tensor, extra: Tree, fixed: Tree) -> Tree:
        return look(rule, network, {**params, **rest}, x, extra, fixed)

    together = torch.vmap(forward, in_dims=(0, 0, 0, 0 if apart else None))

    def gradient(
        params: Tree,
        x: Tensor,
        extra: Tree,
        targets: list[tuple[Tensor, Tensor]],
        weights: Tensor,
        fixed: Tree,
        columns: Tensor | None,
    ) -> tuple[Tree, Tensor, Tensor | None]:
        params = {name: tensor.detach().requires_grad_() for name, tensor in params.items()}
        found = together(params, x, extra, fixed)
        first, *others = (
            sample_losses(found["logits"], y, options, columns) * counts for y, counts in targets
        )
        losses = sum(others, first)
        total = losses.sum()
        if "term" in found:
            total = total + (found["term"] * weights).sum()
        slopes = torch.autograd.grad(total, list(params.values()), materialize_grads=True)
        noted = found.get("noted")
        return dict(zip(params, slopes, strict=True)), losses.detach().sum(dim=1), noted

    return gradient


def _clipped(slopes: Tree, longest: float) -> Tree:
    """Each client's gradient no longer than `longest` in all."""
    squares = torch.stack(
        [slope.reshape(len(slope), -1).square().sum(dim=1) for slope in slopes.values()]
    ).sum(dim=0)
    scale = (longest / squares.sqrt().clamp(min=1e-12)).clamp(max=1.0)
    return {
        name: slope * scale.reshape(-1, *(1,) * (slope.ndim - 1)) for name, slope in slopes.items()
    }
