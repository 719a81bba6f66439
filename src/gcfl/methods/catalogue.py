"""Methods by name. A name is one or more words joined by '+'; each word decides something, and the
rest stays plain.

fedavg = everything + plain + average        gcfl = gradient matching + plain + average
scaffold+gcfl, moon+random, skyline+random, fedavgm+gcfl, gcfl+finetune, ...
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from gcfl.base.errors import ConfigError, did_you_mean, one_line
from gcfl.coreset import SELECTORS, Selector
from gcfl.methods.averaging import Average, ServerAdam, ServerMomentum
from gcfl.methods.base import (
    Everything,
    LabelRule,
    LocalRule,
    Method,
    Part,
    Plain,
    SelectionRule,
    ServerRule,
)
from gcfl.methods.contrastive import Contrastive
from gcfl.methods.control_variates import ControlVariates
from gcfl.methods.early_learning import EarlyLearning
from gcfl.methods.local_only import Alone, Separate
from gcfl.methods.mending import Mending
from gcfl.methods.proximal import Proximal
from gcfl.methods.robust_rules import GeometricMedian, Krum, Median, TrimmedMean, Trust
from gcfl.methods.selection import periodic
from gcfl.methods.self_regularisation import SelfRegularisation
from gcfl.methods.server_training import ServerOnly

log = logging.getLogger("gcfl")
Presets = Mapping[str, Mapping[str, Any]]

# The slots of a method, the section of the configuration that holds each one's options, and what
# fills a slot that no word decides.
SECTIONS = {"select": "coreset", "local": "local", "server": "server"}
_KINDS: dict[str, type[Part]] = {
    "select": SelectionRule,
    "local": LocalRule,
    "server": ServerRule,
}
_MEANING = {
    "select": "which samples clients train on",
    "local": "how clients train",
    "server": "what becomes of the updates",
    "clean_only": "that only clean samples count",
    "pooled": "that all samples are in one place",
}
_PLAIN: dict[str, type[Part]] = {"select": Everything, "local": Plain, "server": Average}


@dataclass(frozen=True)
class Word:
    """One word of a method's name.

    decides: the part class of a slot, or one of the switches `clean_only` and `pooled`. presets:
    settings of any section, by section, which give way to what the user says. yields: every other
    word wins over this one, in its slots and in its presets. private: by setting of [privacy], what
    its presets are where that is set.
    """

    summary: str
    decides: Mapping[str, Any] = field(default_factory=dict)
    presets: Presets = field(default_factory=dict)
    yields: bool = False
    private: Mapping[str, Presets] = field(default_factory=dict)


def _word(slot: str, part: type[Part]) -> Word:
    return Word(part.summary, {slot: part})


_SELECTIONS = {name: _word("select", periodic(selector)) for name, selector in SELECTORS.items()}
# Their order is that of the words in a method's canonical name, and so in the names of run folders.
WORDS: dict[str, Word] = {
    "gcfl": _SELECTIONS["gcfl"],
    "fedavg": Word("federated averaging on all samples", {"local": Plain}),
    "fedprox": _word("local", Proximal),
    "scaffold": _word("local", ControlVariates),
    "moon": _word("local", Contrastive),
    "elr": _word("local", EarlyLearning),
    "fedlsr": _word("local", SelfRegularisation),
    "fedcorr": _word("local", Mending),
    "fedavgm": _word("server", ServerMomentum),
    "fedadam": _word("server", ServerAdam),
    "median": _word("server", Median),
    "trimmed-mean": _word("server", TrimmedMean),
    "krum": _word("server", Krum),
    "geometric-median": _word("server", GeometricMedian),
    "fltrust": _word("server", Trust),
    **{name: word for name, word in _SELECTIONS.items() if name != "gcfl"},
    "robust": Word(
        "sifted samples, a corrected loss, and the server's clean set at work: the recommended one",
        {"select": periodic(SELECTORS["sift"]), "server": ServerMomentum},
        {
            "train": {"loss": "corrected", "lr": 0.03, "min_steps": 8, "augment": "auto"},
            "server": {"momentum": 0.8},
            "clean": {
                "warm_start": "auto",
                "warm_schedule": "cosine",
                "lr": "auto",
                "takes_part": True,
            },
            "labels": {"average": 0.8, "guard": 10, "evidence": True},
        },
        yields=True,
        private={
            "clean_epsilon": {
                "clean": {"warm_start": 30, "lr": 1.0, "takes_part": False},
                "labels": {"guard": 0},
            },
            "client_epsilon": {
                "clean": {"takes_part": False},
                "labels": {"guard": 0, "pooling": False},
            },
        },
    ),
    "skyline": Word(
        "FedAvg on the clean samples only: needs the truth, simulation only", {"clean_only": True}
    ),
    "server-only": _word("server", ServerOnly),
    "local-only": Word(Alone.summary, {"local": Alone, "server": Separate}),
    "centralised": Word(
        "all clients' samples in one place, as if they could be shared", {"pooled": True}
    ),
    "finetune": Word(
        "after the last round, train on the server's clean set too",
        presets={"clean": {"fine_tune": "end"}},
    ),
    "warmstart": Word(
        "before the first round, train on the server's clean set",
        presets={"clean": {"warm_start": 10, "warm_schedule": "cosine"}},
    ),
}


def register(part: type[Part] | type[Selector], word: str | None = None) -> None:
    """Make a part of one's own known by its name: from then on it composes with all others.

    A `gcfl.coreset.Selector` chooses every K rounds; a `SelectionRule` does as it likes.
    """
    if isinstance(part, type) and issubclass(part, Selector):
        part = part if issubclass(part, SelectionRule) else periodic(part)
    kinds = [
        slot for slot, kind in _KINDS.items() if isinstance(part, type) and issubclass(part, kind)
    ]
    if not kinds:
        raise ConfigError(
            f"{part!r} is no part of a method: it must be a subclass of Selector, SelectionRule, "
            "LocalRule or ServerRule"
        )
    name = word or part.name
    known = WORDS.get(name)
    # A notebook's cell that is run again may define the same class once more.
    if known is not None and _who(known.decides.get(kinds[0])) != _who(part):
        raise ConfigError(f"there is a method named {name!r} already")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"a method's name has small letters, digits and hyphens, got {name!r}")
    WORDS[name] = Word(part.summary, {kinds[0]: part})


def _who(part: Any) -> tuple[str, str] | None:
    return None if part is None else (part.__module__, part.__qualname__)


@cache
def register_installed() -> None:
    """The parts that other packages offer, by their entry points in the group gcfl.methods; once,
    when a method's name is first looked at.
    """
    for entry in entry_points(group="gcfl.methods"):
        try:
            register(entry.load(), entry.name)
        except Exception as error:  # somebody else's package must not keep ours from working
            log.warning(
                "the method %s of another package cannot be used: %s", entry.name, one_line(error)
            )


@dataclass(frozen=True)
class Slots:
    """What a method's name stands for: part classes, switches, and presets of all its words."""

    select: type[SelectionRule]
    local: type[LocalRule]
    server: type[ServerRule]
    clean_only: bool = False
    pooled: bool = False
    presets: Presets = field(default_factory=dict)

    def items(self) -> dict[str, type[Part]]:
        return {"select": self.select, "local": self.local, "server": self.server}


def parse(name: str, private: Sequence[str] = ()) -> Slots:
    """The parts that a name asks for; unknown words and two words for one slot are errors. private:
    the settings of [privacy] that are set.
    """
    register_installed()
    tokens = name.split("+")
    for token in tokens:
        if token not in WORDS:
            raise ConfigError(f"method {name!r} is unknown{did_you_mean(token, WORDS)}")
    firm = [token for token in tokens if not WORDS[token].yields]
    soft = [token for token in tokens if WORDS[token].yields]
    decided: dict[str, str] = {}
    for token in firm:
        for slot in WORDS[token].decides:
            if slot in decided:
                raise ConfigError(
                    f"method {name!r} is contradictory: {decided[slot]} and {token} both decide "
                    f"{_MEANING[slot]}"
                )
            decided[slot] = token
    for token in soft:
        for slot in WORDS[token].decides:
            decided.setdefault(slot, token)
    slots = {**_PLAIN, **{slot: WORDS[token].decides[slot] for slot, token in decided.items()}}
    presets: dict[str, dict[str, Any]] = {}
    parts = [slots[slot].presets for slot in SECTIONS]
    for layer in (
        *(WORDS[token].presets for token in soft),
        *(WORDS[token].private.get(setting, {}) for token in soft for setting in reversed(private)),
        *parts,
        *(WORDS[token].presets for token in firm),
    ):
        for section, values in layer.items():
            presets.setdefault(section, {}).update(values)
    for part in (slots[slot] for slot in SECTIONS):
        for section, names in part.refuses.items():
            presets[section] = {k: v for k, v in presets.get(section, {}).items() if k not in names}
    found = Slots(**slots, presets=presets)
    if not found.server.uses_clients and len(decided) > 1:
        others = [token for slot, token in decided.items() if slot != "server"]
        raise ConfigError(
            f"method {name!r} is contradictory: {decided['server']} trains without clients, so "
            f"{others[0]} has no effect"
        )
    return found


def canonical(name: str) -> str:
    """One name per method: words in the catalogue's order, without a needless `fedavg`."""
    words = [word for word in WORDS if word in name.split("+")]
    rest = [word for word in words if word != "fedavg"]
    additions = all(not WORDS[word].decides for word in rest)
    return "+".join(dict.fromkeys(["fedavg", *rest]) if additions else rest)


def parts_of(slot: str) -> Iterator[tuple[str, type[Part]]]:
    """Every part that can fill a slot, with the word that asks for it ('' for the plain one)."""
    register_installed()
    yield "", _PLAIN[slot]
    for name, word in WORDS.items():
        if slot in word.decides and word.decides[slot] is not _PLAIN[slot]:
            yield name, word.decides[slot]


def known_options(slot: str) -> set[str]:
    """Every option that any part of this slot has: one file can then serve many methods."""
    return {name for _, part in parts_of(slot) for name in part.model_fields}


def assemble(name: str, options: Mapping[str, Part], labels: LabelRule | None = None) -> Method:
    """The method of that name from its parts, as `experiment` validated them. labels: how clients
    judge theirs, where something asks for that.
    """
    slots = parse(name)
    switches = {"clean_only": slots.clean_only, "pooled": slots.pooled, "labels": labels}
    return Method(name, **options, **switches)  # type: ignore[arg-type]
