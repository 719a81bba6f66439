"""The server's clean set, rebuilt from what every client is sent.

    python benchmarks/reconstruction.py [--models logistic frozen mlp cnn] [--samples 2 5 20]
        [--every 1 10] [--epsilon 8] [--classes 10] [--starts 64] [--steps 300] [--seeds 1]

GCFL on digits (100 rounds, 5 clients, defaults). Client 0 attacks: it knows the models and the
targets of all selections, and has samples of its own to start from; inversion.py tells how. At most
25 selections are looked at: more cost time and add little.

A clean sample counts as rebuilt when it is the nearest, of 500 samples of its class, to one of the
vectors that were found: all digits of the class, and copies of them shifted by one pixel. Chance is
n / 500 for each. Nearest among inputs; among features where the body never changes (logistic, whose
features are the inputs, and frozen: a linear head over a body of random weights).
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
from inversion import Effort, features, inputs

CANDIDATES, CLASSES, HIGHEST, MOST = 500, 10, 16.0, 25
EFFORTS = {
    "logistic": Effort(64, 300),
    "frozen": Effort(64, 300),
    "mlp": Effort(4, 60),
    "cnn": Effort(4, 60),
}
FIXED = ("logistic", "frozen")  # the body never changes


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


def attack(
    prepared: Prepared,
    model: str,
    heard: list[tuple[Tree, Tensor]],
    label: int,
    count: int,
    effort: Effort,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """What was found of a class's n samples, and the 500 candidates, in the same terms: prepared
    inputs, or features where the body never changes.
    """
    network, (own, labels) = prepared.setting.network, _attackers(prepared)
    mine = network.prepare(own[labels == label])
    if len(mine) < count:  # too few of its own: noise of the same kind
        generator = torch.Generator().manual_seed(seed)
        more = torch.randn(count, *own.shape[1:], generator=generator)
        mine = torch.cat([mine, more])
    known = network.prepare(candidates(prepared, label))
    chosen = np.unique(np.linspace(0, len(heard) - 1, MOST).round().astype(int))
    trees = [heard[place][0] for place in chosen]
    rows = torch.stack([heard[place][1][label] for place in chosen]).double()
    if model in FIXED:
        head = network.head_name
        heads = [
            torch.cat([one[f"{head}.weight"], one[f"{head}.bias"][:, None]], 1) for one in trees
        ]
        body = {name: tensor.double() for name, tensor in trees[0].items()}
        own_features, wanted = (network(body, x.double()).features for x in (mine, known))
        stacked = torch.stack(heads).double()
        found = features(stacked, rows, label, count, own_features, effort, seed)
        return found, wanted
    models = {name: torch.stack([one[name] for one in trees]).double() for name in trees[0]}
    found = inputs(network, models, rows, label, count, mine.double(), effort, seed)
    return found, known.double()


def _attackers(prepared: Prepared) -> tuple[Tensor, Tensor]:
    """The samples of client 0, which attacks."""
    shard = prepared.federation.clients.shard(0)
    return shard.x, shard.y


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
    effort: Effort | None = None,
    classes: int = CLASSES,
) -> tuple[int, int, int]:
    """(clean samples rebuilt, of how many, from how many selections)."""
    prepared, listening = played(model, samples, every, epsilon, seed, rounds)
    effort, count = effort or EFFORTS[model], 0
    for label in range(classes):
        found, known = attack(prepared, model, listening.heard, label, samples, effort, seed)
        nearest = torch.cdist(found.flatten(1), known.flatten(1)).argmin(1)
        count += len({int(place) for place in nearest if place < samples})
    return count, samples * classes, len(listening.heard)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(EFFORTS), choices=list(EFFORTS))
    parser.add_argument("--samples", nargs="+", type=int, default=[2, 5, 20], help="per class")
    parser.add_argument("--every", nargs="+", type=int, default=[1, 10], help="K")
    parser.add_argument("--epsilon", type=float, default=None, help="privacy.clean_epsilon")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--classes", type=int, default=CLASSES, help="that are attacked")
    parser.add_argument("--starts", type=int, help="of the attack; by default as EFFORTS says")
    parser.add_argument("--steps", type=int, help="of each start")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("gcfl").setLevel(logging.ERROR)  # it warns of just this
    print(f"{'model':<10}{'n':>4}{'K':>4}{'selections':>12}{'rebuilt':>12}{'chance':>9}{'s':>7}")
    for model in wanted.models:
        usual = EFFORTS[model]
        effort = Effort(wanted.starts or usual.starts, wanted.steps or usual.steps)
        more = {"effort": effort, "classes": wanted.classes}
        for samples in wanted.samples:
            for every in wanted.every:
                begun = time.process_time()
                results = [
                    trial(model, samples, every, wanted.epsilon, seed, **more)
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
