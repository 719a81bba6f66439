"""Does a round cost its cohort, not the population? One run, ratios.

    python benchmarks/population.py

Clients of ten samples (ten features, ten classes), logistic regression, a cohort of 100 per round,
FedAvg and GCFL. The same work per round at every population, so the time of a round should not grow
with it; the time to start may.
"""

from __future__ import annotations

import tempfile
import time
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import gcfl

POPULATIONS = (1_000, 10_000, 100_000)
SAMPLES = 10
COHORT = 100
ROUNDS = 12


def measure(method: str, clients: int) -> tuple[float, float]:
    """(seconds until the first round starts, median seconds of a round after the second)."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(10, 10)) * 2
    y = generator.integers(0, 10, clients * SAMPLES)
    x = (centres[y] + generator.normal(size=(len(y), 10))).astype(np.float32)
    clean = (x[:500], y[:500])
    times = [time.perf_counter()]
    with tempfile.TemporaryDirectory() as out:
        gcfl.run(
            method=method,
            data=(x, y),
            validation=clean,
            test=clean,
            model="logistic",
            clients=clients,
            noise=0.4,
            cohort=COHORT,
            rounds=ROUNDS,
            out=out,
            on_start=lambda *_: times.append(time.perf_counter()),
            on_round=lambda _: times.append(time.perf_counter()),
            coreset={"every": 2, "budget": 0.3},
        )
    return times[1] - times[0], median(np.diff(times[3:]))


def main() -> None:
    torch.set_num_threads(1)
    measure("fedavg", 200)  # warm-up: imports and first calls
    table = Table(title=f"cohort of {COHORT}, {SAMPLES} samples per client, logistic regression")
    for name in (
        "method",
        "clients",
        "seconds to start",
        "seconds per round",
        "round, against 1,000 clients",
    ):
        table.add_column(name, justify="right")
    for method in ("fedavg", "gcfl"):
        base = None
        for clients in POPULATIONS:
            start, round_time = measure(method, clients)
            base = base or round_time
            table.add_row(
                method,
                f"{clients:,}",
                f"{start:.2f}",
                f"{round_time:.4f}",
                f"{round_time / base:.2f}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
