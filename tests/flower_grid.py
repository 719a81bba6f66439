"""A Grid that calls the ClientApp in this process, for fast tests."""

from __future__ import annotations

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from gcfl.flower import OverGrid, Site, client_app


class InMemory:
    """A site's store that is gone with its process."""

    def __init__(self):
        self._blobs = {}

    def read(self, name):
        return self._blobs.get(name)

    def write(self, name, blob):
        self._blobs[name] = blob


class Here(Grid):
    """Nodes have numbers far from the clients'; faults are made by replacing `meddle`."""

    def __init__(self, app, clients):
        self._app = app
        self.contexts = {
            1000 + 7 * client: Context(1, 1000 + 7 * client, {"client": client}, RecordDict(), {})
            for client in range(clients)
        }
        self.seen = []
        # what each message held on its way: apps and strategies may change it afterwards
        self.traffic = []
        self.meddle = lambda _, reply: reply

    def set_run(self, run):
        pass

    @property
    def run(self):
        return None

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id)

    def get_node_ids(self):
        return list(self.contexts)

    def get_nodes(self):
        return []

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.seen.append(message)
            self.traffic.append((message.metadata.dst_node_id, RecordDict(dict(message.content))))
            # as a SuperLink does
            message.metadata.__dict__["_message_id"] = f"message {len(self.seen)}"
            try:
                reply = self._app(message, self.contexts[message.metadata.dst_node_id])
            except Exception as error:
                reply = Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=message)
            reply = self.meddle(message, reply)
            if reply is not None:
                self.seen.append(reply)
                if reply.has_content():
                    self.traffic.append(
                        (reply.metadata.src_node_id, RecordDict(dict(reply.content)))
                    )
                replies.append(reply)
        return replies[::-1]  # in no order to rely on


def federation(ready, stores=None):
    """A Grid with a node for each client of a prepared run."""
    clients = ready.federation.clients
    stores = stores or {client: InMemory() for client in range(len(clients))}

    def site(context):
        client = int(context.node_config["client"])
        return Site(client, ready.setting, ready.method, clients.shard(client), stores[client])

    return Here(client_app(site), len(clients))


def over_grid(ready, grid, **options):
    return OverGrid(
        grid,
        {client: 1000 + 7 * client for client in range(len(ready.federation.clients))},
        **options,
    )


def rounds(ready, transport, count, state=None):
    """So many rounds over a transport: the state after them, and their records."""
    loop = ready.rounds(transport)
    state = state or loop.begin()
    records = []
    for _ in range(count):
        played = loop.play(state)
        transport.commit(played.accepted)
        state = played.state
        records.append(played.record(None))
    return state, records
