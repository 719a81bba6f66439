"""A complete Flower app from an experiment: `gcfl flower export CONFIG DIR`, then `flwr run DIR`."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from gcfl import experiment as config
from gcfl.errors import ConfigError
from gcfl.experiment import Experiment
from gcfl.files import write_atomic
from gcfl.flower.client import Site
from gcfl.flower.store import InContext, InFolder, Store
from gcfl.prepare import Given, Prepared, prepare

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "{method} on {source}, by gcfl"
license = "Apache-2.0"
dependencies = ["gcfl[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "you"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
out = "runs"
wait-seconds = 300
round-seconds = 0
"""
_SERVER = '''\
"""The server: the rounds of experiment.toml over Flower's Grid."""

from pathlib import Path

from gcfl.flower import read_experiment, server_app

app = server_app(lambda context: read_experiment(Path(__file__).with_name("experiment.toml"), context))
'''
_CLIENT = '''\
"""A site: one client of experiment.toml. Which one, and where it keeps its memory, its node config says."""

from pathlib import Path

from gcfl.flower import client_app, read_experiment, site_of

app = client_app(lambda context: site_of(read_experiment(Path(__file__).with_name("experiment.toml"), context), context))
'''
_README = """\
# {method} on {source}, as a Flower app

`experiment.toml` is the experiment; it needs as many nodes as it has clients, {clients}.

## Simulated here, by Ray

    pip install 'gcfl[simulation]'
    export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
    flwr run . --stream --federation-config "num-supernodes={clients} client-resources-num-cpus=1" -c "out='$PWD/runs'"

Without that number Flower simulates two nodes: it takes the number from this option or from its own configuration, not from an
app. `out` is absolute because a relative one starts where Flower's local SuperLink was started, which stays after a run.
Without the variable Flower installs the app's dependencies anew for each run.

## On a SuperLink

    flwr run . my-superlink --stream

Each SuperNode says in its node config who it is, and where its memory (coreset, control variates, last model) survives a restart:

    flower-supernode ... --node-config 'partition-id=0 state="/var/lib/gcfl/site0"'

The server writes an ordinary run folder below `out` (`gcfl show` reads it); started again, it goes on after its last checkpoint.
"""


def export(experiment: Experiment, folder: Path) -> list[Path]:
    """Write the app; returns its files. An app that is there is never written over."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another folder")
    if experiment.given.keys() - {"files"}:
        raise ConfigError("an experiment on arrays or modules from Python cannot be exported: its sites could not make them")
    folder.mkdir(parents=True, exist_ok=True)
    clients = len(prepare(experiment, Given()).federation.clients)
    facts = {"method": experiment.method, "source": Path(experiment.data.source).name, "clients": clients, "name": "gcfl-app"}
    files = {
        "pyproject.toml": _PYPROJECT.format(**facts),
        "server_app.py": _SERVER,
        "client_app.py": _CLIENT,
        "experiment.toml": experiment.to_toml(),
        "README.md": _README.format(**facts),
    }
    for name, text in files.items():
        write_atomic(folder / name, text.encode())
    return [folder / name for name in files]


def read_experiment(path: Path, context: Context) -> Experiment:
    """The app's experiment; `rounds` and `seed` of the run config win over it."""
    settings = config.read_toml(path)
    for name in ("rounds", "seed"):
        if name in context.run_config:
            config.assign(settings, name, context.run_config[name])
    return config.build(settings)[0]


_prepared: dict[str, Prepared] = {}  # a process that serves many messages of one run prepares it once


def site_of(experiment: Experiment, context: Context) -> Site:
    """The client that this node is: `partition-id` of its node config, which simulations set too."""
    number = context.node_config.get("partition-id", context.node_config.get("client"))
    if number is None:
        raise ConfigError("the node config must say which client this is: partition-id=0, 1, ...")
    key = experiment.identity()
    if key not in _prepared:
        _prepared.clear()
        _prepared[key] = prepare(experiment, Given())
    ready, client = _prepared[key], int(number)
    if not 0 <= client < len(ready.federation.clients):
        raise ConfigError(f"partition-id is {client}, but the experiment has {len(ready.federation.clients)} clients")
    folder = context.node_config.get("state")
    store: Store = InContext(context) if folder is None else InFolder(Path(str(folder)) / key)
    return Site(client, ready.setting, ready.method, ready.federation.clients.shard(client), store)
