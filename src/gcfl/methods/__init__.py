"""One file per idea, its server half and its client half side by side."""

from gcfl.methods.base import Estimate, LocalRule, Method, Selection, SelectionRule, ServerRule
from gcfl.methods.catalogue import (
    SECTIONS,
    WORDS,
    assemble,
    canonical,
    known_options,
    parse,
    parts_of,
    register,
)
from gcfl.methods.label_noise import LabelNoise
from gcfl.methods.options import (
    AuditOptions,
    CleanOptions,
    EngineOptions,
    PrivacyOptions,
    TrainOptions,
)
from gcfl.methods.replies import Replies
from gcfl.methods.selection import Occasion, Periodic, periodic
from gcfl.methods.stacked import Stacked
from gcfl.methods.views import NEVER, ClientView, Meter, ServerView, Setting

__all__ = [
    "NEVER",
    "SECTIONS",
    "WORDS",
    "AuditOptions",
    "CleanOptions",
    "ClientView",
    "EngineOptions",
    "Estimate",
    "LabelNoise",
    "LocalRule",
    "Meter",
    "Method",
    "Occasion",
    "Periodic",
    "PrivacyOptions",
    "Replies",
    "Selection",
    "SelectionRule",
    "ServerRule",
    "ServerView",
    "Setting",
    "Stacked",
    "TrainOptions",
    "assemble",
    "canonical",
    "known_options",
    "parse",
    "parts_of",
    "periodic",
    "register",
]
