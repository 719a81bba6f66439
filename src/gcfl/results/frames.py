"""Results as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gcfl.base.errors import ConfigError


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A row for each mapping."""
    try:
        import pandas
    except ImportError:
        raise ConfigError("pandas is not installed: pip install 'gcfl[frames]'") from None
    return pandas.DataFrame(list(rows))
