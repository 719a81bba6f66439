"""Last-layer gradients in closed form, as factors.

For softmax cross-entropy the gradient of sample j with respect to the last layer is the outer
product `e_j ⊗ [h_j, 1]`, with residual `e_j = p_j - onehot(y_j)` (C,) and features `h_j` (d,); for
sigmoid outputs with binary cross-entropy it is the same with `e_j = p_j - y_j`. Inner products,
norms, distances and sums come from the two factors, so the n x C(d + 1) matrix is never built:

    ⟨g_i, g_j⟩ = (e_i · e_j) (h_i · h_j + 1)

Products with features keep the features' own type, what is left of them is float64, and nothing as
large as the features is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

_SMALL = 4_000_000  # features up to here may be held twice


@dataclass(frozen=True)
class Gradients:
    """n rank-one gradients `coefficients_j ⊗ [features_j, 1]`: coefficients (n, k), features (n,
    d); without bias, no 1.
    """

    coefficients: Tensor
    features: Tensor
    bias: bool = True
    by_column: Tensor | None = None  # the features once more in another layout, for `gram_column`

    def __len__(self) -> int:
        return int(self.features.shape[0])

    def rows(self, index: Tensor) -> Gradients:
        return Gradients(self.coefficients[index], self.features[index], self.bias)

    def squared_norms(self) -> Tensor:
        """(n,) ‖g_j‖², float64."""
        features = torch.linalg.vector_norm(self.features, dim=1).double().square()
        norms: Tensor = self.coefficients.double().square().sum(1) * (features + float(self.bias))
        return norms

    def ready_for_columns(self) -> Gradients:
        """The same, for many Gram columns: small tall features once more, column by column."""
        n, d = self.features.shape
        if n < 4 * d or n * d > _SMALL:
            return self
        return replace(self, by_column=self.features.T.contiguous().T)

    def inner(self, target: Tensor) -> Tensor:
        """(n,) ⟨g_j, target⟩ for a target (k, d + 1), or (k, d) without bias, float64."""
        along = (target[:, :-1] if self.bias else target).to(self.features.dtype)
        projected = (self.features @ along.T).double()
        if self.bias:
            projected = projected + target[:, -1].double()
        return (self.coefficients.double() * projected).sum(1)

    def gram_column(self, j: int, out: Tensor | None = None) -> Tensor:
        """(n,) ⟨g_i, g_j⟩ for all i, in the features' type."""
        laid_out = self.features if self.by_column is None else self.by_column
        column = torch.mv(laid_out, self.features[j], out=out)
        if self.bias:
            column += 1.0
        return column.mul_(torch.mv(self.coefficients, self.coefficients[j]))

    def gram(self, rows: Tensor | slice) -> Tensor:
        """(m, n) ⟨g_i, g_j⟩ for i in `rows` and all j, in the features' type."""
        block = self.features[rows] @ self.features.T
        if self.bias:
            block += 1.0
        return block.mul_(self.coefficients[rows] @ self.coefficients.T)

    def mean(self) -> Tensor:
        """(k, d + 1), or (k, d) without bias: the mean gradient."""
        count = max(1, len(self))
        mean = self.coefficients.T @ self.features / count
        return (
            torch.cat([mean, self.coefficients.sum(0)[:, None] / count], dim=1)
            if self.bias
            else mean
        )


def whole(features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True) -> Gradients:
    """Gradients of the full last layer: coefficients e = p - onehot(y) (n, C).

    labels: (n,) class numbers for a softmax, or (n, C) zeros and ones for sigmoid outputs (binary:
    C = 1).
    """
    if labels.ndim == 1:
        residuals = probabilities.clone()
        residuals[torch.arange(len(labels)), labels] -= 1.0
    else:
        residuals = probabilities - labels.to(probabilities.dtype)
    return Gradients(residuals, features, bias)


def own_label(
    features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True
) -> Gradients:
    """Of the weights that feed the sample's own label: coefficient p_y - 1 (n, 1)."""
    own = probabilities.gather(1, labels[:, None])
    return Gradients(own - 1.0, features, bias)


def label_wise_target(
    features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True
) -> Tensor:
    """(C, d + 1): row c is the mean of (p_c - 1)·[h, 1] over the samples labelled c, or 0."""
    own = own_label(features, probabilities, labels, bias)
    rows = [own.rows(labels == c).mean()[0] for c in range(probabilities.shape[1])]
    return torch.stack(rows)


def whole_target(
    features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True
) -> Tensor:
    """(C, d + 1): the mean gradient of the full last layer."""
    return whole(features, probabilities, labels, bias).mean()
