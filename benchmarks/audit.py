"""Wrong labels found without moving a sample, against cleanlab.

    python benchmarks/audit.py digits                       # also: mnist, cifar10, flowers
    python benchmarks/audit.py digits --noise uniform60 uniform80 pair45 pair55 --no-cross-fit
    python benchmarks/audit.py cifar10 --noise uniform40 --no-cross-fit --halves

For each kind of noise: a federated run (`robust`, ten clients, Dirichlet 0.4) and its audit; then
cleanlab (`get_label_quality_scores`, self-confidence) in three ways:

    same probabilities     of the run's final model; issues are looked for per client, and in all
                           together (the score alone is the same: it is each sample's own)
    one place              the usual way: 5-fold cross-validation of the same network, 20 epochs,
                           the server's clean set added to every fold, all data in one place
    each client alone      the same at every client by itself

With --halves also a federated cross-fit: two runs, each of which trains on one half of every
client's samples alone, and each half judged by the run that has not trained on it.

AUROC and average precision over all clients' samples (ranked together), the share of training that
each took, and for ours the mean absolute error of the clients' rates, how many 95% intervals hold
the truth, and their mean width. A line of JSON per scene goes to --out; scenes that are there
already are not played again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.nn.functional import cross_entropy

import gcfl
from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset import Draw, Pool, unweighted
from gcfl.coreset.sift import Sift
from gcfl.methods import register

NOISES: dict[str, dict[str, Any]] = {
    "uniform20": {"noise": 0.2},
    "uniform40": {"noise": 0.4},
    "pair40": {"noise": 0.4, "noise_kind": "pair"},
    "spread": {"noise": 0.4, "noise_spread": 0.4},
    "open20": {"noise": 0.2, "noise_kind": "open"},
}
# Where it is known to fail: only on demand.
HARD: dict[str, dict[str, Any]] = {
    "uniform60": {"noise": 0.6},
    "uniform80": {"noise": 0.8},
    "pair45": {"noise": 0.45, "noise_kind": "pair"},
    "pair55": {"noise": 0.55, "noise_kind": "pair"},
}
DATA: dict[str, dict[str, Any]] = {
    "digits": {"data": {"source": "digits", "validation": 100}, "model": "mlp", "rounds": 40},
    # 20 clean samples; 100 sites of about 14 samples
    "digits-20": {"data": {"source": "digits", "validation": 20}, "model": "mlp", "rounds": 40},
    "digits-sites": {
        "data": {"source": "digits", "validation": 100, "clients": 100, "min_size": 2},
        "model": "mlp",
        "rounds": 40,
    },
    "mnist": {
        "data": {"source": "mnist", "samples": 20000, "validation": 1000, "test": 2000},
        "model": "mlp",
        "rounds": 40,
    },
    "cifar10": {
        "data": {"source": "cifar10", "samples": 20000, "validation": 1000, "test": 2000},
        "model": "cnn",
        "rounds": 60,
    },
    "flowers": {
        "data": {"source": "flowers", "validation": 200, "test": 500},
        "model": "cnn",
        "rounds": 60,
    },
}
FOLDS, EPOCHS, LR, BATCH = 5, 20, 0.03, 32


def rated(truth: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    return {
        "auroc": float(roc_auc_score(truth, wrong)),
        "ap": float(average_precision_score(truth, wrong)),
    }


def cleanlab_scores(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """(n,) how wrong a label is: 1 - its quality."""
    from cleanlab.rank import get_label_quality_scores

    return 1 - get_label_quality_scores(labels, probabilities)


def cleanlab_found(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """(n,) whether cleanlab calls a label an issue."""
    from cleanlab.filter import find_label_issues

    return find_label_issues(labels, probabilities, n_jobs=1)


def trained(setting: Any, x: torch.Tensor, y: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """The run's network on these samples: SGD with momentum, cosine, its own augmentation."""
    from gcfl.methods.augmentation import Inputs

    network = setting.network
    local = {name: tensor.clone() for name, tensor in network.tree().items()}
    params = [local[name].requires_grad_() for name in network.trained]
    optimiser = torch.optim.SGD(params, lr=LR, momentum=0.9, weight_decay=5e-4)
    draw = np.random.default_rng(seed)
    ready = network.prepare(x)
    for epoch in range(EPOCHS):
        optimiser.param_groups[0]["lr"] = LR * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        inputs = Inputs(setting.train, seed, epoch, 0, 1)
        for step, rows in enumerate(np.array_split(draw.permutation(len(y)), -(-len(y) // BATCH))):
            batch = torch.from_numpy(rows)
            seen, _, _ = inputs.of(ready[batch], step)
            loss = cross_entropy(network(local, seen, training=True).logits, y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return {name: tensor.detach() for name, tensor in local.items()}


def cross_fitted(setting: Any, clean: Any, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """(n, C) probabilities of models that have not seen the sample."""
    folds = np.random.default_rng(0).permutation(len(y)) % FOLDS
    found = np.zeros((len(y), setting.network.classes))
    for fold in range(FOLDS):
        inside = torch.from_numpy(np.flatnonzero(folds != fold))
        model = trained(
            setting, torch.cat([x[inside], clean.x]), torch.cat([y[inside], clean.y]), fold
        )
        outside = torch.from_numpy(np.flatnonzero(folds == fold))
        logits = setting.network.outputs(model, x[outside]).logits
        found[outside.numpy()] = torch.softmax(logits, dim=1).numpy()
    return found


class Even(Sift):
    """Sifting among a client's samples at even places."""

    name: ClassVar[str] = "even"
    begins: ClassVar[int] = 0

    def pick(
        self, pool: Pool, target: Any, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        chosen, kept = super().pick(pool, target, 0, draw, memory)
        rows = chosen.indices[chosen.indices % 2 == self.begins]
        if len(rows) < budget:  # those whose label is likeliest, of this half
            right = pool.right.numpy().copy()
            right[np.arange(len(right)) % 2 != self.begins] = -1
            rows = np.sort(np.argsort(-right, kind="stable")[:budget])
        return unweighted(rows), kept


class Odd(Even):
    """Sifting among a client's samples at odd places."""

    name: ClassVar[str] = "odd"
    begins: ClassVar[int] = 1


def played(name: str, noise: str, seed: int, runs: Path, **changes: Any) -> Any:
    settings = DATA[name]
    return gcfl.run(
        data={**settings["data"], "validation_balanced": True, **(NOISES | HARD)[noise]},
        model=settings["model"],
        rounds=settings["rounds"],
        seed=seed,
        out=runs,
        engine={"evaluate_every": settings["rounds"]},
        **changes,
    )


def by_halves(name: str, noise: str, seed: int, runs: Path) -> dict[str, float]:
    """Each half of the clients' samples judged by a federation that trained on the other one."""
    plain = {"labels": {"guard": 0}}  # a comparison would draw among all samples
    even, odd = (
        gcfl.audit(played(name, noise, seed, runs, method=f"{half.name}+robust", **plain)).sites
        for half in (Even, Odd)
    )
    wrong = [
        np.where(np.arange(len(one)) % 2 == 0, other.wrong, one.wrong)
        for one, other in zip(even, odd, strict=True)
    ]
    return rated(np.concatenate([site.truth for site in even]), np.concatenate(wrong))


def scene(
    name: str, noise: str, seed: int, runs: Path, cross_fit: bool, halves: bool
) -> dict[str, Any]:
    result = played(name, noise, seed, runs)
    audit = gcfl.audit(result)
    prepared, sites = audit.prepared, audit.sites
    setting, clients = prepared.setting, prepared.federation.clients
    truth = np.concatenate([site.truth for site in sites])
    scores = audit.scores()
    found: dict[str, Any] = {"data": name, "noise": noise, "seed": seed}
    found["accuracy"] = result.accuracy
    found["ours"] = {
        **rated(truth, np.concatenate([site.wrong for site in sites])),
        **{key: scores[key] for key in ("rate_error", "covered", "precision", "recall")},
        "width": float(np.mean([site.interval[1] - site.interval[0] for site in sites])),
        "strange_auroc": scores["strange_auroc"],
        "samples": result.cost["samples"]["backward"],
    }
    if halves:
        found["ours, two halves"] = by_halves(name, noise, seed, runs)
    shards = [clients.shard(client) for client in range(len(clients))]
    y = torch.cat([shard.y for shard in shards])
    x = torch.cat([shard.x for shard in shards])
    model = {key: result.model.module.state_dict()[key] for key in setting.network.tree()}
    same = torch.softmax(setting.network.outputs(model, x).logits, dim=1).double().numpy()
    found["cleanlab, same probabilities"] = rated(truth, cleanlab_scores(y.numpy(), same))
    ends = np.cumsum([len(shard) for shard in shards])[:-1]
    by_client = zip(np.split(y.numpy(), ends), np.split(same, ends), strict=True)
    for whose, called in (
        ("", cleanlab_found(y.numpy(), same)),
        (" per client", np.concatenate([cleanlab_found(*one) for one in by_client])),
    ):
        found["cleanlab, same probabilities"] |= {
            f"precision{whose}": float(truth[called].mean()) if called.any() else math.nan,
            f"recall{whose}": float(called[truth].mean()),
        }
    if cross_fit:
        clean = prepared.federation.validation
        apart = cross_fitted(setting, clean, x, y)
        whole = int(EPOCHS * FOLDS * (len(y) * (1 - 1 / FOLDS) + len(clean)))
        found["cleanlab, one place"] = {
            **rated(truth, cleanlab_scores(y.numpy(), apart)),
            "samples": whole,
        }
        alone = [cross_fitted(setting, clean, one.x, one.y) for one in shards]
        parts = [cleanlab_scores(one.y.numpy(), p) for one, p in zip(shards, alone, strict=True)]
        found["cleanlab, each client alone"] = {
            **rated(truth, np.concatenate(parts)),
            "samples": int(EPOCHS * FOLDS * (len(y) * (1 - 1 / FOLDS) + len(clients) * len(clean))),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=sorted(DATA))
    parser.add_argument("--noise", nargs="+", choices=sorted(NOISES | HARD), default=list(NOISES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--no-cross-fit", action="store_true")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("sweeps/audit/audit.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for half in (Even, Odd):
        register(half)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {(one["data"], one["noise"], one["seed"]) for one in map(json.loads, lines)}
    for noise in options.noise:
        for seed in range(options.seeds):
            if (options.data, noise, seed) in done:
                continue
            cross_fit = not options.no_cross_fit
            runs = options.out.parent / "runs"
            found = scene(options.data, noise, seed, runs, cross_fit, options.halves)
            with options.out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            for way, numbers in found.items():
                if isinstance(numbers, dict):
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
                    print(f"{options.data} {noise} {way}: {shown}", flush=True)
    if not sys.stdout.isatty():
        print(options.out)


if __name__ == "__main__":
    main()
