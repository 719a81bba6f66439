"""Runs rounds: preparation, one round, transports, checkpoint, a run's life."""

from gcfl.engine.client import ClientSide
from gcfl.engine.lifecycle import Lifecycle, Observer, OnRound, OnStart, one_thread
from gcfl.engine.played import State
from gcfl.engine.prepare import Given, Prepared, federate, prepare
from gcfl.engine.rounds import Rounds
from gcfl.engine.transport import InProcess, OnClient, Transport
from gcfl.engine.vectorised import Vectorised
from gcfl.engine.workers import Workers

__all__ = [
    "ClientSide",
    "Given",
    "InProcess",
    "Lifecycle",
    "Observer",
    "OnClient",
    "OnRound",
    "OnStart",
    "Prepared",
    "Rounds",
    "State",
    "Transport",
    "Vectorised",
    "Workers",
    "federate",
    "one_thread",
    "prepare",
]
