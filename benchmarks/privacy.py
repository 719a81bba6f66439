"""What privacy costs: accuracy against ε, and what the attack finds at the same ε.

    python benchmarks/privacy.py [--rounds 30] [--seeds 2] [--cases ...]

The logistic model, 40% wrong labels, δ = 1e-5, K = 10. For the clean set: digits, 10 clients, 180
clean samples, lr 0.05. For the clients' updates: blobs, dealt out evenly to 100 or 1,000 clients,
lr 1 (an update must be worth the noise), no clean set in use. The attack is that of
reconstruction.py on 5 clean samples per class of four classes.
"""

from __future__ import annotations

import argparse
import logging
import tempfile

import numpy as np
import torch

import gcfl
from reconstruction import trial

EPSILONS = (1.0, 3.0, 8.0, None)
RANGE = [0.0, 16.0]
DIGITS = {"source": "digits", "clients": 10, "validation": 180}
BLOBS = {"source": "blobs", "partition": "iid", "min_size": 1, "validation": 250}
CIFAR = {"source": "cifar10", "samples": 3000, "clients": 10, "validation": 300, "test": 0.2}
MANY = {**CIFAR, "clients": 100, "partition": "iid", "min_size": 1}
CASES = {
    "gcfl, clean_epsilon": ("gcfl", "clean_epsilon", DIGITS, 0.05),
    "robust, clean_epsilon": ("robust", "clean_epsilon", DIGITS, 0.05),
    "fedavg, clean_epsilon": ("fedavg", "clean_epsilon", DIGITS, 0.05),
    "CIFAR: gcfl": ("gcfl", "clean_epsilon", CIFAR, 0.005),
    "CIFAR: robust": ("robust", "clean_epsilon", CIFAR, 0.005),
    "CIFAR: fedavg": ("fedavg", "clean_epsilon", CIFAR, 0.005),
    "CIFAR: fedavg, 100 clients": ("fedavg", "client_epsilon", MANY, 0.05),
    "fedavg, 100 clients": ("fedavg", "client_epsilon", {**BLOBS, "clients": 100}, 1.0),
    "fedavg, 1,000 clients": ("fedavg", "client_epsilon", {**BLOBS, "clients": 1000}, 1.0),
}


def accuracy(case: str, epsilon: float | None, rounds: int, seed: int, folder: str) -> float:
    method, setting, data, lr = CASES[case]
    privacy = {} if epsilon is None else {setting: epsilon}
    if privacy and setting == "clean_epsilon" and data is DIGITS:  # images have a public range
        privacy["input_range"] = RANGE
    return gcfl.run(
        data={**data, "noise": 0.4},
        model="logistic",
        method=method,
        rounds=rounds,
        seed=seed,
        out=folder,
        train={"lr": lr},
        engine={"evaluate_every": rounds, "vectorised": data["clients"] > 10},
        **({"privacy": privacy} if privacy else {}),
    ).accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("gcfl").setLevel(logging.ERROR)
    print(f"{'':<26}" + "".join(f"{'∞' if e is None else f'{e:g}':>9}" for e in EPSILONS))
    for case in wanted.cases:
        cells = []
        for epsilon in EPSILONS:
            with tempfile.TemporaryDirectory() as folder:
                seeds = range(wanted.seeds)
                found = [accuracy(case, epsilon, wanted.rounds, seed, folder) for seed in seeds]
            cells.append(f"{np.mean(found):>9.3f}")
        print(f"{case:<26}" + "".join(cells), flush=True)
    rebuilt = [trial("logistic", 5, 10, epsilon, 0, classes=4)[:2] for epsilon in EPSILONS]
    cells = [f"{f'{right} of {total}':>9}" for right, total in rebuilt]
    print(f"{'attack: rebuilt':<26}" + "".join(cells))


if __name__ == "__main__":
    main()
