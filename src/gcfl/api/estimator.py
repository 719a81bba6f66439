"""A federation in scikit-learn's manner: fit, predict, score."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)

from gcfl.api.running import run
from gcfl.base import rng
from gcfl.base.data_types import IntArray
from gcfl.base.errors import GcflError
from gcfl.base.options import resolve_size
from gcfl.models.code import ModelGiven

log = logging.getLogger("gcfl")
_MOST_CLIENTS, _FEWEST_SAMPLES = 10, 20  # where nobody says how many clients there are
_CHECKS: dict[str, Any] = {"allow_nd": True, "dtype": "numeric"}
_CLEAN, _CLEAN_PER_CLASS = 0.1, 5  # where nobody says what is clean


class GCFLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is trained federated, with a clean set at the server.

    method, model, rounds, budget: as in `gcfl.run`; model is a name or a torch class. lr, epochs:
    of local training, hidden: of an mlp; None: gcfl's own. out: a folder for the run, which is then
    kept and continued by an equal call; None: none is kept. settings: all else, as in `gcfl.run`.

    After `fit`: classes_, n_features_in_, feature_names_in_ where a frame came, model_ (a
    `TrainedModel`), summary_ (rounds, cost, privacy), clients_ (each one's name and size), folder_
    (None where none is kept).
    """

    def __init__(
        self,
        method: str = "robust",
        model: str | ModelGiven = "mlp",
        rounds: int = 50,
        budget: float = 0.1,
        lr: float | None = None,
        epochs: int | None = None,
        hidden: Sequence[int] | None = None,
        random_state: Any = 0,
        out: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.model = model
        self.rounds = rounds
        self.budget = budget
        self.lr = lr
        self.epochs = epochs
        self.hidden = hidden
        self.random_state = random_state
        self.out = out
        self.settings = settings

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        clients: int | Sequence[Any] | npt.NDArray[Any] | None = None,
        clean: tuple[Any, Any] | float | int | None = None,
    ) -> GCFLClassifier:
        """Train on X (n, features) or images (n, channels, height, width), with labels y (n,).

        clients: how many share the samples evenly; or each sample's client, by name; None: as many
        as the data bears, ten at most. clean: the server's (X, y); or how much of the samples to
        cut off for it, equal shares of each class; None: a tenth.
        """
        X, y = validate_data(self, X, y, **_CHECKS)  # noqa: N806
        check_classification_targets(y)
        labels = column_or_1d(y)
        seed = self._seed()
        self.classes_ = np.unique(labels)
        if isinstance(clean, tuple | list):
            clean_x, clean_y = self._clean_pair(clean)
            self.classes_ = np.union1d(self.classes_, clean_y)
            rest = np.arange(len(labels))
        else:
            rows = _cut(labels, _clean_size(clean, labels), seed)
            clean_x, clean_y = X[rows], labels[rows]
            _warn_of_cut()
            rest = np.delete(np.arange(len(labels)), rows)
        if len(self.classes_) < 2:
            raise ValueError(
                "Classifier can't train when only one class is present: y holds one class, "
                f"{self.classes_[0]!r}"
            )
        if not len(rest):
            raise ValueError(f"clean={clean!r} leaves no sample for the clients")
        coded, clean_coded = (np.searchsorted(self.classes_, one) for one in (labels, clean_y))
        settings = self._settings(clients, len(labels), rest, seed)
        with tempfile.TemporaryDirectory() as spare:
            try:
                result = run(
                    data={"source": (X[rest], coded[rest]), **settings.pop("data")},
                    validation=(clean_x, clean_coded),
                    test=(clean_x, clean_coded),  # nothing depends on it, and nobody reads it
                    classes=range(len(self.classes_)),
                    out=spare if self.out is None else self.out,
                    **settings,
                )
            except GcflError as error:
                raise ValueError(str(error)) from error
            self.model_ = result.model
            # what is measured on samples that the server trains on says nothing
            measured = ("accuracy", "loss", "best_accuracy", "best_round", "kept_round")
            summary = result.summary()
            self.summary_ = {key: summary[key] for key in summary if key not in measured}
            self.clients_ = result.clients
            self.folder_ = None if self.out is None else result.folder
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """(n, C) probabilities, in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_CHECKS)  # noqa: N806
        found = self.model_.predict_proba(X).astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """(n,) the likeliest class of each sample."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]  # type: ignore[no-any-return]

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _clean_pair(self, clean: Sequence[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        if len(clean) != 2:
            raise ValueError(f"clean must be a pair (X, y), got {len(clean)} things")
        x = validate_data(self, clean[0], reset=False, **_CHECKS)
        y = column_or_1d(clean[1])
        check_consistent_length(x, y)
        return x, y

    def _settings(self, clients: Any, samples: int, rest: IntArray, seed: int) -> dict[str, Any]:
        """What `gcfl.run` is asked for; what `settings` says wins."""
        found: dict[str, Any] = {
            "method": self.method,
            "model": {"name": self.model} if isinstance(self.model, str) else self.model,
            "rounds": self.rounds,
            "lr": self.lr,
            "epochs": self.epochs,
            "seed": seed,
            "data": {"min_size": 1},
            # Server and clients are in one place here: gradients of single samples reveal nothing.
            "coreset": {"allow_single": True, "budget": self.budget},
        }
        if self.hidden is not None and isinstance(self.model, str):
            found["model"]["hidden"] = list(self.hidden)
        if clients is None or isinstance(clients, int | np.integer):
            most = max(1, min(_MOST_CLIENTS, len(rest) // _FEWEST_SAMPLES))
            found["data"] |= {"clients": most if clients is None else int(clients)}
            found["data"] |= {"partition": "iid"}
        else:
            names = column_or_1d(clients)
            if len(names) != samples:
                raise ValueError(f"clients names {len(names)} samples, but X has {samples}")
            found["groups"] = names[rest]
        for name, value in (self.settings or {}).items():
            both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
            found[name] = {**found[name], **value} if both else value
        return found


@cache
def _warn_of_cut() -> None:
    """Once: a search over settings fits hundreds of times."""
    log.warning(
        "the server's clean set is cut from y, with the labels that it has: where those are wrong, "
        "so is what the model is taught by. Samples whose labels somebody checked are handed over "
        "by fit(X, y, clean=(X_clean, y_clean))"
    )


def _clean_size(clean: float | int | None, labels: npt.NDArray[Any]) -> int:
    """How many samples the server gets: a share, a count, or what the data bears."""
    n, classes = len(labels), len(np.unique(labels))
    if clean is None:
        return max(1, min(max(round(_CLEAN * n), _CLEAN_PER_CLASS * classes), n // 3))
    if isinstance(clean, bool) or not isinstance(clean, int | float) or clean <= 0:
        raise ValueError(f"clean must be a pair (X, y), a share or a count, got {clean!r}")
    return min(resolve_size(clean, n), n)


def _cut(labels: npt.NDArray[Any], size: int, seed: int) -> IntArray:
    """So many rows, with equal shares of each class: sorted by class, evenly spaced ones."""
    order = rng.stream(seed, "estimator", "clean").permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.sort(order[(np.arange(size) * len(order) + len(order) // 2) // size])
