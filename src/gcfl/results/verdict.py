"""What a study comes to, in a sentence for each problem: which method is ahead, by how much, at
what cost, and whether the seeds bear it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gcfl.base.errors import all_of
from gcfl.base.text import count
from gcfl.results.groups import ACCURACY, Group, Study
from gcfl.results.lead import FEWEST, Lead, lead
from gcfl.results.measures import measure

_MORE = "play three or more (--seeds 3)"


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
    wins: dict[str, list[Lead]] = {}
    open_: Counter[str] = Counter()
    for top, *rivals in compared:
        leads = [lead(top.by_seed, rival.by_seed) for rival in rivals]
        if top in study.best:
            wins.setdefault(top.line, []).append(leads[0])
        else:
            open_[_why_not(leads)] += 1
    told = []
    for line, leads in sorted(wins.items(), key=lambda pair: -len(pair[1])):
        least, *_, most = sorted([*leads, *leads], key=lambda one: one.by)
        by = _points(least) if len(leads) == 1 else f"{_points(least)} to {_points(most)}"
        told.append(f"in {len(leads)} {line} is ahead by more than the seeds' spread ({by})")
    told += [f"in {many} {why}" for why, many in open_.items()]
    return f"Of {len(compared)} problems: {'; '.join(told)}."


def _why_not(leads: Sequence[Lead]) -> str:
    """Why a problem has no winner."""
    if any(not one.clear for one in leads if one.sd is not None):
        return "the seeds cannot tell"
    alone = any(one.sd is None for one in leads)
    return "one seed proves nothing" if alone else "two seeds prove little"


def _sentence(ranked: Sequence[Group]) -> str:
    """ranked: at least two, best first."""
    top, rivals = ranked[0], ranked[1:]
    leads = [lead(top.by_seed, rival.by_seed) for rival in rivals]
    # Where any lead is in doubt, the doubt is told; where none is, the nearest rival.
    pairs = list(zip(rivals, leads, strict=True))
    known = [(rival, one) for rival, one in pairs if one.sd is not None]
    doubtful = [(rival, one) for rival, one in known if not one.clear]
    alone = [rival for rival, one in pairs if one.sd is None]
    if not known:
        who = "" if len(top.by_seed) == 1 else f" of {all_of(rival.line for rival in alone)}"
        ahead = f"{top.line} is {_points(leads[0])} above {rivals[0].line}"
        return f"{ahead}, but one seed{who} proves nothing: {_MORE}."
    few = all_of(rival.line for rival in alone) if alone else ""
    after = f" One seed of {few} proves nothing." if alone else ""
    seeds = min(one.seeds for _, one in known)
    if doubtful:
        names = all_of(f"{rival.line} ({_points(one)} behind)" for rival, one in doubtful)
        more = f" {_MORE.capitalize()}." if seeds < FEWEST else ""
        return (
            f"{top.line} has the highest mean, but {count(seeds, 'seed')} cannot tell it from "
            f"{names}: the difference is within the seeds' spread.{more}{after}"
        )
    rival, nearest = known[0]
    ahead = f"{top.line} is ahead of {rival.line} by {_points(nearest)}, which is more than the"
    cost = _cost(top, rival)
    if seeds < FEWEST:
        return f"{ahead} spread{cost}; but two seeds prove little: {_MORE}.{after}"
    return f"{ahead} spread over {count(seeds, 'seed')}{cost}.{after}"


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
