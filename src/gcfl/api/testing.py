"""What a finished run's model gets wrong, class by class."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.api.running import stored
from gcfl.base.errors import ConfigError, DataError, RunError
from gcfl.engine import Given, one_thread, prepare
from gcfl.results.run import Run


def confusion(run: Run, x: Any = None, y: Any = None) -> npt.NDArray[np.int64]:
    """(C, C) samples by class and by what the kept model says: of the run's own test set, which is
    made again from its settings, or of samples x with classes y (names, as `predict` gives them).
    """
    from sklearn.metrics import confusion_matrix

    if (x is None) != (y is None):
        raise ConfigError("confusion takes samples x with their classes y, or neither")
    model = run.model
    known: list[Any]
    if x is None:
        truth, answers = _of_test_set(run)
        known = list(range(len(model.classes)))
    else:
        truth, answers = np.asarray(y), model.predict(x)
        known = list(model.classes)
        if strange := sorted(set(truth.tolist()) - set(known), key=str):
            raise DataError(f"y has a class that the model does not know: {strange[0]!r}")
        if len(truth) != len(answers):
            raise DataError(f"x has {len(answers)} samples and y {len(truth)} classes")
    found: npt.NDArray[np.int64] = confusion_matrix(truth, answers, labels=known)
    return found


@contextmanager
def _told_before() -> Iterator[None]:
    """What is to be said of the data, the run has said."""
    loggers = [logging.getLogger(name) for name in ("gcfl", "gcfl.data")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


def _of_test_set(run: Run) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(n,) classes and (n,) answers, as numbers."""
    given = run.given if isinstance(run.given, Given) else Given()
    from_python = [name for name in run.config.get("given", {}) if name in ("data", "model")]
    if from_python and given == Given():
        raise ConfigError(
            f"{run.folder} was made from Python, and its test set is not in the folder: pass "
            "samples and their classes, run.confusion(x, y)"
        )
    experiment = stored(run.folder)
    with one_thread():
        with _told_before():
            prepared = prepare(experiment, given)
        if prepared.experiment.identity() != experiment.identity():
            raise RunError(f"the data of {run.folder} is not what it was")
        test = prepared.federation.test
        logits = run.model.network.outputs(run.model.tree, test.x).logits
    return test.y.numpy(), logits.argmax(1).cpu().numpy()
