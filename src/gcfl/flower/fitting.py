"""Answers of nodes to an app of one's own: which of them the strategy inside can add up.

What an app answers is its own affair, so answers are held against each other: records, arrays with
their shapes and types, and metrics are those of most. Where no form is that of more than half,
arrays are those that were sent, if any answer has them. All numbers are finite; the metric by which
answers are weighed is there, and in range.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import Strategy

from gcfl.base.errors import one_line
from gcfl.base.options import LARGEST
from gcfl.base.text import brief
from gcfl.methods.answers import shown

Form = frozenset[str]  # of each thing in a message, where it stands, its shape and its type


def fitting(
    replies: Iterable[Message], strategy: Strategy, sent: RecordDict | None = None
) -> tuple[list[Message], dict[int, str]]:
    """(the replies that the strategy is to see, errors among them; by node, why another is left
    out). sent: what a node was sent, where arrays come back.
    """
    received, weigh = list(replies), _weighed_by(strategy)
    contents = {at: one.content for at, one in enumerate(received) if not one.has_error()}
    weighed = any(_weight(content, weigh) is not None for content in contents.values())
    problems: dict[int, str] = {}
    arrays: dict[int, Form] = {}
    metrics: dict[int, Form] = {}
    for at, content in contents.items():
        try:
            arrays[at], metrics[at] = _arrays(content), _metrics(content)
            problem = _number(content) or (_share(content, weigh) if weighed else None)
        except Exception as error:  # whatever a stranger's records hold
            problem = f"its answer cannot be read: {one_line(error)}"
        if problem is not None:
            problems[at] = problem
    for forms, like in ((arrays, sent), (metrics, None)):
        usual = _usual(forms, None if like is None else _arrays(like))
        if usual is None:
            continue
        for at, form in forms.items():
            lacks, more = sorted(usual - form), sorted(form - usual)
            if lacks or more:
                told = f"lacks {lacks[0]}" if lacks else f"has {more[0]}, which the others have not"
                problems.setdefault(at, f"its answer {told}")
    kept = [one for at, one in enumerate(received) if at not in problems]
    return kept, {received[at].metadata.src_node_id: brief(why) for at, why in problems.items()}


def _weighed_by(strategy: Strategy) -> str | None:
    """The metric by which Flower's strategies weigh, be they inside a privacy wrapper."""
    while isinstance(inside := getattr(strategy, "strategy", None), Strategy):
        strategy = inside
    return getattr(strategy, "weighted_by_key", None)


def _usual(forms: Mapping[int, Form], sent: Form | None) -> Form | None:
    """What an answer looks like, as far as that can be told."""
    form, count = Counter(forms.values()).most_common(1)[0] if forms else (None, 0)
    return form if 2 * count > len(forms) else sent if sent in forms.values() else None


def _arrays(content: RecordDict) -> Form:
    return frozenset(
        f"{record}: {name} {array.numpy().dtype} {array.numpy().shape}"
        for record, arrays in content.array_records.items()
        for name, array in arrays.items()
    )


def _metrics(content: RecordDict) -> Form:
    return frozenset(
        f"{record}: {name}" + (f" of {len(value)} numbers" if isinstance(value, list) else "")
        for record, metrics in content.metric_records.items()
        for name, value in metrics.items()
    )


def _weight(content: RecordDict, weigh: str | None) -> object:
    """The metric by which an answer is weighed; None where it has none."""
    found = (metrics.get(weigh or "") for metrics in content.metric_records.values())
    return next((one for one in found if one is not None), None)


def _share(content: RecordDict, weigh: str | None) -> str | None:
    """Why an answer cannot be weighed, or None."""
    weight = _weight(content, weigh)
    fits = isinstance(weight, int | float) and 0 <= weight <= LARGEST
    return None if fits else f"its {weigh} is {shown(weight)}, which cannot be"


def _number(content: RecordDict) -> str | None:
    """Why a number of an answer cannot be, or None."""
    for arrays in content.array_records.values():
        for name, array in arrays.items():
            values = array.numpy()
            if values.dtype.kind in "fc" and not np.isfinite(values).all():
                return f"NaN or infinite values in {name}"
    for metrics in content.metric_records.values():
        for name, value in metrics.items():
            if not all(map(math.isfinite, value if isinstance(value, list) else [value])):
                return f"its {name} is {shown(value)}, which cannot be"
    return None
