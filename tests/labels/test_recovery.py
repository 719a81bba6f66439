"""Problems with a known truth: the rate, the prior and the matrix come back within their intervals,
and a calibration mends a model that is too sure or favours some classes.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import scipy.optimize
import torch
from torch.nn.functional import cross_entropy

from gcfl.base import rng
from gcfl.base.errors import ConfigError, DataError
from gcfl.labels import (
    NoiseModel,
    fit_calibration,
    fit_temperature,
    label_posterior,
    label_posteriors,
    pool_rates,
    rate_interval,
)
from helpers import ROOT
from label_scenes import calibrated, rough, symmetric

SKEWED = np.array([0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01])
GIVEN = NoiseModel(temperature=1.0)


@pytest.mark.parametrize("prior", [None, SKEWED], ids=["balanced", "skewed"])
def test_the_interval_of_the_rate_covers_the_truth(prior, record_property):
    covered, widths = [], []
    for seed in range(40):
        logits, labels, _ = calibrated(seed, prior=prior)
        low, high = rate_interval(logits, labels, GIVEN, seed=seed)
        covered.append(low <= 0.4 <= high)
        widths.append(high - low)
    print(f"coverage {np.mean(covered):.3f}, mean width {np.mean(widths):.3f}")
    record_property("coverage", float(np.mean(covered)))
    assert np.mean(covered) >= 0.85
    assert np.mean(widths) <= 0.15


def resampled(seed, logits, labels, model, count=40):
    """Fits of samples drawn with replacement, written with the public face alone."""
    n = len(labels)
    rows = torch.from_numpy(rng.stream(seed, "again").integers(0, n, count * n))
    return label_posteriors(logits[rows], labels[rows], [n] * count, model)


def cover(values, truth):
    """The share of entries whose truth lies within the middle 95% (plus what 40 draws miss)."""
    low, high = np.quantile(np.stack(values), [0.0125, 0.9875], axis=0)
    return np.mean((low <= truth) & (truth <= high))


def test_the_prior_and_the_full_matrix_come_back_within_their_intervals():
    transition = np.array(
        [[0.7, 0.2, 0.1, 0.0], [0.0, 0.6, 0.3, 0.1], [0.1, 0.1, 0.8, 0.0], [0.3, 0.0, 0.2, 0.5]]
    )
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    model = NoiseModel("full", pseudo_counts=1.0, temperature=1.0, iterations=100)
    priors, matrices, errors = [], [], []
    for seed in range(12):
        logits, labels, _ = calibrated(seed, 2000, 4, transition, prior, distance=2.5)
        found = label_posterior(logits, labels, model)
        fits = resampled(seed, logits, labels, model)
        priors.append(cover([fit.prior.numpy() for fit in fits], prior))
        inner = transition > 0  # no interval of positive shares holds a zero
        matrices.append(cover([fit.transition.numpy()[inner] for fit in fits], transition[inner]))
        errors.append(np.abs(found.transition.numpy() - transition).max())
    assert np.mean(priors) >= 0.85
    assert np.mean(matrices) >= 0.85
    assert np.mean(errors) < 0.1


def test_most_wrong_labels_are_found():
    logits, labels, truth = calibrated(1, 2000, distance=2.5)
    found = label_posterior(logits, labels)
    wrong = labels != truth
    assert found.rate == pytest.approx(float(wrong.double().mean()), abs=0.03)
    assert float(((found.right < 0.5) == wrong).double().mean()) > 0.9
    suggested = (found.suggested == truth).double().mean()
    assert suggested > (logits.argmax(1) == truth).double().mean() > 1 - found.rate
    # Calibrated: of labels that are right with probability q, a share q is right.
    for low in (0.0, 0.25, 0.5, 0.75):
        group = (found.right >= low) & (found.right < low + 0.25)
        share = 1 - wrong[group].double().mean()
        assert abs(share - found.right[group].mean()) < 0.1


def test_the_interval_is_seeded_and_narrows():
    logits, labels, _ = calibrated(3, 800)
    few = rate_interval(logits[:100], labels[:100], GIVEN, seed=1)
    many = rate_interval(logits, labels, GIVEN, seed=1)
    assert many == rate_interval(logits, labels, GIVEN, seed=1)
    assert many != rate_interval(logits, labels, GIVEN, seed=2)
    assert many[1] - many[0] < few[1] - few[0]
    narrow = rate_interval(logits, labels, GIVEN, seed=1, level=0.5)
    assert many[0] < narrow[0] < narrow[1] < many[1]
    state = torch.random.get_rng_state()
    rate_interval(logits[:50], labels[:50], NoiseModel("full"), resamples=5)
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_interval_is_that_of_resamples_fitted_one_by_one():
    logits, labels, _ = calibrated(4, 120)
    draw = rng.stream(7, "labels", "bootstrap")
    rows = draw.integers(0, 120, (30, 120))
    for model in (GIVEN, NoiseModel(), NoiseModel("full")):
        rates = [label_posterior(logits[row], labels[row], model).rate for row in rows]
        found = rate_interval(logits, labels, model, seed=7, resamples=30)
        assert found == pytest.approx(tuple(np.quantile(rates, [0.025, 0.975])), abs=1e-7)


def test_one_sample_and_bad_settings_of_the_interval():
    low, high = rate_interval(torch.zeros(1, 3), torch.tensor([1]), resamples=3)
    assert 0 < low <= high < 2 / 3
    with pytest.raises(ConfigError, match="level must be"):
        rate_interval(torch.zeros(1, 3), torch.tensor([1]), level=1.0)
    with pytest.raises(ConfigError, match="resamples must be"):
        rate_interval(torch.zeros(1, 3), torch.tensor([1]), resamples=1)


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_the_temperature_is_the_best_one(scale):
    logits, _, truth = calibrated(5, 3000)
    found = fit_temperature(logits * scale, truth)
    best = scipy.optimize.minimize_scalar(
        lambda log: float(cross_entropy(logits * scale / math.exp(log), truth)),
        bounds=(-3, 3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert found == pytest.approx(math.exp(best.x), rel=1e-5)
    assert found == pytest.approx(scale, rel=0.1)


def test_the_calibration_is_the_best_one():
    logits, _, truth = calibrated(6, 400, 5)
    logits = 3 * logits + torch.tensor([2.0, -1.0, 0.0, 4.0, -3.0])
    found = fit_calibration(logits, truth)

    def loss(values):
        scores = logits * values[0] + torch.from_numpy(values[1:])
        return float(cross_entropy(scores, truth, reduction="sum")) + values[1:] @ values[1:] / 2

    best = scipy.optimize.minimize(loss, np.array([1.0, 0, 0, 0, 0, 0]), tol=1e-10)
    mine = np.array([1 / found.temperature, *found.bias.tolist()])
    assert loss(mine) <= best.fun + 1e-6
    assert np.allclose(mine, best.x, atol=1e-3)
    counts = torch.bincount(truth, minlength=5)
    assert torch.allclose(found.prior, (counts + 1).double() / 405)
    assert torch.equal(found.apply(logits), logits / found.temperature + found.bias)


@pytest.mark.parametrize("fit", [fit_temperature, fit_calibration])
@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (torch.eye(4) * 9, torch.arange(4)),
        (torch.zeros(6, 3), torch.zeros(6, dtype=torch.int64)),
        (torch.tensor([[1e6, -1e6]]), torch.tensor([1])),
        (-torch.eye(4) * 9, torch.arange(4)),
    ],
    ids=["perfect", "knows nothing", "one sample", "always wrong"],
)
def test_degenerate_clean_samples_have_a_defined_calibration(fit, logits, labels):
    found = fit(logits, labels)
    temperature = found if isinstance(found, float) else found.temperature
    assert temperature * (1 + 1e-9) >= 0.05
    assert temperature <= 20 * (1 + 1e-9)
    if not isinstance(found, float):
        assert torch.isfinite(found.bias).all()
    with pytest.raises(DataError, match="NaN"):
        fit(logits * torch.nan, labels)


def test_a_calibration_mends_what_a_temperature_cannot():
    """A half-trained model favours some classes: its clients see noise that is not there."""
    plain, warm, mended = [], [], []
    for seed in range(5):
        logits, labels, _ = calibrated(seed, 2200, prior=SKEWED, distance=1.5)
        clean, _, classes = calibrated(seed, 200, distance=1.5)
        favour = torch.from_numpy(rng.stream(seed, "favour").normal(size=10))
        logits, clean = 2 * (logits + favour), 2 * (clean + favour)
        plain.append(label_posterior(logits, labels).rate)
        model = NoiseModel(temperature=fit_temperature(clean, classes))
        warm.append(label_posterior(logits, labels, model).rate)
        found = fit_calibration(clean, classes)
        model = NoiseModel(temperature=1.0, train_prior=found.prior)
        mended.append(label_posterior(found.apply(logits), labels, model).rate)
    errors = [np.abs(np.array(rates) - 0.4).mean() for rates in (plain, warm, mended)]
    print("error of the rate: chosen temperature, fitted temperature, calibration:", errors)
    assert errors[2] < 0.04 < errors[1]
    assert errors[2] < errors[0]


def test_clients_that_are_alike_are_pooled_and_others_left_alone():
    draw = rng.stream(9, "rates")
    sizes = draw.integers(200, 2000, 30)
    alike = draw.binomial(sizes, 0.3) / sizes
    rate, weight = pool_rates(alike, sizes)
    assert rate == pytest.approx(float(alike @ sizes / sizes.sum()))
    assert weight > sizes.max()
    # Rates of a beta distribution with a + b = 10 pseudo-samples.
    apart = draw.binomial(sizes, draw.beta(3, 7, 30)) / sizes
    assert 5 < pool_rates(apart, sizes)[1] < 20
    assert pool_rates([0.0, 0.0], [5, 7]) == (0.0, 12.0)
    assert pool_rates([0.4], [9]) == (pytest.approx(0.4), 9.0)
    for rates, counts in (([0.1], []), ([], []), ([0.1], [0]), ([1.5], [3]), ([math.nan], [3])):
        with pytest.raises(DataError, match="rates"):
            pool_rates(rates, counts)


def test_rough_labels_stay_below_the_limit():
    """Labels that have nothing to do with the model: as noisy as a rate can say."""
    logits, labels = rough(8, 2000, 5)
    found = label_posterior(logits, labels, GIVEN)
    assert 0.75 < found.rate < 0.8
    assert np.allclose(found.transition.numpy(), symmetric(found.rate, 5))


def test_the_documented_example(capsys):
    text = (ROOT / "docs" / "labels.md").read_text()
    (block, *_) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(block, {"__name__": "example"})  # noqa: S102
    rate, low, high, share = map(float, re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert low <= rate <= high
    assert rate == pytest.approx(0.4, abs=0.05)
    assert share > 0.85
