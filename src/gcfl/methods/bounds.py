"""How far one client can move what is added up: norms of updates, compared and bounded.

With a bound c (`server.clip`, a number or the median of the round's norms), the weights of an
update become Δ_i min(1, c / ‖Δ_i‖). What else is added up has other units: the statistics of
normalisation layers, and tensors that a local rule sends (SCAFFOLD's control variates). Each of
these is bounded by the median of its own norms; the latter under robust server rules too, which
look at updates alone.

What is a million times as long as the round's median, and longer than the model, is no update at
all. It is left out under every rule: no average survives it. Where neither a bound nor a robust
rule holds updates, twenty times and a tenth of the model are enough for that. A client that trains
on n times the round's median of samples takes n times as many steps: it may be n times as long.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from gcfl.base.data_types import FloatArray
from gcfl.base.errors import all_of
from gcfl.methods.answers import Sent
from gcfl.methods.base import ServerRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView

log = logging.getLogger("gcfl")
FAR = 10.0  # times the median: an update that long, and longer than the model, is worth a warning
LONG = 20.0  # times the median: left out of an average that nothing bounds, if ...
_MATTERS = 0.1  # ... it is longer than this share of the model, too
ABSURD = 1e6  # times the median: no training does that
_OFTEN, _ROUNDS = 5.0, 3  # times the median, in so many rounds: worth a warning, if short ones too
_STILL = 1e-4  # times the median: next to no update
_FEWEST = 3  # clients, of whom most can be right


def outliers(view: ServerView, replies: Replies) -> dict[int, float]:
    """By client, how many times the round's median its update's norm is: ‖Δ_i‖ / median ‖Δ‖, where
    that is far and ‖Δ_i‖ > ‖w‖, the model's own norm. Clients that have little left to learn send
    updates near zero; beside them an honest one is long, and moves the model by little.
    """
    return _beyond(replies, view.setting.network.trained, FAR, least=_own(view))


def _own(view: ServerView) -> float:
    """The norm of the model's weights."""
    trained = view.setting.network.trained
    return math.hypot(*(float(view.model[name].norm()) for name in trained))


def _beyond(
    replies: Replies, names: Collection[str], times: float, part: str = "", least: float = 0.0
) -> dict[int, float]:
    """By client, its norm in medians of the round's, where it is more than so many, and more than
    `least`.
    """
    if len(replies) < _FEWEST or not names:
        return {}
    norms = replies.norms(names, part)
    median = float(np.median(norms))
    long = norms > times * median * _more(replies)
    far = np.flatnonzero(long & (norms > least)) if median else ()
    return {int(replies.clients[place]): float(norms[place]) / median for place in far}


def _more(replies: Replies) -> FloatArray:
    """(m,) how many times the round's median of samples each trained on; at least 1."""
    examples = replies.examples
    more: FloatArray = np.maximum(1.0, examples / np.median(examples))
    return more


def absurd(
    view: ServerView, replies: Replies, rule: ServerRule, payload: Mapping[str, Sent]
) -> tuple[Replies, dict[int, str]]:
    """(the answers that can be added up at all, by client why another cannot)."""
    open_to_all = rule.shares and rule.bound is None and not rule.wary
    own = _own(view)
    strict, usual = (LONG, _MATTERS * own), (ABSURD, own)
    limits = strict if open_to_all else usual
    groups: list[tuple[str, str, Collection[str], tuple[float, float]]] = [
        ("", "its update is", view.setting.network.trained, limits),
        ("", "its statistics are", _moving(view), usual),
    ]
    groups += [
        (part, f"the part {part} is", _vectors(sent), usual) for part, sent in payload.items()
    ]
    reasons: dict[int, str] = {}
    for part, what, names, (most, least) in groups:
        for client, times in _beyond(replies, names, most, part, least).items():
            told = f"{what} {times:.3g} times as long as the round's median"
            reasons.setdefault(client, told)
    if not reasons:
        return replies, {}
    return replies.among([client for client in replies if client not in reasons]), reasons


def _moving(view: ServerView) -> list[str]:
    """Statistics of normalisation layers that are no counts."""
    network = view.setting.network
    moving = [name for name in network.sent if name not in network.trained]
    return [name for name in moving if view.model[name].is_floating_point()]


def _vectors(sent: Sent) -> list[str]:
    return [name for name, like in sent.items() if like.shape]


@dataclass
class Lookout:
    """Whose updates the log has told of, each once, and whose it may have to tell of.

    long: whose were far longer than the others'. often, still: in how many rounds a client's was
    long, or next to nothing.
    """

    long: set[int] = field(default_factory=set)
    often: Counter[int] = field(default_factory=Counter)
    still: Counter[int] = field(default_factory=Counter)

    def look(self, view: ServerView, replies: Replies, called: Callable[[int], str]) -> None:
        """Warn of updates that are far longer than the others', and of such as do nothing."""
        if len(replies) < _FEWEST:
            return
        trained = view.setting.network.trained
        far = outliers(view, replies)
        often = _beyond(replies, trained, _OFTEN, least=_MATTERS * _own(view))
        self.often.update(often.keys())  # each counts one
        for client, times in sorted((often | far).items()):
            if client in self.long or (client not in far and self.often[client] < _ROUNDS):
                continue
            self.long.add(client)
            log.warning(
                "round %d: the update of %s is %.3g times as long as the round's median, and "
                "%s: a mistake, or a lie (server.clip = 'median' bounds it)",
                view.round,
                called(client),
                times,
                "longer than the model itself" if client in far else "long for the third time",
            )
        norms = replies.norms(trained)
        for client in replies.clients[norms < _STILL * np.median(norms)].tolist():
            self.still[client] += 1
            if self.still[client] == _ROUNDS:
                log.warning(
                    "round %d: the update of %s is next to nothing for the third time: it learns "
                    "nothing, or holds back",
                    view.round,
                    called(client),
                )

    def tell(self, round: int, left_out: Mapping[int, str], called: Callable[[int], str]) -> None:
        """Name who is left out, and whose doing it may be."""
        for client, reason in left_out.items():
            blame = "" if client in self.long else self.blame(called)
            log.warning("round %d: %s is left out: %s%s", round, called(client), reason, blame)

    def nobody_left(
        self, round: int, left_out: Mapping[int, str], called: Callable[[int], str]
    ) -> str:
        """Why a round ends a run."""
        client = next((one for one in left_out if one not in self.long), next(iter(left_out)))
        reason = f"{called(client)}: {left_out[client]}"
        return f"round {round}: no client gave a valid update ({reason}{self.blame(called)})"

    def blame(self, called: Callable[[int], str]) -> str:
        """Whose long updates of earlier rounds may have carried the model away."""
        if not self.long:
            return ""
        names = all_of(called(one) for one in sorted(self.long)[:3])
        return (
            f"; in earlier rounds updates of {names} were far longer than the others' and may have "
            "carried the model away: see server.clip and the robust server rules"
        )


def bounded(
    view: ServerView, replies: Replies, rule: ServerRule, payload: Mapping[str, Sent]
) -> Replies:
    """The answers as the rule lets them in. payload: what each part sends."""
    if not len(replies) or (rule.bound is None and not rule.wary):
        return replies
    network = view.setting.network
    if rule.bound is not None:
        norms = replies.norms(network.trained)
        longest = float(np.median(norms)) if rule.bound == "median" else rule.bound
        replies = _shortened(replies, norms, longest, network.trained)
        replies = _at_median(replies, _moving(view))
    for part, sent in payload.items():
        replies = _at_median(replies, _vectors(sent), part)
    return replies


def _at_median(replies: Replies, names: Collection[str], part: str = "") -> Replies:
    if not names:
        return replies
    norms = replies.norms(names, part)
    return _shortened(replies, norms, float(np.median(norms)), names, part)


def _shortened(
    replies: Replies, norms: FloatArray, longest: float, names: Collection[str], part: str = ""
) -> Replies:
    """None longer than that."""
    long = norms > longest
    if not long.any():
        return replies
    factors = np.divide(longest, norms, out=np.ones_like(norms), where=long)
    return replies.scaled(factors, names, part)
