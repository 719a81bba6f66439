"""The demo: two scenes with 40% wrong labels, ten clients, several seeds, and every method's
accuracy next to its cost.

Every cell is an ordinary run in an ordinary run folder, so a demo that was stopped continues, and
one that is finished only reads.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gcfl import api
from gcfl.base.errors import Interrupted
from gcfl.report.figures import Curve, Panel, save_curves
from gcfl.report.terminal import human

Settings = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """One experiment: what is the same for all methods."""

    name: str
    title: str
    floor: float  # where the figure's accuracy axis starts
    settings: Settings


SCENES = (
    Scene(
        "digits",
        "digits, MLP",
        0.3,
        {
            # Ten local epochs: enough for the network to learn wrong labels by heart.
            "data": {"source": "digits", "clients": 10, "noise": 0.4, "validation": 100},
            "model": {"name": "mlp"},
            "rounds": 40,
            "train": {"lr": 0.05, "epochs": 10},
            "coreset": {"budget": 0.1, "every": 10},
        },
    ),
    Scene(
        "blobs",
        "ten Gaussian blobs, logistic regression",
        0.8,
        {
            # The paper's motivating experiment; lr 0.1, since at its 0.01 a coreset of 10% has not
            # converged after 250 rounds.
            "data": {
                "source": "blobs",
                "clients": 10,
                "noise": 0.4,
                "samples": 5000,
                "validation": 250,
            },
            "model": {"name": "logistic"},
            "rounds": 100,
            "train": {"lr": 0.1},
            "coreset": {"budget": 0.1, "every": 10},
        },
    ),
)

METHODS: dict[str, Settings] = {
    "FedAvg": {"method": "fedavg"},
    "Random": {"method": "random"},
    "GCFL (correlation)": {"method": "gcfl"},
    "GCFL (distance)": {"method": "gcfl", "coreset": {"score": "distance"}},
    "server only": {"method": "server-only"},
    "Skyline": {"method": "skyline"},
}


@dataclass(frozen=True)
class Cell:
    """One run of the demo."""

    scene: Scene
    method: str
    seed: int
    rounds: int | None

    def settings(self) -> Settings:
        shared, own = self.scene.settings, METHODS[self.method]
        coreset = {**shared["coreset"], **own.get("coreset", {})}
        return {
            **shared,
            **own,
            "coreset": coreset,
            "seed": self.seed,
            "rounds": self.rounds or shared["rounds"],
        }


def demo(out: Path, seeds: int, rounds: int | None, quiet: bool) -> None:
    """Run what is missing, print a table per scene, write the figure, say what to try next."""
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=110)
    cells = [
        Cell(scene, method, seed, rounds)
        for seed in range(seeds)
        for scene in SCENES
        for method in METHODS
    ]
    results = _run_all(cells, out, quiet)
    for scene in SCENES:
        console.print(
            _table(
                scene,
                {
                    method: [results[scene.name, method, seed] for seed in range(seeds)]
                    for method in METHODS
                },
            )
        )
    figure = out / "demo.png"
    save_curves([_panel(scene, results, seeds) for scene in SCENES], figure)
    console.print(
        "clean: share of clean labels among the samples trained on last; trained on: samples, "
        "summed over rounds\n"
    )
    console.print(f"figure: {figure}", soft_wrap=True)
    example = results["digits", "GCFL (distance)", 0].folder
    gcfl = "gcfl" if shutil.which("gcfl") else sys.argv[0]  # the command may not be on the path
    console.print(f"one of the runs:    {gcfl} show {example}", soft_wrap=True)
    console.print(
        f"on your own terms:  {gcfl} run --method gcfl --data digits --noise 0.3 --lr 0.05 "
        "--epochs 10 --coreset.score distance",
        soft_wrap=True,
    )
    console.print("on your own data:   see 'Your own data and model' in the README", soft_wrap=True)


def _run_all(cells: list[Cell], out: Path, quiet: bool) -> dict[tuple[str, str, int], api.Result]:
    results = {}
    jobs = min(len(cells), os.cpu_count() or 1)
    columns = (
        TextColumn("runs"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with (
        ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool,
        Progress(*columns, console=Console(file=sys.stderr), disable=quiet, transient=True) as bar,
    ):
        task = bar.add_task("runs", total=len(cells))
        pending = {pool.submit(_run_cell, cell, out): cell for cell in cells}
        try:
            for done in as_completed(pending):
                cell = pending[done]
                results[cell.scene.name, cell.method, cell.seed] = api.load(done.result())
                bar.advance(task)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.kill()  # runs survive it
            raise Interrupted(
                "stopped; what was finished is kept, and gcfl demo goes on from there"
            ) from None
        except Exception:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _run_cell(cell: Cell, out: Path) -> str:
    # the same warning from many runs at once helps nobody
    logging.getLogger("gcfl").setLevel(logging.ERROR)
    return str(api.run(out=out / "runs", **cell.settings()).folder)


def _table(scene: Scene, results: dict[str, list[api.Result]]) -> Table:
    seeds = len(next(iter(results.values())))
    table = Table(
        title=f"{scene.title}: 10 clients, 40% wrong labels, {seeds} seeds", title_justify="left"
    )
    for name in ("method", "accuracy", "clean", "CPU s", "/FedAvg", "trained on", "sent"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    full = mean(result.cost["cpu"] for result in results["FedAvg"])
    for method, runs in results.items():
        cost = [run.cost for run in runs]
        shares = [run.rounds[-1]["coreset"]["clean_share"] for run in runs]
        cpu = mean(one["cpu"] for one in cost)
        traffic = mean(sum(sum(names.values()) for names in one["bytes"].values()) for one in cost)
        table.add_row(
            method,
            plus_minus([run.accuracy for run in runs]),
            "-" if shares[0] is None else f"{mean(shares):.0%}",
            f"{cpu:.2f}",
            f"{cpu / full:.2f}",
            f"{mean(one['samples'].get('backward', 0) for one in cost):,.0f}",
            human(traffic),
        )
    return table


def plus_minus(values: list[float]) -> str:
    """'0.873 ± 0.012' over seeds (sample standard deviation)."""
    return f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"


def _panel(scene: Scene, results: dict[tuple[str, str, int], api.Result], seeds: int) -> Panel:
    curves = [
        Curve(method, [results[scene.name, method, seed].curve for seed in range(seeds)])
        for method in METHODS
    ]
    return Panel(
        f"{scene.title}\n10 clients, 40% wrong labels; bands: ± sd of {seeds} seeds",
        "round",
        "accuracy on clean test data",
        scene.floor,
        curves,
    )
