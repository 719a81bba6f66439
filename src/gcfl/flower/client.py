"""A site: one client's samples and memory behind Flower's ClientApp."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from gcfl.base.data_types import Shard
from gcfl.base.errors import GcflError, RunError
from gcfl.engine import one_thread
from gcfl.engine.client import answer
from gcfl.flower.records import FACTS, from_update, to_broadcast
from gcfl.flower.store import Store, propose, recall
from gcfl.methods import Method, Setting

log = logging.getLogger("gcfl")


@dataclass(frozen=True)
class Site:
    """What a client has: its number, the run's setting and the method's client halves, its own
    samples, its memory.

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
            remembered = recall(site.store, accepted, site.digest)
            reply = answer(site.setting, site.method, client, site.shard, broadcast, remembered)
        # A part that says nothing of what it remembers remembers what it did.
        after = {name: tree or remembered.get(name, {}) for name, tree in reply.memory.items()}
        propose(site.store, broadcast.round, after, site.digest)
        return Message(from_update(reply.update, client), reply_to=message)

    @app.query()
    def who(message: Message, context: Context) -> Message:
        try:
            site = site_of(context)
            facts: dict[str, str | int] = {"client": site.client, "samples": len(site.shard)}
            classes = len(set(site.shard.y.tolist()))
            log.info(
                "this is client %d, with %d samples of %d classes",
                site.client,
                len(site.shard),
                classes,
            )
        # the server shall hear the sentence, not only that something failed
        except GcflError as error:
            log.error("%s", error)
            node = context.node_config
            who_it_is = node.get("client", node.get("partition-id", "?"))
            facts = {"problem": f"{who_it_is}: {error}"}
        return Message(RecordDict({FACTS: ConfigRecord(dict(facts))}), reply_to=message)

    return app
