"""A run folder is the whole truth of a run.

config.toml        the resolved configuration
environment.json   versions and hardware
clients.json       names (where the data has them) and sizes; whose values a table's model knows
rounds.jsonl       one line per round
coresets/          round-000010.safetensors: who chose which samples in that round
checkpoint/        what the next round needs
model.safetensors  the final model, with its classes and normalisation
summary.json       the result and all files' digests; written last: its presence means finished
sites.json         what sites told of their labels (audit.share), of a run on Flower
nodes.json         which node is which client, of a run on Flower
energy.json        what was measured of its energy, if anything was
"""

from __future__ import annotations

from collections.abc import Mapping
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
from gcfl.base.seal import digest, file_digest, read_sealed, sealed
from gcfl.base.text import count
from gcfl.results.digests import MANIFEST, Digests, compare, coreset_files, missing


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
        self.nodes = path / "nodes.json"
        self.sites = path / "sites.json"
        self.energy = path / "energy.json"
        self._written = Digests()
        self._summary_stamp: tuple[int, int] | None = None
        self._summary_table: dict[str, Any] = {}

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run, or an error that says what is there instead. Its settings are checked;
        other files when they are read.
        """
        if not path.exists():
            raise RunError(f"{path} does not exist")
        folder = cls(path)
        if not folder.config.exists():
            raise RunError(f"{path} is not a run folder: it has no config.toml")
        folder._check(folder.config)
        return folder

    @property
    def finished(self) -> bool:
        """Whether there is a summary, which must be whole."""
        return self.summary.exists() and bool(self._read_summary())

    @property
    def digests(self) -> dict[str, str] | None:
        """What a finished run says that its files hold; None of an older one, or unfinished."""
        return self._read_summary().get("files") if self.summary.exists() else None

    @property
    def client_test(self) -> dict[str, list[Any]]:
        """What the summary says of each client's own test; empty where none was asked."""
        found = self._read_summary().get("clients", {}) if self.summary.exists() else {}
        return found if isinstance(found, dict) else {}

    def _read_summary(self) -> dict[str, Any]:
        """Read once, unless it is written anew: every other file is checked against it."""
        status = self.summary.stat()
        stamp = status.st_mtime_ns, status.st_size
        if stamp == self._summary_stamp:
            return self._summary_table
        found, has_digest = read_sealed(self.summary)
        files = found.get("files")
        if not isinstance(found.get("rounds"), int) or has_digest != isinstance(files, dict):
            raise RunError(f"{self.summary} is damaged: it is not the summary of a run")
        self._summary_stamp, self._summary_table = stamp, found
        return found

    def _check(self, path: Path) -> None:
        """An error where a finished run's file is not what it was."""
        digests = self.digests
        if digests is not None:
            compare(self.path, digests, path.name)

    def verify(self) -> list[str]:
        """An error where a file of a finished run is not what it was; returns what is missing: a
        run may be kept without its model.
        """
        for path in (self.nodes, self.sites, self.energy):
            self.read_later(path)
        digests = self.digests
        return [] if digests is None else missing(self.path, digests)

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
        self._written.add_line(append_line(self.rounds, record.to_json()))

    def read_table(self, path: Path) -> dict[str, Any]:
        """What is in one of the JSON files, which older runs may lack."""
        self._check(path)
        found = read_json(path) if path.exists() else {}
        if not isinstance(found, dict):
            raise RunError(f"{path} is not a table")
        return found

    def read_later(self, path: Path) -> dict[str, Any]:
        """What is in a table that came after the summary, and carries its own digest, if it did."""
        return read_sealed(path)[0] if path.exists() else {}

    def read_clients(self) -> list[dict[str, Any]]:
        """Name and samples of each client; empty where that is not known."""
        found = self.read_table(self.clients)
        sizes = found.get("sizes") or []
        names = found.get("names") or [str(client) for client in range(len(sizes))]
        if len(names) != len(sizes):
            raise RunError(f"{self.clients} names {len(names)} clients and sizes of {len(sizes)}")
        return [{"name": name, "samples": size} for name, size in zip(names, sizes, strict=True)]

    @property
    def encoded_by(self) -> str | None:
        """Whose values and medians the encoding of a table took: "clean" or "all"; or nobody's."""
        return self.read_table(self.clients).get("encoded_by")

    def records(self) -> list[RoundRecord]:
        """The rounds so far, written by this version or an older one."""
        self._check(self.rounds)
        found = []
        for place, (line, _) in enumerate(read_lines(self.rounds)):
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
        told = self._read_summary()["rounds"] if self.summary.exists() else len(found)
        if told != len(found):
            raise RunError(
                f"{self.rounds} is damaged: it has {len(found)} of {count(told, 'round')}"
            )
        return found

    def before(
        self, round: int, covers: Mapping[str, str]
    ) -> tuple[list[bytes], list[Path], Digests]:
        """Lines and coresets of the rounds before this one, with their digests; an error where they
        are not what the checkpoint `covers`.
        """
        there = len(self.records())
        if there < round:
            due = f"the {count(round, 'round')} before the checkpoint"
            raise RunError(f"{self.rounds} has {there} of {due}")
        lines = [line for _, line in read_lines(self.rounds)[:round]]
        kept = [path for path in coreset_files(self.coresets) if _round_of(path) < round]
        found = Digests.of(self.path, lines, kept)
        for name, wanted in covers.items():
            if found.all().get(name) != wanted:
                raise RunError(
                    f"{self.path / name} is damaged: it is not what the checkpoint was written "
                    "with; delete the run's folder to start again"
                )
        return lines, kept, found

    def forget_from(self, round: int, covers: Mapping[str, str] | None = None) -> None:
        """Drop records and coresets of rounds that will be played again, and a torn last line. The
        other lines stay in the form in which they were written.
        """
        lines, kept, self._written = self.before(round, covers or {})
        if self.rounds.exists():
            write_atomic(self.rounds, b"".join(lines))
        for path in coreset_files(self.coresets)[len(kept) :]:
            path.unlink()

    def covers(self) -> dict[str, str]:
        """The digests of what was written so far."""
        return self._written.all()

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
        path, blob = self.coresets / f"round-{round:06d}.safetensors", encode({"coresets": tree})
        write_atomic(path, blob)
        self._written.add_coresets(path.name, blob)

    def read_coresets(self) -> dict[int, dict[int, Coreset]]:
        """By round, then client: the coresets chosen, with sample ids as indices."""
        self._check(self.coresets)
        found: dict[int, dict[int, Coreset]] = {}
        for path in coreset_files(self.coresets):
            groups = decode(path.read_bytes(), str(path))[0]
            try:
                tree = groups["coresets"]
                ids, weights = tree["ids"].numpy(), tree["weights"].numpy()
                bounds = pairwise(tree["offsets"].tolist())
                found[_round_of(path)] = {
                    client: Coreset(ids[low:high], weights[low:high])
                    for client, (low, high) in zip(tree["clients"].tolist(), bounds, strict=True)
                }
            except (KeyError, ValueError, TypeError, RuntimeError) as error:
                raise RunError(f"{path} is damaged: it holds no coresets ({error})") from None
        return found

    def finish(self, model: Groups, meta: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        blob = encode(model, meta)
        write_atomic(self.model, blob)
        files = self._written.all() | {self.model.name: digest(blob)}
        manifest = self.path / MANIFEST
        if manifest.exists():
            files[MANIFEST] = file_digest(manifest)
        write_json(self.summary, sealed({**summary, "files": files}))

    def read_model(self) -> tuple[Groups, dict[str, Any]]:
        if not self.model.exists():
            why = "was kept without its model" if self.finished else "is not finished: no model yet"
            raise RunError(f"{self.path} {why}")
        self._check(self.model)
        return decode(self.model.read_bytes(), str(self.model))


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))
