"""Accuracy of GCFL in a Flower app that exists: the example's data and model, 40 rounds, 40% wrong
labels, five seeds, over an in-process Grid.

    python benchmarks/flower_app.py

Accuracy on right labels, of the server's test set and of the clients' own; `right` is the share of
right labels among the samples trained on.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import logging
import random
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedAvgM, Strategy
from flwr.supercore.task_identity import TaskIdentity
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from gcfl.flower import GCFL, coreset, corrected_loss, gcfl_mod

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples" / "flower-quickstart" / "gcfl")]

from pytorchexample import task  # noqa: E402

from flower_grid import Here  # noqa: E402

CLIENTS, ROUNDS, EPOCHS, LR, BATCH, SEEDS = 10, 40, 10, 0.05, 32, range(5)
SIFT = {"selector": "sift"}
# What stands inside, epochs of a warm start, whether the loss is corrected, options of GCFL.
CASES: dict[str, tuple[str, int, bool, dict[str, Any]]] = {
    "distance": ("FedAvg", 0, False, {"score": "distance"}),
    "random, corrected": ("FedAvg", 0, True, {"selector": "random", "labels": {}}),
    "sift": ("FedAvg", 0, False, SIFT),
    "sift, corrected": ("FedAvg", 0, True, SIFT),
    "sift, corrected, rates not pooled": (
        "FedAvg",
        0,
        True,
        {**SIFT, "labels": {"pooling": False}},
    ),
    "distance, warm start": ("FedAvg", 20, False, {"score": "distance"}),
    "sift, corrected, warm start": ("FedAvg", 20, True, SIFT),
    "sift, corrected, warm start, FedAvgM": ("FedAvgM", 20, True, SIFT),
}


def inside(name: str) -> Strategy:
    if name == "FedAvg":
        return FedAvg(min_available_nodes=2)
    return FedAvgM(min_available_nodes=2, server_learning_rate=1.0, server_momentum=0.8)


def train(net: Any, loader: Any, epochs: int, loss: Any) -> None:
    """The example's own training, with a loss of one's choice."""
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    net.train()
    for _ in range(epochs):
        for x, y in loader:
            optimiser.zero_grad()
            loss(net(x), y).backward()
            optimiser.step()


def truth(client: int, seed: int) -> torch.Tensor:
    """The right labels of a client's training samples."""
    wrong, task.WRONG = task.WRONG, 0.0
    try:
        return task.load_data(client, CLIENTS, BATCH, seed)[0].dataset.tensors[1]
    finally:
        task.WRONG = wrong


def client_app(seed: int, corrected: bool, right: list[float]) -> ClientApp:
    app = ClientApp()

    def loaded(message: Message, context: Context) -> tuple[Any, int, Any]:
        net, client = task.Net(), int(context.node_config["partition-id"])
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return net, client, task.load_data(client, CLIENTS, BATCH, seed)

    @app.train(mods=[gcfl_mod])
    def _(message: Message, context: Context) -> Message:
        net, client, (loader, _) = loaded(message, context)
        labels = loader.dataset.tensors[1]
        loader = coreset(net, loader, context)
        rows = loader.dataset.indices
        right.append((labels[rows] == truth(client, seed)[rows]).float().mean().item())
        train(net, loader, EPOCHS, corrected_loss(context) if corrected else cross_entropy)
        metrics = MetricRecord({"num-examples": len(rows)})
        arrays = ArrayRecord(net.state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def _(message: Message, context: Context) -> Message:
        net, _, (_, loader) = loaded(message, context)
        metrics = {"accuracy": task.test(net, loader)[1], "num-examples": len(loader.dataset)}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def play(seed: int, case: str) -> tuple[float, float, float]:
    strategy, warm, corrected, options = CASES[case]
    right: list[float] = []
    grid = Here(client_app(seed, corrected, right), CLIENTS)
    for client, node in enumerate(grid.contexts):
        grid.contexts[node] = Context(1, node, {"partition-id": client}, RecordDict(), {})
    random.seed(seed)
    torch.manual_seed(seed)
    net, clean = task.Net(), task.load_all(seed)[0]
    train(net, DataLoader(clean, batch_size=BATCH, shuffle=True), warm, cross_entropy)
    gcfl = GCFL(inside(strategy), model=task.Net, validation=clean, **options)
    arrays = ArrayRecord(net.state_dict())
    result = gcfl.start(grid=grid, initial_arrays=arrays, num_rounds=ROUNDS)
    net.load_state_dict(result.arrays.to_torch_state_dict())
    own = float(result.evaluate_metrics_clientapp[ROUNDS]["accuracy"])
    return task.test(net, task.load_test(seed))[1], own, mean(right)


def main() -> None:
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for name in ("task_id", "run_id", "node_id"):
        setattr(TaskIdentity, f"_{name}", 1)
    print(f"{'':38}{'server':>16}{'clients':>16}{'right':>8}")
    for case in CASES:
        server, clients, right = zip(*(play(seed, case) for seed in SEEDS), strict=True)
        shown = "".join(f"   {mean(one):.3f} ± {stdev(one):.3f}" for one in (server, clients))
        print(f"{case:38}{shown}{mean(right):8.2f}", flush=True)


if __name__ == "__main__":
    main()
