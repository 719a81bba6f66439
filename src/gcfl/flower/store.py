"""What a site remembers between messages: in a folder that survives a restart, or, for trying
things out, in memory.

An answer counts only once the server has accepted it, and the site learns that with the next
message. Until then what it would remember is kept beside what it remembers.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from flwr.app import ConfigRecord, Context

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Groups
from gcfl.base.files import write_atomic
from gcfl.methods import NEVER

log = logging.getLogger("gcfl")


class Store(Protocol):
    """Blobs by name."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, blob: bytes) -> None: ...


class InMemory:
    """Gone with its process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._blobs.get(name)

    def write(self, name: str, blob: bytes) -> None:
        self._blobs[name] = blob


class InContext:
    """In what Flower keeps for a node between messages: lives through a run's rounds, not through a
    restart of the node.
    """

    def __init__(self, context: Context) -> None:
        self._state = context.state

    def read(self, name: str) -> bytes | None:
        record = self._state.config_records.get(f"gcfl-{name}")
        return None if record is None else bytes(record["blob"])  # type: ignore[arg-type]

    def write(self, name: str, blob: bytes) -> None:
        self._state[f"gcfl-{name}"] = ConfigRecord({"blob": blob})


class InFolder:
    """A file per name, whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        path = self._folder / f"{name}.safetensors"
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, blob: bytes) -> None:
        write_atomic(self._folder / f"{name}.safetensors", blob)


def store_of(context: Context, run: str) -> Store:
    """Where a node keeps what it remembers of a run: the folder that its node config names as
    `state`, else Flower's memory.
    """
    folder = context.node_config.get("state")
    return InContext(context) if folder is None else InFolder(Path(str(folder)).expanduser() / run)


def recall(store: Store, accepted: int, data: str = "") -> Groups:
    """What counts: what the last answer led to if the server accepted it, else what there was
    before.

    data: a digest of the site's samples. A coreset of other samples is forgotten: its positions
    mean nothing any more. A server that never accepted anything plays a run anew: what an earlier
    one left is forgotten.
    """
    waiting = store.read("waiting")
    if accepted == NEVER:
        if waiting is not None:
            store.write("waiting", encode({}, {"round": NEVER, "data": data}))
        return {}
    blob = (
        waiting
        if waiting is not None and decode(waiting)[1]["round"] == accepted
        else store.read("kept")
    )
    if blob is None:
        return {}
    if blob is waiting:
        store.write("kept", blob)
    groups, facts = decode(blob)
    if facts["data"] != data:
        log.warning("this site's data is not what it was: its coreset is forgotten")
        groups.pop("select", None)
    return groups


def propose(store: Store, round: int, groups: Groups, data: str = "") -> None:
    """What the site would remember, until it hears of the answer's fate. One that came late does
    not push out a later round's.
    """
    waiting = store.read("waiting")
    if waiting is not None and decode(waiting)[1]["round"] > round:
        return
    store.write(
        "waiting",
        encode(
            {name: tree for name, tree in groups.items() if tree}, {"round": round, "data": data}
        ),
    )
