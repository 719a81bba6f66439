"""Who holds what: samples of each class at each client, of a federation, or of one that is rebuilt
from a run's configuration, where its data is still there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl import experiment as config
from gcfl.base.data_types import IntArray
from gcfl.base.errors import GcflError, one_line
from gcfl.data import Federation, Source, on_the_hub
from gcfl.engine.prepare import Given, federate
from gcfl.experiment import Experiment
from gcfl.report.plots import Heat, Section
from gcfl.results.groups import order, shown
from gcfl.results.run import Run

_MOST = 4
_DIVIDES = (
    "source",
    "samples",
    "clients",
    "partition",
    "alpha",
    "classes_per_client",
    "group",
    "owners",
    "min_size",
)
_MOST_CLIENTS = 40


@dataclass(frozen=True)
class Counts:
    """values (clients, classes), the classes' names, and what they stand for."""

    values: npt.NDArray[Any]
    classes: tuple[str | int, ...]
    meaning: str


def class_counts(source: Source, federation: Federation) -> Counts:
    """How many samples of each true class the clients have; as labelled, where unknown."""
    if federation.truth is None:
        return label_counts(federation)
    true = source.y[federation.clients.ids]
    return Counts(_tally(federation, true, len(source.classes)), source.classes, "true class")


def label_counts(federation: Federation, mask: npt.NDArray[np.bool_] | None = None) -> Counts:
    """How many samples a client has under each label; mask (by source row) picks some."""
    clients, classes = federation.clients, federation.classes
    chosen = None if mask is None else mask[clients.ids]
    counts = _tally(federation, clients.y.numpy(), len(classes), chosen)
    return Counts(counts, classes, "label as the client sees it")


def _tally(
    federation: Federation,
    labels: IntArray,
    classes: int,
    mask: npt.NDArray[np.bool_] | None = None,
) -> IntArray:
    """(clients, classes) from a label per sample of the clients."""
    partition = federation.clients.partition
    table = np.zeros((len(partition), classes), dtype=np.int64)
    order = partition.order
    weights = np.ones(len(order), dtype=np.int64) if mask is None else mask[order].astype(np.int64)
    np.add.at(table, (partition.owners, labels[order]), weights)
    return table


def heat(
    counts: Counts,
    federation: Federation,
    title: str = "",
    unit: str = "samples",
    top: float | None = None,
) -> Heat:
    """Classes down, clients across."""
    names = federation.clients.names or map(str, range(len(federation.clients)))
    classes = [str(name) for name in counts.classes]
    values = counts.values.T.tolist()
    return Heat("clients", title, "client", counts.meaning, list(names), classes, values, unit, top)


def clients_of(experiment: Experiment) -> Section:
    """The class-by-client heatmap of an experiment's federation."""
    source, federation = federate(experiment, Given())
    title = f"Samples of each class at each client: {source.name}"
    return Section(title, [], [heat(class_counts(source, federation), federation)])


def partition(runs: Sequence[Run]) -> Section:
    """A heatmap of classes by clients for each division of the data, of the lowest seed."""

    def division(run: Run) -> list[Any]:
        return [run.settings.get(f"data.{name}") for name in _DIVIDES]

    divisions: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: [order(value) for value in division(run)]):
        divisions.setdefault(repr(division(run)), []).append(run)
    by_title = {}
    for members in divisions.values():
        lowest = min(run.seed for run in members)
        first = [run for run in members if run.seed == lowest]
        by_title[_title(first[0])] = first
    notes = ["Samples of each class at each client, before any noise; stronger colour is more."]
    plots = []
    for place, (title, members) in enumerate(list(by_title.items())[:_MOST]):
        found = _heat(f"partition-{place}", title, members)
        if isinstance(found, Heat):
            plots.append(found)
        else:
            notes.append(f"{title}: left out, since {found}.")
    if len(by_title) > _MOST:
        notes.append(f"The first {_MOST} of {len(by_title)} divisions are shown.")
    return Section("Who holds what", notes if plots else notes[1:], plots)


def _title(run: Run) -> str:
    options = run.settings
    how = str(options.get("data.partition", "dirichlet"))
    more = f" α {shown(options.get('data.alpha', 0.4))}" if how in ("dirichlet", "quantity") else ""
    clients = len(run.clients)
    many = f"first {_MOST_CLIENTS} of {clients}" if clients > _MOST_CLIENTS else f"{clients}"
    return f"{options.get('data.source', 'digits')}, {how}{more}, {many} clients, seed {run.seed}"


def _heat(id: str, title: str, runs: Sequence[Run]) -> Heat | str:
    """The heatmap, or why there is none."""
    run = runs[0]
    if "given.data" in run.settings:
        return "its data came from Python"
    if on_the_hub(str(run.settings.get("data.source", ""))):
        return "its data is on the network, and a report asks for nothing there"
    quiet = logging.getLogger("gcfl.data")
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # what is to say of the data was said when the run started
    try:
        settings = {name: value for name, value in run.config.items() if name != "given"}
        data = run.config.get("data", {})
        # What is wrong with samples does not change who holds them, and corrupting images is slow.
        settings["data"] = {
            name: value
            for name, value in data.items()
            if "noise" not in name and name != "corruptions"
        }
        source, federation = federate(config.build(settings)[0], Given())
    except (GcflError, OSError, MemoryError) as error:
        why = str(error) if isinstance(error, GcflError) else one_line(error)
        return f"its data cannot be read here ({why})"
    finally:
        quiet.setLevel(level)
    sizes = federation.clients.partition.sizes.tolist()
    if not any([client["samples"] for client in other.clients] == sizes for other in runs):
        return "the clients' sizes are not those of the data that is there now"
    found = heat(class_counts(source, federation), federation, title)
    columns, values = found.columns[:_MOST_CLIENTS], [row[:_MOST_CLIENTS] for row in found.values]
    return replace(found, id=id, y="class", columns=columns, values=values)
