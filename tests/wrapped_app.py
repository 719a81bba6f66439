"""A small Flower app with GCFL around its strategy."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flowers
from torch import nn
from torch.utils.data import TensorDataset

from gcfl.flower import GCFL, coreset, gcfl_mod

NODES, SAMPLES, CLASSES = 5, 40, 4


class Net(nn.Module):
    def __init__(self, classes=CLASSES):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, classes)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def samples(seed, n=SAMPLES):
    draw = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    return torch.tensor(draw.normal(size=(n, 6)) + y[:, None], dtype=torch.float32), torch.tensor(y)


def first_arrays():
    torch.manual_seed(0)
    return ArrayRecord(Net().state_dict())


def client(seen, mods=(gcfl_mod,), choose=coreset):
    """One gradient step on what `choose` gives; what the app is sent and what it chose is noted in
    `seen`.
    """
    app = ClientApp()

    @app.train(mods=list(mods))
    def train(message, context):
        node = context.node_id
        model = Net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        chosen = choose(model, TensorDataset(*samples(node)), context)
        seen.append((node, message.content, chosen))
        x, y = (torch.stack(part) for part in zip(*chosen, strict=True))
        nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for part in model.parameters():
                part -= 0.1 * part.grad
        metrics = MetricRecord({"num-examples": len(chosen), "loss": 0.5})
        return Message(
            RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
            reply_to=message,
        )

    @app.evaluate()
    def evaluate(message, context):
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": 1, "acc": 1.0})}), reply_to=message
        )

    return app


def wrapped(inner=None, **options):
    options = {"model": Net, "validation": samples(99), "every": 3, "budget": 0.2, **options}
    return GCFL(inner or flowers.FedAvg(), **options)


def play(strategy, grid, server_round, arrays):
    messages = list(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
    return strategy.aggregate_train(server_round, grid.send_and_receive(messages))[0]


def asked(grid):
    """The nodes that were sent a gradient since the last time."""
    found = sorted(node for node, content in grid.traffic if "gcfl.target" in content)
    grid.traffic.clear()
    return found


def dp(kind, inner, **more):
    return getattr(flowers, f"DifferentialPrivacy{kind}Clipping")(
        inner, 0.01, num_sampled_clients=NODES, **more
    )
