"""What the [figure] of a sweep may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gcfl.base.errors import ConfigError, did_you_mean
from gcfl.results.measures import MEASURES, Measure, measure

# What adds up from round to round: its axis, the measure, and how much of it is one of the axis.
COSTS = {
    "cpu": ("CPU-seconds", measure("cpu_seconds"), 1.0),
    "client-cpu": ("the clients' CPU-seconds", measure("client_cpu_seconds"), 1.0),
    "passes": ("million samples through the network (backward: as two)", measure("passes"), 1e6),
    "bytes": ("MB sent, both ways", measure("bytes"), 1e6),
}
_WISHES = ("kind", "x", "y", "panels", "floor", "highlight", "lines")
_ALIASES = {"best": "best_accuracy"}


def asked(
    wish: Mapping[str, Any], values: Iterable[Mapping[str, Any]]
) -> tuple[str, Measure, str | None]:
    """x, y and panels of a [figure], checked; values: what tells runs apart, of each."""
    values = list(values)
    unknown = next((key for key in wish if key not in _WISHES), None)
    if unknown is not None:
        raise ConfigError(f"unknown setting figure.{unknown}{did_you_mean(unknown, _WISHES)}")
    x, name = str(wish.get("x", "round")), str(wish.get("y", "accuracy"))
    name = _ALIASES.get(name, name)
    known = {one.name: one for one in MEASURES}
    if name not in known:
        raise ConfigError(f"figure.y {name!r} is unknown{did_you_mean(name, known)}")
    over_rounds = x == "round" or x in COSTS
    numbers = all(isinstance(one.get(x), int | float) for one in values)
    if wish.get("kind") != "heatmap" and not (over_rounds or x == "label" or numbers):
        raise ConfigError(
            f"figure.x {x!r} must be a setting of the sweep with numbers, 'round', "
            f"{', '.join(map(repr, COSTS))} or 'label'"
        )
    labels = {str(one.get("label")) for one in values}
    lines = wish.get("lines", [])
    if not isinstance(lines, list):
        raise ConfigError(f"figure.lines must be a list of labels, got {lines!r}")
    if lost := next((one for one in lines if one not in labels), None):
        raise ConfigError(f"figure.lines: no case is {lost!r}{did_you_mean(str(lost), labels)}")
    if known[name].of_round is None and over_rounds:
        raise ConfigError(f"figure.y {name!r} is one number per run, so figure.x cannot be {x!r}")
    return x, known[name], wish.get("panels")
