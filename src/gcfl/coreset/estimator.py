"""Coreset selection in scikit-learn's manner."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from gcfl.coreset.registry import select


class CoresetSelector(BaseEstimator):  # type: ignore[misc]
    """`select` as an estimator: parameters in the constructor, results in `indices_` and
    `weights_`. An option that is None has the selector's own default.
    """

    def __init__(
        self,
        selector: str = "gcfl",
        budget: int = 10,
        seed: int = 0,
        variant: str | None = None,
        split: str | None = None,
        score: str | None = None,
        ridge: float | None = None,
        crust: str | None = None,
        radius: float | None = None,
    ) -> None:
        self.selector = selector
        self.budget = budget
        self.seed = seed
        self.variant = variant
        self.split = split
        self.score = score
        self.ridge = ridge
        self.crust = crust
        self.radius = radius

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        probabilities: Any,
        target: Any = None,
        head: Any = None,
    ) -> CoresetSelector:
        """Choose from features X (n, d) with labels y (n,); target and head as in `select`."""
        given = {name: value for name, value in self.get_params().items() if value is not None}
        options = {name: given[name] for name in given if name not in ("selector", "budget")}
        found = select(
            self.selector, X, probabilities, y, self.budget, target, head=head, **options
        )
        self.indices_, self.weights_ = found.indices, found.weights
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The chosen rows of X."""
        return X[self.indices_]
