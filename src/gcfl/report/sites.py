"""Sites side by side, from what they told the server at the end of a run (sites.json): size, labels
that are estimated to be wrong, class balance, and how much they helped. Findings themselves are the
sites' own, and no report reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gcfl.results.contribution import Contribution, contributions
from gcfl.results.run import Run

MEANING = (
    "Wrong labels are each site's own estimate, with a 95% interval. Commonest labels: of those "
    "that are told; counts under 5 are withheld."
)
_MOST = 3  # classes of a site that are named
HEADS = ("site", "samples", "wrong labels", "95%", "commonest labels", "cosine", "gain", "remark")
NUMBERS = HEADS[1:4] + HEADS[5:7]


@dataclass(frozen=True)
class Sites:
    """A line per site, as texts; columns that no site fills are left out."""

    heads: list[str]
    lines: list[list[str]]


def sites_of(run: Run) -> Sites | None:
    """None where sites were not asked."""
    told = run.sites.get("sites")
    if not told:
        return None
    helped, clients = contributions(run.rounds), run.clients
    lines = []
    for client, one in enumerate(told):
        size = one.get("samples")
        if size is None and client < len(clients):
            size = clients[client]["samples"]
        lines.append(
            [
                str(one["name"]),
                "-" if size is None else f"{size:,}",
                *_rate(one),
                _balance(one, run.sites["classes"]),
                *_help(helped.get(client)),
                str(one.get("problem", "-" if "samples" in one else "tells nothing")),
            ]
        )
    filled = [place for place in range(len(HEADS)) if {line[place] for line in lines} != {"-"}]
    return Sites(
        [HEADS[place] for place in filled], [[line[place] for place in filled] for line in lines]
    )


def _rate(one: Mapping[str, Any]) -> list[str]:
    if "rate" not in one:
        return ["-", "-"]
    low, high = one["interval"]
    return [f"{one['rate']:.1%}", f"{low:.1%} to {high:.1%}"]


def _balance(one: Mapping[str, Any], classes: list[str]) -> str:
    """The commonest labels, as shares of the site's samples."""
    counts = [(count, name) for count, name in zip(one.get("labelled", ()), classes, strict=False)]
    told = sorted((pair for pair in counts if pair[0]), key=lambda pair: -pair[0])
    texts = [f"{name} {count / one['samples']:.0%}" for count, name in told[:_MOST]]
    return ", ".join([*texts, "..."] if len(told) > _MOST else texts) or "-"


def _help(one: Contribution | None) -> list[str]:
    if one is None:
        return ["-", "-"]
    return [f"{one.cosine:+.3f}", "-" if one.gain is None else f"{one.gain:+.4f}"]
