"""What left the clean set and the clients in a run, and which ε covers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gcfl.base.errors import ConfigError
from gcfl.base.record import RoundRecord
from gcfl.methods import parse
from gcfl.methods.catalogue import Slots

_VALUES = "values that at least 5 rows of {} have, medians and commonest values, with the model"


def statement(
    settings: Mapping[str, Any], records: Sequence[RoundRecord], encoded_by: str | None = None
) -> list[str]:
    """In sentences, from a run's settings and what its rounds say was spent. encoded_by: whose
    values the encoding of a table knows ("clean", "all").
    """
    privacy, spent = settings.get("privacy", {}), (records[-1].privacy or {}) if records else {}
    clean, clients = _of_clean(settings), _of_clients(settings)
    if encoded_by is not None:
        clean.append(_VALUES.format("its table"))
    if encoded_by == "all":
        clients.append(_VALUES.format("their tables"))
    lines = []
    for name, left in (("clean_epsilon", clean), ("client_epsilon", clients)):
        budget, delta = privacy.get(name), privacy.get("delta", 1e-5)
        whose = "clean set" if name == "clean_epsilon" else "clients"
        if not left:
            lines.append(f"{whose}: ε = 0: nothing that depends on it leaves")
            continue
        if budget is not None:
            label = " (simulated: the noise comes from a public seed)"
            label = label if privacy.get("simulated_seed") else ""
            cover = f"ε = {spent.get(name, 0.0):.4g} of {budget:g} at δ = {delta:g}{label}"
        elif name == "clean_epsilon" and any("trains" in one for one in left):
            cover = "ε = ∞: the server trains on its clean set"
        else:
            cover = "ε = ∞"
        lines.append(f"{whose}: {cover}; what leaves: {', '.join(left)}")
    return lines


def _of_clean(settings: Mapping[str, Any]) -> list[str]:
    clean, labels = settings.get("clean", {}), settings.get("labels", {})
    covered = settings.get("privacy", {}).get("clean_epsilon") is not None
    try:
        slots = parse(str(settings["method"]))
    except ConfigError:  # a word of somebody else's package
        return ["what the method makes of it"]
    found = []
    if getattr(slots.select, "needs_target", False) and slots.server.uses_clients:
        found.append("gradients of it, to clients that select")
    trained = {
        "warm start": clean.get("warm_start"),
        "takes part": clean.get("takes_part"),
        "fine-tuning": clean.get("fine_tune", "never") != "never",
        slots.server.name: slots.server.trains,
    }
    if ways := [name for name, there in trained.items() if there]:
        found.append(f"models that the server trains on it ({', '.join(ways)})")
    judged = _judged(settings, slots)
    choices = {
        "clean.warm_start": clean.get("warm_start") == "auto",
        "clean.lr": clean.get("lr") == "auto",
        "clean.keep": clean.get("keep") == "best",
        "clean.patience": clean.get("patience") is not None,
        "calibration": judged and clean.get("hold_out", 0) > 0,
        "labels.guard": judged and labels.get("guard", 0) > 0,
        "clean.contribution": clean.get("contribution"),
    }
    if made := [name for name, there in choices.items() if there]:
        found.append(f"what was chosen or measured on it ({', '.join(made)})")
    audit = settings.get("audit", {})
    if audit.get("at_end") or audit.get("share", "none") != "none":
        found.append("class means of its features, to sites that audit")
    if settings.get("data", {}).get("normalise", True) and not covered:
        found.append("its mean and sd, which normalise every input")
    return found


def _of_clients(settings: Mapping[str, Any]) -> list[str]:
    try:
        slots = parse(str(settings["method"]))
    except ConfigError:
        return ["what the method makes of their answers"]
    if not slots.server.uses_clients or not slots.server.shares:
        return []
    found = ["models that hold their updates"]
    if _judged(settings, slots) and settings.get("labels", {}).get("pooling"):
        found.append("to the server, their sizes and estimated rates of wrong labels")
    if (share := settings.get("audit", {}).get("share", "none")) != "none":
        found.append(f"to the server, what audits share ({share})")
    return found


def _judged(settings: Mapping[str, Any], slots: Slots) -> bool:
    """Whether clients estimate which labels are wrong."""
    return settings.get("train", {}).get("loss") == "corrected" or slots.select.name == "sift"
