"""What releases with Gaussian noise cost, by the package dp-accounting: ε at a given δ.

A noise multiplier z is the noise's standard deviation over the most that one party can change what
it is added to. Gaussians of multipliers z_k, n_k times each, are one of 1 / √(Σ n_k / z_k²), whose
ε is exact. Cohorts that are drawn without replacement are accounted as such, by Rényi divergences.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gcfl.base.errors import ConfigError

# Of the divergences of a cohort: few, since each costs; the least ε over them counts.
ORDERS = (*(1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28), *(32, 40, 48, 64))
_TOLERANCE = 1e-3  # of a multiplier that is looked for; it is rounded to the safe side
_LEAST = 0.3  # a multiplier, below which nobody should go


def library() -> Any:
    """dp_accounting, or a sentence that says what to install."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "the settings of [privacy] need the package dp-accounting: pip install 'gcfl[privacy]'"
        ) from None
    return dp_accounting


def gaussian_epsilon(releases: Mapping[float, int], delta: float) -> float:
    """Of so many releases by noise multiplier, together."""
    weight = sum(count / noise**2 for noise, count in releases.items())
    return _gaussian(float(weight**-0.5), delta) if weight else 0.0


@cache
def _gaussian(noise: float, delta: float) -> float:
    return float(library().get_epsilon_gaussian(noise, delta))


@cache
def gaussian_noise(epsilon: float, delta: float) -> float:
    """The multiplier with which a single release costs ε."""
    return float(library().get_sigma_gaussian(epsilon, delta))


@cache
def cohort_epsilon(noise: float, rounds: int, clients: int, cohort: int, delta: float) -> float:
    """Of so many rounds, each of a cohort drawn without replacement among all clients, where one
    client's data may be replaced by any other.
    """
    if rounds == 0:
        return 0.0
    if cohort >= clients:
        return gaussian_epsilon({noise: rounds}, delta)
    return float(_fresh().compose(_drawn(noise, rounds, clients, cohort)).get_epsilon(delta))


def _drawn(noise: float, rounds: int, clients: int, cohort: int) -> Any:
    dp = library()
    once = dp.SampledWithoutReplacementDpEvent(clients, cohort, dp.GaussianDpEvent(noise))
    return dp.SelfComposedDpEvent(once, rounds)


def _fresh() -> Any:
    dp = library()
    return dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)


@cache
def cohort_noise(epsilon: float, rounds: int, clients: int, cohort: int, delta: float) -> float:
    """The multiplier with which so many rounds cost at most ε."""
    whole: float = gaussian_noise(epsilon, delta) * rounds**0.5  # what it takes without drawing
    if cohort >= clients:
        return whole
    if cohort_epsilon(_LEAST, rounds, clients, cohort, delta) <= epsilon:
        return _LEAST
    dp = library()
    found = dp.calibrate_dp_mechanism(
        _fresh,
        lambda noise: _drawn(noise, rounds, clients, cohort),
        epsilon,
        delta,
        dp.LowerEndpointAndGuess(_LEAST, max(whole, 2 * _LEAST)),
        tol=_TOLERANCE,
    )
    while cohort_epsilon(float(found), rounds, clients, cohort, delta) > epsilon:
        found += _TOLERANCE
    return float(found)
