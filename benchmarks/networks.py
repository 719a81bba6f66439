"""What a training step of each network for images costs, against the paper's cnn; the cnn also
with linear layers by oneDNN.

    python benchmarks/networks.py [--pixels 32] [--batch 32] [--steps 5]

CPU-seconds of forward, backward and update on one batch, one thread; the least of the steps.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.nn.functional import cross_entropy

from gcfl.models import ModelOptions, make
from gcfl.models.kernels import take_onednn

NETWORKS = (
    {"name": "cnn"},
    {"name": "resnet9", "width": 16},
    {"name": "resnet9", "width": 32},
    {"name": "resnet9"},
    {"name": "resnet18", "width": 16},
    {"name": "resnet18"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = (3, options.pixels, options.pixels)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(options.batch, *shape, generator=draw).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (options.batch,), generator=draw)
    print("| network | width | weights | step, CPU ms | against cnn |\n|---|---:|---:|---:|---:|")
    first = 0.0
    for number, settings in enumerate((NETWORKS[0], *NETWORKS)):
        module = make(shape, 10, ModelOptions(**settings), seed=0)
        if number == 1:
            take_onednn(module)
        module = module.to(memory_format=torch.channels_last)
        seconds = min(step(module, x, y) for _ in range(options.steps))
        first = first or seconds
        weights = sum(part.numel() for part in module.parameters())
        width = settings.get("width", "" if settings["name"] == "cnn" else 64)
        cost = f"{1000 * seconds:.0f} | {seconds / first:.2f}"
        name = settings["name"] + ", engine.linear = onednn" * (number == 1)
        print(f"| {name} | {width} | {weights:,} | {cost} |", flush=True)


def step(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """CPU-seconds of one step of SGD."""
    started = time.process_time()
    module.zero_grad()
    cross_entropy(module(x), y).backward()
    torch.optim.SGD(module.parameters(), lr=0.01).step()
    return time.process_time() - started


if __name__ == "__main__":
    main()
