"""How evenly a model serves the clients: their accuracies on what each kept for testing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gcfl.results.run import Run


def mean(found: Mapping[str, Sequence[Any]], name: str = "accuracy") -> float | None:
    """Weighted by the samples that each client tested on."""
    values, weights = _known(found, name)
    return float(np.average(values, weights=weights)) if len(values) else None


def spread(found: Mapping[str, Sequence[Any]], name: str = "accuracy") -> float | None:
    """The standard deviation over clients, each counting once."""
    values, _ = _known(found, name)
    return float(np.std(values)) if len(values) else None


def worst(found: Mapping[str, Sequence[Any]], name: str = "accuracy") -> float | None:
    values, _ = _known(found, name)
    return float(np.min(values)) if len(values) else None


def _known(found: Mapping[str, Sequence[Any]], name: str) -> tuple[Any, Any]:
    """Of the clients that tested."""
    pairs = zip(found.get(name, ()), found.get("samples", ()), strict=True) if found else ()
    known = [(value, size) for value, size in pairs if value is not None]
    return np.array([value for value, _ in known]), np.array([size for _, size in known])


_NOTE = (
    "At clients: the final model on what each client kept for testing, by the labels that it has; "
    "the mean over samples, the standard deviation over clients, the worst client."
)
# What is told of a run: name, title, value, places as `measures` has them, what to know of it.
TOLD: list[tuple[str, str, Callable[[Run], float | None], str, str]] = [
    ("client_accuracy", "at clients", lambda run: mean(run.client_test), "table run", _NOTE),
    ("client_spread", "sd over clients", lambda run: spread(run.client_test), "table run", ""),
    ("worst_client", "worst client", lambda run: worst(run.client_test), "table run", ""),
    (
        "client_true_accuracy",
        "at clients, by true labels",
        lambda run: mean(run.client_test, "true_accuracy"),
        "file run",
        "",
    ),
]
