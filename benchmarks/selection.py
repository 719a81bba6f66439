"""How fast selection is, as ratios measured in one run, single thread, medians.

    python benchmarks/selection.py            # about three minutes
    python benchmarks/selection.py --quick    # leaves out n = 50,000

Against: a dense OMP that builds the n x D matrix and solves its least-squares problem from scratch
at every step, in two strengths: `normal` forms the Gram matrix of the selected rows anew in float32
and solves that (as CORDS does, and about the best that starting from scratch allows), `least
squares` hands the selected rows to a least-squares solver (torch's lstsq with the ridge as extra
rows); both use scipy's nnls where a weight would be negative. Then: the forward pass of the paper's
CNN that a selection needs; submodlib's lazy greedy.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import scipy.optimize
import torch
from rich.console import Console
from rich.table import Table

from gcfl.base import rng
from gcfl.coreset import (
    GradientMatching,
    Gradients,
    Pool,
    Pursuit,
    label_wise_target,
    pursue,
    whole_target,
)
from gcfl.coreset.facility import cosine, facility_location
from gcfl.models import ModelOptions, make
from gcfl.models.network import Network

RIDGE = 0.5


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median CPU-seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return median(times)


def dense_omp(
    rows: torch.Tensor, target: torch.Tensor, budget: int, normal: bool = True
) -> list[int]:
    """Correlation OMP on the full matrix (n, D), from scratch at every step."""
    chosen: list[int] = []
    residual = target
    for _ in range(budget):
        scores = rows @ residual
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
        own = rows[chosen]
        system = own @ own.T + RIDGE * torch.eye(len(chosen))
        right = own @ target
        if normal:
            weights = torch.linalg.solve(system, right)
        else:
            tall = torch.cat([own.T, RIDGE**0.5 * torch.eye(len(chosen))])
            weights = torch.linalg.lstsq(
                tall, torch.cat([target, torch.zeros(len(chosen))])[:, None]
            ).solution[:, 0]
        if bool((weights < 0).any()):
            found = scipy.optimize.nnls(
                system.double().numpy(), right.double().numpy(), maxiter=10_000
            )[0]
            weights = torch.from_numpy(found).float()
        residual = target - weights @ own
    return chosen


def dense(gradients: Gradients) -> torch.Tensor:
    extended = torch.cat([gradients.features, torch.ones(len(gradients), 1)], dim=1)
    return (gradients.coefficients[:, :, None] * extended[:, None]).flatten(1).contiguous()


def pool(n: int, d: int, classes: int, seed: int = 0) -> Pool:
    """Features as after a ReLU, mixed so that they correlate; probabilities of a linear layer;
    labels, 40% of them wrong.
    """
    draw = torch.Generator().manual_seed(seed)
    features = torch.relu(
        torch.randn(n, d, generator=draw) @ (torch.randn(d, d, generator=draw) / d**0.5)
    )
    logits = features @ torch.randn(d, classes, generator=draw) / d**0.5
    labels = logits.argmax(1)
    wrong = torch.rand(n, generator=draw) < 0.4
    labels[wrong] = (
        labels[wrong] + torch.randint(1, classes, (int(wrong.sum()),), generator=draw)
    ) % classes
    return Pool(features, logits.softmax(1), labels)


def whole_case(n: int, d: int, budget: int) -> tuple[float, list[float], float]:
    """(ours, both dense ones, share of equal choices) at n x 10(d + 1)."""
    samples = pool(n, d, 10)
    gradients = samples.whole()
    target = gradients.rows(torch.arange(n // 5)).mean()
    ours = seconds(lambda: pursue(gradients, target, budget, Pursuit(ridge=RIDGE)))
    rows = dense(gradients)
    slow = []
    for normal in (False, True):
        start = time.process_time()
        theirs = dense_omp(rows, target.flatten(), budget, normal)
        slow.append(time.process_time() - start)
    mine = pursue(gradients, target, budget, Pursuit(ridge=RIDGE)).indices
    return ours, slow, len(set(mine) & set(theirs)) / budget


def ten_classes() -> tuple[float, float]:
    """(ours, dense) for ten classes of 500 x 2,049 with 50 points each."""
    problems = []
    for label in range(10):
        samples = pool(500, 2048, 2, seed=label)
        gradients = Pool(
            samples.features, samples.probabilities, torch.zeros(500, dtype=torch.int64)
        ).own_label()
        problems.append((gradients, gradients.rows(torch.arange(100)).mean()))
    ours = seconds(lambda: [pursue(gradients, target, 50) for gradients, target in problems])
    matrices = [(dense(gradients), target.flatten()) for gradients, target in problems]
    return ours, seconds(
        lambda: [dense_omp(rows, target, 50) for rows, target in matrices], repeats=3
    )


def against_forward() -> tuple[float, float]:
    """(solver, forward pass) for the paper's CNN and 5,000 images, label-wise, b = 10%."""
    images = torch.randint(
        0, 256, (5000, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    normaliser = (torch.full((3, 1, 1), 127.5), torch.full((3, 1, 1), 74.0))
    network = Network(make((3, 32, 32), 10, ModelOptions(name="cnn"), 0), images, 10, normaliser)
    tree = network.tree()
    forward = seconds(lambda: network.outputs(tree, images), repeats=3)
    outputs = network.outputs(tree, images)
    labels = torch.randint(0, 10, (5000,), generator=torch.Generator().manual_seed(1))
    probabilities = outputs.logits.softmax(1)
    samples = Pool(outputs.features, probabilities, labels)
    target = label_wise_target(outputs.features[:1000], probabilities[:1000], labels[:1000])
    solver = seconds(
        lambda: GradientMatching().pick(samples, target, 500, partial(rng.stream, 0), {})
    )
    return solver, forward


def facility() -> tuple[float, float]:
    """(ours from the features, submodlib from a ready similarity) for n = 5,000 and b = 500."""
    from submodlib import FacilityLocationFunction

    features = pool(5000, 256, 10).features
    ours = seconds(lambda: facility_location(cosine(features), 5000, 500), repeats=3)
    similarity = cosine(features)(torch.arange(5000)).numpy()

    def theirs() -> None:
        function = FacilityLocationFunction(
            n=5000, mode="dense", sijs=similarity, separate_rep=False
        )
        function.maximize(budget=500, optimizer="LazyGreedy", show_progress=False)

    return ours, seconds(theirs, repeats=1)


def large(kind: str) -> None:
    """In a process of its own: peak memory of a selection at n = 50,000, d = 2,048, over that of
    the features.
    """
    draw = torch.Generator().manual_seed(0)
    features = torch.empty(50_000, 2048)
    for chunk in features.split(1000):
        chunk.copy_(torch.randn(chunk.shape, generator=draw).relu_())
    probabilities = torch.rand(50_000, 10, generator=draw).softmax(1)
    labels = torch.randint(0, 10, (50_000,), generator=draw)
    samples = Pool(features, probabilities, labels)
    clean = (features[:1000], probabilities[:1000], labels[:1000])
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - features.numel() * 4
    start = time.process_time()
    if kind == "label-wise":
        target = label_wise_target(*clean)
        GradientMatching().pick(samples, target, 5000, partial(rng.stream, 0), {})
    else:
        pursue(samples.whole(), whole_target(*clean), 500)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - base
    print(time.process_time() - start, peak / (features.numel() * 4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", choices=["label-wise", "whole"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.large:
        large(options.large)
        return
    table = Table(title="selection, CPU-seconds, one thread")
    for name in ("what", "ours", "other", "ratio", "note"):
        table.add_column(name, justify="left" if name in ("what", "note") else "right")
    for n, d, budget in ((500, 256, 50), (5000, 256, 500)):
        ours, both, same = whole_case(n, d, budget)
        for kind, slow in zip(("least squares", "normal"), both, strict=True):
            what = f"whole, n = {n:,}, D = {10 * (d + 1):,}, b = {budget}; dense OMP, {kind}"
            table.add_row(
                what,
                f"{ours:.4f}",
                f"{slow:.3f}",
                f"{slow / ours:.1f} x faster",
                f"{same:.0%} equal choices",
            )
    ours, slow = ten_classes()
    table.add_row(
        "ten classes of 500 x 2,049, b = 50; dense OMP, normal",
        f"{ours:.4f}",
        f"{slow:.3f}",
        f"{slow / ours:.1f} x faster",
        "",
    )
    solver, forward = against_forward()
    table.add_row(
        "label-wise, 5,000 images, b = 10%; forward pass of the paper's CNN",
        f"{solver:.4f}",
        f"{forward:.3f}",
        f"{solver / forward:.1%} of it",
        "",
    )
    ours, theirs = facility()
    table.add_row(
        "facility location, n = 5,000, b = 500; submodlib",
        f"{ours:.3f}",
        f"{theirs:.3f}",
        f"{theirs / ours:.1f} x faster",
        "",
    )
    if not options.quick:
        for kind, note in (("label-wise", "b = 10%"), ("whole", "b = 500")):
            line = [sys.executable, __file__, "--large", kind]
            spent, peak = subprocess.run(
                line, capture_output=True, text=True, check=True
            ).stdout.split()
            table.add_row(
                f"{kind}, n = 50,000, d = 2,048, {note}",
                f"{float(spent):.1f}",
                "",
                "",
                f"peak {float(peak):.2f} x the features",
            )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
