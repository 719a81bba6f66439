"""FedCorr (Xu et al., CVPR 2022): clients mend their labels, in three stages.

1. Preparing. A client trains with a pull towards the global model, the gradient of
   β μ̂_i ‖θ - θ_t‖², and then looks at its samples with its local model: at the mean local intrinsic
   dimensionality of the outputs, and at each sample's loss. Of two Gaussians fitted to these
   losses, r_i is the share of the larger one. It sends those two numbers and keeps the losses. The
   server fits two Gaussians to the clients' dimensions, each the mean of all it heard: clients of
   the larger one are noisy, μ̂_i = r_i; for others μ̂_i = 0. When a noisy client comes again, it
   looks at its samples with the global model: of the share `relabel_share` · μ̂_i with the largest
   losses, those of which the model is sure get its answer for a label.
2. Fine-tuning. Only clients with μ̂_i <= `clean_below` are drawn. The others get no message and
   cost nothing; the round's mean is of the m who trained, or of all the clean if they are fewer.
   Clients that were never heard wait too. Where nobody is clean, everybody is drawn as it is.
3. Usual rounds of all clients. One with μ̂_i > `clean_below` relabels when it first comes: all
   samples of which the model is sure.

Losses are used once. They and the labels stay in the client's memory; a client that lost it goes on
with its observed labels. Both looks at the samples count as forward passes.

Other than in the authors' code, clients of stage 1 train side by side, as in any round, not one
after the other; dimensions are averaged, not summed, for some may come more often; a client
relabels when it is sent the model anyway; the pull's norm is squared; and losses come of one
softmax, not of two. The defaults are theirs, with the shares of rounds that they have for CIFAR-100
(10 rounds of all clients, then 450 and 450 of a tenth), and with mixup, as they train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Shard, Tree
from gcfl.base.options import Count, NonNegative, PositiveShare, Size, resolve_size, within
from gcfl.labels import intrinsic_dimensions, relabelled, upper_component
from gcfl.labels.mixture import fitter
from gcfl.methods.answers import Like, Sent
from gcfl.methods.base import LocalRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ClientView, ServerView

Share = Annotated[float, AfterValidator(within(0, 1))]


class Mending(LocalRule):
    """Stages, who takes part in them, and the labels that clients train on."""

    # A server that takes part has nothing to mend.
    name: ClassVar[str] = "mending"
    summary: ClassVar[str] = "FedCorr: noisy clients are found, rest for a while, mend their labels"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"train": {"mixup": 1.0}}
    stackable: ClassVar[bool] = False
    doubts: ClassVar[bool] = True

    preparing: Size = 0.1
    """stage 1, where clients are told apart: a share of the rounds, or a count"""
    tuning: Size = 0.45
    """stage 2, of clean clients alone: a share of the rounds, or a count; stage 3 has the rest"""
    beta: NonNegative = 5.0
    """β, pull towards the global model in stage 1, times the estimated share of wrong labels"""
    neighbours: Count = 20
    """k, neighbours that the dimension of the outputs is measured by"""
    relabel_share: PositiveShare = 0.5
    """share of the labels held to be wrong that stage 1 may change, largest losses first"""
    confidence: Share = 0.5
    """probability that the global model's answer must exceed to become a label"""
    clean_below: Share = 0.1
    """largest estimated share of wrong labels of a client that takes part in stage 2"""

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        fitter()  # imported here, before the clocks run

    def stage(self, round: int, rounds: int) -> int:
        """1, 2 or 3."""
        first = resolve_size(self.preparing, rounds)
        return 1 + (round >= first) + (round >= first + resolve_size(self.tuning, rounds))

    # The server's half. Its state, of length N each: how often it heard of a client in stage 1, the
    # sum of the dimensions it was told, the last rate, and μ̂.

    def candidates(self, state: Tree, view: ServerView) -> Sequence[int] | None:
        if not state or self.stage(view.round, view.setting.rounds) != 2:
            return None
        clean = (state["heard"] > 0) & (state["level"] <= self.clean_below)
        return clean.nonzero()[:, 0].tolist() or None

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        if not state:
            return {}
        stage = self.stage(view.round, view.setting.rounds)
        found: dict[int, Tree] = {}
        for client in view.clients:
            level = state["level"][client]
            waits = stage > 1 and level > self.clean_below
            if level == 0 or (waits and stage == 2):
                continue
            found[client] = {
                "share": torch.ones_like(level) if waits else self.relabel_share * level
            }
            if stage == 1:
                found[client]["pull"] = 2 * self.beta * level
        return found

    def sends(self, view: ServerView) -> Sent:
        if self.stage(view.round, view.setting.rounds) != 1:
            return {}
        return {"dimension": Like(low=0), "rate": Like(low=0, high=1)}

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        if self.stage(view.round, view.setting.rounds) != 1:
            return state
        none = torch.zeros(view.population, dtype=torch.float64)
        heard, total, rate = (state.get(name, none).clone() for name in ("heard", "total", "rate"))
        rows = torch.from_numpy(replies.clients)
        heard[rows] += 1
        total[rows] += replies.column("local", "dimension")
        rate[rows] = replies.column("local", "rate")
        known, level = heard > 0, none.clone()
        word = _word(view.setting.seed, view.round)
        noisy = upper_component(total[known] / heard[known], word)
        level[known] = rate[known] * noisy
        return {"heard": heard, "total": total, "rate": rate, "level": level}

    # The client's half. Its memory: the labels it goes by, and losses that it has not used yet.

    def relabel(self, view: ClientView, received: Tree, memory: Tree) -> tuple[Tensor | None, Tree]:
        if any(len(tensor) != view.size for tensor in memory.values()):
            memory = {}  # of other samples than it has now
        if "share" in received and "losses" in memory:
            labels = memory.get("labels", view.shard.y).cpu()
            losses, share = memory["losses"].cpu(), float(received["share"])
            labels = relabelled(labels, losses, view.pool.probabilities, share, self.confidence)
            memory = {"labels": labels}
        return memory["labels"].cpu() if "labels" in memory else None, memory

    def begin(self, model: Tree, received: Tree, memory: Tree) -> Tree:
        if "pull" not in received:
            return {}
        return {f"start.{name}": w for name, w in model.items()} | {"pull": received["pull"]}

    def correct(self, gradient: Tree, params: Tree, fixed: Tree) -> Tree:
        if not fixed:
            return gradient
        return {
            name: slope + fixed["pull"] * (params[name].detach() - fixed[f"start.{name}"])
            for name, slope in gradient.items()
        }

    def reflect(self, view: ClientView, memory: Tree) -> tuple[Tree, Tree]:
        if self.stage(view.round, view.setting.rounds) != 1:
            return {}, memory
        pool = view.pool
        losses = -pool.logits.gather(1, pool.labels[:, None])[:, 0]
        wrong = upper_component(losses, _word(view.setting.seed, view.round, view.client))
        sends = {
            "dimension": intrinsic_dimensions(pool.probabilities, self.neighbours).mean(),
            "rate": wrong.double().mean(),
        }
        return sends, {**memory, "losses": losses.float()}


def _word(seed: int, *names: int) -> int:
    """What a mixture draws from."""
    return int(rng.stream(seed, "mending", *names).integers(2**32))
