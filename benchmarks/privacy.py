"""What privacy costs: accuracy against ε on digits, and what the attack finds at the same ε.

    python benchmarks/privacy.py [--rounds 60] [--seeds 2] [--cases ...]

The logistic model, 40% wrong labels, 10 clients, 180 clean samples; δ = 1e-5, K = 10, lr 0.05; for
`clients`, where each client's update is hidden, 100 clients and no clean set in use. The attack is
that of reconstruction.py on 5 clean samples per class of four classes.
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
CASES = {
    "gcfl, clean_epsilon": ("gcfl", "clean_epsilon", 10),
    "robust, clean_epsilon": ("robust", "clean_epsilon", 10),
    "fedavg, clean_epsilon": ("fedavg", "clean_epsilon", 10),
    "fedavg, client_epsilon": ("fedavg", "client_epsilon", 100),
}


def accuracy(case: str, epsilon: float | None, rounds: int, seed: int, folder: str) -> float:
    method, setting, clients = CASES[case]
    privacy = {} if epsilon is None else {setting: epsilon}
    if privacy and setting == "clean_epsilon":
        privacy["input_range"] = RANGE
    return gcfl.run(
        data="digits",
        model="logistic",
        method=method,
        rounds=rounds,
        clients=clients,
        noise=0.4,
        seed=seed,
        validation=180,
        out=folder,
        train={"lr": 0.05},
        engine={"evaluate_every": rounds, "vectorised": clients > 10},
        **({"privacy": privacy} if privacy else {}),
    ).accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
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
                found = [
                    accuracy(case, epsilon, wanted.rounds, seed, folder)
                    for seed in range(wanted.seeds)
                ]
            cells.append(f"{np.mean(found):>9.3f}")
        print(f"{case:<26}" + "".join(cells), flush=True)
    rebuilt = [trial("logistic", 5, 10, epsilon, 0, classes=4)[:2] for epsilon in EPSILONS]
    cells = [f"{f'{right} of {total}':>9}" for right, total in rebuilt]
    print(f"{'attack: rebuilt':<26}" + "".join(cells))


if __name__ == "__main__":
    main()
