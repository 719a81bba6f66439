"""A run as pandas DataFrames: by round, client, class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gcfl.base.errors import ConfigError, RunError, one_of
from gcfl.results.contribution import contributions
from gcfl.results.frames import data_frame
from gcfl.results.measures import scalars
from gcfl.results.run import Run

_TESTED = {"samples": "tested_on", "accuracy": "accuracy", "true_accuracy": "true_accuracy"}


def frame_of(run: Run, kind: str) -> Any:
    """rounds: every number of every round. clients: name, size and, where they are known, how much
    each helped and its accuracy on what it kept for testing. classes: the accuracy of the kept
    model on each. confusion: by class and answer.
    """
    if kind not in _KINDS:
        raise ConfigError(f"kind must be {one_of(_KINDS)}, got {kind!r}")
    return _KINDS[kind](run)


def _rounds(run: Run) -> Any:
    return data_frame([{"round": one.round, **scalars(one)} for one in run.rounds])


def _clients(run: Run) -> Any:
    helped = contributions(run.rounds)
    tested = run.client_test
    everyone = run.clients
    if tested and len(everyone) != len(tested["samples"]):  # pooled: one trained for all
        everyone = [{"name": str(client)} for client in range(len(tested["samples"]))]
    rows = []
    for client, one in enumerate(everyone):
        told = asdict(helped[client]) if client in helped else {}
        low, high = told.pop("interval", None) or (None, None)
        more = {**told, "gain_low": low, "gain_high": high} if told else {}
        more |= {_TESTED[name]: values[client] for name, values in tested.items()}
        rows.append({"client": client, **one, **more})
    return data_frame(rows)


def _classes(run: Run) -> Any:
    if run.final is None or run.final.per_class is None:
        raise RunError(f"{run.folder} has no evaluated round yet")
    accuracies = run.final.per_class
    names = run.classes or range(len(accuracies))
    return data_frame(
        [{"class": name, "accuracy": one} for name, one in zip(names, accuracies, strict=True)]
    )


def _confusion(run: Run) -> Any:
    names = list(map(str, run.model.classes))
    counts = run.confusion().tolist()
    frame = data_frame([dict(zip(names, row, strict=True)) for row in counts])
    frame.index = names
    return frame.rename_axis(index="class", columns="predicted")


_KINDS: dict[str, Callable[[Run], Any]] = {
    "rounds": _rounds,
    "clients": _clients,
    "classes": _classes,
    "confusion": _confusion,
}
