"""Coreset selection in scikit-learn's manner."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from gcfl.coreset.budget import Split
from gcfl.coreset.omp import Score
from gcfl.coreset.select import select


class CoresetSelector(BaseEstimator):  # type: ignore[misc]
    """`select` as an estimator: parameters in the constructor, results in `indices_` and
    `weights_`.
    """

    def __init__(
        self,
        selector: str = "gcfl",
        budget: int = 10,
        variant: str = "label-wise",
        split: Split = "proportional",
        score: Score = "correlation",
        ridge: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.selector = selector
        self.budget = budget
        self.variant = variant
        self.split = split
        self.score = score
        self.ridge = ridge
        self.seed = seed

    def fit(self, X: Any, y: Any, probabilities: Any, target: Any = None) -> CoresetSelector:  # noqa: N803
        """Choose from features X (n, d) with labels y (n,)."""
        options = {
            name: value
            for name, value in self.get_params().items()
            if name not in ("selector", "budget")
        }
        found = select(self.selector, X, probabilities, y, self.budget, target, **options)
        self.indices_, self.weights_ = found.indices, found.weights
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The chosen rows of X."""
        return X[self.indices_]
