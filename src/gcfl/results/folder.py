"""A run folder is the whole truth of a run.

config.toml        the resolved configuration
environment.json   versions and hardware
clients.json       names (where the data has them) and sizes
rounds.jsonl       one line per round
coresets/          round-000010.safetensors: who chose which samples in that round
checkpoint/        what the next round needs
model.safetensors  the final model, with its classes and normalisation
summary.json       the result; written last, so its presence means: finished
sites.json         what sites told of their labels (audit.share), of a run on Flower
energy.json        what was measured of its energy, if anything was
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Coreset, Groups
from gcfl.base.errors import RunError
from gcfl.base.files import append_line, locked, read_json, read_lines, write_atomic, write_json
from gcfl.base.record import RoundRecord

KINDS = ("select", "train", "aggregate", "evaluate")
METHOD_KINDS = KINDS[:3]  # evaluation is not the method's


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.environment = path / "environment.json"
        self.clients = path / "clients.json"
        self.rounds = path / "rounds.jsonl"
        self.coresets = path / "coresets"
        self.checkpoint = path / "checkpoint"
        self.model = path / "model.safetensors"
        self.summary = path / "summary.json"
        self.sites = path / "sites.json"
        self.energy = path / "energy.json"

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run, or an error that says what is there instead."""
        if not path.exists():
            raise RunError(f"{path} does not exist")
        folder = cls(path)
        if not folder.config.exists():
            raise RunError(f"{path} is not a run folder: it has no config.toml")
        return folder

    @property
    def finished(self) -> bool:
        return self.summary.exists()

    def create(
        self, config: str, environment: Mapping[str, Any], clients: Mapping[str, Any] | None = None
    ) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.coresets.mkdir(exist_ok=True)
        write_json(self.environment, environment)
        write_json(self.clients, clients or {})
        write_atomic(self.config, config.encode())

    def set_aside(self) -> None:
        """Move an earlier run, whole, to a folder of its own beside it: nothing is lost."""
        if not self.path.exists():
            return
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.old{number}")).exists():
            number += 1
        with locked(self.path):
            self.path.rename(aside)

    def add_round(self, record: RoundRecord) -> None:
        append_line(self.rounds, record.to_json())

    def read_table(self, path: Path) -> dict[str, Any]:
        """What is in one of the JSON files, which older runs may lack."""
        found = read_json(path) if path.exists() else {}
        if not isinstance(found, dict):
            raise RunError(f"{path} is not a table")
        return found

    def read_clients(self) -> list[dict[str, Any]]:
        """Name and samples of each client; empty where that is not known."""
        found = self.read_table(self.clients)
        sizes = found.get("sizes") or []
        names = found.get("names") or [str(client) for client in range(len(sizes))]
        return [{"name": name, "samples": size} for name, size in zip(names, sizes, strict=True)]

    def records(self) -> list[RoundRecord]:
        """The rounds so far, written by this version or an older one."""
        found = []
        for place, line in enumerate(read_lines(self.rounds)):
            try:
                found.append(RoundRecord.from_json(line))
            except ValueError as error:
                raise RunError(
                    f"line {place + 1} of {self.rounds} is not the record of a round: {error}"
                ) from None
            if found[-1].round != place:
                raise RunError(
                    f"line {place + 1} of {self.rounds} is round {found[-1].round}, not {place}"
                )
        return found

    def forget_from(self, round: int) -> None:
        """Drop records and coresets of rounds that will be played again, and a torn last line. The
        other lines stay in the form in which they were written.
        """
        there = len(self.records())
        if there < round:
            raise RunError(f"{self.rounds} has {there} of the {round} rounds before the checkpoint")
        if self.rounds.exists():
            lines = [json.dumps(line) + "\n" for line in read_lines(self.rounds)[:round]]
            write_atomic(self.rounds, "".join(lines).encode())
        for path in self.coresets.glob("round-*.safetensors"):
            if _round_of(path) >= round:
                path.unlink()

    def add_coresets(self, round: int, chosen: Mapping[int, Coreset]) -> None:
        """`chosen` by client, with sample ids (rows of the source) as indices."""
        clients = sorted(chosen)
        lengths = [len(chosen[client]) for client in clients]
        ids = np.concatenate([chosen[client].indices for client in clients])
        weights = np.concatenate([chosen[client].weights for client in clients])
        tree = {
            "clients": torch.tensor(clients, dtype=torch.int64),
            "offsets": torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int64),
            "ids": torch.from_numpy(ids.astype(np.int64)),
            "weights": torch.from_numpy(weights.astype(np.float64)),
        }
        write_atomic(self.coresets / f"round-{round:06d}.safetensors", encode({"coresets": tree}))

    def read_coresets(self) -> dict[int, dict[int, Coreset]]:
        """By round, then client: the coresets chosen, with sample ids as indices."""
        found: dict[int, dict[int, Coreset]] = {}
        for path in sorted(self.coresets.glob("round-*.safetensors")):
            tree = decode(path.read_bytes(), str(path))[0]["coresets"]
            ids, weights = tree["ids"].numpy(), tree["weights"].numpy()
            bounds = pairwise(tree["offsets"].tolist())
            found[_round_of(path)] = {
                client: Coreset(ids[low:high], weights[low:high])
                for client, (low, high) in zip(tree["clients"].tolist(), bounds, strict=True)
            }
        return found

    def finish(self, model: Groups, meta: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        write_atomic(self.model, encode(model, meta))
        write_json(self.summary, summary)

    def read_model(self) -> tuple[Groups, dict[str, Any]]:
        if not self.model.exists():
            raise RunError(
                f"{self.path} has no model yet: the run is not finished (gcfl resume {self.path})"
            )
        return decode(self.model.read_bytes(), str(self.model))


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


_PACKAGES = ("gcfl", "torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors")


def environment_of(device: str, workers: int) -> dict[str, Any]:
    """Versions, processor, memory; nothing that names a person or a machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "device": device if device == "cpu" else f"{device} ({_accelerator(device)})",
        "workers": workers,
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _accelerator(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def total_cost(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """Samples, steps, bytes and seconds over all rounds. `cpu` is select + train + aggregate:
    evaluation is not the method's.
    """
    traffic: dict[str, Counter[str]] = {"down": Counter(), "up": Counter()}
    for record in records:
        traffic["down"].update(record.bytes.down)
        traffic["up"].update(record.bytes.up)
    cpu = {kind: sum(getattr(record.time, kind).cpu for record in records) for kind in KINDS}
    return {
        "samples": {
            "forward": sum(record.samples.forward for record in records),
            "backward": sum(record.samples.backward for record in records),
        },
        "steps": sum(record.steps for record in records),
        "bytes": {direction: dict(names) for direction, names in traffic.items()},
        "cpu_seconds": cpu,
        "cpu": sum(cpu[kind] for kind in METHOD_KINDS),
        "wall": sum(record.time.round.wall for record in records),
    }


def keeps(settings: Mapping[str, Any]) -> str:
    """last or best, by a run's settings; fine-tuned at the end, it is the last round."""
    clean = settings.get("clean", {})
    return "last" if clean.get("fine_tune") == "end" else str(clean.get("keep", "last"))


def kept(records: Sequence[RoundRecord], keep: str = "last") -> RoundRecord | None:
    """The record of the model that the run leaves: the last one evaluated, or that with the lowest
    loss on what was held out; None where no round was evaluated.
    """
    scored = [record for record in records if record.accuracy is not None]
    judged = [(record.validation_loss, record) for record in scored]
    losses = [(loss, record) for loss, record in judged if loss is not None]
    if keep == "best" and losses:
        return min(losses, key=lambda pair: pair[0])[1]
    return scored[-1] if scored else None


def summarise(records: Sequence[RoundRecord], keep: str = "last") -> dict[str, Any]:
    """Final and best accuracy, the last clean share, what was left out, and the cost."""
    final = kept(records, keep)
    if final is None:
        return {"rounds": len(records), "cost": total_cost(records)}
    best = max(records, key=lambda record: -1.0 if record.accuracy is None else record.accuracy)
    return {
        "rounds": len(records),
        "kept_round": final.round,
        "accuracy": final.accuracy,
        "loss": final.loss,
        "best_accuracy": best.accuracy,
        "best_round": best.round,
        "clean_share": records[-1].coreset.clean_share,
        "left_out": sum(len(record.left_out) for record in records),
        "cost": total_cost(records),
    }
