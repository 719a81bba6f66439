"""How much each client's update Δ_i helped, by what the server has anyway: its clean samples.

They are those held out, where there are some, else D_S. With L the mean cross-entropy on them and θ
the model that was sent, the server's own step is s = -∇L(θ), and a client has

    norm            ‖Δ_i‖
    cosine          ⟨Δ_i, s⟩ / (‖Δ_i‖ ‖s‖)          0 where one of them is 0, or s is not finite
    weight          a_i = n_i / Σ n, or 1/m; 0 where its update does not enter the model
    left_out_loss   v_i = L*(θ + Σ_{j≠i} a_j Δ_j / (1 - a_i)) - L*(θ + Σ_j a_j Δ_j)

over the trained weights, in which L* is L after the best temperature, and the last sums are over
the clients that enter the model, with weights that add up to 1. v_i > 0 means that the model is
worse without the client. The server's own update, where it takes part, has its share in the a_i but
no part in v_i: it may have trained on these very samples, and would make all others look harmful.

The cosine says how alike the client's samples and the clean ones are, not how right its labels: a
client with rare classes pulls elsewhere too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from gcfl.base import rng
from gcfl.base.data_types import Shard, Tree
from gcfl.methods.averaging import step
from gcfl.methods.losses import tempered_loss
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView

MOST = 50  # clients of a round that are left out one by one: each costs a pass over the samples
_BATCH = 256

Contributions = dict[str, dict[str, float]]


def judged_on(view: ServerView) -> tuple[str, Shard]:
    """The samples that count, and what they are called in the record."""
    if view.held_out is None:
        return "clean set", view.validation
    return "held out", view.held_out


def contributions(
    view: ServerView, replies: Replies, entering: Replies, by_examples: bool, leave_out: bool
) -> Contributions:
    """By client, its number as text: norm, cosine and weight, and its left_out_loss where that is
    asked for (`leave_out`) and at least two and at most 50 clients enter the model.

    replies: all valid ones. entering: those that enter the model, the server's own among them.
    """
    if not len(replies):
        return {}
    _, shard = judged_on(view)
    own = own_step(view, shard)
    length = float(sum(float(part.double().square().sum()) for part in own.values())) ** 0.5
    inner, norms = replies.products(own)
    scale = norms * length
    known = np.isfinite(inner) & np.isfinite(scale) & (scale > 0)
    cosines = np.divide(inner, scale, out=np.zeros_like(inner), where=known)
    weights = dict(zip(entering, entering.shares(by_examples).tolist(), strict=True))
    found = {
        str(client): {"norm": norm, "cosine": cosine, "weight": weights.get(client, 0.0)}
        for client, norm, cosine in zip(replies, norms.tolist(), cosines.tolist(), strict=True)
    }
    if leave_out:
        members = [client for client in replies if client in weights]
        counted = replies if len(members) == len(replies) else replies.among(members)
        for client, loss in left_out_losses(view, counted, by_examples, shard).items():
            found[str(client)]["left_out_loss"] = loss
    return found


def own_step(view: ServerView, shard: Shard) -> Tree:
    """s = -∇L(θ) for the trained weights, in evaluation mode; counted."""
    network, n = view.setting.network, len(shard)
    model = {name: tensor.detach().to(network.device) for name, tensor in view.model.items()}
    params = {name: model[name].clone().requires_grad_() for name in network.trained}
    tree = {**model, **params}
    total = [torch.zeros_like(param) for param in params.values()]
    # Batches of nearly one size: none of one sample, which some layers cannot take.
    batches = torch.arange(n).tensor_split(-(-n // _BATCH))
    with rng.isolated(view.setting.seed, "contribution", view.round):
        for rows in batches:
            logits = network(tree, network.prepare(shard.x[rows])).logits
            labels = shard.y[rows].to(network.device)
            loss = cross_entropy(logits, labels, reduction="sum") / n
            parts = torch.autograd.grad(loss, list(params.values()), materialize_grads=True)
            torch._foreach_sub_(total, parts)
    view.meter.forward += n
    view.meter.backward += n
    return {name: part.cpu() for name, part in zip(params, total, strict=True)}


def left_out_losses(
    view: ServerView, replies: Replies, by_examples: bool, shard: Shard
) -> dict[int, float]:
    """v_i by client; none where there is nobody else, or more than 50 of them. Counted."""
    if not 2 <= len(replies) <= MOST:
        return {}
    whole = tempered_loss(view, step(view, replies.mean(by_examples), 1.0), shard)
    means = _means_without(replies, by_examples)
    return {
        client: tempered_loss(view, step(view, mean, 1.0), shard) - whole for client, mean in means
    }


def _means_without(replies: Replies, by_examples: bool) -> Iterator[tuple[int, Tree]]:
    """By client, the mean delta of all others."""
    mean = replies.mean(by_examples)
    for client, share in zip(replies, replies.shares(by_examples).tolist(), strict=True):
        if share > 0.5:  # the difference would lose digits
            yield client, replies.among([one for one in replies if one != client]).mean(by_examples)
            continue
        delta = replies[client].delta
        rest = {name: whole - share * delta[name].to(whole) for name, whole in mean.items()}
        yield client, {name: tensor / (1 - share) for name, tensor in rest.items()}
