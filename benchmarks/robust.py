"""What the recommended method costs the clients, as a share of FedAvg's round.

    python benchmarks/robust.py [--rounds 20]

The paper's CNN on 32 x 32 images in colour (made up: the time does not depend on what they show),
four clients of 2,560 samples, b = 10%, K = 10. CPU-seconds of the clients alone, over whole periods
of K rounds; FedAvg trains one epoch on everything, with the same crops and flips. All in one run,
methods in turn, so that a busy machine is busy for all.
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import torch

import gcfl

CLIENTS, SIZE, CLEAN, PERIOD = 4, 2560, 200, 10
CASES = {
    "FedAvg": ("fedavg", {}, 1),
    "random draws": ("random", {}, PERIOD),
    "GCFL": ("gcfl", {}, PERIOD),
    "robust": ("robust", {}, PERIOD),
    "robust, labels by the newest model": ("robust", {"labels": {"average": 0.0}}, PERIOD),
}


def images(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise around a picture per class: enough for a model to learn something."""
    draw = np.random.default_rng(seed)
    n = CLIENTS * SIZE + CLEAN + 100
    labels = np.arange(n) % 10
    means = draw.normal(size=(10, 3, 32, 32))
    x = means[labels] + 2 * draw.normal(size=(n, 3, 32, 32))
    return x.astype(np.float32), labels


def client_seconds(method: str, settings: dict, rounds: int, data: tuple, folder: str) -> float:
    """CPU-seconds of all clients, per round."""
    found = gcfl.run(
        data=data,
        model="cnn",
        method=method,
        rounds=rounds,
        clients=CLIENTS,
        noise=0.4,
        validation=CLEAN,
        test=100,
        out=folder,
        **{
            "data.partition": "iid",
            "train": {"lr": 0.01, "augment": "flip+crop"},
            "clean": {"warm_start": 1, "lr": None} if method == "robust" else {},
            "coreset": {"budget": 0.1, "every": PERIOD},
            "engine": {"evaluate_every": rounds},
            **settings,
        },
    )
    return sum(one.time.cpu - one.time.server_cpu for one in found.rounds) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2 * PERIOD, help="a multiple of 10")
    rounds = parser.parse_args().rounds
    if rounds < PERIOD or rounds % PERIOD:
        parser.error(f"--rounds must be a multiple of {PERIOD}")
    torch.set_num_threads(1)
    data = images()
    spent: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(rounds // PERIOD):
        for name, (method, settings, length) in CASES.items():
            with tempfile.TemporaryDirectory() as folder:
                seeded = {**settings, "seed": turn}
                spent[name].append(client_seconds(method, seeded, length, data, folder))
    whole = np.mean(spent["FedAvg"])
    print(f"{'clients, CPU-s per round':<36}{'seconds':>9}{'of FedAvg':>11}")
    for name, values in spent.items():
        print(f"{name:<36}{np.mean(values):9.2f}{np.mean(values) / whole:11.3f}")


if __name__ == "__main__":
    main()
