"""The exported Flower app: `gcfl flower export` writes its folder, server and sites read it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import tomli_w
from flwr.app import Context

from gcfl import experiment as config
from gcfl.base.errors import ConfigError
from gcfl.base.files import write_atomic
from gcfl.base.options import assign
from gcfl.base.text import markdown
from gcfl.data import Source
from gcfl.engine.audit import check_audit
from gcfl.engine.prepare import Given, Prepared, federate, prepare
from gcfl.experiment import Experiment
from gcfl.flower.client import NO_FOLDER, Site, folder_of, store_of
from gcfl.flower.site_data import TERMS, Terms, client_of, serve_sites, site_with_data
from gcfl.methods.privacy_checks import check_deployed
from gcfl.models.code import file_of, in_package, is_code, renamed

_EXPERIMENT = "experiment.toml"
# a process that serves many messages of one run prepares it once
_prepared: dict[str, tuple[Source, Prepared]] = {}
_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "gcfl-app"
version = "1.0.0"
description = {description}
license = "Apache-2.0"
dependencies = ["gcfl[{extras}]"]

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
rebind = ""  # sites that may come back with another key
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
they are its clean set and its test set.

To try it on one machine first, where `gcfl flower up` starts all servers and says what to type:

    gcfl flower up {folders}"""


def export(experiment: Experiment, folder: Path, sites: tuple[str, ...] = ()) -> list[Path]:
    """Write the app into a new folder; returns its files. sites: those with data of their own."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another folder")
    check_deployed(experiment.privacy)
    if experiment.given.keys() - set(config.IN_FILES):
        raise ConfigError(
            "an experiment on arrays or modules from Python cannot be exported: its sites could "
            "not make them"
        )
    files = {"server_app.py": _SERVER, "client_app.py": _CLIENT}
    if sites:
        prepared, terms = serve_sites(experiment, sites, experiment.seed)
        files[TERMS] = terms.to_toml()
        folders = " ".join(f"--site {name}=path/to/{name}" for name in sites)
        text = _OWN.format(names=", ".join(sites), first=sites[0], folders=folders)
    else:
        prepared = prepare(experiment, Given())
        text = _PARTS.format(clients=len(prepared.federation.clients))
    ready = prepared.experiment
    if ready.audit.asked:
        check_audit(prepared.experiment)
    ready, code = _with_code(ready, files)
    files |= code
    private = ready.privacy.clean_epsilon or ready.privacy.client_epsilon
    if sites and ready.privacy.clean_epsilon and "files" in ready.given:
        # A digest of the server's samples would confirm a guess of them; sites need a name alone.
        unsaid = {**ready.given, "files": secrets.token_hex(8)}
        ready = ready.model_copy(update={"given": unsaid})
    facts = {
        "extras": "flower,privacy" if private else "flower",
        "method": ready.method,
        "source": markdown(Path(ready.data.source).name),
        "clients": len(prepared.federation.clients),
        "sites": text,
    }
    about = {"description": f"{ready.method} on {Path(ready.data.source).name}, by gcfl"}
    facts["description"] = tomli_w.dumps(about).partition(" = ")[2].strip()
    files |= {
        "pyproject.toml": _PYPROJECT.format(**facts),
        _EXPERIMENT: ready.to_toml(),
        "README.md": _README.format(**facts),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomic(folder / name, content.encode())
    return [folder / name for name in files]


def _with_code(ready: Experiment, files: Mapping[str, str]) -> tuple[Experiment, dict[str, str]]:
    """The experiment, and the file that makes its model, which goes into the app."""
    path = file_of(ready.model.name) if is_code(ready.model.name) else None
    if path is None:
        return ready, {}
    if in_package(path) or path.name in files:
        why = "is part of a package" if in_package(path) else "has the name of a file of the app"
        raise ConfigError(
            f"{path} {why}, and cannot be copied into the app: install it at every site, and name "
            "it package.module:Class"
        )
    inside = ready.model.model_copy(update={"name": renamed(ready.model.name, path.name)})
    return ready.model_copy(update={"model": inside}), {path.name: path.read_text()}


def read_experiment(folder: Path, context: Context) -> Experiment:
    """The app's experiment, with `rounds` and `seed` of the run config unless they are 0 and -1."""
    settings = config.read_settings(folder / _EXPERIMENT)
    for name, unset in (("rounds", 0), ("seed", -1)):
        if context.run_config.get(name, unset) != unset:
            assign(settings, name, context.run_config[name])
    name = settings.get("model", {}).get("name", "")
    if is_code(name) and (copied := folder / name.rpartition(":")[0]).is_file():
        assign(settings, "model.name", renamed(name, str(copied.absolute())))
    return config.build(settings)[0]


def site_in(folder: Path) -> Callable[[Context], Site]:
    """For `client_app`: a node's site, with its own data or its part of the experiment's source."""

    def site_of(context: Context) -> Site:
        log_as_flower()
        experiment, terms = read_experiment(folder, context), Terms.read(folder)
        if experiment.audit.asked and "state" not in context.node_config:
            raise ConfigError(NO_FOLDER)
        if terms is None:
            return _site_with_part(experiment, context)
        return site_with_data(experiment, terms, context)

    return site_of


def _site_with_part(experiment: Experiment, context: Context) -> Site:
    key = experiment.identity()
    if key not in _prepared:
        _prepared.clear()
        source, federation = federate(experiment, Given())
        _prepared[key] = source, prepare(experiment, Given(), (source, federation))
    source, ready = _prepared[key]
    clients = ready.federation.clients
    client = client_of(context, clients.names or tuple(map(str, range(len(clients)))))
    return Site(
        client,
        ready.setting,
        ready.method,
        clients.shard(client),
        store_of(context, key),
        name=clients.names[client] if clients.names else f"client-{client}",
        source=source,
        folder=folder_of(context, key),
    )


def log_as_flower() -> None:
    """What gcfl logs goes where Flower's own log goes."""
    ours, flowers = logging.getLogger("gcfl"), logging.getLogger("flwr")
    for handler in flowers.handlers:
        if handler not in ours.handlers:
            ours.addHandler(handler)
            ours.setLevel(logging.INFO)
