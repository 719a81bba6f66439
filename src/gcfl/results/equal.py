"""Runs at equal cost: how good each was by the time it had spent what another spent in all.

Rounds: what the shortest run of a scene played. Samples, passes, CPU-seconds: what one line spent.
Seconds of different processors, or of linear layers by different libraries, are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gcfl.base.record import RoundRecord
from gcfl.results.groups import Group, Study
from gcfl.results.measures import measure
from gcfl.results.run import Run
from gcfl.results.styles import Spread, spread

Cost = Callable[[RoundRecord], float | None]


def _cost(name: str) -> Cost:
    return measure(name).of_round or (lambda _: None)


# How a table says it, and what a round costs.
COSTS: dict[str, tuple[str, Cost]] = {
    "rounds": ("at equal rounds", lambda _: 1.0),
    "samples": ("at equal samples", _cost("samples")),
    "passes": ("at equal passes", _cost("passes")),
    "cpu_seconds": ("at equal CPU-seconds", _cost("cpu_seconds")),
}
AT_THE_END = {"best_accuracy": "best", "last_accuracy": "mean of the last ten"}


def accuracy_at(run: Run, cost: Cost, most: float) -> float | None:
    """The accuracy of the last evaluation before more than `most` was spent; None where the first
    one came later.
    """
    spent, found = 0.0, None
    for record in run.rounds:
        spent += cost(record) or 0.0
        if spent > most * (1 + 1e-9):
            break
        found = found if record.accuracy is None else record.accuracy
    return found


def at_equal_cost(study: Study, line: str) -> dict[str, list[Spread | None]]:
    """By cost, for each group: its accuracy at what the group of that line spent in its scene, or
    at as many rounds as the shortest run there.
    """
    found: dict[str, list[Spread | None]] = {name: [] for name in COSTS}
    for group in study.groups:
        scene = study.scenes[group.scene]
        mark = next((one for one in scene if one.line == line), None)
        for name, (_, cost) in COSTS.items():
            if name == "rounds":
                most = float(min((len(run.rounds) for run in _runs(scene)), default=0))
            elif mark is None or (name == "cpu_seconds" and not _alike([group, mark])):
                most = 0.0
            else:
                most = spent_by(mark, cost)
            at = spread(accuracy_at(run, cost, most) for run in group.used) if most else None
            found[name].append(at)
    return found


def spent_by(group: Group, cost: Cost) -> float:
    """What its runs spent in all, their mean."""
    totals = [sum(cost(record) or 0.0 for record in run.rounds) for run in group.used]
    return sum(totals) / len(totals) if totals else 0.0


def _alike(groups: Sequence[Group]) -> bool:
    """Whether seconds of these runs can be compared."""
    machines = {
        (run.environment.get("processor"), run.settings.get("engine.linear"))
        for run in _runs(groups)
    }
    return len(machines) == 1 and all(processor for processor, _ in machines)


def _runs(groups: Sequence[Group]) -> list[Run]:
    return [run for group in groups for run in group.used]


def columns(study: Study, line: str) -> Mapping[str, Sequence[Spread | None]]:
    """By name in files, for each group: the best accuracy, the mean of the last ten evaluations,
    and those at equal cost. Rounds only where some run played more of them than another.
    """
    ends = {name: [group.over(measure(name)) for group in study.groups] for name in AT_THE_END}
    equal = {f"accuracy_at_equal_{name}": s for name, s in at_equal_cost(study, line).items()}
    if all(len({len(run.rounds) for run in _runs(groups)}) < 2 for groups in study.scenes.values()):
        del equal["accuracy_at_equal_rounds"]
    return ends | equal


HEADS = AT_THE_END | {f"accuracy_at_equal_{name}": head for name, (head, _) in COSTS.items()}
