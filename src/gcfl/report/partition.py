"""Who holds what, rebuilt from a run's configuration, where its data is still there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from gcfl import experiment as config
from gcfl.base.errors import GcflError, one_line
from gcfl.data import on_the_hub
from gcfl.engine.prepare import Given, federate
from gcfl.report.charts import Heat, Section
from gcfl.report.collect import Run
from gcfl.report.study import order, shown
from gcfl.results.folder import RunFolder

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
# What is wrong with samples does not change who holds them, and corrupting images takes long.
_WITHOUT_NOISE = {
    "noise": 0.0,
    "noise_kind": "uniform",
    "noise_rates": None,
    "noise_spread": 0.0,
    "noise_file": None,
    "corruptions": None,
    "validation_noise": 0.0,
    "test_noise": 0.0,
}


def partition(runs: Sequence[Run]) -> Section:
    """A heatmap of classes by clients for each division of the data, of the lowest seed."""
    divisions: dict[str, list[Run]] = {}
    for run in sorted(
        runs, key=lambda run: [order(run.settings.get(f"data.{name}")) for name in _DIVIDES]
    ):
        divisions.setdefault(
            repr([run.settings.get(f"data.{name}") for name in _DIVIDES]), []
        ).append(run)
    lowest = [
        [run for run in members if run.seed == min(other.seed for other in members)]
        for members in divisions.values()
    ]
    by_title = {_title(members[0]): members for members in lowest}
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
    clients = len(run.sizes or [])
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
        settings: dict[str, Any] = config.read_toml(RunFolder.open(run.folder).config)
        settings["data"] = {
            name: value
            for name, value in settings.get("data", {}).items()
            if name not in _WITHOUT_NOISE
        }
        settings.pop("given", None)
        source, federation = federate(config.build(settings)[0], Given())
    except (GcflError, OSError, MemoryError) as error:
        why = str(error) if isinstance(error, GcflError) else one_line(error)
        return f"its data cannot be read here ({why})"
    finally:
        quiet.setLevel(level)
    clients = federation.clients
    sizes = clients.partition.sizes.tolist()
    if not any(other.sizes == sizes for other in runs):
        return "the clients' sizes are not those of the data that is there now"
    labels = source.y[clients.ids]
    counts = [
        np.bincount(labels[clients.partition[client]], minlength=len(source.classes)).tolist()
        for client in range(len(clients))
    ]
    shown_ = counts[:_MOST_CLIENTS]
    names = list(clients.names or map(str, range(len(clients))))[:_MOST_CLIENTS]
    return Heat(
        id,
        title,
        "client",
        "class",
        names,
        [str(name) for name in source.classes],
        np.array(shown_).T.tolist(),
    )
