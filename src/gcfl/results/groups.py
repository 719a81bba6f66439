"""What a set of runs compares: settings they share, settings that differ, and groups of runs that
differ in the seed alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gcfl.base.text import count
from gcfl.experiment import NEUTRAL, SHORT
from gcfl.methods import WORDS, parse
from gcfl.results.lead import lead
from gcfl.results.measures import Measure, measure
from gcfl.results.names import called
from gcfl.results.run import Run
from gcfl.results.styles import Spread, spread

ACCURACY = measure("accuracy")
# The order in which settings are tried as an explanation of what differs; the others follow by
# name.
_FIRST = (
    "method",
    "data.source",
    "data.noise_kind",
    "data.noise",
    "data.partition",
    "data.alpha",
    "cohort",
    "data.validation",
    "coreset.budget",
    "coreset.score",
    "coreset.variant",
)
# Settings of the problem; runs that differ in them are not compared in one plot.
_SCENE = ("scene", "cohort", "model.name", "rounds")
_NAMES = {full: short for short, full in SHORT.items()}
_NAMES |= {"data.validation": "server's set", "label": "method"}
_SIZES = ("cohort", "data.validation", "data.test")
_BASE = ("method", "data.source")
_BARE = ("scene", "label", "method", "data.source", "data.noise_kind")


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed alone. values: those of the columns, None for a setting that the
    method does not have.

    spoken: those of them that its name is made of; line: the part about the method; scene: that
    about the problem.
    """

    values: dict[str, Any]
    spoken: dict[str, Any]
    runs: list[Run]
    line: str
    scene: str

    @property
    def label(self) -> str:
        return f"{self.line}, {self.scene}" if self.scene else self.line

    @cached_property
    def used(self) -> list[Run]:
        """The runs that figures are made of: the finished ones, or what there is."""
        finished = [run for run in self.runs if run.finished]
        return finished or [run for run in self.runs if run.rounds]

    @property
    def finished(self) -> bool:
        return any(run.finished for run in self.runs)

    @property
    def state(self) -> str:
        """'2 seeds', or what is missing."""
        finished = [run for run in self.runs if run.finished]
        if len(finished) == len(self.runs):
            return count(len(finished), "seed")
        if finished:
            return f"{len(finished)} of {len(self.runs)} seeds finished"
        return "; ".join(dict.fromkeys(run.state for run in self.runs))

    @property
    def knows_truth(self) -> bool:
        """A method that is told the truth is a mark to measure by, not a competitor."""
        words = self.runs[0].method.split("+")
        return any("clean_only" in WORDS[word].decides for word in words if word in WORDS)

    @property
    def is_plain(self) -> bool:
        """Every sample, plain training, plain averaging: what costs are compared with."""
        method = self.runs[0].method
        return set(method.split("+")) <= WORDS.keys() and parse(method) == parse("fedavg")

    def over(self, one: Measure) -> Spread | None:
        """A measure over the runs that count."""
        return spread(one.of(run) for run in self.used)

    @cached_property
    def accuracy(self) -> Spread | None:
        return self.over(ACCURACY)

    @property
    def by_seed(self) -> dict[int, float]:
        """The accuracy of each run that counts, by its seed."""
        found = {run.seed: ACCURACY.of(run) for run in self.used}
        return {seed: value for seed, value in found.items() if value is not None}


@dataclass(frozen=True)
class Study:
    """common: settings that all runs share. columns: those that tell groups apart. implied: others
    that differ along with them.
    """

    runs: list[Run]
    common: dict[str, Any]
    columns: list[str]
    implied: list[str]
    groups: list[Group]

    @property
    def lines(self) -> list[str]:
        return list(dict.fromkeys(group.line for group in self.groups))

    @property
    def scenes(self) -> dict[str, list[Group]]:
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.scene, []).append(group)
        return found

    @staticmethod
    def ranked(groups: Sequence[Group]) -> list[Group]:
        """Those that compete, the highest mean accuracy first: finished, and not told the truth."""
        rated = [
            (group.accuracy.mean, group)
            for group in groups
            if group.finished and group.accuracy and not group.knows_truth
        ]
        return [group for _, group in sorted(rated, key=lambda pair: -pair[0])]

    @cached_property
    def best(self) -> list[Group]:
        """In each scene the group that is ahead of every other by more than the spread of three
        seeds or more.
        """
        winners = []
        for groups in self.scenes.values():
            top, rivals = self.ranked(groups)[:1], self.ranked(groups)[1:]
            if rivals and all(lead(top[0].by_seed, one.by_seed).starred for one in rivals):
                winners += top
        return winners


def study(runs: Sequence[Run], labels: Mapping[str, str] | None = None) -> Study:
    """labels: what a sweep calls runs, by the names of their folders."""
    names = {name for run in runs for name in run.settings} - {"seed", *NEUTRAL}
    ordered = sorted(names, key=_rank)
    differing = [
        name for name in ordered if len({_key(run.settings.get(name)) for run in runs}) > 1
    ]
    # Digests of first weights and of samples that were drawn follow from the seed.
    given = [name for name in differing if name.startswith("given.")]
    columns = _columns(runs, [name for name in differing if name not in given])
    if _seeds_collide(runs, columns):  # other data or another model from Python is not another seed
        columns = _columns(runs, columns + given)
    common = {
        name: runs[0].settings[name]
        for name in ordered
        if name not in differing and not name.startswith("given.")
    }
    members: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        members.setdefault(_key([run.settings.get(name) for name in columns]), []).append(run)
    groups = [_group(alike, columns, runs) for alike in members.values()]
    problem_first = sorted(columns, key=lambda name: not is_scene(name))
    groups.sort(key=lambda group: [order(group.values[name]) for name in problem_first])
    implied = [name for name in differing if name not in columns and name not in given]
    return Study(list(runs), common, columns, implied, _labelled(groups, labels or {}))


def _labelled(groups: list[Group], labels: Mapping[str, str]) -> list[Group]:
    """By their names and order in the sweep, where those tell the groups apart."""
    pairs = {(group.line, labels.get(run.folder.name)) for group in groups for run in group.runs}
    names = {line: label for line, label in pairs if label is not None}
    if not (len(pairs) == len(names) == len(set(names.values()))):
        return groups
    places = list(dict.fromkeys(labels.values()))
    scenes = list(dict.fromkeys(group.scene for group in groups))
    made = []
    for group in groups:
        label = names[group.line]
        values = group.values | ({"method": label} if "method" in group.values else {})
        problem = {name: value for name, value in group.spoken.items() if is_scene(name)}
        spoken = {"method": label, **problem}
        made.append(replace(group, line=label, values=values, spoken=spoken))
    return sorted(made, key=lambda group: (scenes.index(group.scene), places.index(group.line)))


def _columns(runs: Sequence[Run], differing: list[str]) -> list[str]:
    """Method and data, and every setting that these two do not determine: a rate that belongs to a
    method says nothing more.
    """
    chosen = [name for name in differing if name in _BASE]
    return chosen + [
        name for name in differing if name not in _BASE and not _determined(runs, name, chosen)
    ]


def _determined(runs: Sequence[Run], name: str, by: Sequence[str]) -> bool:
    seen: dict[str, str] = {}
    for run in runs:
        where, value = _key([run.settings.get(one) for one in by]), _key(run.settings.get(name))
        if seen.setdefault(where, value) != value:
            return False
    return True


def _seeds_collide(runs: Sequence[Run], columns: list[str]) -> bool:
    keys = [_key([run.seed, *(run.settings.get(name) for name in columns)]) for run in runs]
    return len(set(keys)) < len(keys)


def _group(members: list[Run], columns: list[str], runs: Sequence[Run]) -> Group:
    """Settings of which a method, or a data set, has one value are left out of the name."""
    values = {name: members[0].settings.get(name) for name in columns}
    spoken = {}
    for name, value in values.items():
        base = "data.source" if is_scene(name) else "method"
        wanted = members[0].settings.get(base)
        alike = [run for run in runs if run.settings.get(base) == wanted]
        if name in _BASE or not _determined(alike, name, []):
            spoken[name] = value
    line = settings_text(named(spoken, members[0]), scene=False) or members[0].label
    return Group(values, spoken, members, line, settings_text(spoken, scene=True))


def named(values: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """The values of a group, its method by the name that tells of its loss and the like, too."""
    known = dict(values)
    if known.get("method") == run.method:
        known["method"] = called(run.settings, without=known.keys())
    return known


def settings_text(
    values: Mapping[str, Any], scene: bool | None = None, without: Sequence[str] = ()
) -> str:
    """'gcfl, score distance': the settings of the method (scene: of the problem; None: of both),
    but for some of them.
    """
    return ", ".join(
        shown(value) if name in _BARE else f"{short(name)} {shown(value, name)}"
        for name, value in values.items()
        if name not in without and value is not None and scene in (None, is_scene(name))
    )


def short(name: str) -> str:
    """data.noise -> noise; coreset.score -> score."""
    return _NAMES.get(name, name.rpartition(".")[2].replace("_", " "))


def shown(value: Any, name: str = "") -> str:
    """A setting's value as people write it; of one that is a share or a count, a share in %."""
    if value is None:
        return "-"
    if name in _SIZES and isinstance(value, float):
        return f"{100 * value:g}%"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)


def is_scene(name: str) -> bool:
    """Whether a setting is one of the problem, rather than of the method."""
    return name in _SCENE or name.startswith("data.")


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def order(value: Any) -> tuple[int, float, str]:
    """None, then numbers by size, then text."""
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (0, 0.0, "") if value is None else (2, 0.0, shown(value))
