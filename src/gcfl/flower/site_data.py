"""Sites that bring their own data: what the server tells them of it, and what each makes of that
with its own samples.

The terms travel in the app, which Flower itself hands to every node: the sites' names, the classes
in their order, what a sample looks like, the normalisation. Labels and inputs then mean the same
everywhere, also at a site that lacks a class.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

import tomli_w
import torch
from flwr.app import Context

from gcfl import data, models
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError, did_you_mean
from gcfl.data import Schema, Source
from gcfl.engine.prepare import Given, Prepared, prepare, setting_of
from gcfl.experiment import Experiment
from gcfl.flower.client import Site
from gcfl.flower.store import store_of

FILE = "terms.toml"
_IDLE = (
    "noise",
    "noise_rates",
    "noise_spread",
    "noise_file",
    "validation_noise",
    "test_noise",
    "owners",
)


@dataclass(frozen=True)
class Terms:
    """The sites' names (client i is the i-th), what is known of the data, and mean and sd to
    normalise by.
    """

    sites: tuple[str, ...]
    schema: Schema
    normaliser: tuple[torch.Tensor, torch.Tensor] | None

    def to_toml(self) -> str:
        schema = self.schema
        told = {
            "sites": list(self.sites),
            "classes": list(schema.classes),
            "shape": list(schema.shape),
            "kind": schema.kind,
        }
        if schema.columns is not None:
            told["columns"] = list(schema.columns)
        if self.normaliser is not None:
            told |= {
                name: part.flatten().tolist()
                for name, part in zip(("mean", "deviation"), self.normaliser, strict=True)
            }
        return (
            "# What sites are told of the data. Made from the server's: export again when that "
            "changes.\n" + tomli_w.dumps(told)
        )

    @classmethod
    def read(cls, folder: Path) -> Terms | None:
        """Of an app's folder; None where sites take their part of the experiment's own source."""
        path = folder / FILE
        if not path.exists():
            return None
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        columns = tuple(told["columns"]) if "columns" in told else None
        schema = Schema(tuple(told["classes"]), tuple(told["shape"]), told["kind"], columns)
        # a number for each channel, or for each column
        across = (-1, *(1,) * (len(schema.shape) - 1))
        parts = [
            torch.tensor(told[name]).reshape(across)
            for name in ("mean", "deviation")
            if name in told
        ]
        return cls(tuple(told["sites"]), schema, (parts[0], parts[1]) if parts else None)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_toml().encode()).hexdigest()[:8]


def serve_sites(experiment: Experiment, sites: tuple[str, ...]) -> tuple[Prepared, Terms]:
    """The server's half: its own samples as clean set and test set, and the terms that follow from
    them.
    """
    repeated = next((name for name in sites if sites.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError(f"two sites are called {repeated!r}; each needs a name of its own")
    default = type(experiment.data)()
    idle = next(
        (name for name in _IDLE if getattr(experiment.data, name) != getattr(default, name)), None
    )
    if idle is not None:
        raise ConfigError(
            f"data.{idle} has no effect where sites bring their own data: their labels are as they "
            "are"
        )
    if experiment.engine.vectorised:
        raise ConfigError(
            "engine.vectorised has no effect where sites bring their own data: each trains for "
            "itself"
        )
    if experiment.assembled().pooled:
        raise ConfigError(
            f"{experiment.method} puts all data in one place, which sites with data of their own "
            "do not allow"
        )
    experiment = experiment.model_copy(
        update={"data": experiment.data.model_copy(update={"clients": len(sites)})}
    )
    source: Source = data.read(experiment.data, experiment.seed)
    federation = data.alone(source, experiment.data, experiment.seed, sites)
    prepared = prepare(experiment, Given(), (source, federation))
    # After a part was held out, the normalisation is that of the rest.
    return prepared, Terms(
        sites, Schema.of(source, federation.classes), prepared.federation.normaliser
    )


def site_with_data(experiment: Experiment, terms: Terms, context: Context) -> Site:
    """The client that this node is, with the samples that its node config names."""
    node = context.node_config
    client = client_of(context, terms.sites)
    if "data" not in node:
        raise ConfigError(
            'the node config must say where this site\'s data lies: data="/path/to/it"'
        )
    if str(node["data"]) not in data.SOURCES and not Path(str(node["data"])).expanduser().exists():
        raise ConfigError(f"the node config says data={str(node['data'])!r}, and nothing is there")
    changes = {"source": str(node["data"])} | (
        {"label": str(node["label"])} if "label" in node else {}
    )
    schema, options = terms.schema, experiment.data.model_copy(update=changes)
    source = data.read_as(options, experiment.seed, schema)
    module = models.make(schema.shape, len(schema.classes), experiment.model, experiment.seed)
    example = torch.zeros((2, *schema.shape), dtype=getattr(torch, schema.kind))
    setting = setting_of(experiment, module, example, len(schema.classes), terms.normaliser)
    rows = torch.arange(len(source))
    shard = Shard(torch.from_numpy(source.x), torch.from_numpy(source.y), rows.numpy())
    store = store_of(context, f"{experiment.identity()}-{terms.digest}")
    return Site(client, setting, experiment.assembled(), shard, store, source.digest())


def client_of(context: Context, sites: tuple[str, ...]) -> int:
    """Which client a node is: `client` of its node config, a site's name or number, or
    `partition-id`, which simulations set.
    """
    node = context.node_config
    said = node.get("client", node.get("partition-id"))
    if said is None:
        raise ConfigError(
            "the node config must say which client this is: client=0, 1, ... or its name"
        )
    if str(said) in sites:
        return sites.index(str(said))
    try:
        client = int(said)
    except ValueError:
        raise ConfigError(
            f"the node config says client={said!r}, which the server does not "
            f"expect{did_you_mean(str(said), sites)}"
        ) from None
    if not 0 <= client < len(sites):
        raise ConfigError(
            f"the node config says client {client}, but the experiment has {len(sites)} clients"
        )
    return client
