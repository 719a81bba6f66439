"""A part of the server's clean set that training does not see (`clean.hold_out`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from gcfl import data
from gcfl.base import rng
from gcfl.base.data_types import IntArray, Shard
from gcfl.base.errors import ConfigError
from gcfl.base.options import resolve_size
from gcfl.data import Federation, Source
from gcfl.experiment import Experiment


def hold_out(
    experiment: Experiment, federation: Federation, seed: int | None
) -> tuple[Federation, Shard | None]:
    """A part of the server's set that nothing else sees, not even the normalisation; it takes the
    place of the test set where that is not to be looked at. seed: where it is not the run's.
    """
    instead = experiment.engine.evaluate_on == "held-out"
    if not experiment.clean.hold_out:
        if instead:
            raise ConfigError(
                "engine.evaluate_on = 'held-out' needs clean.hold_out: a share of the server's "
                "clean set to measure on"
            )
        return federation, None
    whole = federation.validation
    held, rest = (
        Shard(whole.x[rows], whole.y[rows], whole.ids[rows])
        for rows in _parts(experiment, whole, experiment.seed if seed is None else seed)
    )
    encoding = federation.encoding
    normaliser = data.normaliser(rest.x, encoding) if experiment.data.normalise else None
    test = held if instead else federation.test
    return replace(federation, validation=rest, normaliser=normaliser, test=test), held


def encoded_apart(
    experiment: Experiment,
    source: Source,
    seed: int,
    build: Callable[[Source], Federation],
    alone: bool = False,
) -> tuple[Source, Federation]:
    """The source with features in place of a table's cells, and the federation built of it. Of what
    is held out the encoding knows nothing. alone: all rows are the server's.
    """
    options = experiment.data
    fitted = source.x.dtype == object and options.schema_file is None
    without = None
    if fitted and experiment.clean.hold_out:
        with _silent():  # which rows are held out is known once there is a federation
            without = _held_ids(experiment, build(data.encoded(source, options, seed, alone)), seed)
    source = data.encoded(source, options, seed, alone, without)
    federation = build(source)
    if without is not None and not np.array_equal(without, _held_ids(experiment, federation, seed)):
        raise ConfigError(
            "with data.validation_noise of this kind, what clean.hold_out keeps aside depends on "
            "the encoding of the table: say what the columns hold in a schema file "
            "(data.schema_file)"
        )
    return source, federation


def _held_ids(experiment: Experiment, federation: Federation, seed: int) -> IntArray:
    held, _ = _parts(experiment, federation.validation, seed)
    return federation.validation.ids[held]


@contextmanager
def _silent() -> Iterator[None]:
    """What is done twice is told once."""
    log = logging.getLogger("gcfl.data")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _parts(experiment: Experiment, whole: Shard, seed: int) -> tuple[IntArray, IntArray]:
    """Rows of the clean set that are held out, and the others."""
    share, instead = experiment.clean.hold_out, experiment.engine.evaluate_on == "held-out"
    size = resolve_size(float(share), len(whole))
    if size >= len(whole):
        raise ConfigError(
            f"clean.hold_out leaves nothing of the server's {len(whole)} clean samples"
        )
    order = rng.stream(seed, "hold-out").permutation(len(whole))
    if instead:  # each class alike in both parts: of its samples, evenly spaced ones
        order = order[np.argsort(whole.y.numpy()[order], kind="stable")]
        places = (np.arange(size) * len(whole) + len(whole) // 2) // size
        order = np.concatenate([order[places], np.delete(order, places)])
    return np.sort(order[:size]), np.sort(order[size:])
