"""Every number that is told of a round or a run: its name, its unit, how to compute and print it.

A measure of rounds has `of_round`; a run's value follows from its rounds by `over`, or is `of_run`.
Trackers get every measure of rounds, and `places` says where else it is seen:

    table    a column of the tables of report, sweep and demo, and of their csv and json
    file     in csv and json alone
    run      a row of what show and compare tell of a run
    rounds   a column of the table of rounds in show
    curve    a plot over the rounds in the report
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from statistics import mean
from typing import Any

from gcfl.base.record import RoundRecord
from gcfl.results import fairness
from gcfl.results.outcome import KINDS
from gcfl.results.run import Run
from gcfl.results.styles import BYTES, COUNT, LOSS, NUMBER, SHARE, WATT_HOURS, Spread, Style

LAST = 10  # evaluations at the end, whose mean says more than the last one


@dataclass(frozen=True)
class Measure:
    """name: in files. title: for people. tag: in trackers, where that is not the name.
    note: what to know when reading it.
    """

    name: str
    title: str
    of_round: Callable[[RoundRecord], float | None] | None = None
    style: Style = NUMBER
    over: Callable[[Sequence[Any]], float | None] | None = None
    of_run: Callable[[Run], float | None] | None = None
    places: str = ""
    tag: str = ""
    note: str = ""

    @property
    def head(self) -> str:
        """With the unit, for a column or an axis."""
        return f"{self.title}, {self.style.unit}" if self.style.unit else self.title

    def of(self, run: Run) -> float | None:
        """The value of a run; None where it has none."""
        if self.of_run is not None:
            return self.of_run(run) if run.rounds else None
        values = [self.of_round(record) for record in run.rounds] if self.of_round else []
        known = [value for value in values if value is not None]
        return self.over(known) if self.over and known else None

    def text(self, value: float | None) -> str:
        return "-" if value is None else self.style.one(self.style.scale * value)

    def text_of(self, value: Spread | None) -> str:
        """'70.9 ± 4.1'."""
        if value is None:
            return "-"
        style = self.style
        shown = style.mean(style.scale * value.mean)
        if value.sd is None or style.sd is None:
            return shown
        return f"{shown} ± {style.sd(style.scale * value.sd)}"


def last_known(values: Sequence[float | None]) -> float | None:
    """The last that there is: rates are estimated in some rounds only."""
    return next((value for value in reversed(values) if value is not None), None)


# r: the record of a round. A new field of it is seen everywhere once it has a line here.
MEASURES = [
    Measure(
        "accuracy",
        "accuracy",
        lambda r: r.accuracy,
        SHARE,
        of_run=lambda run: run.final.accuracy if run.final else None,
        places="table run rounds",
    ),
    Measure(
        "best_accuracy",
        "best accuracy",
        style=SHARE,
        of_run=lambda run: max(run.curve, default=None),
        places="file run",
    ),
    Measure(
        "last_accuracy",
        "mean of the last ten",
        style=SHARE,
        of_run=lambda run: mean(run.curve[-LAST:]) if len(run.curve) > LAST else None,
        places="file run",
    ),
    Measure("loss", "loss", lambda r: r.loss, LOSS, places="rounds"),
    Measure("train_loss", "train loss", lambda r: r.train_loss, LOSS, places="rounds"),
    Measure(
        "validation_loss", "validation loss", lambda r: r.validation_loss, LOSS, over=itemgetter(-1)
    ),
    Measure("lr", "learning rate", lambda r: r.lr),
    Measure("cohort", "cohort", lambda r: r.cohort, COUNT),
    Measure("coreset/size", "coreset", lambda r: r.coreset.size, COUNT, places="rounds"),
    Measure("coreset/selected", "chose anew", lambda r: r.coreset.selected, COUNT),
    Measure(
        "clean_share",
        "clean share",
        lambda r: r.coreset.clean_share,
        SHARE,
        over=itemgetter(-1),
        places="table run rounds curve",
        tag="coreset/clean_share",
        note="Share of clean samples among those trained on: in the coresets, or, for methods "
        "without one, in all data.",
    ),
    Measure(
        "noise_rate",
        "estimated noise",
        lambda r: r.noise_rate,
        SHARE,
        over=last_known,
        places="table run curve",
        note="The clients' mean estimate of their share of wrong labels.",
    ),
    Measure(
        "noise_rate_error",
        "error of the estimate",
        lambda r: r.noise_rate_error,
        SHARE,
        over=last_known,
        places="table run",
        note="Its mean absolute error over clients.",
    ),
    Measure(
        "guard_gain",
        "gain of judging labels",
        lambda r: r.guard["gain"] if r.guard else None,
        LOSS,
        over=last_known,
        places="run",
        note="What judging labels gains against plain draws, in loss on the clean set, summed over "
        "the comparisons; below 0 clients draw plainly.",
    ),
    *(
        Measure(name, title, style=SHARE, of_run=of, places=places, note=note)
        for name, title, of, places, note in fairness.TOLD
    ),
    Measure(
        "cpu_seconds",
        "CPU-seconds",
        lambda r: r.time.cpu,
        of_run=lambda run: run.cost["cpu"],
        places="table run",
        note="CPU-seconds are those of selecting, training and aggregating; evaluation is not the "
        "method's.",
    ),
    Measure(
        "server_cpu_seconds",
        "of these the server's",
        lambda r: r.time.server_cpu,
        over=sum,
        places="file run",
        tag="cpu_seconds/server",
    ),
    Measure(
        "client_cpu_seconds",
        "of these the clients'",
        lambda r: None if r.time.server_cpu is None else r.time.cpu - r.time.server_cpu,
        over=sum,
        places="table file run",
        tag="cpu_seconds/clients",
    ),
    *(
        Measure(
            f"cpu_seconds/{kind}",
            f"  {kind}",
            attrgetter(f"time.{kind}.cpu"),
            over=sum,
            places="run",
        )
        for kind in KINDS
    ),
    Measure(
        "cpu_per_round", "CPU-s per round", of_run=lambda run: run.cost["cpu"] / len(run.rounds)
    ),
    Measure(
        "wall_seconds",
        "wall-clock seconds",
        lambda r: r.time.round.wall,
        over=sum,
        places="file run rounds",
    ),
    Measure(
        "samples",
        "samples trained on",
        lambda r: r.samples.backward,
        COUNT,
        over=sum,
        places="table run",
        tag="samples/backward",
        note="Samples trained on count every pass.",
    ),
    Measure(
        "samples/forward",
        "samples seen",
        lambda r: r.samples.forward,
        COUNT,
        over=sum,
        places="run",
    ),
    Measure(
        "passes",
        "passes",
        lambda r: r.samples.forward + 2 * r.samples.backward if r.cohort else 0,
        COUNT,
        over=sum,
        places="file run",
        note="Passes are samples through the network, backward as two; the server's too, but for "
        "methods without clients. Seconds of different machines cannot be compared, passes can.",
    ),
    Measure("steps", "local steps", lambda r: r.steps, COUNT, over=sum, places="run"),
    Measure("bytes", "sent", lambda r: r.bytes.total, BYTES, over=sum, places="table"),
    Measure(
        "bytes/down",
        "sent down",
        lambda r: sum(r.bytes.down.values()),
        BYTES,
        over=sum,
        places="run",
    ),
    Measure(
        "bytes/up", "sent up", lambda r: sum(r.bytes.up.values()), BYTES, over=sum, places="run"
    ),
    Measure("left_out", "updates left out", lambda r: len(r.left_out), COUNT, over=sum),
    Measure(
        "energy_kwh_estimate",
        "energy",
        style=WATT_HOURS,
        of_run=lambda run: run.energy_kwh,
        places="table",
    ),
]


def measure(name: str) -> Measure:
    return next(one for one in MEASURES if one.name == name)


def seen_in(*places: str) -> list[Measure]:
    """The measures that are seen in any of these places."""
    return [one for one in MEASURES if set(places) & set(one.places.split())]


def scalars(record: RoundRecord) -> dict[str, float]:
    """The numbers of a round, by their names in trackers; what it does not have is left out."""
    found = {one.tag or one.name: one.of_round(record) for one in MEASURES if one.of_round}
    return {name: float(value) for name, value in found.items() if value is not None}
