"""Sites that bring their own data: the server's terms for it, and what each site makes of them.

The terms travel in the app, which Flower itself hands to every node: the sites' names, the classes
in their order, what a sample looks like, the normalisation, how a table's columns become features.
Labels and inputs then mean the same everywhere, also at a site that lacks a class.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import tomli_w
import torch
from flwr.app import Context

from gcfl import data, models
from gcfl.base.data_types import Shard
from gcfl.base.encoding import Encoding
from gcfl.base.errors import ConfigError, did_you_mean
from gcfl.base.options import read_toml
from gcfl.data import Federation, Schema, Source
from gcfl.engine.hold_out import encoded_apart
from gcfl.engine.prepare import Given, Prepared, prepare
from gcfl.engine.setting import setting_of
from gcfl.experiment import Experiment
from gcfl.flower.client import Site, folder_of, store_of

TERMS = "terms.toml"
_HEADING = (
    "# What sites are told of the data. Made from the server's: export again when that changes.\n"
)
# settings of [data] that say how the server's samples would be spoiled and dealt out
_UNUSED = (
    *("noise", "noise_rates", "noise_spread", "noise_file", "validation_noise", "test_noise"),
    *("owners", "labels"),
)
_NO_EFFECT = "has no effect where sites bring their own data"


@dataclass(frozen=True)
class Terms:
    """What sites must know. sites: client i is the i-th. normaliser: mean and sd. seed: what the
    server's samples were split by, whatever seed a run is played with; None in older apps.
    """

    sites: tuple[str, ...]
    schema: Schema
    normaliser: tuple[torch.Tensor, torch.Tensor] | None
    seed: int | None = None

    def to_toml(self) -> str:
        schema = self.schema
        entries = {
            "sites": list(self.sites),
            "classes": list(schema.classes),
            "shape": list(schema.shape),
            "kind": schema.kind,
        }
        if self.seed is not None:
            entries["seed"] = self.seed
        if schema.encoding is not None and not schema.encoding.plain:
            entries["encoding"] = schema.encoding.to_plain()
        elif schema.columns is not None:
            entries["columns"] = list(schema.columns)
        if self.normaliser is not None:
            mean, deviation = (part.flatten().tolist() for part in self.normaliser)
            entries |= {"mean": mean, "deviation": deviation}
        return _HEADING + tomli_w.dumps(entries)

    @classmethod
    def read(cls, folder: Path) -> Terms | None:
        """Of an app's folder; None where sites take their part of the experiment's own source."""
        path = folder / TERMS
        if not path.exists():
            return None
        entries = read_toml(path)
        columns = tuple(entries["columns"]) if "columns" in entries else None
        encoding = None if columns is None else Encoding.plain_numbers(columns)
        if "encoding" in entries:
            encoding = Encoding.from_plain(entries["encoding"])
            columns = encoding.names
        shape = tuple(entries["shape"])
        schema = Schema(tuple(entries["classes"]), shape, entries["kind"], columns, encoding)
        normaliser = None
        if "mean" in entries:
            across = (-1, *(1,) * (len(shape) - 1))  # a number for each channel or column
            mean, deviation = torch.tensor(entries["mean"]), torch.tensor(entries["deviation"])
            normaliser = (mean.reshape(across), deviation.reshape(across))
        return cls(tuple(entries["sites"]), schema, normaliser, entries.get("seed"))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_toml().encode()).hexdigest()[:8]


def serve_sites(
    experiment: Experiment, sites: tuple[str, ...], seed: int | None = None
) -> tuple[Prepared, Terms]:
    """The server's half: its own samples as clean set and test set, and the terms made of them.

    seed: what splits its samples, and so moves the normalisation; the experiment's own where unset.
    """
    repeated = next((name for name in sites if sites.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError(f"two sites are called {repeated!r}; each needs a name of its own")
    options, default = experiment.data, type(experiment.data)()
    for name in _UNUSED:
        if getattr(options, name) != getattr(default, name):
            raise ConfigError(f"data.{name} {_NO_EFFECT}: their labels are as they are")
    if options.client_test:
        raise ConfigError(f"data.client_test {_NO_EFFECT}: no site tests a model on its own yet")
    if experiment.engine.vectorised:
        raise ConfigError(f"engine.vectorised {_NO_EFFECT}: each trains for itself")
    if experiment.assembled().pooled:
        raise ConfigError(
            f"{experiment.method} puts all data in one place, which sites with data of their own "
            "do not allow"
        )
    options = options.model_copy(update={"clients": len(sites)})
    experiment = experiment.model_copy(update={"data": options})
    split_by = experiment.seed if seed is None else seed

    def federation_of(source: Source) -> Federation:
        return data.alone(source, options, split_by, sites)

    found = data.read(options, split_by)
    source, federation = encoded_apart(experiment, found, split_by, federation_of, alone=True)
    prepared = prepare(experiment, Given(), (source, federation), split_by)
    schema = Schema.of(source, federation.classes)
    # After a part was held out, the normalisation is that of the rest.
    return prepared, Terms(sites, schema, prepared.federation.normaliser, seed)


def site_with_data(experiment: Experiment, terms: Terms, context: Context) -> Site:
    """The client that this node is, with the samples that its node config names."""
    node = context.node_config
    client = client_of(context, terms.sites)
    if "data" not in node:
        raise ConfigError(
            'the node config must say where this site\'s data lies: data="/path/to/it"'
        )
    place = str(node["data"])
    if place not in data.SOURCES and not Path(place).expanduser().exists():
        raise ConfigError(f"the node config says data={place!r}, and nothing is there")
    # What is the server's alone, a site may not even have.
    fields = type(experiment.data).model_fields
    own = ("validation", "test", "schema_file", "columns", "drop", "group")
    changes = {"source": place, **{name: fields[name].default for name in own}}
    if "label" in node:
        changes["label"] = str(node["label"])
    schema, options = terms.schema, experiment.data.model_copy(update=changes)
    source = data.read_as(options, experiment.seed, schema)
    module = models.make(schema.shape, len(schema.classes), experiment.model, experiment.seed)
    example = torch.zeros((2, *schema.shape), dtype=getattr(torch, schema.kind))
    # The weights to start from lie at the server, and come with its first message.
    without = experiment.model.model_copy(update={"weights": None})
    afresh = experiment.model_copy(update={"model": without})
    setting = setting_of(afresh, module, example, len(schema.classes), terms.normaliser)
    rows = torch.arange(len(source))
    shard = Shard(torch.from_numpy(source.x), torch.from_numpy(source.y), rows.numpy())
    run = f"{experiment.identity()}-{terms.digest}"
    return Site(
        client,
        setting,
        experiment.assembled(),
        shard,
        store_of(context, run),
        source.digest(),
        terms.sites[client],
        source,
        folder_of(context, run),
    )


def client_of(context: Context, sites: tuple[str, ...]) -> int:
    """By its node config: `client`, a name or a number, or `partition-id`, as simulations say."""
    node = context.node_config
    given = node.get("client", node.get("partition-id"))
    if given is None:
        raise ConfigError(
            "the node config must say which client this is: client=0, 1, ... or its name"
        )
    if str(given) in sites:
        return sites.index(str(given))
    try:
        client = int(given)
    except ValueError:
        raise ConfigError(
            f"the node config says client={given!r}, which the server does not "
            f"expect{did_you_mean(str(given), sites)}"
        ) from None
    if not 0 <= client < len(sites):
        raise ConfigError(
            f"the node config says client {client}, but the experiment has {len(sites)} clients"
        )
    return client
