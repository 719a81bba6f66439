"""How numbers are written, and means of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean, stdev

Text = Callable[[float], str]


def human(count: float) -> str:
    """1536000 -> '1.54 MB'."""
    for prefix in ("", "k", "M", "G"):
        if abs(count) < 1000:
            return f"{count:.3g} {prefix}B"
        count /= 1000
    return f"{count:.3g} TB"


@dataclass(frozen=True)
class Spread:
    """mean ± sd (sample standard deviation; None of a single value) of n values."""

    mean: float
    sd: float | None
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    return Spread(mean(known), stdev(known) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Style:
    """How numbers of a kind are written, after multiplying them by `scale`: that of one run, the
    mean of several, their standard deviation (None: the mean is enough). top: the largest value.
    """

    one: Text
    mean: Text
    sd: Text | None = None
    unit: str = ""
    scale: float = 1.0
    top: float | None = None


SHARE = Style("{:.2f}".format, "{:.1f}".format, "{:.1f}".format, "%", 100.0, 1.0)
NUMBER = Style("{:.3g}".format, "{:.3g}".format, "{:.2g}".format)
LOSS = Style("{:.4f}".format, "{:.4f}".format, "{:.2g}".format)
WATT_HOURS = Style("{:.3g}".format, "{:.3g}".format, "{:.2g}".format, "Wh (estimate)", 1000.0)
COUNT = Style("{:,.0f}".format, "{:,.0f}".format)
BYTES = Style(human, human)
