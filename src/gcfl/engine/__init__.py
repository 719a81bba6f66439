"""Runs rounds: one round, transports, checkpoint, run folder."""

from gcfl.engine.client import ClientSide
from gcfl.engine.driver import Observer, drive, one_thread
from gcfl.engine.rounds import Rounds, State
from gcfl.engine.transport import InProcess, Transport
from gcfl.engine.vectorised import Vectorised
from gcfl.engine.workers import Workers

__all__ = [
    "ClientSide",
    "InProcess",
    "Observer",
    "Rounds",
    "State",
    "Transport",
    "Vectorised",
    "Workers",
    "drive",
    "one_thread",
]
