"""What each plot shows, as plain numbers; drawing them is the business of svg.py and drawn.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import mean

import numpy as np

from gcfl.report.collect import KINDS, Record, Run
from gcfl.report.study import Group, Study, short, told

FAR = 20.0  # settings that are so many times apart want an axis of powers
LOG_FROM = 5.0  # lines that end this many times apart would hide in a corner of a linear axis
# Settings that the paper varies, and what to call their axis.
SWEPT = {
    "data.noise": "noise (share of the clients' samples)",
    "coreset.budget": "budget (share of a client's samples)",
    "cohort": "cohort (clients per round)",
    "data.alpha": "Dirichlet α (small is skewed)",
    "data.validation": "the server's clean set (share, or samples)",
}


@dataclass(frozen=True)
class Line:
    """name: who; x and y (n,); sd (n,) over seeds, None where there is one seed; rounds (n,): after
    how many, over time.
    """

    name: str
    x: list[float]
    y: list[float]
    sd: list[float] | None
    rounds: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Chart:
    """Lines over an axis; y is a share, told in %. points: mark each, since they are few and no
    course of time.
    """

    id: str
    title: str
    x: str
    y: str
    lines: list[Line]
    log: bool = False
    points: bool = False


@dataclass(frozen=True)
class Bars:
    """A stacked bar for each name: what it is made of, in the order of `kinds`."""

    id: str
    title: str
    unit: str
    kinds: tuple[str, ...]
    rows: list[tuple[str, list[float]]]


@dataclass(frozen=True)
class Heat:
    """values (rows, columns), as counts."""

    id: str
    title: str
    x: str
    y: str
    columns: list[str]
    rows: list[str]
    values: list[list[int]]


Plot = Chart | Bars | Heat


@dataclass(frozen=True)
class Section:
    """Plots that belong together, and what to know when reading them."""

    title: str
    notes: list[str]
    plots: Sequence[Plot]


def sections(study: Study) -> list[Section]:
    """Every section that these runs have something for, the partition apart."""
    groups = [group for group in study.groups if group.used]
    kept = replace(study, groups=groups)
    band = (
        ["Lines are means over seeds, bands one standard deviation."]
        if any(len(group.used) > 1 for group in groups)
        else []
    )
    over = [
        Section("Accuracy over rounds", band, _curves(kept, "rounds", "rounds", None)),
        _cost_section(kept, "cpu", "Accuracy over CPU-seconds", "CPU-seconds", _cpu),
        _cost_section(
            kept,
            "bytes",
            "Accuracy over bytes",
            "MB sent, both ways",
            lambda record: _bytes(record) / 1e6,
        ),
        *_swept(kept, band),
        _clean(kept, band),
        Section(
            "Time per round",
            ["CPU-seconds, summed over clients, mean over rounds and seeds."],
            _times(kept),
        ),
    ]
    return [section for section in over if section.plots or section.notes]


def _cpu(record: Record) -> float:
    return float(sum(record["time"][kind]["cpu"] for kind in KINDS if kind != "evaluate"))


def _bytes(record: Record) -> float:
    return float(sum(sum(names.values()) for names in record["bytes"].values()))


def _course(
    group: Group, value: Callable[[Record], float | None], cost: Callable[[Record], float] | None
) -> Line:
    """A value over rounds, or over what was spent until then. Each point is a round that all seeds
    have.
    """
    courses = [_one(run, value, cost) for run in group.used]
    rounds = [number for number in courses[0] if all(number in course for course in courses)]
    values = np.array([[course[number] for number in rounds] for course in courses]).reshape(
        len(courses), len(rounds), 2
    )
    x, y = values.mean(axis=0).T.tolist() if rounds else ([], [])
    sd = values[:, :, 1].std(axis=0, ddof=1).tolist() if len(courses) > 1 else None
    return Line(group.line, x, y, sd, rounds)


def _one(
    run: Run, value: Callable[[Record], float | None], cost: Callable[[Record], float] | None
) -> dict[int, tuple[float, float]]:
    """By the number of rounds done: x and the value, where there is one."""
    spent = list(accumulate((1.0 if cost is None else cost(record)) for record in run.records))
    return {
        record["round"] + 1: (x, float(found))
        for x, record in zip(spent, run.records, strict=True)
        if (found := value(record)) is not None
    }


def _accuracy(record: Record) -> float | None:
    return None if record["accuracy"] is None else float(record["accuracy"])


def _curves(study: Study, id: str, x: str, cost: Callable[[Record], float] | None) -> list[Chart]:
    charts = []
    for place, (scene, groups) in enumerate(study.scenes.items()):
        lines = [
            line
            for group in groups
            if (line := _course(group, _accuracy, cost)).x and (cost is None or line.x[-1] > 0)
        ]
        if lines:
            ends = [line.x[-1] for line in lines]
            log = (
                cost is not None
                and max(ends) / min(ends) > LOG_FROM
                and min(line.x[0] for line in lines) > 0
            )
            charts.append(Chart(f"{id}-{place}", scene, x, "accuracy, %", lines, log))
    return charts


def _cost_section(
    study: Study, id: str, title: str, x: str, cost: Callable[[Record], float]
) -> Section:
    notes = [
        "Each point is a round: the mean of what it had cost by then, and the mean accuracy over "
        "seeds."
    ]
    if id == "cpu":
        notes.append(
            "CPU-seconds of selecting, training and aggregating; evaluation is not the method's."
        )
    free = [
        group.label
        for group in study.groups
        if not sum(cost(record) for run in group.used for record in run.records)
    ]
    if free and id == "bytes":
        notes.append(f"Nothing is sent by: {'; '.join(free)}.")
    charts = _curves(study, id, x, cost)
    if any(chart.log for chart in charts):
        notes.append("Where lines end far apart, the axis is logarithmic.")
    return Section(title, notes if charts else [], charts)


def _swept(study: Study, band: list[str]) -> list[Section]:
    """Accuracy over each setting that takes several numeric values: one line per method."""
    found = []
    for name, axis in SWEPT.items():
        if name not in study.columns:
            continue
        panels: dict[str, dict[str, list[Group]]] = {}
        for group in study.groups:
            if isinstance(group.values[name], int | float) and group.accuracy:
                scene, line = (
                    told(group.spoken, scene=which, without=name) for which in (True, False)
                )
                panels.setdefault(scene, {}).setdefault(line or group.line, []).append(group)
        charts = []
        for place, (scene, lines) in enumerate(panels.items()):
            values = {group.values[name] for groups in lines.values() for group in groups}
            # shares and counts have no axis in common
            if len(values) > 1 and len(set(map(type, values))) == 1:
                drawn = [_points(line, name, groups) for line, groups in lines.items()]
                log = min(values) > 0 and max(values) / min(values) > FAR
                charts.append(
                    Chart(
                        f"{name.replace('.', '-')}-{place}",
                        scene,
                        axis,
                        "accuracy, %",
                        drawn,
                        log,
                        points=True,
                    )
                )
        if charts:
            found.append(
                Section(
                    f"Accuracy over {short(name)}",
                    ["The accuracy at the end of the runs.", *band],
                    charts,
                )
            )
    return found


def _points(line: str, name: str, groups: list[Group]) -> Line:
    ordered = sorted(groups, key=lambda group: float(group.values[name]))
    spreads = [group.accuracy for group in ordered if group.accuracy]
    sd = (
        [found.sd or 0.0 for found in spreads]
        if any(found.sd is not None for found in spreads)
        else None
    )
    return Line(
        line,
        [float(group.values[name]) for group in ordered],
        [found.mean for found in spreads],
        sd,
    )


def _clean(study: Study, band: list[str]) -> Section:
    """Clean share of the samples trained on; scenes where everything is clean show nothing worth a
    plot.
    """
    charts = []
    for place, (scene, groups) in enumerate(study.scenes.items()):
        lines = [
            line
            for group in groups
            if (line := _course(group, lambda record: record["coreset"]["clean_share"], None)).x
        ]
        if any(value < 1.0 for line in lines for value in line.y):
            charts.append(Chart(f"clean-{place}", scene, "rounds", "clean, %", lines))
    notes = [
        "Share of clean samples among those trained on: in the coresets, or, for methods without "
        "one, in all data.",
        *band,
    ]
    return Section("Clean share of the coresets over rounds", notes if charts else [], charts)


def _times(study: Study) -> list[Bars]:
    def per_round(group: Group, kind: str) -> float:
        return float(mean(run.cost["cpu_seconds"][kind] / len(run.records) for run in group.used))

    return [
        Bars(
            f"time-{place}",
            scene,
            "CPU-s",
            KINDS,
            [(group.line, [per_round(group, kind) for kind in KINDS]) for group in groups],
        )
        for place, (scene, groups) in enumerate(study.scenes.items())
    ]
