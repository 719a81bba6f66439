"""What a frozen body saves: CPU-seconds of a run on features against one that trains everything.

    python benchmarks/frozen.py [--data cifar10] [--model resnet9] [--width 16] [--samples 4000]

Each method is run with the whole network trained, with a frozen body whose features are computed,
and once more with features that are found. All in one process, one thread; ratios are to the first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import gcfl
from gcfl.engine import frozen

METHODS = ("fedavg", "gcfl", "robust")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="resnet9")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| method | full, CPU s | frozen, first run | frozen, second run |")
    print("|---|---:|---:|---:|")
    for method in METHODS:
        with tempfile.TemporaryDirectory() as folder:
            frozen.cache_folder = lambda home=Path(folder): home
            full = spent(options, method, Path(folder) / "full")
            first = spent(options, method, Path(folder) / "first", freeze="body")
            second = spent(options, method, Path(folder) / "second", freeze="body")
        ratios = [f"{cost:.1f} ({cost / full:.3f})" for cost in (first, second)]
        print(f"| {method} | {full:.1f} | {' | '.join(ratios)} |", flush=True)


def spent(options: argparse.Namespace, method: str, out: Path, **model: str) -> float:
    """CPU-seconds of a run, reading and splitting of the data included."""
    started = time.process_time()
    gcfl.run(
        method,
        {"source": options.data, "samples": options.samples, "validation": 200, "test": 500},
        {"name": options.model, "width": options.width, **model},
        clients=10,
        noise=0.2,
        rounds=options.rounds,
        out=out,
        train={"augment": "none"},
    )
    return time.process_time() - started


if __name__ == "__main__":
    main()
