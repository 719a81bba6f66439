from __future__ import annotations

import dataclasses
import io
import json
import shutil

import pytest
from rich.console import Console

import gcfl
from gcfl.base import record as words
from gcfl.report import track
from gcfl.report.build import report
from gcfl.report.terminal import show
from gcfl.results import folder, measures
from gcfl.results.measures import MEASURES, Measure, scalars
from gcfl.results.outcome import keeps, kept, summarise
from gcfl.results.styles import spread
from helpers import run


def test_every_measure_has_a_name_of_its_own_and_can_be_printed(runs):
    names = [one.tag or one.name for one in MEASURES]
    assert len(names) == len(set(names))
    made = gcfl.load(next((runs / "gcfl").iterdir()))
    for one in MEASURES:
        assert one.of_round or one.of_run
        assert isinstance(one.text(one.of(made)), str)
        assert isinstance(one.text_of(spread([one.of(made)])), str)
        assert one.text(None) == one.text_of(None) == "-"


def test_trackers_get_the_names_that_they_always_had(runs):
    made = gcfl.load(next((runs / "gcfl").iterdir()))
    assert {
        *("accuracy", "loss", "train_loss", "lr", "cohort", "steps", "left_out"),
        *("coreset/size", "coreset/selected", "coreset/clean_share"),
        *("samples/forward", "samples/backward", "bytes/down", "bytes/up"),
        *(f"cpu_seconds/{kind}" for kind in measures.KINDS),
    } <= scalars(made.rounds[0]).keys()


def test_mean_and_sd():
    assert spread([]) is None
    assert spread([None, 0.5]) == measures.Spread(0.5, None, 1)
    assert measures.measure("accuracy").text_of(spread([0.5, 0.7])) == "60.0 ± 14.1"
    assert measures.measure("bytes").text_of(spread([1000, 3000])) == "2 kB"


def test_which_record_is_kept(runs):
    records = gcfl.load(next((runs / "gcfl").iterdir())).rounds
    judged = [
        dataclasses.replace(record, validation_loss=loss)
        for record, loss in zip(records, (3.0, 1.0, 1.0, 2.0, None, 4.0), strict=True)
    ]
    assert kept(judged, "best") is judged[1]
    assert kept(judged) is judged[-1]
    assert kept(records, "best") is records[-1]  # nothing was held out
    assert kept([]) is None
    assert keeps({"clean": {"keep": "best"}}) == "best"
    assert keeps({"clean": {"keep": "best", "fine_tune": "end"}}) == keeps({}) == "last"
    assert summarise(judged, "best")["kept_round"] == 1
    assert summarise([])["rounds"] == 0


def test_a_new_field_needs_the_record_and_a_line_here(tmp_path, monkeypatch):
    """Then it is in tables, figures, trackers, show and files; and folders without it are read."""
    old = run(tmp_path / "runs", method="fedavg")

    @dataclasses.dataclass(frozen=True)
    class Newer(words.RoundRecord):
        temperature: float | None = None

    monkeypatch.setattr(folder, "RoundRecord", Newer)
    one = Measure(
        "temperature",
        "temperature",
        lambda record: record.temperature,
        unit_of("°C"),
        over=max,
        places="table run rounds curve",
    )
    monkeypatch.setattr(measures, "MEASURES", [*MEASURES, one])
    newer = shutil.copytree(old.folder, tmp_path / "runs" / "newer")
    summary = json.loads((newer / "summary.json").read_text())
    (newer / "summary.json").write_text(json.dumps({"rounds": summary["rounds"]}))  # no digests
    config = (newer / "config.toml").read_text()
    (newer / "config.toml").write_text(config.replace('"fedavg"', '"random"'))
    lines = [json.loads(line) for line in (newer / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["temperature"] = 20.0 + line["round"]
    (newer / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert gcfl.load(old.folder).rounds[0].temperature is None
    assert gcfl.load(newer).rounds[-1].temperature == 25.0
    (file,) = report(tmp_path / "runs", tmp_path / "a.md")
    assert "temperature, °C" in file.read_text()
    assert "| 25 |" in file.read_text()
    (file,) = report(tmp_path / "runs", tmp_path / "a.csv")
    assert "temperature_mean" in file.read_text()
    page = report(tmp_path / "runs", tmp_path / "a.html", data=False)[0].read_text()
    assert "<h3>Temperature over rounds</h3>" in page
    assert '<figure id="temperature-0">' in page
    figures = report(tmp_path / "runs", tmp_path / "figures", "png", data=False)
    assert "temperature-over-rounds" in {figure.stem for figure in figures}
    assert track.scalars(gcfl.load(newer).rounds[2])["temperature"] == 22.0
    console = Console(file=io.StringIO(), width=200)
    show(gcfl.load(newer), console, every=True)
    assert console.file.getvalue().count("temperature, °C") == 2


def unit_of(unit):
    return dataclasses.replace(measures.NUMBER, unit=unit)


@pytest.mark.parametrize("name", ["Run", "Result"])
def test_one_class_for_what_comes_back(name, runs):
    made = gcfl.load(next((runs / "gcfl").iterdir()))
    assert isinstance(made, getattr(gcfl, name))
    assert repr(made).startswith("gcfl: accuracy 0.")
