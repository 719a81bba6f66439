"""For fast tests: a Grid that calls the ClientApp in this process, and exported apps on it."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

import gcfl
from gcfl.cli import main
from gcfl.flower import OverGrid, Site, client_app
from helpers import tiny


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
        self.keys = {}  # node -> public key, as a SuperLink shows them
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
        return [
            SimpleNamespace(node_id=node, public_key=self.keys.get(node, b""))
            for node in self.contexts
        ]

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


def same(first, second):
    """The states of two runs have the same bits."""
    for name, tensor in first.model.items():
        assert torch.equal(tensor, second.model[name]), name
    for part, tree in first.parts.items():
        assert all(
            torch.equal(tensor, second.parts[part][name]) for name, tensor in tree.items()
        ), part


def load(folder, name):
    """An exported app's `server_app` or `client_app`."""
    spec = importlib.util.spec_from_file_location(
        f"{name}_{abs(hash(str(folder)))}", folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def exported(tmp_path, **changes):
    """A run of our engine, and the app that was made of it."""
    result = gcfl.run(out=tmp_path / "ours", **tiny(**changes))
    assert main(["flower", "export", str(result.folder), "--to", str(tmp_path / "app")]) == 0
    return result, tmp_path / "app"


def sites(folder, count, **folders):
    """A Grid of an exported app's sites. folders: for the node config, one below it for each."""
    grid = Here(load(folder, "client_app"), count)
    for client, node in enumerate(grid.contexts):
        paths = {name: f"{path}/{client}" for name, path in folders.items()}
        node_config = {"partition-id": client, **paths}
        grid.contexts[node] = Context(1, node, node_config, RecordDict(), {})
    return grid


def play(folder, grid, out, **settings):
    """All rounds of an exported app."""
    context = Context(1, 1, {}, RecordDict(), {"out": str(out), "wait-seconds": 5.0, **settings})
    load(folder, "server_app")(grid, context)
