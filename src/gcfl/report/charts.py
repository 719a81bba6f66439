"""What the plots show: from groups of runs to curves over rounds, costs and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import mean
from typing import Any

import numpy as np

from gcfl.report.asked import COSTS, asked
from gcfl.report.plots import ALIKE, Bars, Chart, Line, Plot, Section
from gcfl.results.groups import ACCURACY, Group, Study, settings_text, short, shown
from gcfl.results.measures import Measure, seen_in
from gcfl.results.outcome import KINDS
from gcfl.results.run import Run

FAR = 20.0  # settings that are so many times apart want an axis of powers
LOG_FROM = 5.0  # lines that end so many times apart would hide in a corner of a linear axis
# Settings that the paper varies, and what to call their axis.
SWEPT = {
    "data.noise": "noise (share of the clients' samples)",
    "coreset.budget": "budget (share of a client's samples)",
    "cohort": "cohort (clients per round)",
    "data.alpha": "Dirichlet α (small is skewed)",
    "data.validation": "clean samples at the server",
}
_SHARES = {  # the same of sizes that are given as shares
    "cohort": "cohort (share of the clients)",
    "data.validation": "clean set at the server (share of all samples)",
}
Panels = dict[str, dict[str, list[Group]]]  # by title and the line's name


def sections(study: Study) -> list[Section]:
    """Every section that these runs have something for, the partition apart."""
    groups = [group for group in study.groups if group.used]
    study = replace(study, groups=groups)
    band = []
    if any(len(group.used) > 1 for group in groups):
        band = ["Lines are means over seeds, bands one standard deviation."]
    scenes = {
        scene: {group.line: [group] for group in members} for scene, members in study.scenes.items()
    }
    found = [
        Section("Accuracy over rounds", band, _courses(scenes, "rounds", ACCURACY)),
        _cost_section(study, scenes, "cpu", "Accuracy over CPU-seconds"),
        _cost_section(study, scenes, "bytes", "Accuracy over bytes"),
        *_swept(study, band),
    ]
    for one in seen_in("curve"):
        charts = _courses(scenes, one.name, one)
        notes = [note for note in (one.note, *band) if note and charts]
        found.append(Section(f"{one.title.capitalize()} over rounds", notes, charts))
    times = ["CPU-seconds, summed over clients, mean over rounds and seeds."]
    found.append(Section("Time per round", times, _times(study)))
    return [_marked(section, study) for section in found if section.plots or section.notes]


def _marked(section: Section, study: Study) -> Section:
    """With the lines of starred groups strong, each in the charts of its scene."""
    plots = [
        _strong(plot, [group.line for group in study.best if group.scene == plot.title])
        if isinstance(plot, Chart)
        else plot
        for plot in section.plots
    ]
    return replace(section, plots=plots)


def _strong(chart: Chart, names: Sequence[str]) -> Chart:
    lines = [replace(line, strong=line.name in names) for line in chart.lines]
    return replace(chart, lines=lines)


def figure(study: Study, title: str, wish: Mapping[str, Any]) -> Section:
    """The plots that the [figure] of a sweep asks for: y over x, a panel for each value of
    `panels`. floor: where a panel's y axis starts, by that value. highlight: the line to look at.
    lines: the labels to draw, where that is not all.
    """
    if lines := wish.get("lines"):  # some of them may not be played yet
        groups = [group for group in study.groups if group.values.get("label") in lines]
        study, wish = replace(study, groups=groups), {**wish, "lines": []}
    if not study.groups:
        return Section(title, [], [])
    x, y, by = asked(wish, [group.values for group in study.groups])
    values = {one: {repr(group.values.get(one)) for group in study.groups} for one in study.columns}
    varied = [column for column, several in values.items() if len(several) > 1]
    panels: Panels = {}
    floors = {}
    for group in study.groups:
        spoken = {column: group.values.get(column) for column in varied}
        panel = shown(group.values.get(by), by) if by else ""
        line = settings_text(spoken, without=(str(by), "" if x == "label" else x)) or group.line
        panels.setdefault(panel, {}).setdefault(line, []).append(group)
        floors[panel] = wish.get("floor", {}).get(panel)
    plots: Sequence[Plot]
    if x == "label":
        plots = [_bars(place, *panel, y) for place, panel in enumerate(panels.items())]
    elif x == "round" or x in COSTS:
        plots = _courses(panels, "figure", y, x if x in COSTS else None)
    else:
        plots = [_points(place, *panel, x, y) for place, panel in enumerate(panels.items())]
    plots = [
        _strong(replace(plot, floor=floors.get(plot.title)), [wish.get("highlight", "")])
        if isinstance(plot, Chart)
        else plot
        for plot in plots
    ]
    seeds = sorted({len(group.used) for group in study.groups})
    many = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    return Section(f"{title}; mean ± sd of {many} seeds" if seeds[-1] > 1 else title, [], plots)


def _courses(panels: Panels, id: str, y: Measure, cost: str | None = None) -> list[Chart]:
    """Over the rounds, or what they cost: a chart for each panel, the mean over seeds."""
    axis, spent, unit = COSTS[cost] if cost else ("rounds", None, 1.0)
    charts = []
    for place, (title, groups) in enumerate(panels.items()):
        lines = [
            _course(name, one, y, spent, unit) for name, many in groups.items() for one in many
        ]
        lines = [_level(line) if line.x and line.x[-1] == 0 else line for line in lines if line.x]
        courses = [line for line in lines if not line.level]
        if not courses or (y is not ACCURACY and _dull(lines, y)):
            continue
        ends = [line.x[-1] for line in courses]
        starts = min(line.x[0] for line in courses)
        log = cost is not None and max(ends) > LOG_FROM * min(ends) and starts > 0
        equal = min(ends) if cost and max(ends) > ALIKE * min(ends) else None
        charts.append(Chart(f"{id}-{place}", title, axis, y, lines, log, equal=equal))
    return charts


def _level(line: Line) -> Line:
    """Where it ended, of one that spends nothing of what the axis counts."""
    sd = line.sd[-1:] if line.sd else None
    return Line(line.name, [0.0], line.y[-1:], sd, line.rounds[-1:], level=True)


def _dull(lines: Sequence[Line], y: Measure) -> bool:
    """Nothing worth a plot: always at its largest, or told once."""
    at_top = all(value == y.style.top for line in lines for value in line.y)
    return at_top or all(len(line.x) == 1 for line in lines)


def _course(name: str, group: Group, y: Measure, cost: Measure | None, unit: float) -> Line:
    """Over the rounds that all seeds have."""
    runs = [_values(run, y, cost, unit) for run in group.used]
    rounds = sorted(set(runs[0]).intersection(*runs[1:])) if runs else []
    if not rounds:
        return Line(name, [], [], None)
    # (seeds, rounds, 2): place and value
    values = np.array([[run[number] for number in rounds] for run in runs])
    x, middle = values.mean(axis=0).T.tolist()
    sd = values[:, :, 1].std(axis=0, ddof=1).tolist() if len(runs) > 1 else None
    return Line(name, x, middle, sd, rounds)


def _values(
    run: Run, y: Measure, cost: Measure | None, unit: float
) -> dict[int, tuple[float, float]]:
    """By the number of rounds done: the place on the axis and the value, where there is one."""
    if y.of_round is None:
        return {}
    steps = [1.0 if cost is None else _number(cost, record) / unit for record in run.rounds]
    values = [y.of_round(record) for record in run.rounds]
    return {
        number: (place, float(value))
        for number, (place, value) in enumerate(
            zip(accumulate(steps), values, strict=True), start=1
        )
        if value is not None
    }


def _number(one: Measure, record: Any) -> float:
    return float((one.of_round(record) if one.of_round else None) or 0.0)


def _cost_section(study: Study, scenes: Panels, cost: str, title: str) -> Section:
    notes = [
        "Over a cost, each point is a round: the mean of what it had cost by then, and the mean "
        "accuracy over seeds."
    ]
    charts = _courses(scenes, cost, ACCURACY, cost)
    spent = COSTS[cost][1]
    free = [group.label for group in study.groups if not any(map(spent.of, group.used))]
    if spent.note:
        notes.append(spent.note)
    if free and cost == "bytes":
        notes.append(f"Nothing is sent by: {'; '.join(free)}.")
    if any(chart.equal is not None for chart in charts):
        notes.append("The dotted upright line stands where the one that costs least has ended.")
    if any(chart.log for chart in charts):
        notes.append("Where lines end far apart, the axis is logarithmic.")
    return Section(title, notes if charts else [], charts)


def _swept(study: Study, band: list[str]) -> list[Section]:
    """Accuracy over each setting that takes several numeric values: one line per method."""
    found = []
    for name in SWEPT:
        if name not in study.columns:
            continue
        panels: Panels = {}
        for group in study.groups:
            if isinstance(group.values[name], int | float) and group.accuracy:
                scene, line = (
                    settings_text(group.spoken, which, (name,)) for which in (True, False)
                )
                panels.setdefault(scene, {}).setdefault(line or group.line, []).append(group)
        charts = []
        for place, (scene, lines) in enumerate(panels.items()):
            values = {group.values[name] for groups in lines.values() for group in groups}
            # shares and counts have no axis in common
            if len(values) > 1 and len(set(map(type, values))) == 1:
                charts.append(_points(place, scene, lines, name, ACCURACY))
        if charts:
            notes = ["The accuracy at the end of the runs.", *band]
            found.append(Section(f"Accuracy over {short(name)}", notes, charts))
    return found


def _points(place: int, title: str, panel: Mapping[str, list[Group]], x: str, y: Measure) -> Chart:
    """A measure over a setting: a line for each name, a point for each of its groups."""
    lines = []
    for name, groups in panel.items():
        rated = [(float(group.values[x]), group.over(y)) for group in groups]
        points = sorted([(at, found) for at, found in rated if found], key=lambda point: point[0])
        several = any(found.sd is not None for _, found in points)
        sd = [found.sd or 0.0 for _, found in points] if several else None
        xs, ys = [at for at, _ in points], [found.mean for _, found in points]
        lines.append(Line(name, xs, ys, sd))
    values = [at for line in lines for at in line.x]
    shares = any(
        isinstance(group.values[x], float) for groups in panel.values() for group in groups
    )
    axis = (_SHARES if shares and x in _SHARES else SWEPT).get(x, short(x))
    log = bool(values) and min(values) > 0 and max(values) >= FAR * min(values)
    id = f"{x.replace('.', '-')}-{place}"
    return Chart(id, title, axis, y, lines, log, points=True)


def _bars(place: int, title: str, panel: Mapping[str, list[Group]], y: Measure) -> Bars:
    """A measure for each label."""
    rated = {name: group.over(y) for name, groups in panel.items() for group in groups}
    found = {name: value for name, value in rated.items() if value}
    rows = [(name, [y.style.scale * value.mean]) for name, value in found.items()]
    several = any(value.sd is not None for value in found.values())
    sd = [y.style.scale * (value.sd or 0.0) for value in found.values()] if several else None
    return Bars(f"label-{place}", title, y.head, y.style.unit, (y.title,), rows, sd)


def _times(study: Study) -> list[Bars]:
    def per_round(group: Group, kind: str) -> float:
        return float(mean(run.cost["cpu_seconds"][kind] / len(run.rounds) for run in group.used))

    return [
        Bars(
            f"time-{place}",
            scene,
            "CPU-seconds per round",
            "CPU-s",
            KINDS,
            [(group.line, [per_round(group, kind) for kind in KINDS]) for group in groups],
        )
        for place, (scene, groups) in enumerate(study.scenes.items())
    ]
