"""Every selector by its definition, and the public face."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from gcfl.base import rng
from gcfl.base.errors import ConfigError, DataError
from gcfl.coreset import (
    SELECTORS,
    ByClass,
    CoresetSelector,
    Pool,
    label_wise_target,
    per_class,
    select,
    whole,
    whole_target,
)
from gcfl.coreset.baselines import Agreement
from gcfl.coreset.representation import Craig, Crust


def samples(seed=0, n=80, d=6, classes=4, kind=torch.float64):
    draw = rng.stream(seed, "samples")
    features = torch.from_numpy(np.abs(draw.normal(size=(n, d)))).to(kind)
    probabilities = torch.from_numpy(draw.normal(size=(n, classes)) * 2).softmax(1).to(kind)
    labels = torch.from_numpy(draw.integers(0, classes, n))
    return features, probabilities, labels


def target_of(variant, seed=9):
    features, probabilities, labels = samples(seed)
    return (whole_target if variant == "whole" else label_wise_target)(
        features, probabilities, labels
    )


@settings(max_examples=200)
@given(
    st.integers(0, 2**32),
    st.integers(0, 90),
    st.sampled_from(sorted(SELECTORS)),
    st.sampled_from(["label-wise", "whole"]),
)
def test_every_selector_keeps_its_budget_and_repeats(seed, budget, name, variant):
    variant = "label-wise" if name in ("crust", "craig", "small-loss") else variant
    arguments = (*samples(seed), budget, target_of(variant))
    found = select(name, *arguments, variant=variant, seed=seed)
    assert len(found.indices) == len(set(found.indices)) == min(budget, 80)
    assert found.indices.size == 0 or (found.indices.min() >= 0 and found.indices.max() < 80)
    assert np.isfinite(found.weights).all()
    assert (found.weights >= 0).all()
    again = select(name, *arguments, variant=variant, seed=seed)
    assert found.indices.tolist() == again.indices.tolist()


@pytest.mark.parametrize(
    "name", sorted(name for name, one in SELECTORS.items() if issubclass(one, ByClass))
)
@pytest.mark.parametrize("split", ["proportional", "equal"])
def test_label_wise_selectors_share_the_budget_over_classes(name, split):
    features, probabilities, labels = samples(3)
    found = select(name, features, probabilities, labels, 21, target_of("label-wise"), split=split)
    expected = per_class(np.bincount(labels, minlength=4), 21, split)
    assert np.bincount(labels[found.indices], minlength=4).tolist() == expected.tolist()


def test_glister_takes_the_largest_inner_products():
    features, probabilities, labels = samples(1)
    target = target_of("whole")
    rows = (probabilities - one_hot(labels, 4))[:, :, None] * torch.cat(
        [features, torch.ones(80, 1)], 1
    )[:, None]
    inner = (rows * target).sum((1, 2))
    found = select("glister", features, probabilities, labels, 9, target, variant="whole")
    assert set(found.indices) == set(inner.argsort(descending=True)[:9].tolist())


def test_gradmatch_matches_its_own_mean():
    features, probabilities, labels = samples(2)
    own = select("gradmatch", features, probabilities, labels, 12, variant="whole")
    told = select(
        "gcfl",
        features,
        probabilities,
        labels,
        12,
        whole(features, probabilities, labels).mean(),
        variant="whole",
        score="correlation",
    )
    assert own.indices.tolist() == told.indices.tolist()
    assert np.allclose(own.weights, told.weights)
    by_class = label_wise_target(features, probabilities, labels)
    own = select("gradmatch", features, probabilities, labels, 12)
    told = select("gcfl", features, probabilities, labels, 12, by_class, score="correlation")
    assert own.indices.tolist() == told.indices.tolist()


def medoid_cost(distances, chosen):
    return float(distances[:, chosen].min(1).values.sum())


@pytest.mark.parametrize(("selector", "space"), [(Crust, "gradients"), (Craig, "residuals")])
def test_medoids_are_near_everything_in_their_space(selector, space):
    """One class: greedy medoids by the definition, in the dense gradient space or in residual
    space.
    """
    features, probabilities, _ = samples(4, n=60)
    labels = torch.zeros(60, dtype=torch.int64)
    residuals = probabilities - one_hot(labels, 4)
    points = residuals
    if space == "gradients":
        points = (
            residuals[:, :, None] * torch.cat([features, torch.ones(60, 1)], 1)[:, None]
        ).flatten(1)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    found, _ = selector().pick(Pool(features, probabilities, labels), None, 8, rng.stream, {})
    # Facility location on D - distance starts from nothing, whose distance is D = twice the largest
    # norm.
    cover = torch.full((60,), float(2 * points.norm(dim=1).max()), dtype=torch.float64)
    chosen = []
    for _ in range(8):
        gains = torch.stack([(cover - torch.minimum(cover, distances[j])).sum() for j in range(60)])
        gains[chosen] = -1
        chosen.append(int(gains.argmax()))
        cover = torch.minimum(cover, distances[chosen[-1]])
    assert medoid_cost(distances, found.indices) == pytest.approx(
        medoid_cost(distances, chosen), rel=1e-6
    )
    assert found.weights.sum() == 60


def test_small_loss_is_the_smallest_per_class():
    features, probabilities, labels = samples(5)
    found = select("small-loss", features, probabilities, labels, 20)
    loss = -probabilities[torch.arange(80), labels].log()
    for c in range(4):
        mine = [j for j in found.indices if labels[j] == c]
        others = [j for j in range(80) if labels[j] == c and j not in mine]
        assert max(loss[mine]) <= min(loss[others])


def test_agreement_prefers_samples_that_the_model_agrees_with():
    features, probabilities, labels = samples(6)
    agrees = (probabilities.argmax(1) == labels).numpy()
    few = select("agreement", features, probabilities, labels, int(agrees.sum()) - 2)
    assert agrees[few.indices].all()
    many = select("agreement", features, probabilities, labels, int(agrees.sum()) + 5)
    assert agrees[many.indices].sum() == agrees.sum()
    own = probabilities[torch.arange(80), labels].numpy()
    rest = [j for j in many.indices if not agrees[j]]
    left = [j for j in range(80) if not agrees[j] and j not in rest]
    assert min(own[rest]) >= max(own[left])
    counts = np.zeros(80)
    for seed in range(300):
        draw = partial(rng.stream, seed)
        chosen, _ = Agreement().pick(Pool(features, probabilities, labels), None, 3, draw, {})
        counts[chosen.indices] += 1
    assert counts[~agrees].sum() == 0
    assert counts[agrees].std() < 3 * np.sqrt(counts[agrees].mean())


@pytest.mark.parametrize("classes", [1, 3])
def test_sigmoid_outputs_binary_and_multi_label(classes):
    """The factors equal autograd of binary cross-entropy, and the whole variant selects
    with them.
    """
    draw = rng.stream(7, "sigmoid")
    features = torch.from_numpy(draw.normal(size=(40, 5)))
    labels = torch.from_numpy(draw.integers(0, 2, (40, classes))).double()
    weight = torch.from_numpy(draw.normal(size=(classes, 6))).requires_grad_()
    extended = torch.cat([features, torch.ones(40, 1)], 1)
    gradients = whole(features, torch.sigmoid(extended @ weight.T).detach(), labels)
    for j in (0, 17):
        loss = binary_cross_entropy_with_logits(extended[j] @ weight.T, labels[j], reduction="sum")
        (expected,) = torch.autograd.grad(loss, weight)
        assert torch.allclose(gradients.rows(torch.tensor([j])).mean(), expected, atol=1e-9)
    found = select(
        "gcfl",
        features,
        torch.sigmoid(extended @ weight.T).detach(),
        labels,
        10,
        gradients.mean(),
        variant="whole",
    )
    assert len(set(found.indices)) == 10
    with pytest.raises(ConfigError, match="variant='whole'"):
        select(
            "gcfl",
            features,
            torch.sigmoid(extended @ weight.T).detach(),
            labels,
            10,
            gradients.mean(),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selector": "gclf"}, "did you mean gcfl"),
        ({"variant": "half"}, "variant must be"),
        ({"budget": -1}, "budget must be a whole number"),
        ({"budget": 0.5}, "budget must be a whole number"),
        ({"target": None}, "pass target="),
        ({"target": torch.zeros(4, 6)}, r"target must have shape \(4, 7\), got \(4, 6\)"),
        ({"features": torch.full((80, 6), torch.nan)}, "features has NaN"),
        ({"labels": torch.full((80,), 4)}, r"labels must be in 0 .. 3, got 4 .. 4"),
        ({"labels": torch.zeros(79, dtype=torch.int64)}, "must agree in n"),
        ({"labels": torch.zeros(80, 3)}, "must have the shape of probabilities"),
        ({"rigde": 1.0}, "unknown option rigde; did you mean ridge"),
        (
            {"score": "distnace"},
            "score must be 'correlation', 'cosine', 'distance' or 'nearest', got 'distnace'",
        ),
        ({"split": "proportionl"}, "split must be 'proportional' or 'equal'"),
        ({"ridge": -1.0}, "ridge must be in"),
        ({"ridge": float("nan")}, "ridge must be in"),
        ({"points_per_step": 0}, "points_per_step must be at least 1"),
        ({"labels": torch.full((80,), 0.7)}, "labels must be whole numbers"),
        ({"selector": "crust", "variant": "whole"}, "has no variant 'whole'"),
    ],
)
def test_bad_input_gets_a_sentence(change, message):
    features, probabilities, labels = samples()
    arguments = {
        "features": features,
        "probabilities": probabilities,
        "labels": labels,
        "budget": 5,
        "target": target_of("label-wise"),
    }
    with pytest.raises((ConfigError, DataError), match=message):
        select(**{"selector": "gcfl", **arguments, **change})


def test_numpy_and_the_estimator():
    features, probabilities, labels = samples()
    target = target_of("label-wise")
    found = select(
        "gcfl", features.numpy(), probabilities.numpy(), labels.numpy(), 7, target.numpy()
    )
    fitted = CoresetSelector("gcfl", budget=7).fit(
        features.numpy(), labels.numpy(), probabilities.numpy(), target
    )
    assert fitted.indices_.tolist() == found.indices.tolist()
    assert fitted.transform(features.numpy()).shape == (7, 6)
    assert CoresetSelector(budget=3).get_params()["budget"] == 3
    nearest = CoresetSelector("gcfl", budget=7, score="nearest").fit(
        features.numpy(), labels.numpy(), probabilities.numpy(), target
    )
    assert (
        nearest.indices_.tolist()
        == select(
            "gcfl", features, probabilities, labels, 7, target, score="nearest"
        ).indices.tolist()
    )


def test_the_documented_example(capsys):
    from helpers import ROOT

    (block, *_) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "coresets.md").read_text(), re.S
    )
    exec(block, {"__name__": "example"})  # noqa: S102
    share = float(capsys.readouterr().out.split()[-1])
    assert 0.9 < share <= 1
