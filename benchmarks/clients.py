"""Clients per CPU-second: a round of 1,000 clients with 20 samples each, logistic regression, 10
features, 10 classes.

python benchmarks/clients.py [--pfl PYTHON]

Our vectorised rounds (whole rounds: cohort, messages, selection, training, aggregation, evaluation)
against plain torch loops written below, one per method, in the same run; GCFL over ten rounds, of
which one selects. With --pfl, the python of a venv that has pfl 0.6, which trains the same clients
with its simulated backend.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gcfl import experiment as config
from gcfl.coreset import label_wise_target, select
from gcfl.data import Source
from gcfl.engine import ClientSide, InProcess, Vectorised
from gcfl.engine.prepare import Given, Prepared, prepare

CLIENTS, SAMPLES, ROUNDS, EVERY, BUDGET = 1000, 20, 10, 10, 0.1


def clients() -> Source:
    draw = np.random.default_rng(0)
    y, held = draw.integers(0, 10, CLIENTS * SAMPLES), np.tile(np.arange(10), 10)
    x, clean = (
        (draw.normal(size=(len(labels), 10)) + 2 * np.eye(10)[labels]).astype(np.float32)
        for labels in (y, held)
    )
    return Source("clients", x, y, tuple(range(10)), validation=(clean, held), test=(clean, held))


def ready(method: str) -> Prepared:
    settings = {
        "method": method,
        "rounds": 10 * ROUNDS,
        "data": {"clients": CLIENTS, "partition": "iid", "noise": 0.2, "min_size": SAMPLES},
        "model": {"name": "logistic"},
        "coreset": {"every": EVERY, "budget": BUDGET},
        "train": {"lr": 0.1, "schedule": "constant"},
    }
    return prepare(config.build(settings)[0], Given(source=clients()))


def ours(method: str, kind: type[InProcess | Vectorised]) -> float:
    """Clients per CPU-second over ten rounds, after a first ten that warm up."""
    prepared = ready(method)
    transport = kind(ClientSide(prepared.setting, prepared.method, prepared.federation.clients))
    rounds = prepared.rounds(transport)
    state, took = rounds.begin(), 0.0
    warm = ROUNDS if kind is Vectorised else 0
    for number in range(warm + ROUNDS):
        start = time.process_time()
        played = rounds.play(state)
        transport.commit(played.accepted)
        state = played.state
        took += time.process_time() - start if number >= warm else 0.0
    return CLIENTS * ROUNDS / took


def plain_loop(method: str) -> float:
    """The same, as one would write it with torch: a module, an optimiser, a backward pass for each
    client.
    """
    prepared = ready(method)
    data = [prepared.federation.clients.shard(client) for client in range(CLIENTS)]
    inputs = [(prepared.setting.network.prepare(shard.x), shard.y) for shard in data]
    clean = prepared.federation.validation
    server = nn.Linear(10, 10)
    network = nn.Linear(10, 10)
    common = [torch.zeros_like(part) for part in server.parameters()]
    own = [[torch.zeros_like(part) for part in server.parameters()] for _ in range(CLIENTS)]
    coresets: dict[int, torch.Tensor] = {}
    momentum = 0.0 if method == "scaffold" else 0.9
    start = time.process_time()
    for number in range(ROUNDS):
        total = [torch.zeros_like(part) for part in server.parameters()]
        drift = [torch.zeros_like(part) for part in server.parameters()]
        if method == "gcfl" and number % EVERY == 0:
            with torch.no_grad():
                held = prepared.setting.network.prepare(clean.x)
                target = label_wise_target(held, torch.softmax(server(held), 1), clean.y)
        for client, (x, y) in enumerate(inputs):
            if method == "gcfl":
                if number % EVERY == 0:
                    with torch.no_grad():
                        chosen = select(
                            "gcfl",
                            x,
                            torch.softmax(server(x), 1),
                            y,
                            budget=round(BUDGET * SAMPLES),
                            target=target,
                        )
                    coresets[client] = torch.from_numpy(chosen.indices)
                x, y = x[coresets[client]], y[coresets[client]]
            network.load_state_dict(server.state_dict())
            optimiser = torch.optim.SGD(
                network.parameters(), 0.1, momentum=momentum, weight_decay=5e-4
            )
            order = torch.randperm(len(y))
            optimiser.zero_grad()
            cross_entropy(network(x[order]), y[order]).backward()
            if method == "scaffold":
                for part, mine, everybodys in zip(
                    network.parameters(), own[client], common, strict=True
                ):
                    part.grad += everybodys - mine
            optimiser.step()
            with torch.no_grad():
                for place, (part, before) in enumerate(
                    zip(network.parameters(), server.parameters(), strict=True)
                ):
                    total[place] += part - before
                    if method == "scaffold":
                        new = own[client][place] - common[place] + (before - part) / 0.1
                        drift[place] += new - own[client][place]
                        own[client][place] = new
        with torch.no_grad():
            for part, change, moved, mean in zip(
                server.parameters(), total, drift, common, strict=True
            ):
                part += change / CLIENTS
                mean += moved / CLIENTS
    return CLIENTS * ROUNDS / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pfl", help="the python of a venv with pfl 0.6")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{CLIENTS:,} clients of {SAMPLES} samples, logistic regression, clients per CPU-second")
    print(
        f"{'method':<10} {'vectorised':>12} {'torch loop':>12} {'ratio':>7} {'our loop':>12} "
        f"{'ratio':>7}"
    )
    rates = {}
    for method in ("fedavg", "scaffold", "gcfl"):
        many, loop, single = ours(method, Vectorised), plain_loop(method), ours(method, InProcess)
        rates[method] = many
        print(
            f"{method:<10} {many:12,.0f} {loop:12,.0f} {many / loop:7.1f} {single:12,.0f} "
            f"{many / single:7.1f}"
        )
    if options.pfl:
        script = str(Path(__file__).with_name("pfl_clients.py"))
        found = subprocess.run(
            [options.pfl, script, str(CLIENTS), str(SAMPLES), "5"],
            capture_output=True,
            text=True,
            check=True,
        )
        pfl = float(found.stdout.split()[-1])
        print(f"{'pfl 0.6':<10} {'':>12} {pfl:12,.0f} {rates['fedavg'] / pfl:7.1f}")


if __name__ == "__main__":
    main()
