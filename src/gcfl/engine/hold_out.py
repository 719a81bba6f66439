"""A part of the server's clean set that training does not see (`clean.hold_out`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gcfl import data
from gcfl.base import rng
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError
from gcfl.base.options import resolve_size
from gcfl.data import Federation
from gcfl.experiment import Experiment


def hold_out(
    experiment: Experiment, federation: Federation, seed: int | None
) -> tuple[Federation, Shard | None]:
    """A part of the server's set that nothing else sees, not even the normalisation; it takes the
    place of the test set where that is not to be looked at. seed: where it is not the run's.
    """
    share, instead = experiment.clean.hold_out, experiment.engine.evaluate_on == "held-out"
    if not share:
        if instead:
            raise ConfigError(
                "engine.evaluate_on = 'held-out' needs clean.hold_out: a share of the server's "
                "clean set to measure on"
            )
        return federation, None
    whole = federation.validation
    size = resolve_size(float(share), len(whole))
    if size >= len(whole):
        raise ConfigError(
            f"clean.hold_out leaves nothing of the server's {len(whole)} clean samples"
        )
    seed = experiment.seed if seed is None else seed
    order = rng.stream(seed, "hold-out").permutation(len(whole))
    if instead:  # each class alike in both parts: of its samples, evenly spaced ones
        order = order[np.argsort(whole.y.numpy()[order], kind="stable")]
        places = (np.arange(size) * len(whole) + len(whole) // 2) // size
        order = np.concatenate([order[places], np.delete(order, places)])
    held, rest = (
        Shard(whole.x[rows], whole.y[rows], whole.ids[rows])
        for rows in (np.sort(order[:size]), np.sort(order[size:]))
    )
    encoding = federation.encoding
    normaliser = data.normaliser(rest.x, encoding) if experiment.data.normalise else None
    test = held if instead else federation.test
    return replace(federation, validation=rest, normaliser=normaliser, test=test), held
