"""A complete Flower app from an experiment: `gcfl flower export CONFIG DIR`, then `flwr run
DIR`.
"""

from __future__ import annotations

from pathlib import Path

from gcfl.base.errors import ConfigError
from gcfl.base.files import write_atomic
from gcfl.engine.prepare import Given, prepare
from gcfl.experiment import Experiment
from gcfl.flower.app import EXPERIMENT
from gcfl.flower.site_data import FILE, serve_sites

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "gcfl-app"
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
rounds = 0  # 0: as experiment.toml says
seed = -1  # -1: as experiment.toml says
"""
_SERVER = '''\
"""The server: the rounds of experiment.toml over Flower's Grid."""

from pathlib import Path

from gcfl.flower import server_app

app = server_app(Path(__file__).parent)
'''
_CLIENT = '''\
"""A site: one client of experiment.toml. Its node config says which one,
and where it keeps its memory.
"""

from pathlib import Path

from gcfl.flower import client_app, site_in

app = client_app(site_in(Path(__file__).parent))
'''
_README = """\
# {method} on {source}, as a Flower app

`experiment.toml` is the experiment; it needs as many nodes as it has clients, {clients}.

{sites}

The server writes an ordinary run folder below `out` (`gcfl show` reads it); started again, it goes
on after its last checkpoint.
"""
_PARTS = """\
## Simulated here, by Ray

    pip install 'gcfl[simulation]'
    export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
    flwr run . --stream -c "out='$PWD/runs'" \\
      --federation-config "num-supernodes={clients} client-resources-num-cpus=1"

Without that number Flower simulates two nodes: it takes the number from this option or from its own
configuration, not from an app. `out` is absolute because a relative one starts where Flower's local
SuperLink was started, which stays after a run.
Without the variable Flower installs the app's dependencies anew for each run.

## On a SuperLink

    flwr run . my-superlink --stream

Each SuperNode takes its part of the experiment's source. It says in its node config who it is, and
where its memory (coreset, control variates, last model) survives a restart:

    flower-supernode ... --node-config 'partition-id=0 state="/var/lib/gcfl/site0"'"""
_OWN = """\
    flwr run . my-superlink --stream

Each site brings its own data: {names}. The classes, the size of a sample and the normalisation are
in `terms.toml`. A SuperNode says in its node config who it is, where its data lies, and where its
memory (coreset, control variates, last model) survives a restart:

    flower-supernode ... --node-config 'client="{first}" data="/srv/photos" state="/var/lib/gcfl"'

The server's own samples, `data.source` of `experiment.toml`, must lie where the server app runs;
they are its clean set and its test set."""


def export(experiment: Experiment, folder: Path, sites: tuple[str, ...] = ()) -> list[Path]:
    """Write the app; returns its files. An app that is there is never written over. sites: those
    with data of their own.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another folder")
    if experiment.given.keys() - {"files"}:
        raise ConfigError(
            "an experiment on arrays or modules from Python cannot be exported: its sites could "
            "not make them"
        )
    files = {"server_app.py": _SERVER, "client_app.py": _CLIENT}
    if sites:
        prepared, terms = serve_sites(experiment, sites)
        files[FILE] = terms.to_toml()
        text = _OWN.format(names=", ".join(sites), first=sites[0])
    else:
        prepared = prepare(experiment, Given())
        text = _PARTS.format(clients=len(prepared.federation.clients))
    ready, clients = prepared.experiment, len(prepared.federation.clients)
    facts = {
        "method": ready.method,
        "source": Path(ready.data.source).name,
        "clients": clients,
        "sites": text,
    }
    files |= {
        "pyproject.toml": _PYPROJECT.format(**facts),
        EXPERIMENT: ready.to_toml(),
        "README.md": _README.format(**facts),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomic(folder / name, content.encode())
    return [folder / name for name in files]
