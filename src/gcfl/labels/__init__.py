"""Which labels are right: noise rates and label posteriors from one forward pass. Knows nothing of
clients or rounds.

    from gcfl.labels import label_posterior
    found = label_posterior(logits, labels)
    found.rate, found.right, found.suggested

logits (n, C) are the model's, labels (n,) the observed class numbers, as tensors, arrays or lists;
of probabilities p give log(p). `fit_calibration` of clean samples makes a weak model's logits fit
for it; `corrected_losses` trains with what was found. See `docs/labels.md`.
"""

from gcfl.labels.calibration import Calibration, fit_calibration, fit_temperature, pool_rates
from gcfl.labels.correction import corrected_losses, log_columns, losses_from_columns
from gcfl.labels.interval import rate_interval
from gcfl.labels.mixture import intrinsic_dimensions, relabelled, upper_component
from gcfl.labels.neighbours import with_neighbours
from gcfl.labels.posterior import (
    GRID,
    LabelPosterior,
    NoiseModel,
    label_posterior,
    label_posteriors,
    posterior_given,
    symmetric_transition,
)

__all__ = [
    "GRID",
    "Calibration",
    "LabelPosterior",
    "NoiseModel",
    "corrected_losses",
    "fit_calibration",
    "fit_temperature",
    "intrinsic_dimensions",
    "label_posterior",
    "label_posteriors",
    "log_columns",
    "losses_from_columns",
    "pool_rates",
    "posterior_given",
    "rate_interval",
    "relabelled",
    "symmetric_transition",
    "upper_component",
    "with_neighbours",
]
