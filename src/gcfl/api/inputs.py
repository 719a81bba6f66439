"""What a call from Python brings: arrays, datasets, settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gcfl import experiment as config
from gcfl.base.errors import ConfigError
from gcfl.data import Source, arrays, from_huggingface, is_huggingface

Size = int | float


def take_data(
    explicit: dict[str, Any], data: Any, validation: Any, test: Any, classes: Any
) -> Source | None:
    """Arrays to a source; sizes and names to settings."""
    own = {"validation": validation, "test": test}
    pairs: dict[str, Any] = {
        name: value
        for name, value in own.items()
        if not (value is None or isinstance(value, int | float))
    }
    explicit.update(
        {
            f"data.{name}": value
            for name, value in own.items()
            if value is not None and name not in pairs
        }
    )
    if isinstance(data, Mapping) and not is_huggingface(data):
        table = {str(name): value for name, value in data.items() if name != "source"}
        explicit.update({f"data.{name}": value for name, value in table.items()})
        data = data.get("source")
    else:
        table = {}
    if is_huggingface(data):
        columns = {name: table[name] for name in ("label", "group", "image_size") if name in table}
        options = config.build({"data": columns})[0].data
        data = from_huggingface(data, options.label, options.group, options.image_size)
    if isinstance(data, Source):
        if pairs or classes is not None:
            raise ConfigError(
                f"{data.name} brings its own sets and classes: validation and test can only be "
                "sizes"
            )
        explicit["data.source"] = data.name
        return data
    if data is None or isinstance(data, str | os.PathLike):
        if pairs or classes is not None:
            raise ConfigError("validation, test and classes as arrays go with data=(x, y)")
        if data is not None:
            explicit["data.source"] = os.fspath(data)
        return None
    source = arrays(data, pairs.get("validation"), pairs.get("test"), classes)
    explicit["data.source"] = source.name
    explicit.update({f"data.{name}": len(getattr(source, name)[1]) for name in pairs})
    return source
