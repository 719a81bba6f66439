"""Label noise in a federated run: each client's transition matrix T_i, and which labels are right.

An estimate is made where a client selects anyway, from the same forward pass; where the method
never selects, every `every` rounds, by a pass of its own. The client remembers T_i; before the
first estimate, or after lost state, T = I. What it tells the server is the round of its estimate
and, only where rates are pooled, its rate and its number of samples. What the server tells it is
the pooled rate with its weight; where it holds out clean samples, a calibration of the model on
those: a temperature and a bias per class; and, where labels are judged by an average of recent
global models, that model. (In the middle of training a single model swings far more than it is
wrong: the average judges better.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator

from gcfl.base.data_types import IntArray, Shard, Tree
from gcfl.base.errors import ConfigError
from gcfl.base.options import Count, Positive, allows, within
from gcfl.labels import (
    Calibration,
    NoiseModel,
    fit_calibration,
    label_posterior,
    pool_rates,
    symmetric_transition,
)
from gcfl.labels.evidence import looked, used
from gcfl.labels.posterior import Transition
from gcfl.methods.answers import Like, Sent
from gcfl.methods.base import Estimate, LabelRule
from gcfl.methods.guard import compared, comparison, distrusted, no_comparison, plain_clients
from gcfl.methods.replies import Replies
from gcfl.methods.selection import round_until, under
from gcfl.methods.views import NEVER, Labelled, ServerView

_MODEL = "model."  # before the names of the averaged model's tensors
_DUE, _PLAIN = "due", "plain"  # where clients are compared: judge now; train plainly now


@allows("0 or at least 4")
def _periods(rounds: int) -> int:
    if rounds and rounds < 4:
        raise ValueError("must be 0, or at least 4: a comparison takes two rounds")
    return rounds


class LabelNoise(LabelRule):
    """[labels]"""

    name: ClassVar[str] = "label-noise"
    summary: ClassVar[str] = "the share of wrong labels, by EM on the model's outputs"

    model: Transition = "uniform"
    """noise: uniform (one rate), full (a matrix, shrunk to the uniform one), or auto (a matrix
    where a client's samples carry it)
    """
    pseudo_counts: Positive = 20.0
    """full: samples per class that the uniform matrix counts for"""
    every: Count = 10
    """rounds between two estimates, where the method does not select"""
    pooling: bool = True
    """clients tell their rate and size, and shrink their T to the common rate"""
    average: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.0
    """labels are judged by an average of the global models, in which the past weighs so much; 0:
    by the newest one
    """
    guard: Annotated[int, AfterValidator(_periods)] = 0
    """rounds from the first comparison with plain draws, on the clean set, to the second; where
    plain draws do better, clients fall back to them; 0: no comparison
    """

    evidence: bool = False
    """each client keeps, for every sample, what its estimates said of the label: for an audit"""

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        if len(classes) < 2:
            raise ConfigError(
                "labels of a single class cannot be judged: there is nothing to confuse"
            )

    def server_init(self, model: Tree) -> Tree:
        empty = torch.empty(0, dtype=torch.int64)
        rates = torch.empty(0, dtype=torch.float64)
        state = {"clients": empty, "rounds": empty.clone(), "sizes": empty.clone(), "rates": rates}
        if self.average:
            state |= {f"{_MODEL}{name}": tensor for name, tensor in _floating(model).items()}
            state["models"] = torch.tensor(0.0, dtype=torch.float64)
        return state | no_comparison() if self.guard else state

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        due = view.selecting if view.selecting is not None else self._due(state, view)
        found = dict.fromkeys(due, self._message(state, view)) if due else {}
        if not self.guard:
            return found
        found = {client: {**message, _DUE: torch.tensor(True)} for client, message in found.items()}
        for client in plain_clients(state, view):
            found[client] = {**found.get(client, {}), _PLAIN: torch.tensor(True)}
        return found

    def _message(self, state: Tree, view: ServerView) -> Tree:
        """What a client needs in order to judge its labels now."""
        message: Tree = {}
        if view.held_out is not None:
            view.meter.forward += len(view.held_out)
            logits = view.setting.network.outputs(view.model, view.held_out.x).logits.cpu()
            found = fit_calibration(logits, view.held_out.y)
            message = {
                "temperature": torch.tensor(found.temperature, dtype=torch.float64),
                "bias": found.bias,
                "prior": found.prior,
            }
        known = state["sizes"] > 0
        if self.pooling and bool(known.any()):
            rate, weight = pool_rates(
                state["rates"][known].tolist(), state["sizes"][known].tolist()
            )
            message["pooled"] = torch.tensor([rate, weight], dtype=torch.float64)
        if self.average and float(state["models"]) > 0:
            averaged = self._averaged(state, view.model)
            message |= {k: v for k, v in averaged.items() if k.startswith(_MODEL)}
        return message

    def _averaged(self, state: Tree, model: Tree) -> Tree:
        """Σ_k d^k θ_{t-k} / Σ_k d^k, of this round's model and those before. models: Σ_k d^k."""
        count = self.average * state["models"] + 1
        after = {"models": count}
        for name, tensor in _floating(model).items():
            before = state[f"{_MODEL}{name}"].to(tensor.device)
            after[f"{_MODEL}{name}"] = before + (tensor - before) / float(count)
        return after

    def _due(self, state: Tree, view: ServerView) -> tuple[int, ...]:
        last = dict(zip(state["clients"].tolist(), state["rounds"].tolist(), strict=True))
        return tuple(
            client
            for client in view.clients
            if last.get(client, NEVER) == NEVER or view.round - last[client] >= self.every
        )

    def estimate(self, view: Labelled, received: Tree | None, memory: Tree) -> Estimate:
        plain = received is not None and _PLAIN in received
        if received is None or (plain and _DUE not in received):
            known = None if plain else memory.get("transition")
            return Estimate(known, self._sends(memory, view.size), memory, plain=plain)
        own = under(received, _MODEL)
        # What the selector looks at is the newest model's: a pass of its own where it needs that.
        pool = view.seen_by(own) if own else view.pool
        logits, temperature, prior = pool.logits, None, None
        if "temperature" in received:
            calibration = Calibration(
                float(received["temperature"]), received["bias"], received["prior"]
            )
            logits, temperature, prior = calibration.apply(logits), 1.0, calibration.prior
        found = label_posterior(
            logits, pool.labels, NoiseModel(self.model, self.pseudo_counts, temperature, prior)
        )
        transition = found.transition
        if found.uniform:
            rate = found.rate
            if "pooled" in received:  # towards the others', which counts for `weight` samples
                common, weight = received["pooled"].tolist()
                rate = (view.size * rate + weight * common) / (view.size + weight)
            transition = symmetric_transition(rate, pool.classes)
        kept = looked(memory, found.posterior) if self.evidence else {}
        memory = {
            "transition": transition.float(),
            "round": torch.tensor(view.round),
            "rate": torch.tensor(found.rate, dtype=torch.float64),
            **kept,
        }
        sends = self._sends(memory, view.size)
        known = None if plain else memory["transition"]
        return Estimate(known, sends, memory, found.right, found.rate, plain)

    def trained(self, memory: Tree, rows: IntArray, round: int) -> Tree:
        return used(memory, rows, round) if self.evidence else memory

    def _sends(self, memory: Tree, size: int) -> Tree:
        """The round of the last estimate; its rate, and of how many samples, where rates are
        pooled.
        """
        known = "round" in memory
        sends = {"round": memory["round"] if known else torch.tensor(NEVER)}
        if self.pooling:
            nothing = torch.tensor(0.0, dtype=torch.float64)
            sends |= {"rate": memory["rate"] if known else nothing}
            sends |= {"size": torch.tensor(size if known else 0)}
        return sends

    def sends(self, view: ServerView) -> Sent:
        sent = {"round": round_until(view)}
        if self.pooling:
            sent |= {"rate": Like(low=0, high=1), "size": Like((), torch.int64, 0, held=True)}
        return sent

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        """Remember, for each client that answered, the last estimate that it told of."""
        fresh = {"clients": torch.from_numpy(replies.clients)}
        fresh["rounds"] = replies.column("labels", "round")
        for plural, name in (("sizes", "size"), ("rates", "rate")):
            none = torch.zeros(len(replies), dtype=state[plural].dtype)
            fresh[plural] = replies.column("labels", name) if self.pooling else none
        others = torch.from_numpy(~np.isin(state["clients"].numpy(), replies.clients))
        merged = {name: torch.cat([state[name][others], fresh[name]]) for name in fresh}
        order = torch.argsort(merged["clients"])
        after = {name: column[order] for name, column in merged.items()}
        after |= self._averaged(state, view.model) if self.average else {}
        return after | compared(state, view, replies, self.guard) if self.guard else after

    def told(self, state: Tree, round: int) -> dict[str, float] | None:
        return comparison(state, round) if self.guard else None

    def ignored(self, state: Tree, view: ServerView, replies: Replies) -> Collection[int]:
        return distrusted(state, view, replies) if self.guard else ()


def _floating(model: Tree) -> Tree:
    return {name: tensor for name, tensor in model.items() if tensor.is_floating_point()}
