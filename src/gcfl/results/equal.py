"""Runs at equal cost: how good each was by the time it had spent what another spent in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gcfl.results.groups import Group, Study
from gcfl.results.measures import Measure, measure
from gcfl.results.run import Run
from gcfl.results.styles import Spread, spread

# How a table says it, by what was spent.
COSTS = {"samples": "at equal samples", "passes": "at equal passes"}
AT_THE_END = {"best_accuracy": "best", "last_accuracy": "mean of the last ten"}


def accuracy_at(run: Run, cost: Measure, most: float) -> float | None:
    """The accuracy of the last evaluation before more than `most` was spent; None where the first
    one came later.
    """
    spent, found = 0.0, None
    for record in run.rounds:
        spent += (cost.of_round(record) if cost.of_round else None) or 0.0
        if spent > most * (1 + 1e-9):
            break
        found = found if record.accuracy is None else record.accuracy
    return found


def at_equal_cost(study: Study, line: str) -> dict[str, list[Spread | None]]:
    """By cost, for each group: its accuracy at what the group of that line spent in its scene."""
    found: dict[str, list[Spread | None]] = {name: [] for name in COSTS}
    marks = {group.scene: group for group in study.groups if group.line == line}
    for group in study.groups:
        mark = marks.get(group.scene)
        for name, values in found.items():
            spent = mark.over(measure(name)) if mark else None
            values.append(_of_group(group, measure(name), spent.mean) if spent else None)
    return found


def _of_group(group: Group, cost: Measure, most: float) -> Spread | None:
    return spread(accuracy_at(run, cost, most) for run in group.used)


def columns(study: Study, line: str) -> Mapping[str, Sequence[Spread | None]]:
    """By name in files, for each group: the best accuracy, the mean of the last ten evaluations,
    and those at equal cost.
    """
    ends = {name: [group.over(measure(name)) for group in study.groups] for name in AT_THE_END}
    equal = {f"accuracy_at_equal_{name}": s for name, s in at_equal_cost(study, line).items()}
    return ends | equal


HEADS = AT_THE_END | {f"accuracy_at_equal_{name}": head for name, head in COSTS.items()}
