"""The server's clean set, rebuilt from what every client is sent.

    python benchmarks/reconstruction.py [--models logistic frozen mlp cnn] [--samples 2 5 20]
        [--every 1 10] [--epsilon 8] [--classes 2] [--starts 1] [--seeds 1]

GCFL on digits (100 rounds, 5 clients, defaults). A client that is asked to select knows the model
θ_s and the target: row c is g_c(s) = mean_i (p_c(x_i; θ_s) - 1)·[h(x_i; θ_s), 1] over the n clean
samples of class c. The attack (gradient inversion) looks for n inputs of each class whose rows fit
all that was sent, by least squares through the known models, from random starts:

    min over x_1 .. x_n of Σ_s ‖g_c(s; x_1 .. x_n) - g_c(s)‖² / ‖g_c(s)‖²

A clean sample counts as rebuilt when it is the nearest, of 500 samples of its class, to one of the
inputs that were found: all digits of the class, and copies of them shifted by one pixel. Chance is
n / 500 for each. frozen: a linear head over a body of random weights that never changes.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from gcfl import experiment as config
from gcfl.base.data_types import Broadcast, Tree
from gcfl.engine.prepare import Given, Prepared, prepare
from gcfl.engine.transport import Transport
from gcfl.methods import Replies
from gcfl.models.network import Network

CANDIDATES, CLASSES, HIGHEST = 500, 10, 16.0
MODELS = ("logistic", "frozen", "mlp", "cnn")
MOST = 10  # models that the attack looks through: more cost time and add little
FITS = 1e-12  # a sum of squares that float32 messages do not go below


def frozen() -> nn.Module:
    body = nn.Linear(64, 64).requires_grad_(False)
    return nn.Sequential(nn.Flatten(), body, nn.ReLU(), nn.Linear(64, CLASSES))


def small_cnn() -> nn.Module:
    convolution = nn.Conv2d(1, 8, 3, padding=1)
    return nn.Sequential(
        convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES)
    )


class Listening:
    """A transport that keeps what clients are told: (model, target), one for each release."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.heard: list[tuple[Tree, Tensor]] = []

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        for broadcast in broadcasts.values():
            target = broadcast.payload.get("select", {}).get("target")
            known = self.heard and target is not None and target.equal(self.heard[-1][1])
            if target is not None and not known:
                model = {name: tensor.clone() for name, tensor in broadcast.model.items()}
                self.heard.append((model, target))
        return self._inner.exchange(broadcasts)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def played(
    model: str, samples: int, every: int, epsilon: float | None, seed: int, rounds: int
) -> tuple[Prepared, Listening]:
    """A whole run, and what its clients heard."""
    privacy = {} if epsilon is None else {"clean_epsilon": epsilon, "input_range": [0.0, HIGHEST]}
    own = {"frozen": frozen, "cnn": small_cnn}.get(model)
    settings = {
        "method": "gcfl",
        "seed": seed,
        "rounds": rounds,
        "data": {
            "source": "digits",
            "clients": 5,
            "validation": samples * CLASSES,
            "validation_balanced": True,
        },
        "model": {"name": "given" if own else model, "hidden": [64]},
        "coreset": {"every": every},
        "engine": {"evaluate_every": rounds},
        **({"privacy": privacy} if privacy else {}),
    }
    prepared = prepare(config.build(settings)[0], Given(model=own))
    listening = Listening(prepared.transport())
    game = prepared.rounds(listening)
    state = game.begin()
    while not game.over(state):
        after = game.play(state)
        listening.commit(after.accepted)
        state = after.state
    return prepared, listening


def rows(network: Network, models: Tree, x: Tensor, label: int) -> Tensor:
    """(S, d + 1) what the server would send of n prepared inputs of a class, by stacked models."""

    def one(model: Tree) -> Tensor:
        found = network(model, x)
        own = torch.softmax(found.logits, 1)[:, label : label + 1] - 1
        return (own * torch.cat([found.features, torch.ones_like(own)], 1)).mean(0)

    return torch.func.vmap(one)(models)


def attack(
    network: Network,
    heard: list[tuple[Tree, Tensor]],
    shape: tuple[int, ...],
    label: int,
    generator: torch.Generator,
    starts: int,
    steps: int,
) -> Tensor:
    """(n, ...) the prepared inputs of a class that fit best, of several starts: least squares by
    Levenberg-Marquardt.
    """
    chosen = np.unique(np.linspace(0, len(heard) - 1, MOST).round().astype(int))
    models = {
        name: torch.stack([heard[place][0][name] for place in chosen]).double()
        for name in heard[0][0]
    }
    goal = torch.stack([heard[place][1][label] for place in chosen]).double()
    scale = goal.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def residuals(flat: Tensor) -> Tensor:
        return ((rows(network, models, flat.reshape(shape), label) - goal) / scale).flatten()

    best, lowest = torch.zeros(shape).flatten().double(), torch.inf
    for _ in range(starts):
        x = torch.randn(best.shape, generator=generator, dtype=torch.float64)
        now, damping = residuals(x), 1e-2
        for _ in range(steps):
            slope = torch.func.jacfwd(residuals)(x).detach()
            square, down = slope.T @ slope, slope.T @ now
            size = float(square.diagonal().mean())
            for _ in range(8):
                damped = square + damping * size * torch.eye(len(x), dtype=x.dtype)
                tried = x - torch.linalg.solve(damped, down)
                after = residuals(tried)
                if bool(after.square().sum() < now.square().sum()):
                    x, now, damping = tried, after, max(damping / 5, 1e-15)
                    break
                damping *= 4
            else:
                break
            if float(now.square().sum()) < FITS:
                break
        if float(now.square().sum()) < lowest:
            best, lowest = x, float(now.square().sum())
        if lowest < FITS:
            break
    return best.reshape(shape).float()


def candidates(prepared: Prepared, label: int) -> Tensor:
    """(500, 1, 8, 8) of one class, its clean samples first."""
    federation = prepared.federation
    sets = (federation.validation, federation.clients, federation.test)
    clean, *others = (one.x[one.y == label] for one in sets)
    rest = torch.cat(others)
    shifts = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    moved = [torch.roll(rest, shift, dims=(-2, -1)) for shift in shifts]
    return torch.cat([clean, rest, *moved])[:CANDIDATES]


def trial(
    model: str,
    samples: int,
    every: int,
    epsilon: float | None,
    seed: int,
    rounds: int = 100,
    starts: int = 1,
    steps: int = 0,
    classes: int = CLASSES,
) -> tuple[int, int, int]:
    """(clean samples rebuilt, of how many, from how many selections)."""
    prepared, listening = played(model, samples, every, epsilon, seed, rounds)
    network, generator = prepared.setting.network, torch.Generator().manual_seed(seed)
    shape = (samples, *prepared.federation.validation.x.shape[1:])
    count, steps = 0, steps or min(150, 400 // samples)
    for label in range(classes):
        found = attack(network, listening.heard, shape, label, generator, starts, steps)
        known = network.prepare(candidates(prepared, label))
        nearest = torch.cdist(found.flatten(1), known.flatten(1)).argmin(1)
        count += len({int(place) for place in nearest if place < samples})
    return count, samples * classes, len(listening.heard)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--samples", nargs="+", type=int, default=[2, 5, 20], help="per class")
    parser.add_argument("--every", nargs="+", type=int, default=[1, 10], help="K")
    parser.add_argument("--epsilon", type=float, default=None, help="privacy.clean_epsilon")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--classes", type=int, default=2, help="that are attacked")
    parser.add_argument("--starts", type=int, default=1, help="of the attack")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("gcfl").setLevel(logging.ERROR)  # it warns of just this
    effort = {"classes": wanted.classes, "starts": wanted.starts}
    print(f"{'model':<10}{'n':>4}{'K':>4}{'selections':>12}{'rebuilt':>12}{'chance':>9}{'s':>7}")
    for model in wanted.models:
        for samples in wanted.samples:
            for every in wanted.every:
                begun = time.process_time()
                results = [
                    trial(model, samples, every, wanted.epsilon, seed, **effort)
                    for seed in range(wanted.seeds)
                ]
                right, total = (sum(one[place] for one in results) for place in (0, 1))
                spent = time.process_time() - begun
                print(
                    f"{model:<10}{samples:>4}{every:>4}{results[0][2]:>12}"
                    f"{f'{right} of {total}':>12}{samples / CANDIDATES:>9.1%}{spent:>7.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
