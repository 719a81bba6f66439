"""`gcfl.audit(run)`: which labels of a finished run's clients are wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gcfl.api.inputs import take_data
from gcfl.api.running import load, stored
from gcfl.base.errors import ConfigError, RunError
from gcfl.engine import Given, one_thread
from gcfl.engine.audit import Audit, audit_run
from gcfl.models.code import ModelGiven
from gcfl.results.folder import RunFolder
from gcfl.results.run import Run

_GIVEN = {"data": "source", "model": "model"}


def audit(
    run: Run | str | os.PathLike[str],
    data: Any = None,
    model: ModelGiven | None = None,
    *,
    validation: Any = None,
    test: Any = None,
    classes: Sequence[str | int] | None = None,
    groups: Sequence[Any] | None = None,
) -> Audit:
    """Which labels of a finished run's clients are wrong: `audit.sites`, a `Findings` for each.

    data, validation, test, classes, groups, model: what a run from Python was given; a run that
    `gcfl.run` has just returned still knows them.
    """
    run = run if isinstance(run, Run) else load(run, model)
    if not run.finished:
        raise RunError(f"{run.folder} is not finished: {run.how_to_continue}")
    files = RunFolder.open(run.folder)
    source = take_data({}, data, validation, test, classes, groups, files.config)
    given = Given(source, model)
    if source is None and model is None and isinstance(run.given, Given):
        given = run.given
    lacking = [name for name in run.config.get("given", {}) if name in ("data", "model")]
    lacking = [name for name in lacking if getattr(given, _GIVEN[name]) is None]
    if lacking:
        raise ConfigError(
            f"{run.folder} was made from Python: pass the same {' and '.join(lacking)} to "
            "gcfl.audit(run, data=..., model=...)"
        )
    experiment = stored(run.folder)
    with one_thread():
        return audit_run(files, experiment, given)
