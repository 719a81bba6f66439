"""What `gcfl.recommend` tries: methods with their settings, in the order of what experience says.

All clients' methods train on a budget of their samples and have the same help of the clean set
(`robust+X` has the ingredients of robust, but for those that X decides), so that they cost alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcfl import experiment as config
from gcfl.base.options import flat
from gcfl.experiment import Experiment

FIRST = "robust"
SERVER_ONLY = "server-only"
BASELINES = ("fedavg", SERVER_ONLY)  # always among the candidates
_FRESH = {"coreset.every": 1}  # a fresh draw in every round
_RATE = 0.03


@dataclass(frozen=True)
class Candidate:
    """name: short. what: in words. settings: by dotted name, over those of the user."""

    name: str
    what: str
    settings: Mapping[str, Any]


# From the one that is taken in doubt to the last: by what was measured (docs/which-method.md).
KNOWN = (
    Candidate(FIRST, "sifted samples, corrected loss", {"method": "robust"}),
    Candidate(
        "gce",
        "random samples, generalised cross-entropy",
        {"method": "random+robust", "train.loss": "gce", **_FRESH},
    ),
    Candidate(
        "fedavg",
        "FedAvg at equal cost: random samples, cross-entropy",
        {"method": "random+robust", "train.loss": "cross-entropy", **_FRESH},
    ),
    Candidate(
        SERVER_ONLY,
        "the clean set alone, no clients",
        {
            "method": SERVER_ONLY,
            "train.loss": "cross-entropy",
            "train.augment": "auto",
            "clean.warm_start": 0,
            "clean.takes_part": False,
            "clean.contribution": False,
        },
    ),
)


@dataclass(frozen=True)
class Wanted:
    """What the user asked for: a file, and single settings by dotted name, which win over it.

    flags: what those were called on the command line. brought: which arguments of the call from
    Python hold samples or names.
    """

    file: Path | None
    explicit: Mapping[str, Any]
    flags: Mapping[str, str] | None = None
    brought: tuple[str, ...] = ()

    def experiment(self, more: Mapping[str, Any]) -> Experiment:
        """That with more settings over it."""
        asked = {**self.explicit, **self.usual, **more}
        return config.compose(self.file, asked, self.flags)[0]

    @property
    def usual(self) -> dict[str, Any]:
        """The learning rate that all get where the user has set none."""
        return {} if "train.lr" in self.named else {"train.lr": _RATE}

    @property
    def named(self) -> set[str]:
        """The settings that the user has set, by dotted name."""
        in_file = flat(config.read_settings(self.file)) if self.file else {}
        return {*in_file, *(config.RENAMED.get(name, name) for name in self.explicit)}


def candidates(wanted: Wanted) -> list[Candidate]:
    """Those that are known, and the user's own method, if it is another one that can be had."""
    if "method" not in wanted.named:
        return list(KNOWN)
    own = wanted.experiment({})
    method = own.assembled()
    compares = method.server.shares and not (method.clean_only or method.pooled)
    if not compares or own.method in (FIRST, SERVER_ONLY):
        return list(KNOWN)
    return [*KNOWN, Candidate(f"your {own.method}", "the method that you named", {})]
