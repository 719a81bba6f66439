"""Label posteriors: what they cost, and how wrong the noise rate is by remedy, in one run.

    python benchmarks/labels.py            # about a minute
    python benchmarks/labels.py --quick    # the cost alone

Cost: CPU-seconds, one thread, beside the forward pass of the paper's CNN on the same 5,000 images.

Errors: ten clients of 1,000 samples, Dirichlet 0.4, ten Gaussian classes, and a model of them that
is calibrated, over-confident, fitted to 200 samples, favours some classes, or is now and then sure
and wrong. The server holds as many clean samples apart as `held` says. `counts` takes predicted
classes for what they were on the clean samples: N[ỹ, ŷ] = Tᵀ diag(π) M, solved by the same EM with
M[c, ŷ] for p_c. At the end the same of a network on digits, early and late in its training.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor

from gcfl.base import rng
from gcfl.labels import (
    LabelPosterior,
    NoiseModel,
    fit_calibration,
    fit_temperature,
    label_posterior,
    label_posteriors,
    pool_rates,
    rate_interval,
)
from gcfl.models import ModelOptions, make

CLASSES, CLIENTS, EACH, SEEDS, DIMENSIONS = 10, 10, 1000, 5, 40
KINDS = {"calibrated": 1.5, "over-confident": 1.5, "fitted": 1.5, "favours": 1.5, "erring": 2.2}


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median CPU-seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return median(times)


def costs() -> Table:
    images = torch.randn(5000, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = make((3, 32, 32), CLASSES, ModelOptions(name="cnn"), 0)
    with torch.no_grad():
        forward = seconds(lambda: [network(part) for part in images.split(500)], repeats=3)
    scene = gaussian("calibrated", 0, 0.4, 200)
    logits, labels = scene.logits[:5000].float(), scene.labels[:5000]
    given = NoiseModel(temperature=1.0)
    works: dict[str, Callable[[], object]] = {
        "EM, six temperatures": lambda: label_posterior(logits, labels),
        "EM, temperature given": lambda: label_posterior(logits, labels, given),
        "full matrix, six temperatures": lambda: label_posterior(
            logits, labels, NoiseModel("full")
        ),
        "1,000 clients of 5 at once": lambda: label_posteriors(logits, labels, [5] * 1000),
        "200 resamples, temperature given": lambda: rate_interval(logits, labels, given),
        "calibration, 1,000 clean samples": lambda: fit_calibration(logits[:1000], labels[:1000]),
    }
    table = Table(title=f"n = 5,000, C = 10; forward pass of the paper's CNN: {forward:.2f} s")
    for name in ("what", "CPU-seconds", "of the forward pass"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for name, work in works.items():
        spent = seconds(work)
        table.add_row(name, f"{spent:.4f}", f"{spent / forward:.2%}")
    return table


@dataclass(frozen=True)
class Scene:
    """Clients' logits, labels and whether each is right, and clean samples that the server holds
    apart.
    """

    logits: Tensor
    labels: Tensor
    right: Tensor
    sizes: list[int]
    clean_logits: Tensor
    clean: Tensor

    @property
    def accuracy(self) -> float:
        return float((self.clean_logits.argmax(1) == self.clean).double().mean())

    @property
    def rates(self) -> np.ndarray:
        return np.array([1 - float(part.mean()) for part in self.right.split(self.sizes)])

    def fit(self, logits: Tensor, model: NoiseModel) -> list[LabelPosterior]:
        return label_posteriors(logits, self.labels, self.sizes, model)

    def remedies(self) -> Iterator[tuple[str, list[LabelPosterior]]]:
        yield "temperature by likelihood", self.fit(self.logits, NoiseModel())
        warm = NoiseModel(temperature=fit_temperature(self.clean_logits, self.clean))
        yield "temperature of clean samples", self.fit(self.logits, warm)
        found = fit_calibration(self.clean_logits, self.clean)
        logits = found.apply(self.logits)
        free = self.fit(logits, NoiseModel(temperature=1.0, train_prior=found.prior))
        yield "calibration of clean samples", free
        pool, fitting = pool_rates([one.rate for one in free], self.sizes)
        for name, weight in (("100", 100.0), ("1000", 1000.0), ("its own", fitting)):
            model = NoiseModel(
                temperature=1.0, train_prior=found.prior, prior_rate=pool, rate_weight=weight
            )
            yield f"calibration, pool, weight {name}", self.fit(logits, model)
        full = NoiseModel("full", temperature=1.0, train_prior=found.prior)
        yield "calibration, full matrix", self.fit(logits, full)
        predicted = self.clean_logits.argmax(1)
        share = torch.bincount(predicted, minlength=CLASSES) / len(predicted)
        table = 5 * share[None] + 0.001 + torch.zeros(CLASSES, CLASSES)
        table.index_put_((self.clean, predicted), torch.ones(len(predicted)), accumulate=True)
        counted = (table / table.sum(1, keepdim=True)).log().T[self.logits.argmax(1)]
        yield "counts", self.fit(counted, NoiseModel(temperature=1.0))


def gaussian(kind: str, seed: int, rate: float | None, held: int) -> Scene:
    draw = rng.stream(seed, "benchmark", kind)
    means = draw.normal(size=(CLASSES, DIMENSIONS))
    means *= KINDS[kind] / np.linalg.norm(means, axis=1, keepdims=True)

    def samples(classes: np.ndarray) -> np.ndarray:
        return means[classes] + draw.normal(size=(len(classes), DIMENSIONS))

    own = means
    if kind == "fitted":
        seen = np.repeat(np.arange(CLASSES), 20)
        own = samples(seen).reshape(CLASSES, 20, -1).mean(1)
    favour = draw.normal(size=CLASSES) if kind == "favours" else 0.0

    def model(x: np.ndarray) -> Tensor:
        logits = x @ own.T - (own**2).sum(1) / 2 + favour
        if kind == "erring":  # a quarter is taken for another class
            wrong = draw.random(len(x)) < 0.25
            logits[wrong] = np.roll(logits[wrong], int(draw.integers(1, CLASSES)), axis=1)
        return torch.from_numpy(logits * (1.0 if kind in ("calibrated", "fitted") else 3.0))

    clean = np.arange(held) % CLASSES
    clean_logits = model(samples(clean))
    priors = draw.dirichlet(np.full(CLASSES, 0.4), CLIENTS)
    truth = np.concatenate([draw.choice(CLASSES, EACH, p=prior) for prior in priors])
    logits = model(samples(truth))
    rates = draw.uniform(0, 0.8, CLIENTS) if rate is None else np.full(CLIENTS, rate)
    labels, right = noisy(draw, truth, np.repeat(rates, EACH))
    return Scene(logits, labels, right, [EACH] * CLIENTS, clean_logits, torch.from_numpy(clean))


def noisy(draw: np.random.Generator, truth: np.ndarray, rates: np.ndarray) -> tuple[Tensor, Tensor]:
    wrong = draw.random(len(truth)) < rates
    labels = (truth + wrong * draw.integers(1, CLASSES, len(truth))) % CLASSES
    return torch.from_numpy(labels), torch.from_numpy(~wrong).double()


def digits(steps: int, seed: int, rate: float = 0.4) -> Scene:
    """A network after some steps on 100 clean digits, 100 more held apart, five clients."""
    draw = rng.stream(seed, "benchmark", "digits")
    images, classes = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float(), torch.tensor(classes)
    order = draw.permutation(len(y))
    trained, held, rest = order[:100], order[100:200], order[200:]
    network = make((64,), CLASSES, ModelOptions(name="mlp", hidden=[64]), seed)
    optimiser = torch.optim.SGD(network.parameters(), 0.02, momentum=0.9)
    for _ in range(steps):
        batch = trained[draw.integers(0, 100, 16)]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
        optimiser.step()
    with torch.no_grad():
        logits = network(x)
    shares = draw.dirichlet(np.full(5, 0.4), CLASSES).cumsum(1)
    client = (shares[classes[rest]] < draw.random((len(rest), 1))).sum(1).clip(max=4)
    rest = rest[np.argsort(client, kind="stable")]
    sizes = [int(size) for size in np.bincount(client, minlength=5) if size]
    labels, right = noisy(draw, classes[rest], np.full(len(rest), rate))
    return Scene(logits[rest], labels, right, sizes, logits[held], y[held])


def errors(title: str, scenes: dict[str, list[Scene]]) -> Table:
    table = Table(title=f"{title}: mean absolute error of the rate (bias), Brier score of `right`")
    table.add_column("")
    rows: dict[str, list[str]] = {}
    for kind, several in scenes.items():
        accuracy = np.mean([scene.accuracy for scene in several])
        table.add_column(f"{kind}\n{accuracy:.0%} accurate", justify="right")
        measured: dict[str, list[tuple[float, float, float]]] = {}
        for scene in several:
            for name, found in scene.remedies():
                off = np.array([one.rate for one in found]) - scene.rates
                right = torch.cat([one.right for one in found])
                brier = float((right - scene.right).square().mean())
                entry = (float(np.abs(off).mean()), float(off.mean()), brier)
                measured.setdefault(name, []).append(entry)
        for name, entries in measured.items():
            error, bias, brier = np.mean(entries, axis=0)
            rows.setdefault(name, []).append(f"{error:.3f} ({bias:+.3f}) {brier:.3f}")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=170)
    console.print(costs())
    if not options.quick:
        for rate, held in ((0.4, 200), (0.4, 50), (None, 200), (0.0, 200)):
            shown = "rates in [0, 0.8]" if rate is None else f"rate {rate:g}"
            kinds = {kind: [gaussian(kind, n, rate, held) for n in range(SEEDS)] for kind in KINDS}
            console.print(errors(f"{shown}, {held} clean samples", kinds))
        after = {f"{n} steps": [digits(n, seed) for seed in range(10)] for n in (15, 25, 60, 400)}
        console.print(errors("digits, rate 0.4, 100 clean samples apart", after))


if __name__ == "__main__":
    main()
