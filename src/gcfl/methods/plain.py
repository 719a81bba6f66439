"""Plain local training (FedAvg): SGD on the loss, nothing added."""

from __future__ import annotations

from typing import ClassVar

from gcfl.methods.parts import LocalRule


class Plain(LocalRule):
    """No loss term, no correction, no state."""

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "local SGD, nothing added"
