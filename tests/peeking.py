"""Guards around what a party must not look at: they raise while the party works."""

from __future__ import annotations

import dataclasses

from gcfl.engine import ClientSide, InProcess, Lifecycle, Observer
from gcfl.engine.rounds import Rounds
from gcfl.results.folder import RunFolder


class Peeked(BaseException):
    """Not an Exception: a client that raises one is left out, and a peek must not pass as that."""


class Guard:
    """Something that may only be touched while the guard is down."""

    def __init__(self) -> None:
        self.up = False

    def check(self, what: str) -> None:
        if self.up:
            raise Peeked(what)

    def during(self, call):
        """The same function, with the guard up while it runs."""

        def watched(*arguments):
            self.up = True
            try:
                return call(*arguments)
            finally:
                self.up = False

        return watched


def guarded(value, guard: Guard, what: str):
    """The same dataclass, whose fields raise while the guard is up."""

    class Spy(type(value)):
        def __getattribute__(self, name):
            if not name.startswith("__"):
                guard.check(f"{what}.{name}")
            return object.__getattribute__(self, name)

    return Spy(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})


def play_watched(ready, folder, monkeypatch):
    """All rounds of a prepared run; the truth is guarded while a round is played, the server's
    samples while a client works. The records.
    """
    of_truth, of_server = Guard(), Guard()
    truth = guarded(ready.federation.truth, of_truth, "truth")
    validation = guarded(ready.federation.validation, of_server, "D_S")
    monkeypatch.setattr(Rounds, "play", of_truth.during(Rounds.play))
    monkeypatch.setattr(ClientSide, "work", of_server.during(ClientSide.work))
    ready = dataclasses.replace(
        ready, federation=dataclasses.replace(ready.federation, validation=validation)
    )
    clients = ready.federation.clients
    records = []
    Lifecycle(
        ready,
        RunFolder(folder),
        connect=lambda: InProcess(ClientSide(ready.setting, ready.method, clients)),
        observer=Observer(truth, clients.source_rows),
        holdings=lambda: ready.holdings,
        again="",
        on_round=records.append,
    ).run()
    return records
