"""The posterior and its parameters against independent definitions: every assignment of true
classes enumerated, EM written out sample by sample, and the properties that both must have.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfl.base import rng
from gcfl.base.errors import ConfigError, DataError
from gcfl.labels import (
    GRID,
    NoiseModel,
    corrected_losses,
    em,
    fit_calibration,
    fit_temperature,
    label_posterior,
    label_posteriors,
    posterior_given,
    rate_interval,
    symmetric_transition,
    with_neighbours,
)
from gcfl.labels.posterior import rule_of
from label_scenes import rough, symmetric


@st.composite
def problems(draw, largest=12):
    """Logits and labels, from flat to nearly certain, and what to assume of them."""
    classes = draw(st.integers(2, 5))
    n = draw(st.integers(1, largest))
    scale = draw(st.sampled_from([0.0, 0.3, 3.0, 30.0, 2000.0]))
    seed = draw(st.integers(0, 2**32))
    logits, labels = rough(seed, n, classes, scale)
    if draw(st.booleans()):
        labels[:] = labels[0]
    weight = draw(st.sampled_from([0.0, 5.0, math.inf]))
    ratio = rng.stream(seed, "prior").random(classes) + 0.1
    model = NoiseModel(
        transition=draw(st.sampled_from(["uniform", "full", "auto"])),
        pseudo_counts=draw(st.sampled_from([0.1, 20.0])),
        temperature=draw(st.sampled_from([None, 1.0, 2.5])),
        train_prior=torch.from_numpy(ratio / ratio.sum()) if draw(st.booleans()) else None,
        prior_rate=draw(st.sampled_from([0.0, 0.4, 0.99])) if weight else None,
        rate_weight=weight,
    )
    return logits, labels, model


def enumerated(logits, labels, prior, transition, temperature, ratio):
    """(n, C) P(y_j = c | everything seen), summed over all C^n assignments of true classes."""
    n, classes = logits.shape
    p = np.exp(logits.numpy() / temperature)
    p /= p.sum(1, keepdims=True)
    found = np.zeros((n, classes))
    for assignment in product(range(classes), repeat=n):
        joint = 1.0
        for j, c in enumerate(assignment):
            joint *= prior[c] / ratio[c] * p[j, c] * transition[c, labels[j]]
        for j, c in enumerate(assignment):
            found[j, c] += joint
    return found / found.sum(1, keepdims=True)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(2, 3),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.booleans(),
)
def test_the_posterior_is_what_enumeration_gives(seed, n, classes, temperature, skewed):
    logits, labels = rough(seed, n, classes)
    draw = rng.stream(seed, "parameters")
    prior, ratio = draw.dirichlet(np.ones(classes), 2)
    transition = draw.dirichlet(np.ones(classes), classes)
    given_prior = torch.from_numpy(ratio) if skewed else None
    ratio = ratio if skewed else np.ones(classes)
    expected = enumerated(logits, labels.numpy(), prior, transition, temperature, ratio)
    found = posterior_given(
        logits,
        labels,
        torch.from_numpy(prior),
        torch.from_numpy(transition),
        temperature,
        given_prior,
    )
    assert np.allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def written_out(logits, labels, temperature, iterations, skew, rate=0.3):
    """EM for the uniform matrix, sample by sample as it is defined."""
    n, classes = logits.shape
    p = torch.softmax(logits / temperature, 1).numpy()
    prior = np.full(classes, 1 / classes)
    for _ in range(iterations):
        transition = symmetric(rate, classes)
        q = np.empty((n, classes))
        for j in range(n):
            joint = [prior[c] * p[j, c] * transition[c, labels[j]] for c in range(classes)]
            q[j] = np.array(joint) / sum(joint)
        prior = (q.sum(0) + 1) / (n + classes) if skew == "classes" else prior
        rate = np.mean([1 - q[j, labels[j]] for j in range(n)])
        rate = min(max(rate, 1e-6), (classes - 1) / classes - 1e-3)
    # What it is worth: the density of inputs and labels, and the prior's penalty.
    seen = (np.bincount(labels, minlength=classes) + 1) / (n + classes)
    density = 0.0
    for j in range(n):
        by_class = [
            prior[c] * p[j, c] * symmetric(rate, classes)[c, labels[j]] for c in range(classes)
        ]
        by_label = [p[j, c] * symmetric(rate, classes)[c, labels[j]] for c in range(classes)]
        density += np.log(sum(by_class) if skew == "classes" else seen[labels[j]] * sum(by_label))
    return rate, prior, density + np.log(prior if skew == "classes" else seen).sum()


@pytest.mark.parametrize("skew", ["classes", "labels"])
@pytest.mark.parametrize("iterations", [1, 2, 25])
def test_em_by_its_definition(iterations, skew):
    logits, labels = rough(1, 30, 4)
    rate, prior, value = written_out(logits, labels.numpy(), 2.0, iterations, skew)
    model = NoiseModel(temperature=2.0, iterations=iterations, tolerance=0.0, skew=skew)
    found = label_posterior(logits, labels, model)
    assert found.rate == pytest.approx(rate, abs=1e-12)
    assert float(found.trace[-1]) == pytest.approx(value, abs=1e-9)
    assert np.allclose(found.prior.numpy(), prior, atol=1e-12)
    assert torch.equal(found.transition, symmetric_transition(found.rate, 4))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 40), st.integers(2, 5))
def test_auto_is_whatever_explains_the_samples_better(seed, n, classes):
    logits, labels = rough(seed, n, classes)
    fits = {
        skew: label_posterior(logits, labels, NoiseModel(skew=skew))
        for skew in ("classes", "labels", "auto")
    }
    values = {skew: float(fit.trace[-1]) for skew, fit in fits.items()}
    best = max(("classes", "labels"), key=values.__getitem__)
    assert values["auto"] == pytest.approx(values[best], abs=1e-9)
    if abs(values["classes"] - values["labels"]) > 1e-9:
        assert fits["auto"].rate == pytest.approx(fits[best].rate, abs=1e-9)
        assert torch.allclose(fits["auto"].posterior, fits[best].posterior, atol=1e-9)


@pytest.mark.parametrize("by", ["classes", "labels"])
def test_rates_of_skewed_clients_come_out_right_whatever_they_are_skewed_by(by):
    """Ten classes, two of them at the client: by class, labels go anywhere; by label, classes."""
    draw = np.random.default_rng(3)
    n, classes, rate = 600, 10, 0.35
    held = draw.choice(2, n) * 5 + 1
    wrong = draw.random(n) < rate
    other = (held + draw.integers(1, classes, n)) % classes
    true = held if by == "classes" else np.where(wrong, other, held)
    label = np.where(wrong, other, held) if by == "classes" else held
    logits = 3 * (draw.normal(size=(n, classes)) + 3 * np.eye(classes)[true])  # calibrated
    for skew in (by, "auto"):
        found = label_posterior(
            torch.from_numpy(logits), torch.from_numpy(label), NoiseModel(skew=skew)
        )
        assert found.rate == pytest.approx(wrong.mean(), abs=0.04)
    if by == "labels":  # the other way goes wrong by far: that is what auto is for
        mistaken = label_posterior(
            torch.from_numpy(logits), torch.from_numpy(label), NoiseModel(skew="classes")
        )
        assert abs(mistaken.rate - wrong.mean()) > 0.1


def test_one_step_of_the_full_matrix_by_its_definition():
    """From the uniform fit, whose matrix stays the one that the pseudo-counts pull towards."""
    logits, labels = rough(2, 40, 3)
    labels[:25] = logits[:25].argmax(1)
    start = label_posterior(logits, labels, NoiseModel(temperature=1.0, iterations=1))
    found = label_posterior(
        logits, labels, NoiseModel("full", pseudo_counts=7.0, temperature=1.0, iterations=1)
    )
    counts = 7.0 * start.transition.numpy()
    for q, label in zip(start.posterior.numpy(), labels.tolist(), strict=True):
        counts[:, label] += q
    expected = counts / counts.sum(1, keepdims=True)
    assert np.allclose(found.transition.numpy(), expected, atol=1e-12)
    assert found.rate == pytest.approx(float(1 - start.right.mean()), abs=1e-12)


def sites(kind, n, seed):
    """A calibrated model's logits of n samples of ten classes, and labels of which 40% are wrong:
    anywhere, or each class's as the next one.
    """
    draw = np.random.default_rng(seed)
    true = draw.integers(0, 10, n)
    by = draw.integers(1, 10, n) if kind == "uniform" else 1
    labels = np.where(draw.random(n) < 0.4, (true + by) % 10, true)
    logits = 3 * (draw.normal(size=(n, 10)) + 3 * np.eye(10)[true])
    return torch.from_numpy(logits), torch.from_numpy(labels), (labels != true).mean()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [150, 2000])
@pytest.mark.parametrize("kind", ["uniform", "pair"])
def test_a_matrix_is_fitted_where_the_samples_carry_it(kind, n, seed):
    logits, labels, wrong = sites(kind, n, seed)
    found = label_posterior(logits, labels, NoiseModel("auto"))
    assert found.uniform == (kind == "uniform")
    assert found.rate == pytest.approx(wrong, abs=0.06 if n < 1000 else 0.03)
    other = label_posterior(
        logits, labels, NoiseModel("uniform" if found.uniform else "full", pseudo_counts=1.0)
    )
    same(found, other, 1e-4)  # the full one may start at the other skew
    if kind == "pair":
        assert found.transition.diagonal(offset=1).mean() == pytest.approx(wrong, abs=0.1)


def test_what_a_matrix_is_worth_by_its_definition():
    """The Bayes factor against a product of Dirichlet integrals, by Polya's urn: sample by sample,
    with whole counts.
    """
    draw = np.random.default_rng(5)
    true, labels = draw.integers(0, 3, 60), draw.integers(0, 3, 60)
    # The model is sure, so that the expected counts are whole.
    logits = torch.from_numpy(1000.0 * np.eye(3)[true])
    samples = em.Samples(logits[None], torch.from_numpy(labels)[None], torch.ones(1, 60).double())
    rule = rule_of(NoiseModel(), 3)
    uniform = em.fit_uniform(samples, rule, 1.0, torch.tensor([False]))
    full = em.fit_full(samples, rule, uniform, 2.0)
    centre = uniform.transition[0].numpy()
    urn, expected = 2.0 * centre, 0.0
    for c, k in zip(true, labels, strict=True):
        expected += np.log(urn[c, k] / urn[c].sum()) - np.log(centre[c, k])
        urn[c, k] += 1
    assert float(em.worth(samples, rule, full, uniform, 2.0)) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=300)
@given(problems(largest=40))
def test_the_penalised_objective_never_falls_and_all_is_defined(problem):
    logits, labels, model = problem
    n, classes = logits.shape
    found = label_posterior(logits, labels, model)
    assert (found.trace.diff() >= -1e-9 * (1 + found.trace.abs().max())).all()
    assert 0 < found.rate < (classes - 1) / classes
    assert float(found.prior.sum()) == pytest.approx(1)
    assert torch.allclose(found.transition.sum(1), torch.ones(classes).double())
    assert torch.allclose(found.posterior.sum(1), torch.ones(n).double())
    assert torch.equal(found.right, found.posterior[torch.arange(n), labels])
    assert torch.equal(found.suggested, found.posterior.argmax(1))
    assert found.temperature in ((model.temperature,) if model.temperature else GRID)
    if math.isinf(model.rate_weight) and model.transition == "uniform":
        assert found.rate == pytest.approx(min(max(model.prior_rate, 1e-6), 1 - 1 / classes), 0.01)
    # The last E step is the posterior under the fitted parameters.
    again = posterior_given(
        logits, labels, found.prior, found.transition, found.temperature, model.train_prior
    )
    assert torch.allclose(found.posterior, again, atol=1e-9)


def test_the_objective_is_its_formula():
    logits, labels = rough(3, 25, 3)
    ratio = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for kind in ("uniform", "full"):
        model = NoiseModel(kind, 20.0, 1.4, ratio, prior_rate=0.2, rate_weight=9.0)
        found = label_posterior(logits, labels, model)
        joint = found.prior / ratio * (logits / 1.4).softmax(1) * found.transition.T[labels]
        value = joint.sum(1).log().sum() + found.prior.log().sum()
        if kind == "uniform":
            value += 9.0 * (0.2 * math.log(found.rate) + 0.8 * math.log(1 - found.rate))
        else:
            centre = label_posterior(
                logits, labels, NoiseModel("uniform", 20.0, 1.4, ratio, 0.2, 9.0)
            ).transition
            value += 20.0 * (centre * found.transition.log()).sum()
        assert float(found.trace[-1]) == pytest.approx(float(value), rel=1e-12)


def same(one, other, to=1e-9):
    assert one.rate == pytest.approx(other.rate, abs=to)
    assert one.temperature == other.temperature
    for name in ("prior", "transition", "posterior", "right"):
        assert torch.allclose(getattr(one, name), getattr(other, name), atol=to), name


@settings(max_examples=100)
@given(problems(), st.integers(0, 2**32))
def test_the_order_of_samples_and_classes_does_not_matter(problem, seed):
    logits, labels, model = problem
    n, classes = logits.shape
    # A temperature chosen between equals may change with the last bit.
    model = NoiseModel(**{**vars(model), "temperature": model.temperature or 1.4})
    found = label_posterior(logits, labels, model)
    rows = torch.from_numpy(rng.stream(seed, "rows").permutation(n))
    moved = label_posterior(logits[rows], labels[rows], model)
    assert moved.rate == pytest.approx(found.rate, abs=1e-7)
    assert torch.allclose(moved.posterior, found.posterior[rows], atol=1e-6)
    names = torch.from_numpy(rng.stream(seed, "names").permutation(classes))
    place = names.argsort()
    prior = None if model.train_prior is None else model.train_prior[names]
    renamed = label_posterior(
        logits[:, names], place[labels], NoiseModel(**{**vars(model), "train_prior": prior})
    )
    assert renamed.rate == pytest.approx(found.rate, abs=1e-7)
    assert torch.allclose(renamed.posterior, found.posterior[:, names], atol=1e-6)
    assert torch.allclose(renamed.transition, found.transition[names][:, names], atol=1e-6)


@pytest.mark.parametrize("kind", ["uniform", "full", "auto"])
@pytest.mark.parametrize("temperature", [None, 1.0])
def test_many_clients_at_once_equal_one_at_a_time(kind, temperature):
    draw = rng.stream(4, "sizes")
    sizes = [1, 1, 2, 300, *draw.integers(1, 90, 25).tolist()]
    logits, labels = rough(5, sum(sizes), 6)
    model = NoiseModel(kind, temperature=temperature)
    together = label_posteriors(logits, labels, sizes, model)
    parts = zip(together, logits.split(sizes), labels.split(sizes), strict=True)
    for found, rows, seen in parts:
        alone = label_posterior(rows, seen, model)
        same(found, alone)
        assert torch.equal(found.suggested, alone.suggested)
        assert torch.allclose(found.trace, alone.trace, atol=1e-9)


def test_float32_logits_give_float64_results_and_no_history():
    logits, labels = rough(6, 50, 4)
    found = label_posterior(logits.float().requires_grad_(), labels.int())
    assert found.posterior.dtype == found.prior.dtype == torch.float64
    assert not found.posterior.requires_grad
    same(found, label_posterior(logits, labels), to=1e-5)


def test_a_rate_shrinks_towards_the_pool_and_can_be_held():
    logits, labels = rough(7, 200, 5)
    free = label_posterior(logits, labels, NoiseModel(temperature=1.0)).rate
    rates = [
        label_posterior(
            logits, labels, NoiseModel(temperature=1.0, prior_rate=0.1, rate_weight=weight)
        ).rate
        for weight in (1.0, 100.0, 10_000.0, math.inf)
    ]
    assert free > rates[0] > rates[1] > rates[2] > rates[3] == pytest.approx(0.1)


ONES = torch.zeros(20, dtype=torch.int64)


def test_a_perfect_model_finds_no_noise():
    labels = torch.arange(20) % 4
    found = label_posterior(1e4 * torch.nn.functional.one_hot(labels).double(), labels)
    assert found.rate == pytest.approx(1e-6)
    assert (found.right > 1 - 1e-6).all()


def test_a_hopeless_model_says_the_same_of_equal_labels():
    labels = torch.arange(30) % 3
    found = label_posterior(torch.zeros(30, 3), labels)
    assert 0 < found.rate < 2 / 3
    assert torch.allclose(found.right, found.right[:1].expand(30))


@pytest.mark.parametrize("kind", ["uniform", "full", "auto"])
@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (torch.tensor([[3.0, -1.0]]), torch.tensor([1])),
        (torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), ONES),
        (torch.zeros(20, 2), ONES),
        (1e308 * torch.tensor([[1.0, -1.0, 0.5]]).double().repeat(20, 1), ONES),
        (torch.eye(7).repeat(3, 1)[:20] * -500, ONES),
    ],
    ids=["one sample", "one class present", "hopeless, two classes", "huge", "always wrong"],
)
def test_degenerate_problems_have_defined_results(logits, labels, kind):
    found = label_posterior(logits, labels, NoiseModel(kind))
    classes = logits.shape[1]
    assert 0 < found.rate < (classes - 1) / classes
    for name in ("prior", "transition", "posterior", "right", "trace"):
        assert torch.isfinite(getattr(found, name)).all(), name
    assert (found.prior > 0).all()


def test_a_label_that_nothing_explains_leaves_the_model_its_belief():
    transition = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    uniform = torch.tensor([0.5, 0.5])
    found = posterior_given(torch.tensor([[2.0, 0.0]]), torch.tensor([1]), uniform, transition)
    assert torch.allclose(found, torch.tensor([[2.0, 0.0]]).double().softmax(1))


BAD = {
    "two classes": (torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), "at least two classes"),
    "no matrix": (torch.zeros(3), torch.zeros(3, dtype=torch.int64), r"shape \(n, C\)"),
    "sigmoid": (torch.zeros(3, 4), torch.zeros(3, 4), "multi-class softmax only"),
    "lengths": (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64), "need 3 labels"),
    "none": (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), "at least one sample"),
    "floats": (torch.zeros(3, 4), torch.zeros(3), "whole class numbers"),
    "range": (torch.zeros(3, 4), torch.tensor([0, 1, 4]), r"in 0 \.\. 3, got 0 \.\. 4"),
    "negative": (torch.zeros(3, 4), torch.tensor([0, -1, 2]), r"got -1 \.\. 2"),
    "nan": (torch.full((3, 4), torch.nan), torch.zeros(3, dtype=torch.int64), "NaN or infinite"),
    "whole": (torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), "real"),
}


def test_arrays_and_lists_are_taken_as_tensors_are():
    logits, labels = rough(0, 40, 4)
    prior, matrix = torch.tensor([0.1, 0.2, 0.3, 0.4]), symmetric_transition(0.3, 4)
    features = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    for kind in (lambda t: t.numpy(), lambda t: t.tolist()):
        rows, given, odds = kind(logits), kind(labels), kind(prior / prior.sum())
        asked = [
            NoiseModel(train_prior=one, temperature=1.0) for one in (odds, prior / prior.sum())
        ]
        mine, other = (
            label_posterior(rows, given, asked[0]),
            label_posterior(logits, labels, asked[1]),
        )
        assert mine.rate == pytest.approx(other.rate, abs=1e-6)
        assert torch.allclose(mine.posterior, other.posterior, atol=1e-6)
        assert rate_interval(rows, given, resamples=5) == pytest.approx(
            rate_interval(logits, labels, resamples=5), abs=1e-6
        )
        assert torch.allclose(
            posterior_given(rows, given, odds, kind(matrix)),
            posterior_given(logits, labels, prior / prior.sum(), matrix),
            atol=1e-6,
        )
        fitted, same = fit_calibration(rows, given), fit_calibration(logits, labels)
        assert torch.allclose(fitted.apply(rows), same.apply(logits), atol=1e-5)
        assert fit_temperature(rows, given) == pytest.approx(fit_temperature(logits, labels))
        near = with_neighbours(kind(other.posterior), given, kind(features))
        assert torch.allclose(near, with_neighbours(other.posterior, labels, features), atol=1e-6)
        losses = corrected_losses(rows, given, kind(matrix)).float()
        assert torch.allclose(losses, corrected_losses(logits, labels, matrix).float(), atol=1e-5)
    small = label_posterior(logits.numpy(), labels.numpy().astype(np.uint16))
    assert torch.equal(small.posterior, label_posterior(logits, labels).posterior)


@pytest.mark.parametrize("labels", [["a", "b"], [[0], [1, 2]], object()])
def test_labels_that_are_no_numbers_get_one_sentence(labels):
    with pytest.raises(DataError, match="labels must be a tensor, an array or a list of numbers"):
        label_posterior(torch.randn(2, 3), labels)


@pytest.mark.parametrize("judge", [label_posterior, rate_interval, fit_calibration])
def test_probabilities_are_not_taken_for_logits(judge):
    logits, labels = rough(0, 60, 4, 3.0)
    for p in (logits.softmax(1), logits.softmax(1).numpy().round(4)):
        with pytest.raises(DataError, match=r"these are probabilities.*log\(p\)"):
            judge(p, labels)
    judge(logits.softmax(1).log(), labels)
    assert label_posterior(logits.softmax(1).log(), labels).rate == pytest.approx(
        label_posterior(logits, labels).rate, abs=1e-6
    )


@pytest.mark.parametrize("name", BAD)
def test_bad_samples_get_one_sentence(name):
    logits, labels, words = BAD[name]
    with pytest.raises(DataError, match=words):
        label_posterior(logits, labels)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transition": "square"}, "uniform, full or auto"),
        ({"temperature": 0.0}, "temperature must be"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"temperatures": (1.0, 0.0)}, "temperatures must be"),
        ({"temperatures": ()}, "temperatures must be"),
        ({"pseudo_counts": 0.0}, "pseudo_counts must be"),
        ({"prior_rate": 1.0, "rate_weight": 1.0}, "prior_rate must be"),
        ({"prior_rate": 0.2}, "without each other"),
        ({"rate_weight": 3.0}, "without each other"),
        ({"rate_weight": math.nan}, "rate_weight must be"),
        ({"iterations": 0}, "iterations must be"),
        ({"tolerance": -1.0}, "tolerance must be"),
    ],
)
def test_bad_settings_get_one_sentence(settings, words):
    with pytest.raises(ConfigError, match=words):
        NoiseModel(**settings)


def test_bad_priors_matrices_and_sizes_get_one_sentence():
    logits, labels = rough(0, 6, 3)
    flat, same = torch.full((3,), 1 / 3), torch.eye(3)
    with pytest.raises(DataError, match=r"train_prior must have shape \(3,\)"):
        label_posterior(logits, labels, NoiseModel(train_prior=torch.ones(2)))
    with pytest.raises(DataError, match="prior must be positive and add up to 1"):
        posterior_given(logits, labels, torch.tensor([1.0, 0.0, 0.0]), same)
    with pytest.raises(DataError, match=r"shape \(3, 3\)"):
        posterior_given(logits, labels, flat, torch.eye(2))
    with pytest.raises(DataError, match="rows of transition"):
        posterior_given(logits, labels, flat, same * torch.nan)
    with pytest.raises(ConfigError, match="temperature must be"):
        posterior_given(logits, labels, flat, same, temperature=0.0)
    for sizes in ([5], [], [6, 0], [7, -1]):
        with pytest.raises(DataError, match="add up to 6"):
            label_posteriors(logits, labels, sizes)
    with pytest.raises(ConfigError, match="rate must be"):
        symmetric_transition(1.5, 3)
    with pytest.raises(ConfigError, match="classes must be"):
        symmetric_transition(0.5, 1)
