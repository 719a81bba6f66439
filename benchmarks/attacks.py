"""One of five clients attacks: what is left of the accuracy, rule by rule, as a table in markdown.

    python benchmarks/attacks.py [--data digits mnist] [--rules ...] [--seeds 3]
        [--out runs/attacks.jsonl]

The attacker multiplies its update by 1000 or by -10, or trains on flipped labels (y -> C - 1 - y).
Each cell is the accuracy in % with the attacker and, behind it, the difference to the same rule on
the four honest clients alone; means over seeds. The last column is FedAvg's accuracy with those
four. Finished cells are kept in a file and not played again. All rules have
server.clip = "median", but for the first line, plain FedAvg, and FLTrust, which matches norms.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gcfl import experiment as config
from gcfl.base.data_types import Broadcast
from gcfl.base.errors import RunError
from gcfl.engine import ClientSide, InProcess
from gcfl.engine.prepare import Given, prepare
from gcfl.methods import Replies

ATTACKER = 0
ATTACKS = ("x 1000", "x -10", "flipped labels")
CLIPPED = {"server": {"clip": "median"}}
MIXED = {"server": {"clip": "median", "mix": 1}}
RULES: dict[str, dict[str, Any]] = {
    "fedavg, no clip": {"method": "fedavg"},
    "fedavg": {"method": "fedavg", **CLIPPED},
    "median": {"method": "median", **CLIPPED},
    "trimmed-mean": {"method": "trimmed-mean", **CLIPPED},
    "krum": {"method": "krum", **CLIPPED},
    "multi-krum, 3": {"method": "krum", "server": {"clip": "median", "multi": 3}},
    "geometric-median": {"method": "geometric-median", **CLIPPED},
    "fltrust": {"method": "fltrust"},
    "median, mix 1": {"method": "median", **MIXED},
    "trimmed-mean, mix 1": {"method": "trimmed-mean", **MIXED},
    "krum, mix 1": {"method": "krum", **MIXED},
    "geometric-median, mix 1": {"method": "geometric-median", **MIXED},
}
SCENES: dict[str, dict[str, Any]] = {
    "digits": {"data": {"source": "digits"}, "rounds": 40, "train": {"lr": 0.05, "epochs": 2}},
    "mnist": {
        "data": {"source": "mnist", "samples": 3000},
        "rounds": 30,
        "train": {"lr": 0.05, "epochs": 2},
    },
}
PARTITIONS = {"iid": {"partition": "iid"}, "Dirichlet 0.5": {"alpha": 0.5}}


class Attacked(InProcess):
    """Client 0 attacks, or is not there at all (attack None)."""

    def __init__(self, side: ClientSide, attack: str | None) -> None:
        super().__init__(side)
        self._factor = {"x 1000": 1000.0, "x -10": -10.0}.get(attack or "", 1.0)
        self._away = attack is None

    def exchange(self, broadcasts: dict[int, Broadcast]) -> Replies:
        if self._away:
            broadcasts = {one: what for one, what in broadcasts.items() if one != ATTACKER}
        answers = dict(super().exchange(broadcasts))
        if ATTACKER in answers:
            mine = answers[ATTACKER]
            lie = {name: tensor * self._factor for name, tensor in mine.delta.items()}
            answers[ATTACKER] = dataclasses.replace(mine, delta=lie)
        return Replies(answers)


def accuracy(settings: dict[str, Any], attack: str | None) -> float:
    """Of the last model; 0.1 (a guess) where the run cannot go on."""
    ready = prepare(config.build(settings)[0], Given())
    clients = ready.federation.clients
    if attack == "flipped labels":
        labels, rows = clients.y.clone(), torch.from_numpy(clients.partition[ATTACKER])
        labels[rows] = len(ready.federation.classes) - 1 - labels[rows]
        clients = dataclasses.replace(clients, y=labels)
    transport = Attacked(ClientSide(ready.setting, ready.method, clients), attack)
    rounds = ready.rounds(transport)
    state = rounds.begin()
    try:
        while not rounds.over(state):
            played = rounds.play(state)
            transport.commit(played.accepted)
            state = played.state
    except RunError:
        return 0.1
    assert played.scores is not None
    return played.scores.accuracy


def settings_of(data: str, partition: str, rule: str, seed: int) -> dict[str, Any]:
    scene = SCENES[data]
    return {
        **scene,
        **RULES[rule],
        "data": {
            **scene["data"],
            **PARTITIONS[partition],
            "clients": 5,
            "validation": 100,
            "test": 0.2,
        },
        "model": {"name": "mlp", "hidden": [32]},
        "engine": {"evaluate_every": scene["rounds"]},
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["digits"], choices=list(SCENES))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/attacks.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    known = {tuple(key): value for key, value in map(json.loads, lines)}

    def mean(data: str, partition: str, rule: str, attack: str | None) -> float:
        values = []
        for seed in range(options.seeds):
            key = (data, partition, rule, attack or "honest", seed)
            if key not in known:
                known[key] = accuracy(settings_of(data, partition, rule, seed), attack)
                with options.out.open("a") as file:
                    file.write(json.dumps([key, known[key]]) + "\n")
            values.append(known[key])
        return 100 * float(np.mean(values))

    print("| data | rule | four honest |", " | ".join(ATTACKS), "| to honest FedAvg |")
    print("|---|---|" + "---:|" * (len(ATTACKS) + 2))
    for data in options.data:
        for partition in PARTITIONS:
            usual = mean(data, partition, "fedavg, no clip", None)
            for rule in options.rules:
                honest = mean(data, partition, rule, None)
                found = [mean(data, partition, rule, attack) for attack in ATTACKS]
                cells = [f"{value:.1f} ({value - honest:+.1f})" for value in found]
                row = [f"{data}, {partition}", rule, f"{honest:.1f}", *cells]
                print("|", " | ".join([*row, f"{min(found) - usual:+.1f}"]), "|", flush=True)


if __name__ == "__main__":
    main()
