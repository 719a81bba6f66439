"""A site: one client's samples and memory behind Flower's ClientApp.

An answer counts only once the server has accepted it, and the site learns that with the next
message. Until then what it would remember is kept beside what it remembers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Groups, Shard
from gcfl.base.errors import ConfigError, GcflError, RunError
from gcfl.base.files import write_atomic
from gcfl.data import Source
from gcfl.engine import one_thread
from gcfl.engine.client import answer
from gcfl.flower.audit import ACTION, Request, write_at_site
from gcfl.flower.telling import SiteApp, told
from gcfl.flower.transport import FACTS, from_update, to_broadcast
from gcfl.labels.evidence import forgotten
from gcfl.methods import NEVER, Method, Setting
from gcfl.results.shared import LEVELS, lower, share_of

log = logging.getLogger("gcfl")
_PROPOSED, _ACCEPTED = "waiting", "kept"  # the names of their blobs
NO_FOLDER = (
    "an audit (audit.at_end) writes into the folder of each site: its node config must name it, "
    'state="/path/to/it"'
)


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
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        path = self._folder / f"{name}.safetensors"
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, blob: bytes) -> None:
        write_atomic(self._folder / f"{name}.safetensors", blob, private=True)


def folder_of(context: Context, run: str) -> Path | None:
    """What a node keeps of a run, below the folder that its node config names as `state`."""
    folder = context.node_config.get("state")
    return None if folder is None else Path(str(folder)).expanduser() / run


def store_of(context: Context, run: str) -> Store:
    """A node's memory of a run: in its folder, or in what Flower keeps."""
    folder = folder_of(context, run)
    return InContext(context) if folder is None else InFolder(folder)


def recall(store: Store, accepted: int, data: str = "") -> Groups:
    """What the last answer led to if the server accepted it, else what there was before.

    data: a digest of the site's samples. A coreset of other samples is forgotten: its positions
    mean nothing any more. A server that never accepted anything plays a run anew: what an earlier
    one left is forgotten.
    """
    proposed = _stored(store, _PROPOSED)
    if accepted == NEVER:
        if store.read(_PROPOSED) is not None:
            store.write(_PROPOSED, encode({}, {"round": NEVER, "data": data}))
        return {}
    if proposed is not None and proposed[1]["round"] == accepted:
        store.write(_ACCEPTED, store.read(_PROPOSED) or b"")
    kept = _stored(store, _ACCEPTED)
    if kept is None:
        return {}
    groups, facts = kept
    if facts.get("data") != data:
        log.warning("this site's data is not what it was: its coreset is forgotten")
        for name in ("select", "kept"):  # what is of single samples
            groups.pop(name, None)
        if "labels" in groups:
            groups["labels"] = forgotten(groups["labels"])
    return groups


def _stored(store: Store, name: str) -> tuple[Groups, dict[str, Any]] | None:
    """What a blob holds; a damaged one is forgotten, since the next round writes it anew."""
    blob = store.read(name)
    if blob is None:
        return None
    try:
        groups, facts = decode(blob, f"what this site remembers ({name})")
        if isinstance(facts.get("round"), int):
            return groups, facts
        raise RunError(f"what this site remembers ({name}) tells no round")
    except RunError as error:
        log.warning("%s: it is forgotten", error)
        return None


def propose(store: Store, round: int, groups: Groups, data: str = "") -> None:
    """What the site would remember; an answer that is ready late replaces no later round's."""
    proposed = _stored(store, _PROPOSED)
    if proposed is not None and proposed[1]["round"] > round:
        return
    trees = {name: tree for name, tree in groups.items() if tree}
    store.write(_PROPOSED, encode(trees, {"round": round, "data": data}))


@dataclass(frozen=True)
class Site:
    """What a client has: its number, setting and method of the run, its samples, its memory.

    digest: of the samples, where those may change between rounds. name: as its findings call it.
    source: what the samples came from. folder: where findings go, below `audit`.
    """

    client: int
    setting: Setting
    method: Method
    shard: Shard
    store: Store
    digest: str = ""
    name: str = ""
    source: Source | None = None
    folder: Path | None = None

    def check(self, client: int) -> None:
        if client != self.client:
            raise RunError(f"a message for client {client} came to client {self.client}")


def allowed(context: Context) -> str:
    """What a site lets out of its findings at most, by its node config."""
    return str(context.node_config.get("audit-share", LEVELS[-1]))


def client_app(site_of: Callable[[Context], Site]) -> ClientApp:
    """The app of a site: train when asked to, tell who it is when asked for that."""
    app = SiteApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        site = site_of(context)
        broadcast, client, accepted = to_broadcast(message.content)
        site.check(client)
        with one_thread():
            memory = recall(site.store, accepted, site.digest)
            reply = answer(site.setting, site.method, client, site.shard, broadcast, memory)
        # A part that says nothing of what it remembers remembers what it did.
        after = {name: tree or memory.get(name, {}) for name, tree in reply.memory.items()}
        propose(site.store, broadcast.round, after, site.digest)
        return Message(from_update(reply.update, client), reply_to=message)

    @app.query(ACTION)
    def audit(message: Message, context: Context) -> Message:
        site, request = site_of(context), Request.read(message.content)
        site.check(request.client)
        if site.folder is None or site.source is None:
            raise ConfigError(NO_FOLDER)
        with one_thread():
            memory = recall(site.store, request.accepted, site.digest).get("labels", {})
            ids, seed = site.source.ids_of(site.shard.ids), site.setting.seed
            judge = request.judge(site.setting)
            found = judge.findings(site.name, site.shard, ids, memory, seed)
        folder = site.folder / "audit"
        write_at_site(found, folder, request.options, site.setting, site.shard, site.source)
        share = share_of(found, lower(request.options.share, allowed(context)))
        return Message(RecordDict({FACTS: ConfigRecord(share)}), reply_to=message)

    @app.query()
    def who(message: Message, context: Context) -> Message:
        facts: dict[str, str | int]
        try:
            site = site_of(context)
            lower(allowed(context), "none")  # a sentence now, not after the last round
            size, classes = len(site.shard), len(set(site.shard.y.tolist()))
            log.info("this is client %d, with %d samples of %d classes", site.client, size, classes)
            # With noise of its own, a site does not tell how much it holds.
            holds = size if site.setting.local_noise is None else 1
            facts = {"client": site.client, "samples": holds}
        # the server shall hear who cannot take part, not only that something failed
        except Exception as error:
            log.error("%s", error, exc_info=not isinstance(error, GcflError))
            node = context.node_config
            name = node.get("client", node.get("partition-id", "?"))
            facts = {"problem": f"{name}: {told(error, context)}"}
        return Message(RecordDict({FACTS: ConfigRecord(dict(facts))}), reply_to=message)

    return app
