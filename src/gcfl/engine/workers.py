"""Clients in worker processes: one torch thread each, model and data in shared memory, messages in
our own codec.

Workers are forked where the system can and the device is the CPU, so that data, model class and
options are simply there; elsewhere they are spawned. Per round only small things travel: who, what
the server adds, what the client remembers, and the update back. The model is written once into
memory that all workers see. Each client's work depends on its inputs alone, so any number of
workers gives the same bits.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle  # only for the error that spawning raises
import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing
from threadpoolctl import threadpool_limits

from gcfl.base.codec import decode, encode
from gcfl.base.data_types import Broadcast, Coreset, Groups, Observed, Tree, Update
from gcfl.base.errors import RunError, one_line
from gcfl.engine.client import ClientSide, Reply
from gcfl.engine.transport import ClientMemory
from gcfl.methods import Replies

_PARENT_CHECK_SECONDS = 1.0
_END_SECONDS = 2.0


class Workers(ClientMemory):
    """`count` processes that share the work of each round."""

    def __init__(self, side: ClientSide, model: Tree, count: int) -> None:
        super().__init__(side)
        self._model = {name: tensor.detach().cpu().clone() for name, tensor in model.items()}
        for tensor in self._model.values():
            tensor.share_memory_()  # type: ignore[no-untyped-call]
        forks = (
            "fork" in multiprocessing.get_all_start_methods()
            and side.setting.network.device.type == "cpu"
        )
        context: Any = torch.multiprocessing.get_context("fork" if forks else "spawn")
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve, args=(theirs, side, self._model, os.getpid()), daemon=True
                )
                process.start()
                theirs.close()
                self._connections.append(ours)
                self._processes.append(process)
        # what spawn cannot take along
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            self.close()
            raise RunError(
                f"this model cannot be sent to worker processes ({error}); define it in an "
                "importable module or use workers = 1"
            ) from error

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        for name, tensor in next(iter(broadcasts.values())).model.items():
            self._model[name].copy_(tensor)
        # The largest clients first, so that no worker starts a long one at the end.
        waiting = sorted(broadcasts, key=lambda client: (self.holds(client), client))
        idle = list(range(len(self._processes)))
        busy: dict[int, int] = {}
        replies: dict[int, Reply] = {}
        failures: dict[int, str] = {}
        while waiting or busy:
            while waiting and idle:
                worker, client = idle.pop(), waiting.pop()
                busy[worker] = client
                self._send(worker, client, broadcasts[client])
            for ready in wait([self._connections[worker] for worker in busy]):
                worker = self._connections.index(ready)  # type: ignore[arg-type]
                client = busy.pop(worker)
                reply = self._receive(worker, client)
                if isinstance(reply, Reply):
                    replies[client] = reply
                else:
                    failures[client] = reply
                self.on_client(len(replies) + len(failures), len(broadcasts))
                idle.append(worker)
        return self.collected(replies, failures)

    def _send(self, worker: int, client: int, broadcast: Broadcast) -> None:
        groups: Groups = {f"payload.{name}": tree for name, tree in broadcast.payload.items()}
        groups |= {f"state.{name}": tree for name, tree in self.of(client).items()}
        try:
            self._connections[worker].send_bytes(
                encode(groups, {"client": client, "round": broadcast.round})
            )
        except OSError:
            raise self._died(worker, client) from None

    def _receive(self, worker: int, client: int) -> Reply | str:
        """The client's reply, or why there is none."""
        try:
            groups, meta = decode(self._connections[worker].recv_bytes())
        except (EOFError, OSError):
            raise self._died(worker, client) from None
        if "failure" in meta:
            return str(meta["failure"])
        return _unpacked(groups, meta)

    def _died(self, worker: int, client: int) -> RunError:
        self._processes[worker].join(timeout=5)
        code = self._processes[worker].exitcode
        why = "a model class that it cannot import?"
        if code is not None and code < 0:
            why = f"{signal.strsignal(-code)}, sent by somebody or because memory ran out"
        return RunError(
            f"the worker process that trained client {client} died (exit code {code}): {why}"
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            process.join(timeout=max(0.0, deadline - time.monotonic()))
            if process.is_alive():  # a stopped process hears nothing but this
                process.kill()
                process.join()


def _under(groups: Groups, prefix: str) -> Groups:
    return {
        name.removeprefix(prefix): tree for name, tree in groups.items() if name.startswith(prefix)
    }


def _serve(connection: Connection, side: ClientSide, model: Tree, parent: int) -> None:
    """A worker's life: wait for a client's turn, do it, answer; end when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")
    while True:
        while not connection.poll(_PARENT_CHECK_SECONDS):
            if os.getppid() != parent:
                return
        try:
            groups, meta = decode(connection.recv_bytes())
        except (EOFError, OSError):
            return
        broadcast = Broadcast(meta["round"], model, _under(groups, "payload."))
        try:
            reply = side.work(meta["client"], broadcast, _under(groups, "state."))
        except Exception as error:  # a client that fails must not take the round with it
            blob = encode({}, {"failure": one_line(error)})
        else:
            blob = _packed(reply)
        try:
            connection.send_bytes(blob)
        except OSError:
            return


def _packed(reply: Reply) -> bytes:
    """A reply on its way to the parent process, with what the observer may see."""
    update = reply.update
    groups: Groups = {"delta": update.delta}
    groups |= {f"payload.{name}": tree for name, tree in update.payload.items()}
    groups |= {f"state.{name}": tree for name, tree in reply.memory.items()}
    meta = {"examples": update.examples, "metrics": dict(update.metrics)}
    if reply.observed is not None:
        coreset = reply.observed.coreset
        if coreset is not None:
            groups["observed"] = {
                "indices": torch.from_numpy(coreset.indices),
                "weights": torch.from_numpy(coreset.weights),
            }
        meta |= {"fresh": reply.observed.fresh, "rate": reply.observed.rate}
    return encode(groups, meta)


def _unpacked(groups: Groups, meta: dict[str, Any]) -> Reply:
    """The inverse of `_packed`."""
    payload, memory = _under(groups, "payload."), _under(groups, "state.")
    update = Update(groups["delta"], payload, meta["examples"], meta["metrics"])
    if "fresh" not in meta:
        return Reply(update, memory)
    seen = groups.get("observed")
    coreset = None if seen is None else Coreset(seen["indices"].numpy(), seen["weights"].numpy())
    return Reply(update, memory, Observed(coreset, meta["fresh"], meta["rate"]))
