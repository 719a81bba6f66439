"""Plots as inline SVG. Colours are classes of the page's style sheet, so that light, dark and print
each have their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape

from gcfl.report.axes import log_ticks, number, ticks
from gcfl.report.plots import DASHES, Bars, Chart, Heat, Line, Plot, look

# A panel is drawn at about half a desk's page. Its text is larger on a phone, where it shrinks to
# 0.64 of this: room is left for that size.
_WIDTH, _HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 14, 28, 48
_SIZE = 17  # of the letters, there
_MOST_POINTS = 90  # of a line: four pixels each
_FEW = 5  # more bands than this hide each other
_DASHES = ("", "8 4", "3 4", "9 4 3 4")[:DASHES]
_ROW = 46
_LETTER = 10.5  # the width of a letter of the labels, in a wide font
_MOST_COLUMNS, _MOST_NUMBERED = 60, 14
Scale = Callable[[float], float]


def style(place: int) -> tuple[str, str]:
    """The colour's class and the dashes of line number `place`."""
    colour, dashes = look(place)
    return f"c{colour}", _DASHES[dashes]


def draw(plot: Plot, lines: Sequence[str]) -> str:
    """One plot. `lines`: the names of all lines of the page, in the order of their colours."""
    if isinstance(plot, Chart):
        return _chart(plot, lines)
    return _bars(plot) if isinstance(plot, Bars) else _heat(plot)


def swatch(place: int) -> str:
    """A piece of line for a legend."""
    colour, dashes = style(place)
    line = f'<path class="line {colour}" {_dashed(dashes)}d="M0 4H28"/>'
    return f'<svg class="swatch" viewBox="0 0 28 8" aria-hidden="true">{line}</svg>'


def _chart(chart: Chart, lines: Sequence[str]) -> str:
    (low, high), scale = chart.range(), chart.y.style.scale
    xs = [x for line in chart.courses for x in line.x]
    left, right = min(xs), max(xs)
    if not chart.log and not chart.points:
        left = min(left, 0.0)
    if left == right:
        left, right = (left / 2, right * 2) if chart.log else (left - 0.5, right + 0.5)
    bend: Scale = math.log10 if chart.log else float
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def across(x: float) -> float:
        return _LEFT + width * (bend(x) - bend(left)) / (bend(right) - bend(left))

    def up(y: float) -> float:
        return _TOP + height * (1 - (min(max(y, low), high) - low) / (high - low))

    parts = [
        _text(2, _SIZE - 2, chart.y.head, "start"),
        _text(_WIDTH - _RIGHT, _HEIGHT - 5, _axis(chart), "end"),
    ]
    for y in ticks(scale * low, scale * high):
        parts.append(f'<path class="grid" d="M{_LEFT} {up(y / scale):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 4, up(y / scale) + 5, number(y), "end"))
    for x in _spaced(
        log_ticks(left, right) if chart.log else ticks(left, right, whole=chart.x == "rounds"),
        across,
    ):
        parts.append(f'<path class="grid" d="M{across(x):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(_text(across(x), _HEIGHT - _BOTTOM + _SIZE + 2, number(x), "middle"))
    if chart.equal is not None:
        told = f"equal cost, {number(chart.equal)} {chart.x}"
        told += "".join(
            f"; {line.name}: {chart.y.text(height)}{chart.y.style.unit}"
            for line, height in chart.by_then()
        )
        at = f"M{across(chart.equal):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"
        parts.append(f'<path class="equal" d="{at}"><title>{escape(told)}</title></path>')
    for line in sorted(chart.lines, key=lambda line: line.strong):
        if line.level:
            line = replace(line, x=[left, right], y=2 * line.y, sd=2 * line.sd if line.sd else None)
        parts.append(_line(line, lines.index(line.name), across, up, chart.points))
    parts = [f'<g class="{"many" if len(chart.lines) > _FEW else "few"}">', *parts, "</g>"]
    title = f"{chart.y.title} over {chart.x}" + (f": {chart.title}" if chart.title else "")
    return _svg(_HEIGHT, title, parts)


def _axis(chart: Chart) -> str:
    return f"{chart.x}, logarithmic" if chart.log else chart.x


def _spaced(values: list[float], across: Scale) -> list[float]:
    """Those whose labels do not touch."""
    shown: list[float] = []
    end = -math.inf
    for value in values:
        half = _LETTER * len(number(value)) / 2 + 3
        if across(value) - half >= end and across(value) + half <= _WIDTH + 2:
            shown.append(value)
            end = across(value) + half
    return shown


def _line(line: Line, place: int, across: Scale, up: Scale, points: bool) -> str:
    colour, dashes = style(place)
    step = -(-len(line.x) // _MOST_POINTS)
    shown = sorted({*range(0, len(line.x), step), len(line.x) - 1})
    at = [(across(line.x[i]), up(line.y[i])) for i in shown]
    parts = [f"<title>{escape(line.name)}</title>"]
    if line.sd and len(at) > 1:
        upper = [f"{across(line.x[i]):.1f} {up(line.y[i] + line.sd[i]):.1f}" for i in shown]
        lower = [
            f"{across(line.x[i]):.1f} {up(line.y[i] - line.sd[i]):.1f}" for i in reversed(shown)
        ]
        parts.append(f'<path class="band {colour}" d="M{"L".join(upper + lower)}Z"/>')
    if len(at) > 1:
        parts.append(
            f'<path class="line {colour}" '
            f'{_dashed(dashes)}d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in at)}"/>'
        )
    if points or len(at) == 1:
        parts += [f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in at]
    best = ' class="best"' if line.strong else ""
    return f'<g data-line="{place}"{best}>{"".join(parts)}</g>'


def _dashed(dashes: str) -> str:
    return f'stroke-dasharray="{dashes}" ' if dashes else ""


def _bars(bars: Bars) -> str:
    longest = max(sum(values) for _, values in bars.rows) or 1.0
    totals = [f"{sum(values):.3g} {bars.unit}" for _, values in bars.rows]
    room = _WIDTH - 6 - _LETTER * max(map(len, totals))
    parts = []
    for row, (name, values) in enumerate(bars.rows):
        top, left = row * _ROW, 0.0
        parts.append(_text(0, top + 16, _cut(name, _WIDTH), "start"))
        for place, (kind, value) in enumerate(zip(bars.kinds, values, strict=True)):
            wide = room * value / longest
            words = f"{name}: {kind} {value:.3g} {bars.unit}"
            parts.append(_box(f"fill c{place}", left, top + 22, wide, 16, words))
            left += wide
        parts.append(_text(left + 6, top + 35, totals[row], "start"))
    return _svg(_ROW * len(bars.rows), bars.x + (f": {bars.title}" if bars.title else ""), parts)


def _heat(heat: Heat) -> str:
    classes, clients = len(heat.rows), len(heat.columns)
    row_names, column_names = _told_apart(heat.rows, 134), _told_apart(heat.columns, 93)
    left = min(142.0, _LETTER * max(map(len, row_names)) + 8)
    wide = (_WIDTH - left - 2) / clients
    high = min(28.0, max(4.0, 480 / classes))
    most = max((value for row in heat.values for value in row), default=0) or 1
    numbered = (
        clients <= _MOST_NUMBERED and high >= _SIZE + 2 and wide >= _LETTER * len(str(most)) + 2
    )
    bottom = _TOP + high * classes
    parts = [_text(0, _SIZE - 2, heat.y, "start"), _text(_WIDTH - 2, bottom + 40, heat.x, "end")]
    every_row, every_column = (
        -(-_SIZE // int(high)),
        math.ceil((_LETTER * max(map(len, column_names)) + 4) / wide),
    )
    for row, name in enumerate(heat.rows):
        if row % every_row == 0:
            parts.append(_text(left - 4, _TOP + high * row + high / 2 + 5, row_names[row], "end"))
        for column, value in enumerate(heat.values[row]):
            strength = value / most
            x, y = left + wide * column, _TOP + high * row
            words = f"{heat.x} {heat.columns[column]}, {name}: {value}"
            parts.append(_box("cell", x, y, wide, high, words, f' fill-opacity="{strength:.3f}"'))
            if numbered and value:
                parts.append(
                    _text(
                        x + wide / 2,
                        y + high / 2 + 5,
                        str(value),
                        "middle",
                        "strong" if strength > 0.55 else "count",
                    )
                )
    for column, name in enumerate(column_names):
        if column % every_column == 0:
            parts.append(_text(left + wide * (column + 0.5), bottom + _SIZE + 1, name, "middle"))
    return _svg(bottom + 46, f"{heat.y} by {heat.x}: {heat.title}", parts)


def _box(
    kind: str, x: float, y: float, wide: float, high: float, words: str, more: str = ""
) -> str:
    size = f'x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{high:.2f}"'
    return f'<rect class="{kind}" {size}{more}><title>{escape(words)}</title></rect>'


def _told_apart(names: Sequence[str], width: float) -> list[str]:
    """Names that fit; where that makes two alike, their places in the table."""
    cut = [_cut(name, width) for name in names]
    return (
        cut
        if len(set(cut)) == len(set(names))
        else [f"#{place}" for place in range(1, len(names) + 1)]
    )


def _cut(text: str, width: float) -> str:
    most = max(2, int(width / _LETTER))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {_WIDTH} {height:.0f}"'
    start = f'<svg class="plot" {size} role="img" aria-label="{escape(title)}">'
    return f"{start}{''.join(parts)}</svg>"
