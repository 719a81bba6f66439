"""One file per idea, its server half and its client half side by side."""

from gcfl.methods.catalogue import WORDS, assemble, parse, register
from gcfl.methods.parts import (
    ClientView,
    LocalRule,
    Method,
    Selector,
    ServerRule,
    ServerView,
    Setting,
    TrainOptions,
)
from gcfl.methods.periodic import Periodic

__all__ = [
    "WORDS",
    "ClientView",
    "LocalRule",
    "Method",
    "Periodic",
    "Selector",
    "ServerRule",
    "ServerView",
    "Setting",
    "TrainOptions",
    "assemble",
    "parse",
    "register",
]
