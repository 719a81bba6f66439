"""How long, and at which rate, the server trains on its clean set: chosen by cross-validation on
that set alone.

A candidate trains on two thirds of D_S and is judged on the rest, three times. What counts is the
cross-entropy after the best temperature: a model that is too sure is no worse for it, since labels
are judged at a temperature of their own. The rate is chosen first, at a length of about 300 steps;
then the length, doubled or halved if that lowers the loss by 2%.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gcfl.base import rng
from gcfl.base.data_types import Shard, Tree
from gcfl.methods.losses import calibrated_loss
from gcfl.methods.options import CleanOptions
from gcfl.methods.server_training import WARM, annealed
from gcfl.methods.views import ServerView

FOLDS = 3
_FEWEST = 12  # clean samples, below which nothing can be told
_STEPS = 300
_LONGEST, _SHORTEST = 100, 5  # epochs, before that
_RATES = (1.0, 1 / 3)  # of train.lr
_BETTER = 0.98


@dataclass(frozen=True)
class _Trial:
    """One candidate, judged on samples that it has not seen."""

    lr: float
    epochs: int
    loss: float


def settled(view: ServerView, clean: CleanOptions, known: Tree) -> tuple[CleanOptions, Tree]:
    """[clean] with numbers where it says auto, and the server's note of them: what is `known`, or,
    in the first round, what cross-validation finds.
    """
    if "auto" not in (clean.warm_start, clean.lr):
        return clean, {}
    note = known or _chosen(view, clean)
    lr, epochs = float(note["lr"]), int(note["epochs"])
    return clean.model_copy(update={"lr": lr, "warm_start": epochs}), note


def _chosen(view: ServerView, clean: CleanOptions) -> Tree:
    usual = view.setting.train.lr
    n, batch = len(view.validation), view.setting.train.batch
    lr = clean.lr if isinstance(clean.lr, float) else usual
    length = min(max(round(_STEPS / -(-n // batch)), _SHORTEST), _LONGEST)
    fixed = length if clean.warm_start == "auto" else clean.warm_start
    epochs = fixed or length  # without a warm start the rate is still that of the rounds
    if n < _FEWEST:
        return _note(lr, fixed)
    rates = [share * usual for share in _RATES] if clean.lr == "auto" else [lr]
    best = min((_tried(view, rate, epochs) for rate in rates), key=lambda trial: trial.loss)
    if clean.warm_start != "auto":
        return _note(best.lr, fixed)
    for factor in (2.0, 0.5):
        trial = _tried(view, best.lr, max(1, round(best.epochs * factor)))
        if trial.loss <= _BETTER * best.loss:
            best = trial
            break
    return _note(best.lr, best.epochs)


def _note(lr: float, epochs: int) -> Tree:
    return {"lr": torch.tensor(lr, dtype=torch.float64), "epochs": torch.tensor(epochs)}


def _tried(view: ServerView, lr: float, epochs: int) -> _Trial:
    whole = view.validation
    order = rng.stream(view.setting.seed, "clean", "folds").permutation(len(whole))
    logits, labels = [], []
    for fold in range(FOLDS):
        judged = np.sort(order[fold::FOLDS])
        rest = np.sort(np.delete(order, np.s_[fold::FOLDS]))
        inside = replace(view, validation=_rows(whole, rest))
        model = annealed(inside, lr, epochs, WARM - 1 - fold)
        view.meter.forward += len(judged)
        logits.append(view.setting.network.outputs(model, whole.x[judged]).logits.cpu())
        labels.append(whole.y[judged])
    return _Trial(lr, epochs, calibrated_loss(torch.cat(logits), torch.cat(labels)))


def _rows(shard: Shard, rows: np.ndarray) -> Shard:
    return Shard(shard.x[rows], shard.y[rows], shard.ids[rows])
