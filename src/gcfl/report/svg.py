"""Plots as inline SVG. Colours are classes of the page's style sheet, so that light, dark and print
each have their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from gcfl.report.plots import DASHES, Bars, Chart, Heat, Line, Plot, look

# A panel is drawn at the width of a phone, so that its text is as large there as anywhere.
_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 12, 20, 34
_MOST_POINTS = 90  # of a line: four pixels each
_FEW = 5  # more bands than this hide each other
_DASHES = ("", "7 3", "2 3", "8 3 2 3")[:DASHES]
_ROW = 32
_LETTER = 6.8  # the width of a letter of the labels, in a wide font
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


def ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """Round numbers between two, at most so many; whole: of things that come in ones."""
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(
        step * factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (step * factor) <= most
    )
    step = max(1, math.ceil(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, or the powers alone where that is too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [
            factor * 10.0**power
            for power in powers
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(found) <= 6:
            break
    return found if len(found) > 1 else [low, high]


def number(value: float) -> str:
    """1500000 -> 1.5M; short enough for an axis."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.3g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _chart(chart: Chart, lines: Sequence[str]) -> str:
    (low, high), scale = chart.range(), chart.y.style.scale
    xs = [x for line in chart.lines for x in line.x]
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
        _text(2, 11, chart.y.head, "start"),
        _text(_WIDTH - _RIGHT, _HEIGHT - 4, _axis(chart), "end"),
    ]
    for y in ticks(scale * low, scale * high):
        parts.append(f'<path class="grid" d="M{_LEFT} {up(y / scale):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 4, up(y / scale) + 4, number(y), "end"))
    for x in _spaced(
        log_ticks(left, right) if chart.log else ticks(left, right, whole=chart.x == "rounds"),
        across,
    ):
        parts.append(f'<path class="grid" d="M{across(x):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(_text(across(x), _HEIGHT - _BOTTOM + 13, number(x), "middle"))
    for line in chart.lines:
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
        parts += [f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in at]
    return f'<g data-line="{place}">{"".join(parts)}</g>'


def _dashed(dashes: str) -> str:
    return f'stroke-dasharray="{dashes}" ' if dashes else ""


def _bars(bars: Bars) -> str:
    longest = max(sum(values) for _, values in bars.rows) or 1.0
    totals = [f"{sum(values):.3g} {bars.unit}" for _, values in bars.rows]
    room = _WIDTH - 6 - _LETTER * max(map(len, totals))
    parts = []
    for row, (name, values) in enumerate(bars.rows):
        top, left = row * _ROW, 0.0
        parts.append(_text(0, top + 11, _cut(name, _WIDTH), "start"))
        for place, (kind, value) in enumerate(zip(bars.kinds, values, strict=True)):
            wide = room * value / longest
            words = f"{name}: {kind} {value:.3g} {bars.unit}"
            parts.append(_box(f"fill c{place}", left, top + 15, wide, 12, words))
            left += wide
        parts.append(_text(left + 4, top + 25, totals[row], "start"))
    return _svg(_ROW * len(bars.rows), bars.x + (f": {bars.title}" if bars.title else ""), parts)


def _heat(heat: Heat) -> str:
    classes, clients = len(heat.rows), len(heat.columns)
    row_names, column_names = _told_apart(heat.rows, 86), _told_apart(heat.columns, 60)
    left = min(92.0, _LETTER * max(map(len, row_names)) + 8)
    wide = (_WIDTH - left - 2) / clients
    high = min(20.0, max(3.0, 320 / classes))
    most = max((value for row in heat.values for value in row), default=0) or 1
    numbered = clients <= _MOST_NUMBERED and high >= 14 and wide >= _LETTER * len(str(most)) + 2
    bottom = 16 + high * classes
    parts = [_text(0, 11, heat.y, "start"), _text(_WIDTH - 2, bottom + 27, heat.x, "end")]
    every_row, every_column = (
        -(-12 // int(high)),
        math.ceil((_LETTER * max(map(len, column_names)) + 4) / wide),
    )
    for row, name in enumerate(heat.rows):
        if row % every_row == 0:
            parts.append(_text(left - 4, 16 + high * row + high / 2 + 4, row_names[row], "end"))
        for column, value in enumerate(heat.values[row]):
            strength = value / most
            x, y = left + wide * column, 16 + high * row
            words = f"{heat.x} {heat.columns[column]}, {name}: {value}"
            parts.append(_box("cell", x, y, wide, high, words, f' fill-opacity="{strength:.3f}"'))
            if numbered and value:
                parts.append(
                    _text(
                        x + wide / 2,
                        y + high / 2 + 4,
                        str(value),
                        "middle",
                        "strong" if strength > 0.55 else "count",
                    )
                )
    for column, name in enumerate(column_names):
        if column % every_column == 0:
            parts.append(_text(left + wide * (column + 0.5), bottom + 13, name, "middle"))
    return _svg(bottom + 32, f"{heat.y} by {heat.x}: {heat.title}", parts)


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
