"""A pretrained body from a file: freeze it, look at every photo once, train the last layer alone.

Shows: weights from a local safetensors file (`model.weights`); a frozen body (`model.freeze`) whose
features serve all rounds; what that costs against training everything. The body is pretrained here,
on the digits 0 to 4 of a public set; the sites hold 5 to 9, of whose labels 40% are wrong.

    python examples/frozen_backbone.py        # about 10 seconds
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from gcfl import Run, run


class Net(nn.Module):
    """A small convolutional body and a linear head, for 8 x 8 pixels."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.LayerNorm(32 * 4 * 4),  # features of a known size: the usual learning rates fit
        )
        self.head = nn.Linear(32 * 4 * 4, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def pretrain(x: np.ndarray, y: np.ndarray, file: Path, epochs: int = 5) -> None:
    """Plain training in one place; only the body is written, since the classes will be others."""
    torch.manual_seed(0)
    net = Net()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    inputs, labels = torch.tensor(x), torch.tensor(y)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(32):
            loss = nn.functional.cross_entropy(net(inputs[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    save_file({f"body.{name}": w for name, w in net.body.state_dict().items()}, file)


def main(out: Path) -> tuple[dict[str, Run], dict[str, float]]:
    """The runs, and their CPU-seconds, reading and the pass for the features included."""
    digits = load_digits()
    x, y = (digits.images[:, None] / 16).astype(np.float32), digits.target
    public = y < 5
    pretrain(x[public], y[public], out / "body.safetensors")
    start = {"weights": out / "body.safetensors"}
    models = {
        "everything, from scratch": {"name": Net},
        "everything, pretrained": {"name": Net, **start},
        "the last layer, pretrained": {"name": Net, **start, "freeze": "body"},
    }
    runs, spent = {}, {}
    for what, model in models.items():
        began = time.process_time()
        runs[what] = run(
            "robust",
            {"source": (x[~public], y[~public]), "normalise": False},
            model,
            clients=5,
            noise=0.4,
            validation=50,
            test=200,
            rounds=10,
            lr=0.01,
            out=out,
            train={"augment": "none"},
            clean={"warm_start": 20, "lr": 0.01},
        )
        spent[what] = time.process_time() - began
    print("what is trained              accuracy   CPU-seconds   sent by the clients")
    for what, done in runs.items():
        sent = sum(done.cost["bytes"]["up"].values()) / 1e6
        print(f"{what:<27} {done.accuracy:9.3f} {spent[what]:13.1f} {sent:18.2f} MB")
    return runs, spent


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="gcfl-frozen-"))
    main(folder)
    print(f"\nthe runs, and body.safetensors: {folder}")
