"""GCFLClassifier: scikit-learn's own checks, and what is ours."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import gcfl
from gcfl import GCFLClassifier
from gcfl.api import estimator

# Short: the checks fit some hundred times.
QUICK = {"clean": {"warm_start": 20, "lr": 0.1}}
SHORT = {"model": "logistic", "rounds": 1, "lr": 0.1, "settings": QUICK}
EXPECTED: dict[str, str] = {}  # checks that do not apply, each with its reason: none so far


@pytest.mark.filterwarnings("ignore")  # what the checks themselves warn of
@parametrize_with_checks([GCFLClassifier(**SHORT)], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def blobs(n=300):
    x, y = make_blobs(n, 4, centers=3, cluster_std=1.5, random_state=0)
    return x, np.array(["red", "green", "blue"])[y]


def test_who_holds_what():
    x, y = blobs()
    assert len(GCFLClassifier(**SHORT).fit(x, y).clients_) == 10
    assert len(GCFLClassifier(**SHORT).fit(x[:60], y[:60]).clients_) == 2
    four = GCFLClassifier(**SHORT).fit(x, y, clients=4, clean=30)
    assert [one["samples"] for one in four.clients_] == [68, 68, 67, 67]
    sites = np.array(["north", "south", "east"])[np.arange(300) % 3]
    by_name = GCFLClassifier(**SHORT).fit(x, y, clients=sites, clean=(x[:30], y[:30]))
    found = {one["name"]: one["samples"] for one in by_name.clients_}
    assert found == {"east": 100, "north": 100, "south": 100}


def test_a_clean_set_that_is_cut_from_the_labels_is_told_once(caplog):
    estimator._warn_of_cut.cache_clear()
    x, y = blobs(60)
    GCFLClassifier(**SHORT).fit(x[20:], y[20:], clean=(x[:20], y[:20]))
    assert "cut from y" not in caplog.text
    for _ in range(2):
        GCFLClassifier(**SHORT).fit(x, y)
    assert caplog.text.count("clean set is cut from y") == 1


def test_the_clean_set_is_cut_by_class_and_stays_clean(monkeypatch):
    seen = {}

    def watched(**settings):
        seen.update(settings)
        raise gcfl.GcflError("seen enough")

    monkeypatch.setattr("gcfl.api.estimator.run", watched)
    x, y = blobs()
    with pytest.raises(ValueError, match="seen enough"):
        GCFLClassifier(**SHORT).fit(x, y, clean=0.2)
    clean_x, clean_y = seen["validation"]
    rest_x, _ = seen["data"]["source"]
    assert np.bincount(clean_y).tolist() == [20, 20, 20]
    both = np.concatenate([clean_x, rest_x])
    assert np.array_equal(np.sort(both, axis=0), np.sort(x, axis=0))


def test_it_beats_wrong_labels():
    """Half of the clients' labels are wrong: with a clean set it is hardly worse than without."""
    x, y = load_digits(return_X_y=True)
    wrong = y.copy()
    flipped = np.random.default_rng(0).permutation(1300)[:650]
    wrong[flipped] = (y[flipped] + np.random.default_rng(1).integers(1, 10, 650)) % 10
    clean = x[1300:1400], y[1300:1400]
    settings = {"rounds": 10, "lr": 0.05, "epochs": 5}
    settings["settings"] = {"clean": {"warm_start": 60, "lr": 0.03}}
    ours = GCFLClassifier(**settings).fit(x[:1300], wrong[:1300], clean=clean)
    plain = GCFLClassifier("fedavg", **settings).fit(x[:1300], wrong[:1300], clean=clean)
    assert ours.score(x[1400:], y[1400:]) > max(0.85, plain.score(x[1400:], y[1400:]) + 0.03)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


def test_images_a_network_of_ones_own_and_a_folder_that_is_kept(tmp_path):
    digits = load_digits()
    x, y = digits.images[:, None].astype(np.uint8), digits.target
    one = GCFLClassifier(model=Net, rounds=2, lr=0.05, out=tmp_path, settings=QUICK)
    one.fit(x, y, clients=3)
    assert one.folder_.parent == tmp_path
    assert gcfl.load(one.folder_, model=Net).finished
    rounds = []
    again = clone(one).set_params(settings={**QUICK, "on_round": rounds.append})
    again.fit(x, y, clients=3)
    assert rounds == []  # it was there already
    assert np.array_equal(again.predict_proba(x[:9]), one.predict_proba(x[:9]))
    assert one.score(x, y) > 0.6


def test_in_pipelines_and_searches():
    x, y = blobs()
    line = make_pipeline(StandardScaler(), GCFLClassifier(**SHORT))
    search = GridSearchCV(line, {"gcflclassifier__lr": [0.01, 0.1]}, cv=2)
    assert search.fit(x, y).best_score_ > 0.8


@pytest.mark.parametrize(
    ("changes", "fit", "sentence"),
    [
        ({"method": "robst"}, {}, "did you mean robust"),
        ({"budget": 2.0}, {}, r"budget must be in \(0, 1\]"),
        ({}, {"clean": -1}, "clean must be a pair"),
        ({}, {"clean": 300}, "leaves no sample"),
        ({}, {"clean": (1, 2, 3)}, "clean must be a pair"),
        ({}, {"clients": 1000}, "clients"),
        ({}, {"clients": ["a", "b"]}, "clients names 2 samples"),
    ],
)
def test_bad_input_is_a_sentence(changes, fit, sentence):
    x, y = blobs()
    with pytest.raises(ValueError, match=sentence):
        GCFLClassifier(**{**SHORT, **changes}).fit(x, y, **fit)


def test_two_fits_with_a_seed_are_equal():
    x, y = blobs()
    one, same, other = (
        GCFLClassifier(**SHORT, random_state=seed).fit(x, y).predict_proba(x) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
