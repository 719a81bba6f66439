"""What an exported app finds in its folder at run time: the experiment, and for a node, which site
it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context

from gcfl import experiment as config
from gcfl.base.options import assign
from gcfl.engine.prepare import Given, Prepared, prepare
from gcfl.experiment import Experiment
from gcfl.flower.client import Site
from gcfl.flower.site_data import Terms, client_of, site_with_data
from gcfl.flower.store import store_of

EXPERIMENT = "experiment.toml"
# a process that serves many messages of one run prepares it once
_prepared: dict[str, Prepared] = {}


def read_experiment(folder: Path, context: Context) -> Experiment:
    """The app's experiment; `rounds` and `seed` of the run config win over it, unless they say
    nothing (0 and -1).
    """
    settings = config.read_settings(folder / EXPERIMENT)
    for name, nothing in (("rounds", 0), ("seed", -1)):
        if context.run_config.get(name, nothing) != nothing:
            assign(settings, name, context.run_config[name])
    return config.build(settings)[0]


def site_in(folder: Path) -> Callable[[Context], Site]:
    """For `client_app`: the site that a node is, with data of its own where the app has terms, else
    with its part of the source.
    """

    def site_of(context: Context) -> Site:
        speak()
        experiment, terms = read_experiment(folder, context), Terms.read(folder)
        return (
            _part(experiment, context)
            if terms is None
            else site_with_data(experiment, terms, context)
        )

    return site_of


def _part(experiment: Experiment, context: Context) -> Site:
    key = experiment.identity()
    if key not in _prepared:
        _prepared.clear()
        _prepared[key] = prepare(experiment, Given())
    ready = _prepared[key]
    clients = ready.federation.clients
    client = client_of(context, clients.names or tuple(map(str, range(len(clients)))))
    return Site(client, ready.setting, ready.method, clients.shard(client), store_of(context, key))


def speak() -> None:
    """What gcfl logs goes where Flower's own log goes."""
    ours, flowers = logging.getLogger("gcfl"), logging.getLogger("flwr")
    for handler in flowers.handlers:
        if handler not in ours.handlers:
            ours.addHandler(handler)
            ours.setLevel(logging.INFO)
