"""Methods by name. A name is one or more words joined by '+'; each word fills slots, and the rest
stays plain.

fedavg = everything + plain + average        gcfl = gradient matching + plain + average
scaffold+gcfl, moon+random, skyline+random, fedavgm+gcfl, gcfl+finetune, ...
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from gcfl.base.errors import ConfigError, did_you_mean, one_line
from gcfl.methods.adaptive import ServerAdam, ServerMomentum
from gcfl.methods.alone import Alone, Separate
from gcfl.methods.average import Average
from gcfl.methods.contrastive import Contrastive
from gcfl.methods.control_variates import ControlVariates
from gcfl.methods.everything import Everything
from gcfl.methods.facility_location import FacilityLocation
from gcfl.methods.glister import Glister
from gcfl.methods.gradient_matching import GradientMatching
from gcfl.methods.gradmatch import GradMatch
from gcfl.methods.medoids import Craig, Crust
from gcfl.methods.parts import LocalRule, Method, Part, Selector, ServerRule
from gcfl.methods.plain import Plain
from gcfl.methods.proximal import Proximal
from gcfl.methods.random import Random
from gcfl.methods.server_only import ServerOnly
from gcfl.methods.trust import Agreement, SmallLoss

log = logging.getLogger("gcfl")


@dataclass(frozen=True)
class Word:
    """One word of a method's name: the slots that it fills."""

    summary: str
    select: type[Selector] | None = None
    local: type[LocalRule] | None = None
    server: type[ServerRule] | None = None
    clean_only: bool = False
    pooled: bool = False
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


WORDS: dict[str, Word] = {
    "gcfl": Word(GradientMatching.summary, select=GradientMatching),
    "fedavg": Word("federated averaging on all samples", local=Plain),
    "fedprox": Word(Proximal.summary, local=Proximal),
    "scaffold": Word(ControlVariates.summary, local=ControlVariates),
    "moon": Word(Contrastive.summary, local=Contrastive),
    "fedavgm": Word(ServerMomentum.summary, server=ServerMomentum),
    "fedadam": Word(ServerAdam.summary, server=ServerAdam),
    "random": Word(Random.summary, select=Random),
    "facility": Word(FacilityLocation.summary, select=FacilityLocation),
    "crust": Word(Crust.summary, select=Crust),
    "craig": Word(Craig.summary, select=Craig),
    "glister": Word(Glister.summary, select=Glister),
    "gradmatch": Word(GradMatch.summary, select=GradMatch),
    "small-loss": Word(SmallLoss.summary, select=SmallLoss),
    "agreement": Word(Agreement.summary, select=Agreement),
    "skyline": Word(
        "FedAvg on the clean samples only: needs the truth, simulation only", clean_only=True
    ),
    "server-only": Word(ServerOnly.summary, server=ServerOnly),
    "local-only": Word(Alone.summary, local=Alone, server=Separate),
    "centralised": Word(
        "all clients' samples in one place, as if they could be shared", pooled=True
    ),
    "finetune": Word(
        "after the last round, train on the server's clean set too",
        presets={"server": {"fine_tune": "end"}},
    ),
    "warmstart": Word(
        "before the first round, train on the server's clean set",
        presets={"server": {"warm_start": 10}},
    ),
}


def register(part: type[Part], word: str | None = None) -> None:
    """Make a part of one's own known by its name: from then on it composes with all others."""
    slots = {"select": Selector, "local": LocalRule, "server": ServerRule}
    slot = next(
        (slot for slot, kind in slots.items() if isinstance(part, type) and issubclass(part, kind)),
        None,
    )
    if slot is None:
        raise ConfigError(
            f"{part!r} is no part of a method: it must be a subclass of Selector, LocalRule or "
            "ServerRule"
        )
    name = word or part.name
    known = WORDS.get(name)
    # a notebook's cell that is run again
    same = known is not None and _who(getattr(known, slot)) == _who(part)
    if known is not None and not same:
        raise ConfigError(f"there is a method named {name!r} already")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"a method's name has small letters, digits and hyphens, got {name!r}")
    WORDS[name] = Word(part.summary, **{slot: part})  # type: ignore[arg-type]


def _who(part: Any) -> tuple[str, str] | None:
    return None if part is None else (part.__module__, part.__qualname__)


def register_installed() -> None:
    """The parts that other packages offer, by their entry points in the group gcfl.methods."""
    for entry in entry_points(group="gcfl.methods"):
        try:
            register(entry.load(), entry.name)
        except Exception as error:  # somebody else's package must not keep ours from working
            log.warning(
                "the method %s of another package cannot be used: %s", entry.name, one_line(error)
            )


# The section of the configuration that holds each slot's options.
SECTIONS = {"select": "coreset", "local": "local", "server": "server"}


@dataclass(frozen=True)
class Slots:
    """The part classes that a method's name stands for."""

    select: type[Selector] = Everything
    local: type[LocalRule] = Plain
    server: type[ServerRule] = Average
    clean_only: bool = False
    pooled: bool = False
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def items(self) -> dict[str, type[Part]]:
        return {"select": self.select, "local": self.local, "server": self.server}


def parse(name: str) -> Slots:
    """The parts that a name asks for; unknown words and two words for one slot are errors."""
    filled: dict[str, str] = {}
    slots: dict[str, Any] = {}
    presets: dict[str, dict[str, Any]] = {}
    for token in name.split("+"):
        if token not in WORDS:
            raise ConfigError(f"method {name!r} is unknown{did_you_mean(token, WORDS)}")
        word = WORDS[token]
        for section, values in word.presets.items():
            presets.setdefault(section, {}).update(values)
        for slot in ("select", "local", "server", "clean_only", "pooled"):
            value = getattr(word, slot)
            if not value:
                continue
            if slot in filled:
                raise ConfigError(
                    f"method {name!r} is contradictory: {filled[slot]} and {token} both decide the "
                    "same thing"
                )
            filled[slot] = token
            slots[slot] = value
    found = Slots(**slots, presets=presets)
    if not found.server.uses_clients and len(filled) > 1:
        others = [token for slot, token in filled.items() if slot != "server"]
        raise ConfigError(
            f"method {name!r} is contradictory: {filled['server']} trains without clients, so "
            f"{others[0]} has no effect"
        )
    return found


def canonical(name: str) -> str:
    """One name per method: words in the catalogue's order, without `fedavg` where another word says
    what the method is.
    """
    words = [word for word in WORDS if word in name.split("+")]
    rest = [word for word in words if word != "fedavg"]
    additions = all(WORDS[word].presets for word in rest)
    return "+".join(dict.fromkeys(["fedavg", *rest]) if additions else rest)


def known_options(slot: str) -> set[str]:
    """Every option that any part of this slot has: one file can then serve many methods."""
    defaults = Slots().items()
    classes = {
        defaults[slot],
        *(getattr(word, slot) for word in WORDS.values() if getattr(word, slot)),
    }
    return {field for part in classes for field in part.model_fields}


def assemble(name: str, options: Mapping[str, Part]) -> Method:
    """The method of that name from its parts, as `experiment` validated them."""
    select, local, server = options["select"], options["local"], options["server"]
    slots = parse(name)
    return Method(name, select, local, server, slots.clean_only, slots.pooled)  # type: ignore[arg-type]


register_installed()
