"""A site: one client's samples and memory behind Flower's ClientApp.

An answer counts only once the server has accepted it, and the site learns that with the next
message. Until then what it would remember is kept beside what it remembers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Groups, Shard
from gcfl.base.errors import GcflError, RunError
from gcfl.base.files import write_atomic
from gcfl.engine import one_thread
from gcfl.engine.client import answer
from gcfl.flower.transport import FACTS, from_update, to_broadcast
from gcfl.methods import NEVER, Method, Setting

log = logging.getLogger("gcfl")
_PROPOSED, _ACCEPTED = "waiting", "kept"  # the names of their blobs


class Store(Protocol):
    """Blobs by name."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, blob: bytes) -> None: ...


class InContext:
    """In what Flower keeps for a node: lives through a run's rounds, not through a restart."""

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
    """A node's memory of a run: the folder that its node config names as `state`, or Flower's."""
    folder = context.node_config.get("state")
    return InContext(context) if folder is None else InFolder(Path(str(folder)).expanduser() / run)


def recall(store: Store, accepted: int, data: str = "") -> Groups:
    """What the last answer led to if the server accepted it, else what there was before.

    data: a digest of the site's samples. A coreset of other samples is forgotten: its positions
    mean nothing any more. A server that never accepted anything plays a run anew: what an earlier
    one left is forgotten.
    """
    proposed = store.read(_PROPOSED)
    if accepted == NEVER:
        if proposed is not None:
            store.write(_PROPOSED, encode({}, {"round": NEVER, "data": data}))
        return {}
    if proposed is not None and decode(proposed)[1]["round"] == accepted:
        store.write(_ACCEPTED, proposed)
    blob = store.read(_ACCEPTED)
    if blob is None:
        return {}
    groups, facts = decode(blob)
    if facts["data"] != data:
        log.warning("this site's data is not what it was: its coreset is forgotten")
        for name in ("select", "kept"):  # what is of single samples
            groups.pop(name, None)
    return groups


def propose(store: Store, round: int, groups: Groups, data: str = "") -> None:
    """What the site would remember; an answer that is ready late replaces no later round's."""
    proposed = store.read(_PROPOSED)
    if proposed is not None and decode(proposed)[1]["round"] > round:
        return
    trees = {name: tree for name, tree in groups.items() if tree}
    store.write(_PROPOSED, encode(trees, {"round": round, "data": data}))


@dataclass(frozen=True)
class Site:
    """What a client has: its number, setting and method of the run, its samples, its memory.

    digest: of the samples, where those may change between rounds.
    """

    client: int
    setting: Setting
    method: Method
    shard: Shard
    store: Store
    digest: str = ""


def client_app(site_of: Callable[[Context], Site]) -> ClientApp:
    """The app of a site: train when asked to, tell who it is when asked for that."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        site = site_of(context)
        broadcast, client, accepted = to_broadcast(message.content)
        if client != site.client:
            raise RunError(f"a message for client {client} came to client {site.client}")
        with one_thread():
            memory = recall(site.store, accepted, site.digest)
            reply = answer(site.setting, site.method, client, site.shard, broadcast, memory)
        # A part that says nothing of what it remembers remembers what it did.
        after = {name: tree or memory.get(name, {}) for name, tree in reply.memory.items()}
        propose(site.store, broadcast.round, after, site.digest)
        return Message(from_update(reply.update, client), reply_to=message)

    @app.query()
    def who(message: Message, context: Context) -> Message:
        facts: dict[str, str | int]
        try:
            site = site_of(context)
            size, classes = len(site.shard), len(set(site.shard.y.tolist()))
            log.info("this is client %d, with %d samples of %d classes", site.client, size, classes)
            # With noise of its own, a site does not tell how much it holds.
            told = size if site.setting.local_noise is None else 1
            facts = {"client": site.client, "samples": told}
        # the server shall hear the sentence, not only that something failed
        except GcflError as error:
            log.error("%s", error)
            node = context.node_config
            name = node.get("client", node.get("partition-id", "?"))
            facts = {"problem": f"{name}: {error}"}
        return Message(RecordDict({FACTS: ConfigRecord(dict(facts))}), reply_to=message)

    return app
