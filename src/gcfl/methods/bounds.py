"""How far one client can move what is added up: norms of updates, compared and bounded.

With a bound c (`server.clip`, a number or the median of the round's norms), the weights of an
update become Δ_i min(1, c / ‖Δ_i‖). What else is added up has other units: the statistics of
normalisation layers, and tensors that a local rule sends (SCAFFOLD's control variates). Each of
these is bounded by the median of its own norms; the latter under robust server rules too, which
look at updates alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from gcfl.base.data_types import FloatArray
from gcfl.methods.answers import Sent
from gcfl.methods.base import ServerRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView

log = logging.getLogger("gcfl")
FAR = 10.0  # times the median: an update that long, and longer than the model, is worth a warning
_FEWEST = 3  # clients, of whom most can be right


def outliers(view: ServerView, replies: Replies) -> dict[int, float]:
    """By client, how many times the round's median its update's norm is: ‖Δ_i‖ / median ‖Δ‖, where
    that is far and ‖Δ_i‖ > ‖w‖, the model's own norm. Clients that have little left to learn send
    updates near zero; beside them an honest one is long, and moves the model by little.
    """
    if len(replies) < _FEWEST:
        return {}
    norms = replies.norms(view.setting.network.trained)
    median = float(np.median(norms))
    own = math.hypot(*(float(view.model[name].norm()) for name in view.setting.network.trained))
    far = np.flatnonzero((norms > FAR * median) & (norms > own)) if median else ()
    return {int(replies.clients[place]): float(norms[place]) / median for place in far}


def warn_of_long(
    view: ServerView, replies: Replies, warned: set[int], called: Callable[[int], str]
) -> None:
    """Name those whose updates are far longer than the others', once each."""
    longest = outliers(view, replies)
    for client in sorted(longest.keys() - warned):
        warned.add(client)
        log.warning(
            "round %d: the update of %s is %.3g times as long as the round's median, and longer "
            "than the model itself: a mistake, or a lie (server.clip = 'median' bounds it)",
            view.round,
            called(client),
            longest[client],
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
        moving = [n for n in network.sent if n not in network.trained]
        replies = _at_median(replies, [n for n in moving if view.model[n].is_floating_point()])
    for part, sent in payload.items():
        vectors = [name for name, like in sent.items() if like.shape]
        replies = _at_median(replies, vectors, part)
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
