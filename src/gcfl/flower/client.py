"""A site: one client's samples and memory behind Flower's ClientApp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from gcfl.engine import one_thread
from gcfl.engine.client import answer
from gcfl.errors import RunError
from gcfl.flower.records import FACTS, from_update, to_broadcast
from gcfl.flower.store import Store, propose, recall
from gcfl.methods import Method, Setting
from gcfl.types import Shard


@dataclass(frozen=True)
class Site:
    """What a client has: its number, the run's setting and the method's client halves, its own samples, its memory."""

    client: int
    setting: Setting
    method: Method
    shard: Shard
    store: Store


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
            remembered = recall(site.store, accepted)
            reply = answer(site.setting, site.method, client, site.shard, broadcast, remembered)
        # A part that says nothing of what it remembers remembers what it did.
        after = {name: tree or remembered.get(name, {}) for name, tree in reply.remembers.items()}
        propose(site.store, broadcast.round, after)
        return Message(from_update(reply.update, client), reply_to=message)

    @app.query()
    def who(message: Message, context: Context) -> Message:
        return Message(RecordDict({FACTS: ConfigRecord({"client": site_of(context).client})}), reply_to=message)

    return app
