"""What a study comes to, in a sentence for each problem: which method is ahead, by how much, at
what cost, and whether the seeds bear it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcfl.base.errors import all_of
from gcfl.base.text import count
from gcfl.results.groups import Group, Study
from gcfl.results.lead import Lead, lead
from gcfl.results.measures import measure


def verdicts(study: Study) -> list[str]:
    """A sentence for each scene in which at least two methods can be compared."""
    found = []
    for scene, groups in study.scenes.items():
        ranked = study.ranked(groups)
        if len(ranked) > 1:
            where = f"{scene}: " if scene and len(study.scenes) > 1 else ""
            found.append(f"{where}{_sentence(ranked)}")
    return found


def _sentence(ranked: Sequence[Group]) -> str:
    """groups: at least two, best first."""
    top, rivals = ranked[0], ranked[1:]
    leads = [lead(top.by_seed, rival.by_seed) for rival in rivals]
    # Where any lead is in doubt, the doubt is told; where none is, the nearest rival.
    doubtful = [(rival, one) for rival, one in zip(rivals, leads, strict=True) if not one.clear]
    if any(one.sd is None for one in leads):
        ahead = f"{top.line} is {_points(leads[0])} above {rivals[0].line}"
        return f"{ahead}, but one seed says little: three or more (--seeds 3) tell more."
    if doubtful:
        names = all_of(f"{rival.line} ({_points(one)} behind)" for rival, one in doubtful)
        seeds = count(leads[0].seeds, "seed")
        return (
            f"{top.line} has the highest mean, but {seeds} cannot tell it from {names}: the "
            "difference is within the seeds' spread."
        )
    return (
        f"{top.line} is ahead of {rivals[0].line} by {_points(leads[0])}, which is more than the "
        f"spread over {count(leads[0].seeds, 'seed')}{_cost(top, rivals[0])}."
    )


def _points(one: Lead) -> str:
    """'3.1 ± 0.8 points'."""
    sd = "" if one.sd is None else f" ± {100 * one.sd:.1f}"
    return f"{100 * one.by:.1f}{sd} points"


def _cost(top: Group, rival: Group) -> str:
    """', at 0.42 times its CPU-seconds'."""
    mine, others = (group.over(measure("cpu_seconds")) for group in (top, rival))
    if mine is None or others is None or not others.mean:
        return ""
    return f", at {mine.mean / others.mean:.2g} times its CPU-seconds"
