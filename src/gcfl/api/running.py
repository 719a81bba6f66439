"""`gcfl.run(...)`, `gcfl.resume(folder)`, `gcfl.load(folder)`, `gcfl.verify(folder)`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from gcfl import experiment as config
from gcfl.api.inputs import take_data
from gcfl.base.codec import decode
from gcfl.base.errors import ConfigError, RunError
from gcfl.data import Federation, Source
from gcfl.engine import Given, Lifecycle, Observer, OnClient, OnRound, OnStart, one_thread, prepare
from gcfl.engine.checkpoint import Checkpoint
from gcfl.experiment import Experiment
from gcfl.models.code import ModelGiven, check_named, is_code
from gcfl.results.folder import RunFolder
from gcfl.results.run import NO_DIGESTS, Run, how_to_continue

log = logging.getLogger("gcfl")
DEFAULT_OUT = "runs"
Result = Run  # its name before there was one class for all readers


def run(
    method: str | None = None,
    data: str | tuple[Any, Any] | Source | Sequence[Any] | Mapping[str, Any] | None = None,
    model: str | ModelGiven | Mapping[str, Any] | None = None,
    *,
    validation: Any = None,
    test: Any = None,
    classes: Sequence[str | int] | None = None,
    groups: Sequence[Any] | None = None,
    config_file: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    fresh: bool = False,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    **settings: Any,
) -> Run:
    """Train, and return the result; the same call again continues or returns what is there.

    data: a name of `gcfl list data`, a path, arrays (x, y), a torch Dataset or a Hugging Face one,
    a DataFrame with the columns label="diagnosis" and, for a client of each, group="hospital";
    what each client holds, as a list or by name: data={"north": (x, y), "south": dataset}; or a
    table of settings with any of these as "source": data={"source": dataset, "label": "species",
    "image_size": 64}. groups: a name for each sample of data=(x, y); a client for each.
    validation and test: arrays (x, y), a torch Dataset, a DataFrame or a file of their own, or how
    much of data to cut off for them. model: a name of `gcfl list models`, "file.py:make" or
    "package.module:Class", a torch module, or a class or function that makes one (called under the
    run's seed, with shape= and classes= where it takes them). Either may also be a table of its
    settings. Other settings go by their short names (clients=10, noise=0.4, budget=0.1, rounds=50,
    seed=0, workers=2) or as tables (train={"lr": 0.05}, coreset={"score": "distance"}).
    """
    if not isinstance(out, str | os.PathLike):
        raise ConfigError(f"out must be the path of a folder, got {out!r}")
    file = Path(config_file) if config_file else None
    plain, given = brought(
        data,
        model,
        validation=validation,
        test=test,
        classes=classes,
        groups=groups,
        config_file=file,
        method=method,
        **settings,
    )
    experiment, unused = config.compose(file, plain)
    single = {config.SHORT.get(name, name) for name in settings}
    warn_unused(experiment, [name for name in unused if name in single])
    return execute(experiment, given, Path(out), fresh, on_start, on_round)


def brought(
    data: Any = None,
    model: Any = None,
    *,
    validation: Any = None,
    test: Any = None,
    classes: Sequence[str | int] | None = None,
    groups: Sequence[Any] | None = None,
    config_file: Path | None = None,
    **settings: Any,
) -> tuple[dict[str, Any], Given]:
    """What a call asks for, as settings by dotted name, and what it brings besides."""
    explicit: dict[str, Any] = {}
    if isinstance(model, Mapping):
        explicit.update({f"model.{key}": value for key, value in model.items()})
        model = explicit.get("model.name")
    by_name = model is None or isinstance(model, str)
    if model is not None:
        explicit["model.name"] = model if by_name else "given"
    for name, value in settings.items():
        if isinstance(value, Mapping):
            explicit.update({f"{name}.{key}": inner for key, inner in value.items()})
        elif value is not None:
            explicit[config.SHORT.get(name, name)] = value
    source = take_data(explicit, data, validation, test, classes, groups, config_file)
    plain = {name: _plain(value) for name, value in explicit.items()}
    return plain, Given(source, None if by_name else cast(ModelGiven, model))


def _plain(value: Any) -> Any:
    """numpy's numbers and paths as a settings file has them."""
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def warn_unused(experiment: Experiment, unused: Sequence[str]) -> None:
    for name in unused:
        log.warning("%s has no effect with method %s", name, experiment.method)


def resume(
    folder: str | os.PathLike[str],
    workers: int | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    on_client: OnClient | None = None,
) -> Run:
    """Continue a run where it stopped; one on things from Python by calling `run` again."""
    path = Path(folder)
    file = RunFolder.open(path).config
    given = config.read_settings(file).get("given", {})
    if set(given).difference(config.IN_FILES):
        raise ConfigError(f"{path} was started from Python: {how_to_continue(path, given)}")
    changed = {} if workers is None else {"engine.workers": workers}
    experiment = stored(path, changed)
    if experiment.folder_name() != path.resolve().name:
        raise RunError(
            f"{path} cannot be continued: its config.toml was changed, or the folder renamed "
            f"(expected {experiment.folder_name()})"
        )
    out = path.resolve().parent
    return execute(experiment, Given(), out, False, on_start, on_round, None, on_client)


def stored(folder: Path, changed: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment of a run folder, whose word on what to run is not taken."""
    experiment, _ = config.compose(RunFolder.open(folder).config, changed or {})
    if is_code(experiment.model.name):
        check_named(experiment.model.name, folder)
    return experiment


def load(folder: str | os.PathLike[str], model: ModelGiven | None = None) -> Run:
    """A run from its folder, whose files are checked. A model that came from Python is passed again
    (its class will do).
    """
    run = Run(folder, model)
    RunFolder(run.folder).verify()
    if not run.has_digests:
        log.warning("%s: %s", run.folder, NO_DIGESTS)
    return run


def verify(folder: str | os.PathLike[str]) -> list[str]:
    """The files that a run folder lacks; an error where one holds something else than was written.
    Of an unfinished run, what its checkpoint covers is checked.
    """
    run, files = Run(folder), RunFolder(Path(folder))
    lacking = files.verify()
    _ = run.rounds, run.clients, run.environment, run.energy, run.coresets
    checkpoint = Checkpoint(files.checkpoint)
    if checkpoint.exists():
        state, _ = checkpoint.read()
        if not run.finished:
            files.before(state.round, checkpoint.covers)
    if files.model.exists():
        decode(files.model.read_bytes(), str(files.model))
    return lacking


def execute(
    experiment: Experiment,
    given: Given,
    out: Path,
    fresh: bool = False,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    federated: tuple[Source, Federation] | None = None,
    on_client: OnClient | None = None,
) -> Run:
    """Run an experiment into its folder below `out`, continue it, or return it as it is. federated:
    where the data is ready.
    """
    with one_thread():
        prepared = prepare(experiment, given, federated, on_features=True)
        engine, federation = prepared.experiment.engine, prepared.federation
        folder = RunFolder(out / prepared.experiment.folder_name())
        if fresh:
            folder.set_aside()
        Lifecycle(
            prepared,
            folder,
            connect=prepared.transport,
            observer=Observer(
                federation.truth, federation.clients.source_rows, prepared.method.select.weighted
            ),
            holdings=lambda: prepared.holdings,
            again=how_to_continue(folder.path, prepared.experiment.given),
            workers=engine.workers,
            checkpoint_every=engine.checkpoint_every,
            on_start=on_start or (lambda *_: None),
            on_round=on_round or (lambda _: None),
            on_client=on_client or (lambda *_: None),
        ).run()
    result = Result(folder.path, given.model)
    result.given = given
    return result
