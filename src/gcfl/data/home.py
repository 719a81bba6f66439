"""Where data lives: GCFL_DATA_HOME, else the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """The folder that named sets are looked for in."""
    own = os.environ.get("GCFL_DATA_HOME")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gcfl"


def cache_folder() -> Path:
    """What was made from data and can be made again."""
    folder = data_home() / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
