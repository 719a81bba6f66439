"""The energy of a run, as codecarbon estimates it while the run goes on. Without codecarbon there
is nothing to tell.

    with gcfl.report.energy.measured() as meter:
        gcfl.run(..., on_start=meter.start)

What it finds goes into the run folder as energy.json, and from there into the report, always called
an estimate: few machines let a program read their power, and what cannot be read is guessed from
the processor's name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gcfl.base.files import read_json, write_json
from gcfl.results.folder import RunFolder
from gcfl.results.run import Run

log = logging.getLogger("gcfl")


class Meter:
    """Learns from `start`, given as on_start, which folder is written and from which round on."""

    def __init__(self) -> None:
        self.folder: RunFolder | None = None
        self._done = 0

    def start(self, _: Any, folder: RunFolder, done: int) -> None:
        self.folder, self._done = folder, done

    def write(self, kwh: float) -> Path | None:
        """Add to what earlier stretches of the run took; one that was finished gets nothing."""
        if self.folder is None:
            return None
        path = self.folder.energy
        before = read_json(path) if self._done and path.exists() else {"kwh": 0.0, "rounds": 0}
        rounds = before["rounds"] + len(self.folder.records()) - self._done
        total = {"kwh": before["kwh"] + kwh, "rounds": rounds, "source": "codecarbon, an estimate"}
        write_json(path, total)
        return path


@contextmanager
def measured() -> Iterator[Meter]:
    """Estimate the energy of the run started inside; without codecarbon, say so."""
    meter = Meter()
    try:
        from codecarbon import OfflineEmissionsTracker
    except ImportError:
        log.warning(
            "energy is not estimated: codecarbon is not installed (pip install 'gcfl[energy]')"
        )
        yield meter
        return
    # Offline, since a run asks nobody. The country matters for CO2 alone, which we do not tell.
    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU", save_to_file=False, log_level="error", tracking_mode="process"
    )
    tracker.start()
    try:
        yield meter
    finally:
        tracker.stop()
        # codecarbon keeps its own failures to itself
        found = getattr(tracker, "final_emissions_data", None)
        if found is None:
            log.warning("energy is not estimated: codecarbon measured nothing")
        else:
            meter.write(float(found.energy_consumed))


def energy_note(runs: Sequence[Run]) -> list[str]:
    """A sentence for the report, where any run has an estimate."""
    known = [run for run in runs if run.energy]
    if not known:
        return []
    part = [run for run in known if run.energy.get("rounds") != len(run.rounds)]
    note = f"Energy is an estimate (codecarbon), known for {len(known)} of {len(runs)} runs."
    if part:
        note += f" For {len(part)} of them it covers some of the rounds only, and is not shown."
    return [note]
