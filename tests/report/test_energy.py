from __future__ import annotations

import json
import shutil
import sys
import types

import pytest

import gcfl
from gcfl.base.seal import sealed
from gcfl.report.build import report
from gcfl.report.track import measured
from helpers import tiny


class Tracker:
    """Stands in for codecarbon's: 2 Wh for each stretch."""

    gives: object = types.SimpleNamespace(energy_consumed=0.002)

    def __init__(self, **options):
        assert not options["save_to_file"]

    def start(self):
        pass

    def stop(self):
        if Tracker.gives is not None:
            self.final_emissions_data = Tracker.gives


@pytest.fixture
def codecarbon(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "codecarbon", types.SimpleNamespace(OfflineEmissionsTracker=Tracker)
    )


def test_a_measured_run_is_shown_as_an_estimate(codecarbon, tmp_path):
    with measured() as meter:
        result = gcfl.run(out=tmp_path, on_start=meter.start, **tiny())
    told = json.loads((result.folder / "energy.json").read_text())
    table = {"kwh": 0.002, "rounds": 6, "source": "codecarbon, an estimate"}
    assert gcfl.load(result.folder).energy == table
    assert told == sealed(table)
    with measured() as meter:  # finished before: nothing runs, and nothing is written
        gcfl.run(out=tmp_path, on_start=meter.start, **tiny())
    assert json.loads((result.folder / "energy.json").read_text()) == told
    text = report(result.folder, tmp_path / "a.html", data=False)[0].read_text()
    assert "energy, Wh (estimate)" in text
    assert "Energy is an estimate (codecarbon), known for 1 of 1 runs." in text


def test_stretches_of_a_stopped_run_add_up(codecarbon, tmp_path):
    def stop(record):
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), measured() as meter:
        gcfl.run(out=tmp_path, on_start=meter.start, on_round=stop, **tiny())
    with measured() as meter:
        result = gcfl.run(out=tmp_path, on_start=meter.start, **tiny())
    assert json.loads((result.folder / "energy.json").read_text())["rounds"] == 6
    assert json.loads((result.folder / "energy.json").read_text())["kwh"] == pytest.approx(0.004)


def test_a_run_measured_in_part_shows_no_number(codecarbon, tmp_path):
    result = gcfl.run(out=tmp_path / "runs", **tiny())
    (result.folder / "energy.json").write_text('{"kwh": 0.002, "rounds": 3}')
    text = report(result.folder, tmp_path / "a.html", data=False)[0].read_text()
    assert "energy, Wh" not in text
    assert "some of the rounds only" in text


def test_nothing_is_shown_where_nothing_was_measured(monkeypatch, tmp_path, caplog, runs):
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with measured() as meter:
        result = gcfl.run(out=tmp_path, on_start=meter.start, **tiny())
    assert "codecarbon is not installed" in caplog.text
    assert not (result.folder / "energy.json").exists()
    assert "nergy" not in report(result.folder, tmp_path / "a.html", data=False)[0].read_text()
    monkeypatch.setitem(
        sys.modules, "codecarbon", types.SimpleNamespace(OfflineEmissionsTracker=Tracker)
    )
    monkeypatch.setattr(Tracker, "gives", None)  # it failed, and keeps that to itself
    shutil.rmtree(result.folder)
    with measured() as meter:
        result = gcfl.run(out=tmp_path, on_start=meter.start, **tiny())
    assert "measured nothing" in caplog.text
    assert not (result.folder / "energy.json").exists()


@pytest.mark.filterwarnings("default")  # its own affair
def test_with_codecarbon_itself(tmp_path):
    pytest.importorskip("codecarbon")
    with measured() as meter:
        result = gcfl.run(out=tmp_path, on_start=meter.start, **tiny())
    assert json.loads((result.folder / "energy.json").read_text())["kwh"] > 0
