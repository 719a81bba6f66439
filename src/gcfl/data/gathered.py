"""What each client holds, given from Python client by client: one source that knows the owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.utils.data

from gcfl.base.cells import columns_of, is_frame
from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError, did_you_mean
from gcfl.data.arrays import Pair, arrays, as_pair, class_names
from gcfl.data.layouts import Channels
from gcfl.data.options import DataOptions
from gcfl.data.source import Source
from gcfl.data.tabular import bare


def gathered(
    parts: Mapping[str, Any],
    validation: Pair | None = None,
    test: Pair | None = None,
    classes: Sequence[str | int] | None = None,
    channels: Channels = None,
    length: int = 64,
    columns: Sequence[str] = (),
) -> Source:
    """A source from each client's (x, y) or torch Dataset, by the clients' names. The classes are
    those given, else those that the Datasets name, else the sorted labels of all clients. Samples
    are known as client/row. columns: the features' names, where somebody has named them.
    """
    pairs = {name: as_pair(f"client {name!r}", part) for name, part in parts.items()}
    _check_alike(pairs)
    if classes is None:
        named = [class_names(part) for part in parts.values()]
        if all(names is not None for names in named):
            classes = list(dict.fromkeys(name for names in named for name in names))
    x, y = (np.concatenate(arrays) for arrays in zip(*pairs.values(), strict=True))
    source = arrays((x, y), validation, test, classes, channels, length)
    return replace(
        source,
        groups=np.repeat(list(pairs), [len(y) for _, y in pairs.values()]),
        clients=tuple(pairs),
        alike=True,
        names=tuple(f"{name}/{row}" for name, (_, y) in pairs.items() for row in range(len(y))),
        columns=tuple(columns) or None,
        encoding=Encoding.plain_numbers(columns) if columns else None,
    )


def beside_arrays(
    parts: Mapping[str, Any], options: DataOptions
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """DataFrames among the parts as (x, y), others as they are; and the columns of x, in the order
    of the first DataFrame. Arrays name no columns, so only plain numbers (or data.text) can be.
    """
    if options.schema_file is not None:
        raise DataError(
            "data.schema_file names columns, and arrays have none: give every client a DataFrame"
        )
    found: dict[str, Any] = {}
    first = ""
    names: tuple[str, ...] = ()
    for part, given in parts.items():
        found[part] = given
        if is_frame(given):
            columns = columns_of(given)
            lacking = next((one for one in names if one not in columns), None)
            if lacking is not None:
                raise DataError(
                    f"{part} has no column {lacking!r}, which {first} has"
                    f"{did_you_mean(lacking, columns)}"
                )
            x, y, order = bare(columns, part, options, names or None)
            found[part], first, names = (x, y), first or part, order
    return found, names


def in_groups(source: Source, groups: Any) -> Source:
    """The same source, whose samples belong to groups (n,) of these names."""
    if source.clients is not None:
        raise DataError("groups go with data=(x, y); data given client by client has its owners")
    values = np.asarray(groups.detach().cpu() if isinstance(groups, torch.Tensor) else groups)
    if values.shape != (len(source),):
        raise DataError(
            f"groups must be a name for each of the {len(source)} samples of data, got shape "
            f"{values.shape}"
        )
    if any(name is None or name != name or name == "" for name in values.tolist()):
        raise DataError("groups has samples without a name")
    return replace(source, groups=values.astype(str), alike=True)


def _check_alike(pairs: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> None:
    """All clients' samples must be of one shape and type, and their labels of one kind."""
    (first, (x, y)), *others = pairs.items()
    for name, (other, labels) in others:
        if other.shape[1:] != x.shape[1:]:
            raise DataError(
                f"client {name!r} has samples of shape {other.shape[1:]}, but client {first!r} has "
                f"{x.shape[1:]}"
            )
        if other.dtype != x.dtype:
            raise DataError(
                f"client {name!r} has samples of type {other.dtype}, but client {first!r} has "
                f"{x.dtype}, and so their scales may differ; convert them"
            )
        if labels.dtype.kind != y.dtype.kind:
            kinds = {"i": "whole numbers", "U": "names"}
            raise DataError(
                f"the labels of client {name!r} are {kinds[labels.dtype.kind]}, but those of "
                f"client {first!r} are {kinds[y.dtype.kind]}; all must be of one kind"
            )
