"""What cannot be kept private is refused before any work, in a sentence; and what a clean set
without protection would tell is warned about.
"""

from __future__ import annotations

import logging

import numpy as np
import torch

from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError
from gcfl.methods.accounting import library
from gcfl.methods.averaging import Average, ServerAdam, ServerMomentum
from gcfl.methods.base import ClientPart, LocalRule, Method
from gcfl.methods.catalogue import WORDS
from gcfl.methods.options import CleanOptions, PrivacyOptions
from gcfl.methods.views import Setting

log = logging.getLogger("gcfl")
_OURS = "gcfl"
Range = tuple[torch.Tensor, torch.Tensor]


def check(method: Method, clean: CleanOptions, options: PrivacyOptions) -> None:
    """Refuse what the budgets do not cover."""
    on = [name for name in ("clean_epsilon", "client_epsilon") if getattr(options, name)]
    if not on:
        fields = PrivacyOptions.model_fields
        changed = [one for one in fields if getattr(options, one) != fields[one].default]
        if changed:
            raise ConfigError(
                f"privacy.{changed[0]} has no effect without privacy.clean_epsilon or "
                "privacy.client_epsilon"
            )
        return
    library()
    foreign = [
        part.name for part in method.parts.values() if not type(part).__module__.startswith(_OURS)
    ]
    if foreign:
        raise ConfigError(
            f"privacy.{on[0]} cannot be had with {foreign[0]}: what a part from elsewhere tells "
            "others is not known"
        )
    if options.clean_epsilon is not None:
        _check_clean(method, clean)
    if options.client_epsilon is not None:
        _check_clients(method, clean, options)
    for word in method.name.split("+"):
        for name in on:
            if changes := WORDS[word].private.get(name):
                named = [f"{section}.{leaf}" for section, one in changes.items() for leaf in one]
                log.info(
                    "with privacy.%s, %s has other defaults for %s: what it does otherwise is not "
                    "covered",
                    name,
                    word,
                    ", ".join(named),
                )


def _check_clean(method: Method, clean: CleanOptions) -> None:
    server = method.server
    if server.trains and server.uses_clients:
        raise ConfigError(
            f"privacy.clean_epsilon cannot be had with {server.name}: in every round the server "
            "trains on its clean set to judge the clients, which is not covered; choose another "
            "server rule"
        )
    problems = {
        "clean.takes_part": clean.takes_part,
        "clean.warm_start = 'auto'": clean.warm_start == "auto",
        "clean.lr = 'auto'": clean.lr == "auto",
        "clean.hold_out": clean.hold_out,
        "clean.contribution": clean.contribution,
        "labels.guard": bool(getattr(method.labels, "guard", False)),
    }
    for name, wanted in problems.items():
        if wanted:
            raise ConfigError(
                f"{name} tells more of the clean set than privacy.clean_epsilon covers: leave it "
                "out"
            )


def _check_clients(method: Method, clean: CleanOptions, options: PrivacyOptions) -> None:
    server, local = method.server, method.local
    if not server.uses_clients or not server.shares or method.pooled:
        raise ConfigError(
            f"privacy.client_epsilon has no effect with {method.name}: no clients' updates are "
            "put together"
        )
    if server.by_examples:
        raise ConfigError(
            "privacy.client_epsilon needs server.weighting = 'uniform': how many samples a client "
            "has is its own"
        )
    if server.bound is not None:
        raise ConfigError(
            "server.clip cannot be had with privacy.client_epsilon: privacy.client_clip bounds "
            "every update already"
        )
    if options.client_where == "central" and type(server) not in (
        Average,
        ServerMomentum,
        ServerAdam,
    ):
        raise ConfigError(
            f"privacy.client_epsilon cannot be had with {server.name}: the noise is on a mean of "
            "the updates, and single ones are not looked at"
        )
    # A rule whose server half makes nothing of what clients tell tells nobody.
    quiet = type(local).merge is ClientPart.merge
    if not quiet or type(local).candidates is not LocalRule.candidates:
        raise ConfigError(
            f"privacy.client_epsilon does not cover what clients tell besides their updates with "
            f"{method.name} ({local.name}): choose another local rule"
        )
    problems = {
        "labels.pooling": bool(getattr(method.labels, "pooling", False)),
        "labels.guard": bool(getattr(method.labels, "guard", False)),
        "clean.contribution": clean.contribution,
        "clean.takes_part": clean.takes_part,
    }
    for name, wanted in problems.items():
        if wanted:
            raise ConfigError(
                f"{name} cannot be had with privacy.client_epsilon, which does not cover it: set "
                "it to " + ("0" if name == "labels.guard" else "false")
            )


def check_deployed(options: PrivacyOptions) -> None:
    """Refuse, where sites are real, noise that they could compute."""
    if options.simulated_seed:
        raise ConfigError(
            "privacy.simulated_seed is for simulations on one machine: sites know the seed, and "
            "could take the noise away; leave it out"
        )


def check_model(
    method: Method,
    setting: Setting,
    validation: Shard,
    classes: tuple[str | int, ...],
    options: PrivacyOptions,
) -> None:
    """Refuse models whose updates hold more than weights; warn of those that tell too much."""
    network = setting.network
    if options.client_epsilon is not None and set(network.sent) != set(network.trained):
        raise ConfigError(
            "privacy.client_epsilon is for weights: statistics of normalisation layers cannot "
            "leave the clients; set model.buffers = 'keep'"
        )
    if options.clean_epsilon is None:
        _warn_solvable(method, setting, validation, classes)


def public_normaliser(x: torch.Tensor, options: PrivacyOptions) -> Range:
    """Mean and sd from the range of inputs instead of the clean set: its middle and a quarter."""
    ends = options.input_range
    if ends is None and x.dtype == torch.uint8 and x.ndim == 4:
        ends = [0.0, 255.0]
    if ends is None:
        raise ConfigError(
            "data.normalise takes mean and sd of the clean set, which privacy.clean_epsilon does "
            "not cover: say the lowest and highest value of an input (privacy.input_range), or set "
            "data.normalise = false"
        )
    shape = (x.shape[1], *(1,) * (x.ndim - 2))
    low, high = ends
    return torch.full(shape, (low + high) / 2), torch.full(shape, (high - low) / 4)


def _warn_solvable(
    method: Method, setting: Setting, validation: Shard, classes: tuple[str | int, ...]
) -> None:
    """Warn where a fixed body makes each selection one more equation in the same features."""
    rule, network = method.select, setting.network
    if not getattr(rule, "needs_target", False) or not method.server.uses_clients:
        return
    own = {f"{network.require_head()}.{leaf}" for leaf in ("weight", "bias")}
    if not set(network.trained) <= own:
        return
    selections = 1 + (setting.rounds - 1) // int(getattr(rule, "every", 1))
    whole = getattr(rule, "variant", "") == "whole"
    counts = np.bincount(validation.y.numpy(), minlength=len(classes))
    few = len(validation) <= selections if whole else (counts > 0) & (counts <= selections)
    if not np.any(few):
        return
    named = (
        ""
        if whole
        else " of class " + ", ".join(str(classes[label]) for label in np.flatnonzero(few))
    )
    log.warning(
        "the clean samples%s are not more than the %d selections of this run, and the model's body "
        "never changes: every selection is one more equation in the same features, so that clients "
        "can rebuild them; enlarge the set (data.validation), raise coreset.every, or set "
        "privacy.clean_epsilon",
        named,
        selections,
    )
