"""A look at a federation before anything is trained on it: a table, two heatmaps, a sheet of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gcfl.data import Federation, Source
from gcfl.data.noise import KINDS, Kind
from gcfl.experiment import Experiment
from gcfl.prepare import Given, federate
from gcfl.types import IntArray

_MOST_CLIENTS = 20
_COLUMNS = 8
_LARGEST_LABELLED = 14


def describe(experiment: Experiment, out: Path, console: Console, given: Given | None = None) -> list[Path]:
    """Print who holds what, and write clients.png, noise.png (where the truth is known) and samples.png (of images)."""
    source, federation = federate(experiment, given or Given())
    _print(experiment, source, federation, console)
    out.mkdir(parents=True, exist_ok=True)
    counts = _counts(federation)
    files = [out / "clients.png"]
    _heatmap(counts, federation, "samples", f"Samples of each class at each client: {source.name}", files[0], share=False)
    if federation.truth is not None:
        files.append(out / "noise.png")
        noisy = _counts(federation, federation.truth.noisy)
        shares = np.divide(noisy, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        _heatmap(
            shares, federation, "noisy, %", f"Noisy samples under each label at each client: {source.name}", files[1], share=True
        )
    if source.x.ndim == 4 and source.x.shape[1] in (1, 3):
        files.append(out / "samples.png")
        _contact_sheet(source, federation, experiment.seed, files[-1])
    return files


def _counts(federation: Federation, mask: npt.NDArray[np.bool_] | None = None) -> IntArray:
    """(clients, classes) how many samples a client has under each observed label; mask (by row of the source) picks some."""
    clients = federation.clients
    table = np.zeros((len(clients), len(federation.classes)), dtype=np.int64)
    order = clients.partition.order
    weights = np.ones(len(order), dtype=np.int64) if mask is None else mask[clients.ids[order]].astype(np.int64)
    np.add.at(table, (clients.partition.owners, clients.y.numpy()[order]), weights)
    return table


def _name(federation: Federation, client: int) -> str:
    return federation.clients.names[client] if federation.clients.names else str(client)


def _print(experiment: Experiment, source: Source, federation: Federation, console: Console) -> None:
    counts, truth = _counts(federation), federation.truth
    sizes = counts.sum(axis=1)
    shape = " x ".join(map(str, source.x.shape[1:]))
    console.print(escape(f"{source.name}: {len(source):,} samples of shape {shape} ({source.x.dtype}), seed {experiment.seed}"))
    console.print(
        escape(
            f"{len(sizes)} clients hold {sizes.sum():,} samples ({sizes.min():,} to {sizes.max():,}); "
            f"server {len(federation.validation):,}; test {len(federation.test):,}"
        )
    )
    shown = ", ".join(map(str, federation.classes[:20])) + (", ..." if len(federation.classes) > 20 else "")
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
        cells = [_name(federation, client), f"{sizes[client]:,}", str(int((row > 0).sum()))]
        cells.append(f"{federation.classes[top]} {row[top] / total:.0%}")
        rows = federation.clients.source_rows[client]
        cells += [f"{truth.hit_by(kind)[rows].mean():.1%}" for kind in kinds] if truth is not None else []
        table.add_row(*map(escape, cells))
    console.print(table)
    if len(sizes) > _MOST_CLIENTS:
        console.print(f"... and {len(sizes) - _MOST_CLIENTS} clients more")
    if truth is None:
        console.print("noise: not known; these labels are yours, and data.noise makes none")
    else:
        order = federation.clients.source_rows.order
        console.print(
            f"noise: {truth.noisy[order].mean():.1%} of the clients' samples" + (f" ({', '.join(kinds)})" if kinds else "")
        )


def _kinds(federation: Federation) -> list[Kind]:
    """The noises that hit any client's sample."""
    if federation.truth is None:
        return []
    rows = federation.clients.source_rows.order
    return [kind for kind in KINDS if federation.truth.hit_by(kind)[rows].any()]


def _heatmap(values: npt.NDArray[Any], federation: Federation, unit: str, title: str, path: Path, *, share: bool) -> None:
    """Classes down, clients across; numbers in the cells while they can be read."""
    clients, classes = values.shape
    wide, high = float(np.clip(0.55 * clients + 2.6, 5.5, 16)), float(np.clip(0.36 * classes + 1.6, 3, 14))
    figure = Figure(figsize=(wide, high), dpi=150, layout="constrained")
    axes = figure.subplots()
    shown = 100 * values if share else values
    image = axes.imshow(shown.T, aspect="auto", cmap="Blues", vmin=0, vmax=100 if share else None, interpolation="nearest")
    if max(clients, classes) <= _LARGEST_LABELLED:
        top = 100 if share else max(1, np.nanmax(shown))
        for client in range(clients):
            for label in range(classes):
                value = shown[client, label]
                if np.isfinite(value):
                    colour = "white" if value > 0.6 * top else "black"
                    axes.text(client, label, f"{value:.0f}", ha="center", va="center", fontsize=8, color=colour)
    step = max(1, clients // 24)
    places = range(0, clients, step)
    names = [_name(federation, client) for client in places]
    long = max(map(len, names)) > 4
    axes.set_xticks(list(places), names, rotation=45 if long else 0, ha="right" if long else "center", fontsize=8)
    step = max(1, classes // 36)
    axes.set_yticks(range(0, classes, step), [str(name) for name in federation.classes[::step]], fontsize=8)
    axes.set_xlabel("client")
    axes.set_ylabel("label as the client sees it")
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, label=unit)
    figure.savefig(path)


def _contact_sheet(source: Source, federation: Federation, seed: int, path: Path) -> None:
    """A row of clean samples, and for each noise a row of what it hit; for attribute noise, what they were before above it."""
    rows = _sheet_rows(source, federation, np.random.Generator(np.random.Philox(seed)))
    figure = Figure(figsize=(1.25 * _COLUMNS + 1.1, 1.6 * len(rows) + 0.3), dpi=130, layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(rows), _COLUMNS))
    low, high = float(source.x.min()), float(source.x.max())
    for line, (title, pictures) in zip(grid, rows, strict=True):
        for axes in line:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_frame_on(False)
        line[0].set_ylabel(title, fontsize=9)
        for axes, (picture, caption) in zip(line, pictures, strict=False):
            axes.imshow(
                np.clip((picture.transpose(1, 2, 0).squeeze() - low) / max(high - low, 1e-9), 0, 1), cmap="gray", vmin=0, vmax=1
            )
            axes.set_title(caption, fontsize=7)
    figure.savefig(path)


Cell = tuple[npt.NDArray[Any], str]


def _sheet_rows(source: Source, federation: Federation, draw: np.random.Generator) -> list[tuple[str, list[Cell]]]:
    clients, truth = federation.clients, federation.truth
    seen = clients.y.numpy()
    names = [_short(str(name)) for name in federation.classes]

    def some(mask: npt.NDArray[np.bool_]) -> IntArray:
        return np.sort(draw.permutation(np.flatnonzero(mask))[:_COLUMNS])

    def cells(places: IntArray, captions: list[str]) -> list[Cell]:
        return list(zip(clients.x[torch.from_numpy(places)].numpy(), captions, strict=True))

    held = np.zeros(len(clients.ids), dtype=bool)
    held[clients.partition.order] = True
    clean = some(held if truth is None else held & ~truth.noisy[clients.ids])
    rows = [("as labelled" if truth is None else "clean", cells(clean, [names[seen[place]] for place in clean]))]
    for kind in _kinds(federation):
        if truth is None:
            break
        places = some(held & truth.hit_by(kind)[clients.ids])
        if kind == "attribute":
            before = source.x[clients.ids[places]]
            rows.append(("before", list(zip(before, [names[seen[place]] for place in places], strict=True))))
            rows.append(("attribute", cells(places, [names[seen[place]] for place in places])))
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
