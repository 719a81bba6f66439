"""Last-layer gradients in closed form, as factors.

For softmax cross-entropy the gradient of sample j with respect to the last layer is the outer product
`e_j ⊗ [h_j, 1]`, with residual `e_j = p_j - onehot(y_j)` (C,) and features `h_j` (d,). Inner products, norms and sums
come from the two factors, so the n x C(d + 1) matrix is never built:

    <g_i, g_j> = (e_i · e_j) (h_i · h_j + 1)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gradients:
    """n rank-one gradients `coefficients_j ⊗ [features_j, 1]`: coefficients (n, k), features (n, d); without bias, no 1."""

    coefficients: Tensor
    features: Tensor
    bias: bool = True

    def __len__(self) -> int:
        return int(self.features.shape[0])

    def rows(self, index: Tensor) -> Gradients:
        return Gradients(self.coefficients[index], self.features[index], self.bias)

    def squared_norms(self) -> Tensor:
        """(n,) ‖g_j‖², in float64."""
        features = self.features.double().square().sum(1) + float(self.bias)
        return self.coefficients.double().square().sum(1) * features

    def inner(self, target: Tensor) -> Tensor:
        """(n,) ⟨g_j, target⟩ for a target (k, d + 1), or (k, d) without bias, in float64."""
        along, offset = (target[:, :-1], target[:, -1]) if self.bias else (target, None)
        projected = (self.features @ along.to(self.features.dtype).T).double()
        if offset is not None:
            projected = projected + offset.double()
        return (self.coefficients.double() * projected).sum(1)

    def gram_column(self, j: int) -> Tensor:
        """(n,) ⟨g_i, g_j⟩ for all i, in float64."""
        features = (self.features @ self.features[j]).double() + float(self.bias)
        return (self.coefficients @ self.coefficients[j]).double() * features

    def mean(self) -> Tensor:
        """(k, d + 1), or (k, d) without bias: the mean gradient."""
        total = self.coefficients.double().T @ extended(self.features, self.bias).double()
        return (total / max(1, len(self))).to(self.features.dtype)


def extended(features: Tensor, bias: bool) -> Tensor:
    """[h, 1] (n, d + 1), or h itself where the last layer has no bias."""
    return torch.cat([features, features.new_ones(features.shape[0], 1)], dim=1) if bias else features


def whole(features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True) -> Gradients:
    """Gradients of the full last layer: coefficients e = p - onehot(y) (n, C)."""
    residuals = probabilities - torch.nn.functional.one_hot(labels, probabilities.shape[1]).to(probabilities.dtype)
    return Gradients(residuals, features, bias)


def own_label(features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True) -> Gradients:
    """Gradients with respect to the weights that feed the sample's own label's output: coefficient p_{y} - 1 (n, 1)."""
    own = probabilities.gather(1, labels[:, None])
    return Gradients(own - 1.0, features, bias)


def label_wise_target(features: Tensor, probabilities: Tensor, labels: Tensor, bias: bool = True) -> Tensor:
    """(C, d + 1): row c is the mean of (p_c - 1)·[h, 1] over the samples labelled c; a class without samples has a zero row."""
    own = own_label(features, probabilities, labels, bias)
    rows = [own.rows(labels == c).mean()[0] for c in range(probabilities.shape[1])]
    return torch.stack(rows)
