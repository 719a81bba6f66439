"""What a run is called: its method, and what the method's name does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gcfl.base.options import flat
from gcfl.methods import WORDS, parse

# What a method's name does not tell, and how it is told: as it is, or after a word.
TELLING = {"train.loss": "", "train.mixup": "mixup ", "server.clip": "clip "}
_PLAIN = {"train.loss": "cross-entropy", "train.mixup": 0.0}


def called(settings: Mapping[str, Any]) -> str:
    """'fedavg (gce)', of settings by dotted name: the method, and where it trains otherwise than
    its name says.
    """
    method = str(settings["method"])
    known = set(method.split("+")) <= WORDS.keys()
    presets = flat(parse(method).presets) if known else {}
    more = [
        f"{word}{settings[name]}"
        for name, word in TELLING.items()
        if name in settings and settings[name] != presets.get(name, _PLAIN.get(name))
    ]
    return f"{method} ({', '.join(more)})" if more else method
