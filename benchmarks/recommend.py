"""How good `gcfl recommend` is: its choice against the full runs of all candidates.

    python benchmarks/recommend.py                                # all scenes, seed 0
    python benchmarks/recommend.py digits blobs --seeds 0 1       # some, with more seeds
    python benchmarks/recommend.py --noise 0 0.4 --out benchmark
    python benchmarks/recommend.py digits mnist --kind pair --noise 0.55    # where robust fails

For each scene, noise and seed: the recommendation, and the full run of every candidate (and of GCFL
with the same help, which is not one of them) with its accuracy on the test set. The warm start is
chosen once, by robust, and the others get what it found: it depends on the clean set alone. Told
are: how often the choice is within a point of the best, how far off it is on average, what the
recommendation cost as a share of the full run of what it recommends (CPU-seconds, and samples
trained on), and the same for always taking one method. Runs are kept below --out, and a line of
JSON per case in its results.jsonl: what is there already is not played again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

import gcfl
from gcfl.api.candidates import KNOWN

SCENES: dict[str, dict[str, Any]] = {
    "digits": {
        "data": {"source": "digits", "validation": 100, "test": 600},
        "model": {"name": "mlp"},
        "train": {"lr": 0.05, "epochs": 5},
        "rounds": 30,
    },
    "blobs": {
        "data": {"source": "blobs", "samples": 7000, "validation": 250, "test": 3000},
        "model": {"name": "logistic"},
        "train": {"lr": 0.1},
        "rounds": 50,
    },
    "table": {  # breast cancer
        "data": {"clients": 5, "validation": 60, "test": 200},
        "model": {"name": "mlp", "hidden": [32]},
        "train": {"lr": 0.03, "epochs": 5},
        "rounds": 30,
    },
    "mnist": {
        "data": {"source": "mnist", "samples": 3000, "validation": 200, "test": 3000},
        "model": {"name": "mlp"},
        "train": {"lr": 0.03},
        "rounds": 30,
    },
    "cifar": {
        "data": {"source": "cifar10", "samples": 4000, "validation": 300, "test": 2000},
        "model": {"name": "cnn"},
        "train": {"lr": 0.03},
        "rounds": 40,
    },
}
METHODS: dict[str, dict[str, Any]] = {one.name: dict(one.settings) for one in KNOWN}
GCFL = {"method": "gcfl+robust", "train.loss": "cross-entropy"}
ONCE = {"evaluate_every": 10**6, "checkpoint_every": 10**6}


def settings_of(scene: str, noise: float, seed: int, kind: str) -> dict[str, Any]:
    found = {**SCENES[scene], "seed": seed}
    found["data"] = {"clients": 10, "noise": noise, "noise_kind": kind, **found["data"]}
    if scene == "table":
        found["data"]["source"] = load_breast_cancer(return_X_y=True)
    return found


def changed(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Nested settings with others by dotted name over them."""
    found = {name: dict(one) if isinstance(one, dict) else one for name, one in settings.items()}
    for name, value in changes.items():
        section, _, leaf = name.rpartition(".")
        (found.setdefault(section, {}) if section else found)[leaf] = value
    return found


def case(scene: str, noise: float, seed: int, kind: str, out: Path) -> dict[str, Any]:
    settings = settings_of(scene, noise, seed, kind)
    runs, pinned = {}, {}
    methods = METHODS if scene == "cifar" else {**METHODS, "gcfl": GCFL}
    for name, changes in methods.items():
        more = {} if name == "server-only" else pinned
        run = gcfl.run(out=out / "full", **changed(settings, {**changes, **more}), engine=ONCE)
        if note := run.rounds[0].chosen:
            pinned = {"clean.warm_start": int(note["epochs"]), "clean.lr": note["lr"]}
        runs[name] = run
    found = gcfl.recommend(out=out / "trials", **settings)
    # What choosing the warm start cost robust is part of every full run but that without clients.
    choosing = start_cost(runs["robust"]) - start_cost(runs["fedavg"])
    extra = np.zeros(2) if found.choice.name in ("robust", "server-only") else choosing
    full = total(runs[found.choice.name]) + extra
    return {
        "scene": scene,
        "noise": noise,
        "seed": seed,
        "kind": kind,
        "accuracy": {name: run.accuracy for name, run in runs.items()},
        "choice": found.choice.name,
        "loss": {trial.name: trial.loss for trial in found.trials},
        "cpu": found.cost.cpu,
        "share": dict(zip(("cpu", "samples"), (total_of(found) / full).tolist(), strict=True)),
        "expected": dict(
            zip(
                ("cpu", "samples"),
                ([found.expected.cpu, found.expected.samples] / full).tolist(),
                strict=True,
            )
        ),
    }


def start_cost(run: gcfl.Run) -> Any:
    """Of the first round: CPU-seconds, samples trained on."""
    first = run.rounds[0]
    return np.array([first.time.train.cpu, first.samples.backward])


def total(run: gcfl.Run) -> Any:
    return np.array([run.cost["cpu"], run.cost["samples"]["backward"]])


def total_of(found: Any) -> Any:
    return np.array([found.cost.cpu, found.cost.samples])


def regret(one: dict[str, Any], name: str) -> float:
    """Points of accuracy behind the best of all."""
    return 100 * (max(one["accuracy"].values()) - one["accuracy"][name])


def told(cases: list[dict[str, Any]]) -> None:
    names = [*METHODS, "gcfl"]
    print(f"\n| | {' | '.join(names)} | taken | behind the best | of a full run's samples | CPU |")
    print(f"|---{'|---' * (len(names) + 4)}|")
    for one in cases:
        accuracy = [f"{100 * one['accuracy'].get(name, np.nan):.1f}" for name in names]
        head = f"{one['scene']}, {one['noise']:.0%}, seed {one['seed']}"
        tail = f"{regret(one, one['choice']):.1f} | {one['share']['samples']:.2f}"
        row = " | ".join([head, *accuracy, one["choice"], tail, f"{one['share']['cpu']:.2f}"])
        print(f"| {row} |")
    print("\n| taken | within a point of the best | behind on average | at worst |")
    print("|---|---|---|---|")
    ways = {"what gcfl recommend says": [regret(one, one["choice"]) for one in cases]}
    ways |= {f"always {name}": [regret(one, name) for one in cases] for name in METHODS}
    for way, behind in ways.items():
        within = np.mean(np.array(behind) <= 1 + 1e-9)
        print(f"| {way} | {within:.0%} | {np.mean(behind):.2f} | {max(behind):.1f} |")
    for scene in dict.fromkeys(one["scene"] for one in cases):
        of_it = [one for one in cases if one["scene"] == scene]
        shares = [np.mean([one["share"][kind] for one in of_it]) for kind in ("samples", "cpu")]
        print(f"{scene}: costs {shares[0]:.2f} of a full run's samples, {shares[1]:.2f} of its CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="*", default=list(SCENES), help=f"of {', '.join(SCENES)}")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.2, 0.4, 0.6])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kind", default="uniform", help="data.noise_kind")
    parser.add_argument("--out", type=Path, default=Path("recommend-benchmark"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "results.jsonl"
    there = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {tuple(one[name] for name in ("scene", "noise", "seed", "kind")): one for one in there}
    cases = []
    for seed in options.seeds:
        for scene in options.scenes:
            for noise in options.noise:
                one = known.get((scene, noise, seed, options.kind))
                if one is None:
                    one = case(scene, noise, seed, options.kind, options.out)
                    with file.open("a") as lines:
                        lines.write(json.dumps(one) + "\n")
                    shown = f"{one['choice']}, {regret(one, one['choice']):.1f} points behind"
                    print(f"{scene}, {noise:.0%}, seed {seed}: {shown}", flush=True)
                cases.append(one)
    told(cases)


if __name__ == "__main__":
    main()
