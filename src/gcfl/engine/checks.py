"""What cannot be played is refused before any work, in a sentence."""

from __future__ import annotations

import torch

from gcfl.base.errors import ConfigError
from gcfl.experiment import Experiment
from gcfl.methods import Method, Setting
from gcfl.methods.batched import check_stackable


def check_cohort(method: Method, cohort: int, clients: int) -> None:
    """So many clients in a round, of so many."""
    if cohort > clients and not method.pooled:
        raise ConfigError(
            f"cohort is {cohort}, but there are only {clients} clients (data.clients)"
        )
    if (1 if method.pooled else cohort) < method.server.fewest:
        raise ConfigError(
            f"{method.name} needs at least {method.server.fewest} clients in a round, to tell "
            f"wrong updates by the others; there are {1 if method.pooled else cohort} (cohort, "
            "data.clients)"
        )


def check_vectorised(
    experiment: Experiment, method: Method, setting: Setting, x: torch.Tensor
) -> None:
    """Many clients at once."""
    if setting.local_noise is not None:
        raise ConfigError("engine.vectorised trains no clients that add noise of their own")
    if not method.local.stackable:
        raise ConfigError(
            f"{method.name} cannot be had with engine.vectorised: its clients correct their labels "
            "one by one"
        )
    check_stackable(setting, x)
    if experiment.engine.workers > 1:
        raise ConfigError(
            "engine.vectorised trains all clients in one process: engine.workers must be 1"
        )


def check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"engine.device {name!r} is no device that torch knows; use cpu, cuda or mps"
        ) from None
    cuda = torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    there = {"cpu": True, "cuda": cuda, "mps": torch.backends.mps.is_available()}.get(
        device.type, False
    )
    if not there:
        raise ConfigError(f"engine.device {name!r} is not available on this machine")
