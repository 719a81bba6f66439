"""A look at a federation before training on it: a table, two heatmaps, a sheet of samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from gcfl.base import rng
from gcfl.base.data_types import IntArray
from gcfl.data import Federation, Source, Truth
from gcfl.data.corruption import chosen, drawn
from gcfl.data.noise import KINDS, Kind
from gcfl.engine.prepare import Given, federate
from gcfl.experiment import Experiment
from gcfl.report.matplotlib_ import names_as_they_are, save
from gcfl.report.partition import Counts, class_counts, heat, label_counts
from gcfl.report.plots import Section
from gcfl.report.progress import escape

_PICTURES = ("clients.png", "noise.png", "samples.png")
_MOST_CLIENTS = 20
_MOST_IN_A_GRID = 60
_COLUMNS = 8


def describe(
    experiment: Experiment, out: Path, console: Console, given: Given | None = None
) -> list[Path]:
    """Print who holds what, and write clients.png, noise.png (where the truth is known) and
    samples.png (of images).
    """
    source, federation = federate(experiment, given or Given())
    counts = class_counts(source, federation)
    _print(experiment, source, federation, counts, console)
    out.mkdir(parents=True, exist_ok=True)
    for name in _PICTURES:  # those of a look before this one would pass for today's
        (out / name).unlink(missing_ok=True)
    files = [out / "clients.png"]
    title = f"Samples of each class at each client: {source.name}"
    save([Section(title, [], [heat(counts, federation)])], files[0], "png")
    with names_as_they_are():
        if federation.truth is not None:
            files.append(out / "noise.png")
            _noise(source, federation, federation.truth, files[-1])
        if source.x.ndim == 4 and source.x.shape[1] in (1, 3):
            files.append(out / "samples.png")
            _contact_sheet(experiment, source, federation, files[-1])
    return files


def _print(
    experiment: Experiment, source: Source, federation: Federation, found: Counts, console: Console
) -> None:
    counts, truth, names = found.values, federation.truth, federation.clients.names
    sizes = counts.sum(axis=1)
    shape = " x ".join(map(str, source.x.shape[1:]))
    console.print(
        escape(
            f"{source.name}: {len(source):,} samples of shape {shape} ({source.x.dtype}), seed "
            f"{experiment.seed}"
        )
    )
    console.print(
        escape(
            f"{len(sizes)} clients hold {sizes.sum():,} samples ({sizes.min():,} to "
            f"{sizes.max():,}); "
            f"server {len(federation.validation):,}; test {len(federation.test):,}"
        )
    )
    shown = ", ".join(map(str, federation.classes[:20])) + (
        ", ..." if len(federation.classes) > 20 else ""
    )
    console.print(escape(f"{len(federation.classes)} classes: {shown}"), soft_wrap=True)
    kinds = _kinds(federation)
    table = Table("client", "samples", "classes", "largest class", box=None, header_style="bold")
    for kind in kinds:
        table.add_column(kind)
    for column in table.columns[1:]:
        column.justify = "right"
    for client in range(min(len(sizes), _MOST_CLIENTS)):
        row, total = counts[client], max(1, int(sizes[client]))
        top = int(row.argmax())
        cells = [
            names[client] if names else str(client),
            f"{sizes[client]:,}",
            str(int((row > 0).sum())),
        ]
        cells.append(f"{found.classes[top]} {row[top] / total:.0%}")
        rows = federation.clients.source_rows[client]
        cells += (
            [f"{truth.hit_by(kind)[rows].mean():.1%}" for kind in kinds]
            if truth is not None
            else []
        )
        table.add_row(*map(escape, cells))
    console.print(table)
    if len(sizes) > _MOST_CLIENTS:
        console.print(f"... and {len(sizes) - _MOST_CLIENTS} clients more")
    if truth is None:
        console.print("noise: not known; these labels are yours, and data.noise makes none")
    else:
        order = federation.clients.source_rows.order
        console.print(
            f"noise: {truth.noisy[order].mean():.1%} of the clients' samples"
            + (f" ({', '.join(kinds)})" if kinds else "")
        )


def _kinds(federation: Federation) -> list[Kind]:
    """The noises that hit any client's sample."""
    if federation.truth is None:
        return []
    rows = federation.clients.source_rows.order
    return [kind for kind in KINDS if federation.truth.hit_by(kind)[rows].any()]


def _noise(source: Source, federation: Federation, truth: Truth, path: Path) -> None:
    """How many of a client's samples are noisy, per label; of many clients, of all samples."""
    counts = label_counts(federation)
    every, noisy = counts.values, label_counts(federation, truth.noisy).values
    title = f"Noisy samples {{}}at each client: {source.name}"
    if len(every) <= _MOST_IN_A_GRID:
        shares = np.divide(noisy, every, out=np.full(every.shape, np.nan), where=every > 0)
        table = replace(counts, values=100 * shares)
        plot = heat(table, federation, unit="noisy, % (grey: no samples)", top=100)
        save([Section(title.format("under each label "), [], [plot])], path, "png")
        return
    figure = Figure(figsize=(9, 3.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.plot(100 * noisy.sum(axis=1) / every.sum(axis=1), ".", markersize=3)
    axes.set_ylim(0, 100)
    axes.set_xlabel("client")
    axes.set_ylabel("noisy, %")
    axes.set_title(title.format(""), fontsize=10)
    figure.savefig(path)


def _contact_sheet(
    experiment: Experiment, source: Source, federation: Federation, path: Path
) -> None:
    """A row of clean samples, and for each noise a row of what it hit; for attribute noise, what
    they were before above it.
    """
    rows = _sheet_rows(experiment, source, federation)
    figure = Figure(
        figsize=(1.25 * _COLUMNS + 1.1, 1.6 * len(rows) + 0.3), dpi=130, layout="constrained"
    )
    grid = np.atleast_2d(figure.subplots(len(rows), _COLUMNS))
    low, high = float(source.x.min()), float(source.x.max())
    for line, (title, pictures) in zip(grid, rows, strict=True):
        for axes in line:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_frame_on(False)
        line[0].set_ylabel(title, fontsize=9)
        for axes, (picture, caption) in zip(line[: len(pictures)], pictures, strict=True):
            axes.imshow(
                np.clip((picture.transpose(1, 2, 0).squeeze() - low) / max(high - low, 1e-9), 0, 1),
                cmap="gray",
                vmin=0,
                vmax=1,
            )
            axes.set_title(caption, fontsize=7)
    figure.savefig(path)


Cell = tuple[npt.NDArray[Any], str]


def _sheet_rows(
    experiment: Experiment, source: Source, federation: Federation
) -> list[tuple[str, list[Cell]]]:
    clients, truth = federation.clients, federation.truth
    draw = rng.stream(experiment.seed, "look")
    seen = clients.y.numpy()
    names = [_short(str(name)) for name in federation.classes]

    def some(mask: npt.NDArray[np.bool_]) -> IntArray:
        return np.sort(draw.permutation(np.flatnonzero(mask))[:_COLUMNS])

    def cells(places: IntArray, captions: list[str]) -> list[Cell]:
        return list(zip(clients.x[torch.from_numpy(places)].numpy(), captions, strict=True))

    assigned = np.zeros(len(clients.ids), dtype=bool)
    assigned[clients.partition.order] = True
    clean = some(assigned if truth is None else assigned & ~truth.noisy[clients.ids])
    rows = [
        (
            "as labelled" if truth is None else "clean",
            cells(clean, [names[seen[place]] for place in clean]),
        )
    ]
    for kind in _kinds(federation):
        if truth is None:
            break
        places = some(assigned & truth.hit_by(kind)[clients.ids])
        if kind == "attribute":
            before = source.x[clients.ids[places]]
            corruptions = chosen(source.x, experiment.data.corruptions)
            which, _ = drawn(clients.ids[places], len(corruptions), experiment.seed)
            rows.append(
                ("before", list(zip(before, [names[seen[place]] for place in places], strict=True)))
            )
            rows.append(("attribute", cells(places, [corruptions[kind] for kind in which])))
        else:
            really = source.y[clients.ids[places]]
            captions = [
                f"seen: {names[seen[place]]}\nis: {_short(str(source.classes[label]))}"
                for place, label in zip(places, really, strict=True)
            ]
            rows.append((kind, cells(places, captions)))
    return [row for row in rows if row[1]]


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"
