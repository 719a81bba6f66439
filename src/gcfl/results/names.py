"""What a run is called: its method, and what the method's name does not tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from gcfl.base.errors import ConfigError
from gcfl.base.options import flat, nested
from gcfl.experiment import build

# Settings that make another method of one: how they are told where they are not at the method's
# default. "{}" is the value; some are told by value, others than those as in `_ELSE`.
TELLING: dict[str, str | dict[Any, str]] = {
    "train.loss": "{}",
    "train.mixup": "mixup {}",
    "train.augment": {"none": "not augmented", "flip+crop": "flip+crop", "crop": "crop"},
    "coreset.score": "score {}",
    "coreset.variant": "{}",
    "coreset.crust": "{}",
    "coreset.weighted": {True: "weighted", False: "unweighted"},
    "model.freeze": {"body": "frozen body"},
    "clean.warm_start": {0: "no warm start", "auto": "warm start"},
    "clean.fine_tune": {"never": "not fine-tuned", "each": "fine-tuned each round"},
    "clean.takes_part": {True: "server takes part", False: "server takes no part"},
    "server.clip": "clip {}",
    "privacy.clean_epsilon": "clean ε {}",
    "privacy.client_epsilon": "client ε {}",
}
_ELSE = {
    "train.augment": "augmented",
    "model.freeze": "frozen layers",
    "clean.warm_start": "warm start {}",
    "clean.fine_tune": "fine-tuned",
}
_BUDGETS = ("privacy.clean_epsilon", "privacy.client_epsilon")


def called(settings: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """'fedavg (gce)', of settings by dotted name: the method, and where it is another one than its
    name says. without: what is told elsewhere.
    """
    method = str(settings["method"])
    budgets = tuple(name for name in _BUDGETS if settings.get(name) is not None)
    try:
        usual = _usual(method, budgets)
    except ConfigError:  # a word of somebody else's package
        usual = _usual("fedavg", budgets)
    more = [
        _told(name, settings[name])
        for name in TELLING
        if name in settings and name not in without and settings[name] != usual.get(name)
    ]
    return f"{method} ({', '.join(more)})" if more else method


def _told(name: str, value: Any) -> str:
    words = TELLING[name]
    if isinstance(words, dict):
        words = next((text for one, text in words.items() if one == value), _ELSE.get(name, "{}"))
    return words.format(f"{value:g}" if isinstance(value, float) else value)


@cache
def _usual(method: str, budgets: tuple[str, ...]) -> dict[str, Any]:
    """What the method has where nobody says otherwise; without its budgets."""
    asked = {"method": method, **dict.fromkeys(budgets, 1.0)}
    found = flat(build(nested(asked))[0].resolved())
    return {name: value for name, value in found.items() if name not in budgets}
