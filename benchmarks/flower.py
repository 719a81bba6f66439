"""What does a round cost in our engine, in our worker processes, and in Flower's Ray simulation?
One run, ratios.

python benchmarks/flower.py [--quick]        needs pip install 'gcfl[simulation]'

The same experiment three times, with the same bits at the end: `gcfl.run`, `gcfl.run(workers=2)`,
and the exported app by `flwr run` on two Ray actors. Seconds per round are those of the rounds' own
records, without the first rounds, in which processes start and load. Where every second round
selects, both kinds of rounds count alike: the mean over kinds of the median of each.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch

import gcfl
from gcfl import experiment as config
from gcfl.data import SOURCES
from gcfl.flower import export
from gcfl.flower.simulation import simulate

EVERY, WORKERS = 2, 2


def tiny(quick: bool) -> dict[str, Any]:
    """20 clients of 100 samples in R^10, a small MLP."""
    data = {
        "source": "blobs",
        "samples": 2400,
        "clients": 20,
        "partition": "iid",
        "noise": 0.4,
        "validation": 200,
        "test": 200,
    }
    return {"rounds": 8 if quick else 24, "data": data, "model": {"name": "mlp", "hidden": [16]}}


def images(quick: bool, folder: Path) -> dict[str, Any]:
    """10 clients of 500 images, the paper's CNN; --quick: 4 clients of 50."""
    clients, each = (4, 50) if quick else (10, 500)
    # CIFAR-10 brings its own clean images; of others the server's and the test set are cut off.
    here = SOURCES["cifar10"].find() is not None
    source, samples = (
        ("cifar10", clients * each)
        if here
        else (made_up(folder / "images.npz"), clients * each + 500)
    )
    data = {
        "source": source,
        "samples": samples,
        "clients": clients,
        "partition": "iid",
        "noise": 0.4,
        "validation": 300,
        "test": 200,
    }
    return {"rounds": 4 if quick else 6, "data": data, "model": {"name": "cnn"}}


def made_up(path: Path) -> str:
    """Images of 3 x 32 x 32 where there is no CIFAR-10: the time does not depend on what is on
    them.
    """
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, 6000)
    x = np.clip(
        draw.normal(100 + 6 * y[:, None, None, None], 40, (len(y), 3, 32, 32)), 0, 255
    ).astype(np.uint8)
    np.savez(path, x=x, y=y)
    return str(path)


def steady(rounds: list[dict[str, Any]]) -> float:
    """Seconds of a round: the first quarter is left out (at least two rounds)."""
    first = EVERY * max(1, len(rounds) // (4 * EVERY))
    kinds = [
        [record.time.round.wall for record in rounds[first + kind :: EVERY]]
        for kind in range(EVERY)
    ]
    return mean(median(seconds) for seconds in kinds)


def measure(settings: dict[str, Any], place: Path) -> tuple[list[float], bool]:
    """(seconds per round: in process, workers, Ray; whether all three left the same model)."""
    runs = [
        gcfl.run(out=place / "one", **settings),
        gcfl.run(out=place / "workers", workers=WORKERS, **settings),
    ]
    export(config.build(settings)[0], place / "app")
    simulate(
        place / "app",
        place / "ray",
        settings["data"]["clients"],
        place / "flower",
        actors=WORKERS,
        seconds=3600,
    )
    runs.append(gcfl.load(next((place / "ray").iterdir())))
    models = {(run.folder / "model.safetensors").read_bytes() for run in runs}
    return [steady(run.rounds) for run in runs], len(models) == 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, fewer and smaller clients"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = (
        "work",
        "method",
        "in process, s per round",
        f"{WORKERS} workers",
        f"Ray, {WORKERS} actors",
    )
    print("|", " | ".join([*names, "Ray / in process", "Ray / workers", "same bits"]), "|")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        works = {"tiny": tiny(options.quick), "cnn": images(options.quick, Path(folder))}
        for name, work in works.items():
            for method in ("fedavg", "gcfl"):
                settings = {
                    "method": method,
                    **work,
                    "train": {"lr": 0.01},
                    "coreset": {"every": EVERY, "budget": 0.1},
                }
                (one, workers, ray), same = measure(settings, Path(folder) / f"{name}-{method}")
                cells = [f"{work['data']['clients']} clients, {work['model']['name']}", method]
                cells += [f"{value:.3g}" for value in (one, workers, ray)]
                cells += [f"{ray / one:.1f}", f"{ray / workers:.1f}", "yes" if same else "NO"]
                print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
