"""One task for pfl 0.6: the same clients as benchmarks/clients.py, trained by its simulated
backend. Run by that script.

python benchmarks/pfl_clients.py CLIENTS SAMPLES ROUNDS     in a venv with pfl; prints clients per
CPU-second
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Logistic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        self.train(not is_eval)
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict:
        return {}


class Clock(TrainingProcessCallback):
    """CPU-seconds at the end of every round."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.times.append(time.process_time())
        return False, Metrics()


def main() -> None:
    clients, samples, rounds = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(clients, samples, 10)).astype(np.float32))
    y = torch.from_numpy(draw.integers(0, 10, (clients, samples)))
    data = FederatedDataset(
        lambda user: Dataset([x[user], y[user]]), lambda: int(draw.integers(clients))
    )
    module = Logistic()
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    backend = SimulatedBackend(training_data=data, val_data=None)
    train = NNTrainHyperParams(local_learning_rate=0.1, local_num_epochs=1, local_batch_size=32)
    settings = NNAlgorithmParams(
        rounds + 1, evaluation_frequency=10**6, train_cohort_size=clients, val_cohort_size=0
    )
    clock = Clock()
    FederatedAveraging().run(
        settings, backend, model, train, callbacks=[clock], send_metrics_to_platform=False
    )
    took = np.diff(clock.times)
    print(clients / float(np.median(took)))


if __name__ == "__main__":
    main()
