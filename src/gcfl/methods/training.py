"""The one trainer: SGD on a coreset from a given model, for every local rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Coreset, IntArray, Tree
from gcfl.methods.augmentation import Inputs
from gcfl.methods.base import LocalRule
from gcfl.methods.losses import mean_loss
from gcfl.methods.options import TrainOptions
from gcfl.methods.views import ClientView
from gcfl.models.network import Network


@dataclass(frozen=True)
class Trained:
    """The local model, how many samples and steps led to it, the steps' mean loss, and (n, C) what
    the rule keeps of each of the client's samples, if it does.
    """

    model: Tree
    examples: int
    steps: int
    loss: float
    kept: Tensor | None = None


def learning_rate(options: TrainOptions, round: int, rounds: int) -> float:
    """η_t = η (1 + cos(π t / T)) / 2, or η."""
    if options.schedule == "constant":
        return options.lr
    return options.lr * (1 + math.cos(math.pi * round / rounds)) / 2


def orders(seed: int, round: int, client: int, n: int, options: TrainOptions) -> Iterator[IntArray]:
    """One shuffled pass over n samples after the other, the last one cut where `steps` says so."""
    base = rng.key(seed, "order", round, client)
    batches = math.ceil(n / options.batch)
    steps = options.steps or options.passes(batches) * batches
    left = steps * options.batch
    epoch = 0
    while left > 0:
        order = rng.order(base, epoch, n)[:left]
        yield order
        left -= math.ceil(len(order) / options.batch) * options.batch
        epoch += 1


def plain_steps(steps: int, momentum: float) -> float:
    """How many plain steps would move as far along one gradient as `steps` with momentum m do from
    rest: Σ_{k=1..K} (1 - m^k) / (1 - m).
    """
    if not momentum:
        return steps
    late = momentum * (1 - momentum**steps) / (1 - momentum)
    return (steps - late) / (1 - momentum)


class SGD:
    """SGD with momentum and weight decay, as torch.optim.SGD defines it, in one fused kernel.

    b ← m b + (g + wd θ), θ ← θ - lr b, in place; b starts at 0, so the first step takes the
    plain gradient.
    """

    def __init__(
        self, params: list[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        self._params = params
        self._lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self._buffers = [torch.zeros_like(param) for param in params] if momentum else []
        self._fused = params[0].device.type in ("cpu", "cuda")

    @torch.no_grad()
    def step(self, gradients: list[Tensor], first: int | None = None) -> None:
        """One step, of the first so many rows if said; the gradients may be overwritten."""
        params, buffers = self._params, self._buffers
        if first is not None and first < len(params[0]):
            params, buffers = (
                [tensor[:first] for tensor in tensors] for tensors in (params, buffers)
            )
        if self._fused:
            # The kernel walks through memory: a gradient that lies there in another order than its
            # parameter would go astray.
            gradients = [
                gradient
                if gradient.stride() == param.stride()
                else torch.empty_like(param).copy_(gradient)
                for gradient, param in zip(gradients, params, strict=True)
            ]
            torch._fused_sgd_(
                params,
                gradients,
                buffers,
                weight_decay=self._weight_decay,
                momentum=self._momentum,
                lr=self._lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )
            return
        torch._foreach_add_(gradients, params, alpha=self._weight_decay)
        if buffers:
            torch._foreach_mul_(buffers, self._momentum)
            torch._foreach_add_(buffers, gradients)
        torch._foreach_add_(params, buffers or gradients, alpha=-self._lr)


def clipped(gradients: list[Tensor], longest: float) -> list[Tensor]:
    """The same direction, no longer than `longest` in all."""
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    scale = (longest / norm.clamp(min=1e-12)).clamp(max=1.0)
    return [gradient * scale for gradient in gradients]


def look(
    rule: LocalRule, network: Network, model: Tree, x: Tensor, extra: Tree, fixed: Tree
) -> Tree:
    """A step's samples through the model: the "logits" to take the loss of, the rule's "term" if it
    has one, and what it has "noted" of each sample if it keeps that.

    extra: the "second" view and its "share", and what was "kept", where the rule wants them.
    """
    output = network(model, x, training=True)
    found: Tree = {}
    if rule.views == 2:
        second = network(model, extra["second"], training=True).logits
        fixed = {**fixed, "second": second, "share": extra["share"]}
    if rule.keeps:
        with torch.no_grad():
            found["noted"] = rule.note(output, extra["kept"])
        fixed = {**fixed, "kept": found["noted"]}
    found["logits"] = rule.logits(output, fixed)
    term = rule.loss(network, output, x, fixed)
    return found if term is None else {**found, "term": term}


def trained_on(coreset: Coreset, weighted: bool) -> Coreset:
    """What training uses of it: everything, or, with weights, the points of weight > 0. Everything
    again where no point has such a weight.
    """
    positive = coreset.weights > 0
    if not weighted or not positive.any():
        return coreset
    return Coreset(coreset.indices[positive], coreset.weights[positive])


def remembered_rows(kept: Tensor | None, n: int, classes: int) -> Tensor:
    """(n, C) a copy of what a rule kept of each sample; 0 where that was lost, or was of others."""
    if kept is None or kept.shape != (n, classes):
        return torch.zeros(n, classes)
    return kept.clone()


def train(
    view: ClientView,
    coreset: Coreset,
    rule: LocalRule,
    fixed: Tree,
    weighted: bool,
    lr: float,
    columns: Tensor | None = None,
    kept: Tensor | None = None,
) -> Trained:
    """Local training from the view's model. columns: of T, for the corrected loss. kept: what the
    rule kept of each of the client's samples.

    Per step: loss = mean of w_j (l_j + rule.loss_j) over the batch -> gradient -> rule.correct ->
    clipping -> SGD.

    A pass cuts its shuffled samples into batches, of which the last may be smaller. Weights, where
    used, are scaled to mean 1 over the coreset, so that they do not change the learning rate;
    points of weight 0 are dropped.
    """
    setting = view.setting
    network, options = setting.network, setting.train
    used = trained_on(coreset, weighted)
    indices, weights = used.indices, None
    if weighted and (used.weights > 0).any():
        scaled = torch.from_numpy(used.weights / used.weights.mean())
        weights = scaled.to(network.device, torch.float32)
    rows = torch.from_numpy(indices)
    x, y = network.prepare(view.shard.x[rows]), view.shard.y[rows].to(network.device)
    rows = rows.to(network.device)
    table = remembered_rows(kept, view.size, network.classes).to(x) if rule.keeps else None

    local = {name: tensor.to(network.device, copy=True) for name, tensor in view.model.items()}
    params = {name: local[name].requires_grad_() for name in network.trained}
    tensors = list(params.values())
    optimiser = SGD(tensors, lr, options.momentum, options.weight_decay)
    inputs = Inputs(options, setting.seed, view.round, view.client, rule.views)
    losses: list[Tensor] = []
    seen = 0
    with network.attached(local), rng.isolated(setting.seed, "train", view.round, view.client):
        for order in orders(setting.seed, view.round, view.client, len(indices), options):
            shuffled = torch.from_numpy(order).to(network.device)
            pass_x, pass_y, pass_rows = x[shuffled], y[shuffled], rows[shuffled]
            pass_weights = None if weights is None else weights[shuffled]
            for place in range(0, len(order), options.batch):
                batch = slice(place, place + options.batch)
                batch_weights = None if pass_weights is None else pass_weights[batch]
                batch_x, extra, mix = inputs.of(pass_x[batch], len(losses))
                if table is not None:
                    extra["kept"] = table[pass_rows[batch]]
                found = look(rule, network, local, batch_x, extra, fixed)
                loss = mean_loss(
                    found["logits"], pass_y[batch], options, batch_weights, columns, mix
                )
                losses.append(loss.detach())
                if "term" in found:
                    term = found["term"]
                    loss = loss + (term if batch_weights is None else term * batch_weights).mean()
                if table is not None:
                    table[pass_rows[batch]] = found["noted"]
                gradients = torch.autograd.grad(loss, tensors, materialize_grads=True)
                corrected = rule.correct(dict(zip(params, gradients, strict=True)), params, fixed)
                steps = [corrected[name] for name in params]
                optimiser.step(steps if options.clip is None else clipped(steps, options.clip))
            seen += len(order)
    view.meter.forward += seen * rule.forwards(fixed)
    view.meter.backward += seen * rule.views
    view.meter.steps += len(losses)
    # What an update does not carry (statistics that are kept as they were) does not change at the
    # client either.
    trained = {
        name: tensor.detach() if name in network.sent else view.model[name]
        for name, tensor in local.items()
    }
    return Trained(trained, len(indices), len(losses), float(torch.stack(losses).mean()), table)
