"""What server and clients of a run share: network, seed, length, training options."""

from __future__ import annotations

import logging

import torch
from torch import nn

from gcfl import data
from gcfl.engine.frozen import head_only, holds_still
from gcfl.experiment import Experiment
from gcfl.methods import Setting
from gcfl.methods.noise import LocalNoise
from gcfl.models.start import network_of

log = logging.getLogger("gcfl")


def setting_of(
    experiment: Experiment,
    module: nn.Module,
    example: torch.Tensor,
    classes: int,
    normaliser: tuple[torch.Tensor, torch.Tensor] | None,
) -> Setting:
    """Of a module, and of two samples or more that it must take."""
    options, device = experiment.model, experiment.engine.device
    tokens = experiment.data.tokens
    network = network_of(module, example, classes, normaliser, options, device, tokens)
    train, still = experiment.train, holds_still(network, example)
    if head_only(network) and not still:
        log.info(
            "the body takes no gradients, but changes or draws at random in training: model.freeze "
            '= "body" holds it still, so that its features are computed once'
        )
    if train.augment == "auto":
        kind = data.augmentation(experiment.data.source) if example.ndim == 4 else "none"
        if still and kind != "none":
            kind = "none"
            log.info("train.augment is none, so that features of the frozen body are computed once")
        train = train.model_copy(update={"augment": kind})
    local = LocalNoise.of(experiment.privacy, experiment.rounds, experiment.seed)
    return Setting(network, experiment.seed, experiment.rounds, train, local)
