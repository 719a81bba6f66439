from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gcfl.base import rng
from gcfl.data import SOURCES, DataOptions, add_noise, arrays, build, lookalikes, read
from gcfl.data.lookalikes import look, taken_for

FOUR = np.array([[0, 0], [3, 0], [20, 20], [23, 20]])  # 0 is close to 1, and 2 to 3


def blobs(centres, each, seed=0, width=0):
    """So many samples around each centre, standard deviation 1, and columns that say nothing."""
    y = np.repeat(np.arange(len(centres)), each)
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(len(y), 2 + width))
    x[:, :2] += np.asarray(centres)[y]
    places = draw.permutation(len(y))
    return x[places].astype(np.float32), y[places]


def sizes(**changes):
    return {"clients": 4, "noise": 0.4, "validation": 20, "test": 20, "min_size": 5, **changes}


def recomputed(x, y, classes, seed):
    """The cross-fit once more, from its description."""
    draw = rng.stream(seed, "look-alikes")
    order = draw.permutation(len(y)).tolist()
    dealt = [place for label in range(classes) for place in order if y[place] == label]
    found = np.zeros((len(y), classes))
    for fold in range(3):
        inside, word = dealt[fold::3], int(draw.integers(2**31))
        outside = [place for place in order if place not in set(inside)]
        d = x.shape[1]
        parts = [Nystroem(gamma=1 / d, n_components=min(1000, len(outside)), random_state=word)]
        parts += [LogisticRegression(C=10, max_iter=100)]
        if d > 64:
            parts.insert(0, PCA(min(64, len(outside)), random_state=word))
        model = make_pipeline(StandardScaler(), *parts).fit(x[outside], y[outside])
        found[np.ix_(inside, model.classes_)] = model.predict_proba(x[inside])
    return found


@pytest.mark.parametrize("width", [0, 70])
def test_the_cross_fit_is_what_it_says(home, width):
    x, y = blobs(FOUR, 20, width=width)
    found, expected = taken_for(x, y, np.arange(80), 4, 3), recomputed(x, y, 4, 3)
    assert np.allclose(found, expected, atol=2e-3)  # where the solver stops depends on BLAS
    sums = np.array([[expected[y == c, k].sum() + 1 / 3 for k in range(4)] for c in range(4)])
    np.fill_diagonal(sums, 0)
    odds = look(x, y, np.arange(80), 4, 3).odds
    assert np.allclose(odds, sums / sums.sum(axis=1, keepdims=True), atol=2e-3)


def test_classes_that_look_alike_are_confused(home):
    x, y = blobs(FOUR, 500)
    odds = look(x, y, np.arange(2000), 4, 0).odds
    assert np.allclose(odds.sum(axis=1), 1)
    assert not odds.diagonal().any()
    assert odds[[0, 1, 2, 3], [1, 0, 3, 2]].min() > 0.9
    # The test set goes by what the clients' samples look like: its own say nothing here.
    source = arrays((x, y), test=(np.zeros((400, 2)), y[:400]))
    federation = build(source, DataOptions(**sizes(noise_kind="similar", test_noise=0.5)), 0)
    for noisy in (federation.clients, federation.test):
        wrong = noisy.y.numpy() != y[noisy.ids]
        partner = np.array([1, 0, 3, 2])[y[noisy.ids[wrong]]]
        assert (noisy.y.numpy()[wrong] == partner).mean() > 0.9
    assert wrong.sum() == 200


@pytest.mark.parametrize("kind", ["mistakes", ["uniform", "mistakes"]])
def test_mistakes_are_those_that_a_weak_model_is_most_inclined_to_make(home, kind):
    x, y = blobs([[0, 0], [2, 0], [0, 3]], 60)
    options = DataOptions(**sizes(noise_kind=kind))
    federation = build(arrays((x, y)), options, 5)
    ids = federation.clients.ids
    others = np.full((len(y), 3), -1.0)
    others[ids] = recomputed(x[ids], y[ids], 3, 5)
    others[np.arange(len(y)), y] = -1
    for client in range(4):
        shard = federation.clients.shard(client)
        hit = federation.truth.hit_by("mistakes")[shard.ids]
        left = ~federation.truth.hit_by("uniform")[shard.ids]
        total = round(0.4 * len(shard))
        count = total if kind == "mistakes" else total // 2
        leaning = others[shard.ids].max(axis=1)
        assert hit.sum() == count
        assert set(shard.ids[hit]) == set(shard.ids[left][np.argsort(-leaning[left])[:count]])
        assert np.array_equal(shard.y.numpy()[hit], others[shard.ids][hit].argmax(axis=1))
        if kind == "mistakes":
            assert np.array_equal(shard.y.numpy()[~hit], y[shard.ids][~hit])


def test_mistakes_lie_near_the_boundary(home):
    x, y = blobs([[-1, 0], [1, 0]], 400)
    options = DataOptions(**sizes(noise_kind="mistakes", noise=0.2, partition="iid"))
    federation = build(arrays((x, y)), options, 0)
    ids = federation.clients.ids
    margin = np.where(y == 1, x[:, 0], -x[:, 0])[ids]  # the boundary is where the first is 0
    assert roc_auc_score(federation.truth.noisy[ids], -margin) > 0.97
    assert np.array_equal(federation.clients.y.numpy() != y[ids], federation.truth.noisy[ids])


@pytest.mark.usefixtures("home")
@settings(max_examples=12)
@given(st.integers(0, 2**32), st.integers(2, 5), st.sampled_from(["similar", "mistakes"]))
def test_shares_are_exact_per_client_and_follow_from_the_seed(seed, classes, kind):
    draw = rng.stream(seed, "test")
    y = np.append(np.arange(classes), draw.integers(0, classes, 118))
    source = arrays((draw.normal(size=(len(y), 3)) + y[:, None], y))
    options = DataOptions(**sizes(noise=0.3, noise_spread=0.3, noise_kind=kind))
    federation, again = (build(source, options, seed) for _ in range(2))
    rates = add_noise.client_rates(options, 4, rng.stream(seed, "rates"))
    for client in range(4):
        shard = federation.clients.shard(client)
        wrong = shard.y.numpy() != y[shard.ids]
        assert wrong.sum() == round(float(rates[client]) * len(shard))
        assert np.array_equal(wrong, federation.truth.hit_by(kind)[shard.ids])
        assert np.array_equal(shard.y, again.clients.shard(client).y)
    assert int(federation.clients.y.min()) >= 0
    assert int(federation.clients.y.max()) < classes
    assert np.array_equal(federation.test.y.numpy(), y[federation.test.ids])


def test_another_seed_gives_other_bits(home):
    x, y = blobs(FOUR, 50)
    first, second = (taken_for(x, y, np.arange(200), 4, seed) for seed in (0, 1))
    assert not np.array_equal(first, second)
    assert np.allclose(first.sum(axis=1), 1, atol=1e-5)


def test_what_was_fitted_is_kept(home, monkeypatch):
    x, y = blobs(FOUR, 50)
    fits = []
    model = lookalikes._model
    monkeypatch.setattr(lookalikes, "_model", lambda *sizes: fits.append(1) or model(*sizes))

    def clients(source=None, seed=0, **changes):
        options = DataOptions(**sizes(**changes))
        return build(source or arrays((x, y)), options, seed).clients

    clients(noise_kind="mistakes", noise=0.0)
    assert not fits  # nobody asked
    first = clients(noise_kind="mistakes")
    assert len(fits) == 3
    again = clients(noise_kind="mistakes")
    clients(noise_kind="similar", noise=0.2, partition="iid")
    assert len(fits) == 3
    for file in (home / "cache").iterdir():
        file.unlink()
    anew = clients(noise_kind="mistakes")
    assert len(fits) == 6
    for other in (again, anew):
        assert np.array_equal(first.y, other.y)
    clients(noise_kind="mistakes", seed=1)
    clients(arrays((x + 1, y)), noise_kind="mistakes")
    clients(arrays((x, (y + 1) % 4)), noise_kind="mistakes")
    assert len(fits) == 15
    next((home / "cache").iterdir()).write_bytes(b"\x93NUMPY torn")
    for seed in (0, 1):
        clients(noise_kind="mistakes", seed=seed)


def test_a_class_with_nothing_to_learn_from_is_confused_with_any(home):
    x, y = blobs(FOUR, 30)
    x, y = np.concatenate([x, [[1, 1]]]), np.append(y, 4)  # the only sample of class 4
    seen = look(x, y, np.arange(121), 6, 0)  # and none of class 5
    assert np.allclose(seen.odds[4], [0.2, 0.2, 0.2, 0.2, 0, 0.2])
    assert np.allclose(seen.odds[5], [0.2, 0.2, 0.2, 0.2, 0.2, 0])
    assert (seen.other[120], seen.leaning[120]) == (-1, 0)
    assert (seen.other[:120] >= 0).all()
    # One class has a single sample, so that models see nothing but the other.
    rare = look(x[:30], np.append(np.zeros(29, dtype=int), 1), np.arange(30), 2, 0)
    assert rare.odds.tolist() == [[0, 1], [1, 0]]
    y = np.arange(12)  # nothing to learn from at all: any other class
    options = DataOptions(
        **sizes(clients=1, noise=0.9, validation=1, test=1, noise_kind="mistakes")
    )
    seen = [build(arrays((x[:12], y)), options, seed).clients for seed in range(20)]
    assert all((one.y.numpy() != one.ids).sum() == 9 for one in seen)
    assert len(np.unique(np.concatenate([one.y.numpy()[one.ids == 3] for one in seen]))) > 4


@pytest.mark.parametrize("kind", ["similar", "mistakes"])
@pytest.mark.parametrize("shape", [(3, 40, 70), (1, 9, 9), (6,), (5, 4)])
def test_any_samples_even_constant_and_wild_ones(home, kind, shape):
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 255, (120, *shape)).astype(np.uint8)
    wild = np.zeros((120, *shape))
    wild[::50], wild[1::50] = 3e38, -3e38  # a value that only one fold may have
    for x in (pixels, np.ones((120, *shape)), wild):
        options = DataOptions(**sizes(noise_kind=kind))
        clients = build(arrays((x, np.arange(120) % 3)), options, 0).clients
        wrong = clients.y.numpy() != clients.ids % 3
        counts = [round(0.4 * len(clients.shard(client))) for client in range(4)]
        assert wrong.sum() == sum(counts)


@pytest.mark.parametrize("kind", ["similar", "mistakes"])
def test_open_set_noise_beside_it(home, kind):
    x, y = blobs([[0, 0], [3, 0], [20, 20], [23, 20], [9, 9]], 50)
    options = DataOptions(**sizes(noise_kind=["open", kind], partition="iid"))
    federation = build(arrays((x, y)), options, 0)
    assert len(federation.classes) == 4
    kept = np.array(federation.classes)
    for client in range(4):
        shard = federation.clients.shard(client)
        outside = ~np.isin(y[shard.ids], kept)
        assert np.array_equal(federation.truth.hit_by("open")[shard.ids], outside)
        wrong = ~outside & (kept[shard.y.numpy()] != y[shard.ids])
        assert np.array_equal(federation.truth.hit_by(kind)[shard.ids], wrong)
        assert wrong.sum() == round(0.2 * len(shard))


@pytest.mark.parametrize("kind", ["similar", "mistakes"])
def test_it_does_not_depend_on_what_the_clients_do_not_hold(home, kind):
    x, y = blobs(FOUR, 50)
    options = DataOptions(**sizes(noise_kind=kind))
    first = build(arrays((x, y)), options, 0)
    others = np.setdiff1d(np.arange(200), first.clients.ids)
    far = x.copy()
    far[others] = far[others] * 50 + 7
    assert np.array_equal(first.clients.y, build(arrays((far, y)), options, 0).clients.y)


def test_on_cifar10(tmp_path, monkeypatch):
    if SOURCES["cifar10"].find() is None:
        pytest.skip("cifar10 is not in the data home")
    options = DataOptions(
        source="cifar10", samples=1500, clients=5, noise=0.4, noise_kind="mistakes"
    )
    source = read(options, 0)
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path))
    federation = build(source, options, 0)
    for client in range(5):
        shard = federation.clients.shard(client)
        wrong = shard.y.numpy() != source.y[shard.ids]
        assert wrong.sum() == round(0.4 * len(shard))
    seen = look(source.x, source.y, np.arange(1500), 10, 0)
    automobile, truck = source.classes.index("automobile"), source.classes.index("truck")
    assert seen.odds[automobile].argmax() == truck
    assert seen.odds[truck].argmax() == automobile
