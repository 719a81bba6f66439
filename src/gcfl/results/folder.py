"""A run folder is the whole truth of a run.

config.toml        the resolved configuration
environment.json   versions and hardware
clients.json       names (where the data has them) and sizes
rounds.jsonl       one line per round
coresets/          round-000010.safetensors: who chose which samples in that round
checkpoint/        what the next round needs
model.safetensors  the final model, with its classes and normalisation
summary.json       the result; written last, so its presence means: finished
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Coreset, Groups
from gcfl.base.errors import RunError
from gcfl.base.files import append_line, locked, read_json, read_lines, write_atomic, write_json
from gcfl.base.record import RoundRecord


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
        """Move an earlier run, whole and at once, to a folder of its own beside it, so that nothing
        is lost.
        """
        if not self.path.exists():
            return
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.old{number}")).exists():
            number += 1
        with locked(self.path):
            self.path.rename(aside)

    def add_round(self, record: RoundRecord) -> None:
        append_line(self.rounds, record.to_json())

    def read_clients(self) -> list[dict[str, Any]]:
        """Name and samples of each client."""
        held = read_json(self.clients)
        names = held.get("names") or [str(client) for client in range(len(held["sizes"]))]
        return [
            {"name": name, "samples": size} for name, size in zip(names, held["sizes"], strict=True)
        ]

    def records(self) -> list[dict[str, Any]]:
        """The rounds so far, each with every entry of `RoundRecord`."""
        lines = read_lines(self.rounds)
        for number, line in enumerate(lines):
            if (
                not isinstance(line, dict)
                or not RoundRecord.__dataclass_fields__.keys() <= line.keys()
            ):
                raise RunError(f"line {number + 1} of {self.rounds} is not the record of a round")
        return lines

    def forget_from(self, round: int) -> None:
        """Drop records and coresets of rounds that will be played again, and a torn last line."""
        kept = [record for record in self.records() if record["round"] < round]
        if len(kept) != round:
            raise RunError(
                f"{self.rounds} has {len(kept)} of the {round} rounds before the checkpoint"
            )
        if self.rounds.exists():
            write_atomic(
                self.rounds, "".join(json.dumps(record) + "\n" for record in kept).encode()
            )
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
            offsets, ids, weights = (
                tree["offsets"].tolist(),
                tree["ids"].numpy(),
                tree["weights"].numpy(),
            )
            found[_round_of(path)] = {
                client: Coreset(ids[low:high], weights[low:high])
                for client, low, high in zip(
                    tree["clients"].tolist(), offsets, offsets[1:], strict=False
                )
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
