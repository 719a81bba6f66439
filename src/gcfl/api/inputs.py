"""What a call from Python brings: arrays, datasets, each client's data, settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch.utils.data

from gcfl import experiment as config
from gcfl.base.cells import is_frame
from gcfl.base.errors import ConfigError, DataError
from gcfl.data import (
    DataOptions,
    Source,
    arrays,
    beside_arrays,
    from_frame,
    from_frames,
    from_options,
    gathered,
    in_groups,
    is_huggingface,
    is_whole,
    warn_of_useless,
    with_frames,
)

log = logging.getLogger("gcfl")
Size = int | float
# Settings of [data] by which samples from Python are read.
READING = (
    *("label", "group", "image_size", "channels", "text", "length", "broken"),
    *("columns", "drop", "schema_file", "date_format"),
)


def take_data(
    explicit: dict[str, Any],
    data: Any,
    validation: Any,
    test: Any,
    classes: Any,
    groups: Any = None,
    file: Path | None = None,
) -> Source | None:
    """Arrays and DataFrames to a source; sizes, paths and names to settings. file: a configuration
    that says how samples are read.
    """
    own = {"validation": validation, "test": test}
    pairs: dict[str, Any] = {
        name: value
        for name, value in own.items()
        if not (value is None or isinstance(value, int | float | str | os.PathLike))
    }
    explicit.update(
        {
            f"data.{name}": os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in own.items()
            if value is not None and name not in pairs
        }
    )
    table: dict[str, Any] = {}
    by_client = _has_frames(data) or _has_clients(data)
    if isinstance(data, Mapping) and not is_huggingface(data) and not by_client:
        table = {str(name): value for name, value in data.items() if name != "source"}
        explicit.update({f"data.{name}": value for name, value in table.items()})
        data = data.get("source")
    if data is None or isinstance(data, str | os.PathLike):
        if pairs or classes is not None or groups is not None:
            raise ConfigError("validation, test, classes and groups as arrays go with data=(x, y)")
        if data is not None:
            explicit["data.source"] = os.fspath(data)
        return None
    labelled = _labelled(data, pairs, explicit, file) if classes is None else None
    if labelled is not None:
        source = replace(_from_frames(*labelled, explicit, file), name="arrays")
    elif _has_frames(data):
        if classes is not None or groups is not None:
            raise ConfigError("a DataFrame has no classes= and groups=: name a column, group=")
        source = _from_frames(data, pairs, explicit, file)
    else:
        read = _from_clients if _has_clients(data) else _source
        source = read(data, pairs, classes, _options(explicit, file))
    explicit["data.source"] = source.name
    explicit.update({f"data.{name}": len(getattr(source, name)[1]) for name in pairs})
    if groups is not None:
        source = in_groups(source, groups)
        explicit.setdefault("data.partition", "groups")
        explicit.setdefault("data.clients", len(np.unique(source.groups)))  # type: ignore[arg-type]
    if source.clients is not None:
        explicit.setdefault("data.partition", "given")
        explicit.setdefault("data.clients", len(source.clients))
    return source


class _Labelled:
    """A DataFrame x and its labels y as one DataFrame."""

    def __init__(self, x: Any, y: Any, label: str) -> None:
        self._x, self._y, self._label = x, np.asarray(y), label
        if self._y.shape != (len(x),):
            raise DataError(
                f"y must be one row of {len(x)} labels, as many as x has samples, got shape "
                f"{self._y.shape}"
            )
        self.columns = [*x.columns, label]
        self.dtypes, self.shape = x.dtypes, (len(x), len(self.columns))
        self.index = getattr(x, "index", range(len(x)))

    def __getitem__(self, name: Any) -> Any:
        return self._y if name == self._label else self._x[name]


def _labelled(
    data: Any, pairs: Mapping[str, Any], explicit: dict[str, Any], file: Path | None
) -> tuple[Any, dict[str, Any]] | None:
    """data and its sets as DataFrames with a column of labels, where all are pairs (DataFrame, y),
    also client by client; else None.
    """
    by_client = _has_clients(data)
    named = data.items() if isinstance(data, Mapping) else enumerate(data) if by_client else ()
    parts = dict(named) if by_client else {"": data}
    if not all(map(_is_labelled, [*parts.values(), *pairs.values()])):
        return None
    label = wanted = _options(explicit, file).label
    while any(label in map(str, x.columns) for x, _ in [*parts.values(), *pairs.values()]):
        label += "_"
    if label != wanted:
        explicit["data.label"] = label
    found = {name: _Labelled(x, y, label) for name, (x, y) in parts.items()}
    sets = {name: _Labelled(x, y, label) for name, (x, y) in pairs.items()}
    return found if by_client else found[""], sets


def _is_labelled(pair: Any) -> bool:
    """Whether it is a pair of a DataFrame and labels that a table does not take for others: texts
    that are all whole numbers become such.
    """
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and is_frame(pair[0])):
        return False
    x, y = pair
    if is_frame(y) or is_huggingface(x):
        return False
    return not all(isinstance(one, str) and is_whole(one) for one in np.asarray(y).tolist())


def _has_frames(data: Any) -> bool:
    if isinstance(data, Mapping | list | tuple) and not is_huggingface(data):
        parts = list(data.values() if isinstance(data, Mapping) else data)
        return bool(parts) and all(map(is_frame, parts))
    return is_frame(data) and not is_huggingface(data)


def _from_frames(
    data: Any, pairs: Mapping[str, Any], explicit: dict[str, Any], file: Path | None
) -> Source:
    """A source from one DataFrame, or from one of each client, with sets that are such too."""
    mine = {name: value for name, value in explicit.items() if name.startswith("data.")}
    options = config.compose(file, mine)[0].data
    for name, pair in pairs.items():
        if not is_frame(pair):
            raise ConfigError(f"{name} must be a DataFrame as data is, a file, a share or a count")
    if is_frame(data):
        source = from_frame(data, options)
    else:
        named = data.items() if isinstance(data, Mapping) else enumerate(data)
        source = from_frames({str(name): frame for name, frame in named}, options)
    warn_of_useless(source, options.date_format)
    return with_frames(source, pairs, options)


def _source(data: Any, pairs: Mapping[str, Any], classes: Any, options: DataOptions) -> Source:
    """One source from samples of any kind."""
    if is_huggingface(data):
        data = from_options(data, options)
    if not isinstance(data, Source):
        sets = pairs.get("validation"), pairs.get("test")
        return arrays(data, *sets, classes, options.channels, options.length)
    if pairs or classes is not None:
        raise ConfigError(
            f"{data.name} brings its own sets and classes: validation and test can only be sizes"
        )
    return data


def _from_clients(
    data: Any,
    pairs: Mapping[str, Any],
    classes: Any,
    options: DataOptions,
) -> Source:
    """One source from the samples of each client, of kinds that may differ."""
    named = data.items() if isinstance(data, Mapping) else enumerate(data)
    parts = {str(name): _plain(part, options) for name, part in named}
    if len(parts) < len(data):
        raise ConfigError("two clients of data have the same name")
    columns: tuple[str, ...] = ()
    if any(map(is_frame, (*parts.values(), *pairs.values()))):
        everybody = {f"client {name!r}": part for name, part in parts.items()} | dict(pairs)
        found, columns = beside_arrays(everybody, options)
        parts = {name: found[f"client {name!r}"] for name in parts}
        pairs = {name: found[name] for name in pairs}
        if columns:
            log.warning(
                "arrays beside a DataFrame: their columns are taken to be %s, in this order",
                ", ".join(columns),
            )
    lacking = [name for name in ("validation", "test") if name not in pairs]
    if lacking and not columns:  # of a table it is told later
        log.warning(
            "no %s given: cut from the clients' own samples, an equal share of each; where their "
            "labels are wrong, so are those",
            " and ".join(f"{name}=(x, y)" for name in lacking),
        )
    sets = pairs.get("validation"), pairs.get("test"), classes, options.channels, options.length
    return gathered(parts, *sets, columns=columns)


def _options(explicit: Mapping[str, Any], file: Path | None) -> DataOptions:
    """Settings that say how samples are read, by the names of today."""
    written = config.read_settings(file).get("data", {}) if file is not None else {}
    asked = dict(written) if isinstance(written, dict) else {}
    asked |= {name.removeprefix("data."): one for name, one in explicit.items() if "data." in name}
    known = {name: asked[name] for name in READING if name in asked}
    return config.build({"data": known})[0].data


def _plain(part: Any, options: DataOptions) -> Any:
    """One client's samples as a pair or a torch Dataset."""
    source = from_options(part, options) if is_huggingface(part) else part
    if not isinstance(source, Source):
        return part
    if source.validation is not None or source.test is not None:
        raise ConfigError(
            f"{source.name} brings a validation or test set of its own; give a client one split"
        )
    if source.x.dtype == object and source.columns is not None:
        raise ConfigError(
            f"{source.name} is a table of other things than numbers without gaps, and another "
            "client's may hold others: give every client a DataFrame (dataset.to_pandas())"
        )
    return source.x, np.asarray(source.classes)[source.y]


def _has_clients(data: Any) -> bool:
    """Whether data is a dict or list with the samples of each client, and not one of settings, or
    a pair; what could be either is refused.
    """
    if isinstance(data, Mapping) and not is_huggingface(data):
        samples = {name: _is_samples(value) for name, value in data.items()}
        others = [name for name, one in samples.items() if one and name != "source"]
        if "source" in data:
            if others:
                raise ConfigError(
                    f"data has 'source' and is read as settings, but {others[0]!r} holds samples; "
                    "give the client 'source' another name, or put all clients below 'source'"
                )
            return False
    elif isinstance(data, list | tuple):
        samples = {place: _is_samples(value) for place, value in enumerate(data)}
        if len(data) == 2 and not all(samples.values()):
            return False  # (x, y)
    else:
        return False
    wrong = [name for name, one in samples.items() if not one]
    if wrong and len(wrong) < len(samples):
        raise ConfigError(
            f"data holds the samples of each client, but {wrong[0]!r} is no pair (x, y) and no "
            "dataset; settings go beside them: data={'source': {...}, 'min_size': 5}"
        )
    return bool(samples) and not wrong


def _is_samples(value: Any) -> bool:
    """Whether it looks like the samples of one client: a dataset, or a pair of rows."""
    if (
        isinstance(value, torch.utils.data.Dataset | Source)
        or is_huggingface(value)
        or is_frame(value)
    ):
        return True
    rows = isinstance(value, list | tuple) and len(value) == 2
    return rows and all(hasattr(one, "__len__") and not isinstance(one, str) for one in value)
