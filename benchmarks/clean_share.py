"""How clean each selector's coreset is: digits, 40% of the labels flipped, features of a model of
200 clean samples.

    python benchmarks/clean_share.py

Five seeds. `clean` is the share of right labels among the chosen 10%; `accuracy` that of the same
network trained anew on the coreset alone, unweighted, on clean test data.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from gcfl.base import rng
from gcfl.coreset import SELECTORS, label_wise_target, select, whole_target

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("random", "random", {}),
    *(
        (f"gcfl, {score}", "gcfl", {"score": score})
        for score in ("correlation", "distance", "nearest")
    ),
    *(
        (f"gcfl whole, {score}", "gcfl", {"score": score, "variant": "whole"})
        for score in ("correlation", "distance")
    ),
    ("glister", "glister", {}),
    *(
        (name, name, {})
        for name in ("gradmatch", "facility", "crust", "craig", "small-loss", "agreement")
    ),
    ("crust, released", "crust", {"crust": "released"}),
]


def trained(x: torch.Tensor, y: torch.Tensor, seed: int, epochs: int = 150) -> nn.Sequential:
    with rng.isolated(seed, "model"):
        network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        for _ in range(epochs):
            for batch in torch.randperm(len(y)).split(32):
                optimiser.zero_grad()
                cross_entropy(network(x[batch]), y[batch]).backward()
                optimiser.step()
    return network


@torch.no_grad()
def accuracy(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    return float((network(x).argmax(1) == y).float().mean())


def main() -> None:
    torch.set_num_threads(1)
    images, digits = load_digits(return_X_y=True)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in CASES}
    server = []
    for seed in range(5):
        draw = rng.stream(seed, "digits")
        order = draw.permutation(len(digits))
        x, clean = torch.tensor(images[order] / 16).float(), torch.tensor(digits[order])
        labels = clean.clone()
        wrong = torch.from_numpy(draw.permutation(1300)[:520])
        labels[wrong] = (labels[wrong] + torch.from_numpy(draw.integers(1, 10, 520))) % 10
        client, held, test = slice(0, 1300), slice(1300, 1500), slice(1500, None)
        model = trained(x[held], clean[held], seed)
        server.append(accuracy(model, x[test], clean[test]))
        with torch.no_grad():
            features = model[1](model[0](x))
            probabilities = model(x).softmax(1)
        targets = {
            "label-wise": label_wise_target(features[held], probabilities[held], clean[held]),
            "whole": whole_target(features[held], probabilities[held], clean[held]),
        }
        for name, selector, options in CASES:
            target = targets[options.get("variant", "label-wise")]
            pool = (features[client], probabilities[client], labels[client])
            head = {"head": model[2].weight.detach()} if "crust" in options else {}
            chosen = select(selector, *pool, 130, target, seed=seed, **head, **options).indices
            share = float((labels == clean)[chosen].float().mean())
            again = trained(x[chosen], labels[chosen], seed)
            found[name].append((share, accuracy(again, x[test], clean[test])))
    missing = set(SELECTORS) - {selector for _, selector, _ in CASES}
    if missing:
        raise SystemExit(f"not measured: {missing}")
    print("| selector | clean | accuracy on the coreset alone |\n|---|---|---|")
    for name, values in found.items():
        shares, scores = zip(*values, strict=True)
        print(
            f"| {name} | {np.mean(shares):.1%} ± {stdev(shares):.1%} | {mean(scores):.3f} ± "
            f"{stdev(scores):.3f} |"
        )
    print(f"\nThe model of the 200 clean samples itself: {mean(server):.3f} ± {stdev(server):.3f}.")


if __name__ == "__main__":
    main()
