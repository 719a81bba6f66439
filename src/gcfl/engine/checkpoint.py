"""The checkpoint: everything that the next round needs, written so that a kill at any moment leaves
a whole one.

    manifest.json                 the round, the name and digest of each file that belongs to it,
                                  and the digests of the run's other files at that round
    server-000012.safetensors     the model and the parts' server states
    clients-000012.safetensors    what the clients that took part since the last checkpoint remember

A round costs its cohort, not the population: only clients whose memory changed are written, and
older client files stay for as long as they hold the newest memory of some client, up to 64 of them.
Files are complete before the manifest names them, and the manifest is replaced in one rename, so it
always describes a whole checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Groups
from gcfl.base.errors import RunError, one_line
from gcfl.base.files import write_atomic, write_json
from gcfl.base.seal import digest, read_sealed, sealed
from gcfl.engine.played import State
from gcfl.methods.privacy import STATE as PRIVACY

_MOST_FILES = 64
_OURS = re.compile(r"(server|clients)-\d{6,}\.safetensors")


class Checkpoint:
    """Reads and writes one run's checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest = folder / "manifest.json"
        self._digests: dict[str, str] = {}
        self._private = False  # whether a secret is among what is written
        self._holder: dict[int, str] = {}  # client -> the file with its newest memory
        self.covers: dict[str, str] = {}  # the run's other files, as the manifest knows them

    def exists(self) -> bool:
        return self._manifest.exists()

    def save(
        self,
        state: State,
        changed: Mapping[int, Groups],
        remembered: Callable[[], Mapping[int, Groups]],
        covers: Mapping[str, str] | None = None,
    ) -> None:
        """Write the server's state and the clients whose memory changed; then, and only then,
        forget what is outdated.

        Where many files have come together, all that is `remembered` goes into one. covers: the
        digests of the run's other files.
        """
        self._folder.mkdir(exist_ok=True)
        self._private = PRIVACY in state.parts
        server = f"server-{state.round:06d}.safetensors"
        self._write(
            server,
            {"model": state.model, **{f"part.{name}": tree for name, tree in state.parts.items()}},
        )
        if len(set(self._holder.values())) >= _MOST_FILES:
            changed = remembered()
        if changed:
            clients = f"clients-{state.round:06d}.safetensors"
            self._write(
                clients,
                {
                    f"{client}.{name}": tree
                    for client, groups in changed.items()
                    for name, tree in groups.items()
                },
            )
            self._holder.update(dict.fromkeys(changed, clients))
        live = [server, *sorted(set(self._holder.values()))]
        self._digests = {name: self._digests[name] for name in live}
        facts = {"round": state.round, "files": self._digests, "covers": dict(covers or {})}
        write_json(self._manifest, sealed(facts))
        self._forget()

    def _forget(self) -> None:
        """Remove what of ours the manifest does not name: outdated, or left behind by a kill."""
        for path in self._folder.iterdir():
            if _OURS.fullmatch(path.name.removesuffix(".tmp")) and path.name not in self._digests:
                path.unlink()

    def load(self) -> tuple[State, dict[int, Groups]]:
        """The state and what every client remembers, to go on from: what is outdated goes."""
        found = self.read()
        self._forget()
        return found

    def read(self) -> tuple[State, dict[int, Groups]]:
        """The state and what every client remembers."""
        try:
            manifest, _ = read_sealed(self._manifest)
            round, files = int(manifest["round"]), dict(manifest["files"])
            self.covers = dict(manifest.get("covers", {}))
            return self._read_files(round, files)
        except (TypeError, KeyError, ValueError) as error:
            raise RunError(
                f"{self._manifest} is not a checkpoint manifest ({one_line(error)})"
            ) from None

    def _read_files(self, round: int, files: dict[str, str]) -> tuple[State, dict[int, Groups]]:
        state: State | None = None
        memory: dict[int, Groups] = {}
        for name in sorted(files):
            groups = self._read(name, files[name])
            if name.startswith("server-"):
                parts = {
                    key.removeprefix("part."): tree
                    for key, tree in groups.items()
                    if key.startswith("part.")
                }
                state = State(round, groups["model"], parts)
                continue
            fresh: dict[int, Groups] = {}
            for key, tree in groups.items():
                client, _, group = key.partition(".")
                fresh.setdefault(int(client), {})[group] = tree
            memory.update(fresh)
            self._holder.update(dict.fromkeys(fresh, name))
        if state is None:
            raise RunError(f"{self._manifest} names no server state")
        self._digests = files
        return state, memory

    def _write(self, name: str, groups: Groups) -> None:
        blob = encode(groups)
        write_atomic(self._folder / name, blob, failpoint="checkpoint", private=self._private)
        self._digests[name] = digest(blob)

    def _read(self, name: str, wanted: str) -> Groups:
        if not _OURS.fullmatch(name):
            raise RunError(f"{self._manifest} names {name!r}, which is no file of a checkpoint")
        path = self._folder / name
        try:
            blob = path.read_bytes()
        except OSError as error:
            raise RunError(f"the checkpoint cannot be read: {path}: {error.strerror}") from None
        if digest(blob) != wanted:
            raise RunError(
                f"the checkpoint is damaged: {path} does not match its digest; delete the run's "
                "folder to start again"
            )
        return decode(blob, str(path))[0]
