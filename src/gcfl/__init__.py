"""gcfl: federated learning that survives bad data.

import gcfl
result = gcfl.run(data="digits", clients=10, noise=0.4)
result.accuracy, result.cost, result.folder
gcfl.load(result.folder).predict(x)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "GCFLClassifier",
    "GcflError",
    "Result",
    "Run",
    "__version__",
    "audit",
    "compare",
    "from_huggingface",
    "load",
    "recommend",
    "resume",
    "run",
    "sweep",
]

if TYPE_CHECKING:
    from gcfl.api import Result, audit, load, recommend, resume, run
    from gcfl.api.estimator import GCFLClassifier
    from gcfl.base.errors import GcflError
    from gcfl.data import from_huggingface
    from gcfl.results.run import Run


def __getattr__(name: str) -> Any:
    """Import torch only when something is asked for, so that `gcfl --help` answers at once."""
    if name == "GcflError":
        from gcfl.base.errors import GcflError

        return GcflError
    if name == "Run":
        from gcfl.results.run import Run

        return Run
    if name == "from_huggingface":
        from gcfl.data import from_huggingface

        return from_huggingface
    if name == "GCFLClassifier":
        from gcfl.api.estimator import GCFLClassifier

        return GCFLClassifier
    if name in ("compare", "sweep"):
        # by its name, since rooms below sweep ask for the version here
        room = import_module("gcfl.sweep")
        return room if name == "sweep" else room.compare
    if name in __all__:
        from gcfl import api

        return getattr(api, name)
    raise AttributeError(f"module 'gcfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
