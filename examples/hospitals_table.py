"""Two hospitals, one mixed table, labels that nobody vouches for.

Shows: a DataFrame with texts, dates, booleans and gaps goes in as it is; each hospital is a client;
the clean set and the test set are frames of their own; the model answers for new rows, also for
those with a value that it has never seen.

    python examples/hospitals_table.py        # about 5 seconds; needs pip install 'gcfl[frames]'
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import gcfl

WRONG = {"north": 0.15, "south": 0.40}  # share of wrong diagnoses at each hospital


def patients(rows: int, seed: int) -> pd.DataFrame:
    """A table with right diagnoses, and with gaps where a nurse had no time."""
    draw = np.random.default_rng(seed)
    age = draw.normal(60, 14, rows).round()
    pressure = draw.normal(130, 18, rows).round()
    ward = draw.choice(["surgery", "cardiology", "emergency"], rows, p=[0.4, 0.35, 0.25])
    admitted = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 365, rows), "D")
    smoker = draw.random(rows) < 0.3
    late = (admitted.day_of_year - 183) / 105
    score = (age - 60) / 14 + (pressure - 130) / 18 + 1.5 * smoker + late - 0.5
    score = score + np.where(ward == "cardiology", 1.5, -0.5)
    table = pd.DataFrame(
        {
            "age": age,
            "pressure": pressure,
            "ward": ward,
            "admitted": admitted,
            "smoker": smoker,
            "hospital": draw.choice(list(WRONG), rows),
            "diagnosis": np.where(score > 0, "at risk", "healthy"),
        }
    )
    table.loc[draw.random(rows) < 0.1, "pressure"] = np.nan
    table.loc[draw.random(rows) < 0.05, "ward"] = None
    return table


def with_wrong_labels(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What the hospitals really have."""
    draw = np.random.default_rng(seed)
    flipped = draw.random(len(table)) < table["hospital"].map(WRONG)
    other = table["diagnosis"].map({"at risk": "healthy", "healthy": "at risk"})
    return table.assign(diagnosis=table["diagnosis"].where(~flipped, other))


def main(out: Path) -> dict[str, gcfl.Run]:
    doubtful = with_wrong_labels(patients(2000, seed=1), seed=2)
    clean = patients(150, seed=3)  # a panel of doctors looked at these
    test = patients(600, seed=4)
    runs = {}
    for method in ("fedavg", "robust"):
        runs[method] = gcfl.run(
            method,
            data=doubtful,
            label="diagnosis",
            group="hospital",
            validation=clean,
            test=test,
            model="mlp",
            rounds=30,
            lr=0.05,
            out=out,
        )
    held = {one["name"]: one["samples"] for one in runs["robust"].clients}
    print(f"{held} patients, {WRONG} of their diagnoses wrong; {len(clean)} checked ones")
    for method, run in runs.items():
        print(f"{method:>7}: {run.accuracy:.1%} of the test patients get the right diagnosis")

    new = patients(3, seed=5).drop(columns=["diagnosis", "hospital"])
    new.loc[0, "ward"] = "oncology"  # no row of the clean set has it: it counts as "other"
    model = runs["robust"].model
    at_risk = model.predict_proba(new)[:, list(model.classes).index("at risk")]
    print("\nthree new patients, the first in a ward that the model has never seen:")
    print(new.assign(diagnosis=model.predict(new), at_risk=at_risk.round(2)).to_string(index=False))
    return runs


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="gcfl-hospitals-"))
    main(folder)
    print(f"\nthe runs: {folder}")
