"""What a study comes to, in a sentence for each problem: which method is ahead, by how much, at
what cost, and whether the seeds bear it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcfl.base.errors import all_of
from gcfl.base.text import count
from gcfl.results.groups import ACCURACY, Group, Study
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


def headline(study: Study) -> str:
    """The whole study in one sentence, with its uncertainty."""
    compared = [
        ranked for groups in study.scenes.values() if len(ranked := study.ranked(groups)) > 1
    ]
    if len(compared) == 1:
        return _sentence(compared[0])
    if compared:
        return _overall(study, compared)
    rated = [(group, group.accuracy) for group in study.groups if group.accuracy]
    if len(rated) != 1:
        return ""
    ((group, found),) = rated
    ends = f"{group.line} {'ends' if group.finished else 'is so far'} at {ACCURACY.text_of(found)}%"
    if found.sd is None:
        return f"{ends} with one seed, which proves nothing about another."
    return f"{ends}, mean ± sd of {found.n} seeds; there is nothing to compare it with."


def _overall(study: Study, compared: Sequence[Sequence[Group]]) -> str:
    """compared: the groups of each problem, best first."""
    nearest = [lead(top.by_seed, second.by_seed) for top, second, *_ in compared]
    wins: dict[str, list[Lead]] = {}
    for (top, *_), one in zip(compared, nearest, strict=True):
        if top in study.best:
            wins.setdefault(top.line, []).append(one)
    told = []
    for line, leads in sorted(wins.items(), key=lambda pair: -len(pair[1])):
        least, *_, most = sorted([*leads, *leads], key=lambda one: one.by)
        by = _points(least) if len(leads) == 1 else f"{_points(least)} to {_points(most)}"
        told.append(f"in {len(leads)} {line} is ahead by more than the seeds' spread ({by})")
    if open_ := len(compared) - sum(map(len, wins.values())):
        alone = any(one.sd is None for one in nearest)
        why = "one seed proves nothing" if alone else "the seeds cannot tell"
        told.append(f"in {open_} {why}")
    return f"Of {len(compared)} problems: {'; '.join(told)}."


def _sentence(ranked: Sequence[Group]) -> str:
    """groups: at least two, best first."""
    top, rivals = ranked[0], ranked[1:]
    leads = [lead(top.by_seed, rival.by_seed) for rival in rivals]
    # Where any lead is in doubt, the doubt is told; where none is, the nearest rival.
    doubtful = [(rival, one) for rival, one in zip(rivals, leads, strict=True) if not one.clear]
    if any(one.sd is None for one in leads):
        ahead = f"{top.line} is {_points(leads[0])} above {rivals[0].line}"
        return f"{ahead}, but one seed proves nothing: play three or more (--seeds 3)."
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
