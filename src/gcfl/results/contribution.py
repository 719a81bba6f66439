"""How much each client helped over a run, from what the server recorded round by round.

The cosine compares a client's update with the server's own step on clean samples, and is low too
for a client whose classes are rare there: read it beside who holds what. The gain is what leaving
the client out of the mean costs on clean samples; only that is about the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from gcfl.base.errors import RunError
from gcfl.base.record import RoundRecord

_ALWAYS = {"norm", "cosine", "weight"}
_FEWEST = 3  # rounds, below which a standard error says nothing
_NORMAL = 1.959964  # the 97.5% quantile of the normal distribution


@dataclass(frozen=True)
class Contribution:
    """Of one client. rounds: in how many its update was valid. cosine, norm: their means over
    these. weight: the sum Σ_t a_i(t) of its weights, in rounds' worth of updates.

    gain: the mean of v_i(t) over the `judged` rounds that left clients out one by one; above 0 the
    client helps. None where there is none. interval: gain ± 1.96 s / √judged, with s the standard
    deviation over rounds: 95%, as if rounds were independent, which neighbouring ones are not
    quite. None below 3 rounds.
    """

    rounds: int
    cosine: float
    norm: float
    weight: float
    judged: int
    gain: float | None
    interval: tuple[float, float] | None


def contributions(records: Sequence[RoundRecord]) -> dict[int, Contribution]:
    """By client, sorted; empty where the run did not record it (clean.contribution)."""
    seen: dict[int, list[dict[str, float]]] = {}
    for record in records:
        for client, numbers in (record.contribution or {}).items():
            if not client.isdecimal() or not numbers.keys() >= _ALWAYS:
                raise RunError(
                    f"round {record.round}: the contribution of client {client} is damaged"
                )
            seen.setdefault(int(client), []).append(numbers)
    return {client: _over(seen[client]) for client in sorted(seen)}


def _over(rounds: Sequence[dict[str, float]]) -> Contribution:
    gains = [one["left_out_loss"] for one in rounds if "left_out_loss" in one]
    gain = mean(gains) if gains else None
    interval = None
    if gain is not None and len(gains) >= _FEWEST:
        half = _NORMAL * stdev(gains) / sqrt(len(gains))
        interval = gain - half, gain + half
    return Contribution(
        rounds=len(rounds),
        cosine=mean(one["cosine"] for one in rounds),
        norm=mean(one["norm"] for one in rounds),
        weight=sum(one["weight"] for one in rounds),
        judged=len(gains),
        gain=gain,
        interval=interval,
    )
