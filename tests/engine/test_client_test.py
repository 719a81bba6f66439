"""Each client keeps a share of its samples to itself, and the final model is tested there."""

from __future__ import annotations

import numpy as np
import pytest

import gcfl
from gcfl.data.partition import Partition
from gcfl.data.split import part
from helpers import prepared, run, same_bits, tiny

HELD = {"client_test": 0.25}


def test_a_share_of_every_client_is_parted():
    sizes = np.array([1, 2, 3, 40])
    whole = Partition(np.arange(100, 146), np.concatenate([[0], np.cumsum(sizes)]))
    stays, goes = part(whole, 0.25, np.random.default_rng(0))
    assert goes.sizes.tolist() == [0, 1, 1, 10]
    for client in range(4):
        both = sorted([*stays[client], *goes[client]])
        assert both == whole[client].tolist()
    other = part(whole, 0.25, np.random.default_rng(1))[1]
    assert other.order.tolist() != goes.order.tolist()


@pytest.mark.parametrize("method", ["fedavg", "skyline", "centralised"])
def test_accuracies_are_those_of_the_kept_model(tmp_path, method):
    made = run(tmp_path, method=method, rounds=3, data=HELD)
    federation = prepared(method=method, rounds=3, data=HELD).federation
    loaded = gcfl.load(made.folder)
    answers = np.asarray(loaded.model.classes)
    kept, found = federation.client_test, loaded.client_test
    assert len(kept) == 5
    everything = []
    for client in range(5):
        places = kept[client]
        assert not set(places) & set(federation.clients.partition.order)
        said = loaded.predict(federation.clients.x[places].numpy())
        observed = answers[federation.clients.y[places].numpy()]
        right = answers[federation.truth.labels[federation.clients.ids[places]]]
        assert found["samples"][client] == len(places)
        assert found["accuracy"][client] == pytest.approx((said == observed).mean())
        assert found["true_accuracy"][client] == pytest.approx((said == right).mean())
        everything += (said == observed).tolist()
    frame = loaded.to_frame("clients")
    assert frame["accuracy"].tolist() == found["accuracy"]
    from gcfl.results.measures import measure

    assert measure("client_accuracy").of(loaded) == pytest.approx(np.mean(everything))
    assert measure("worst_client").of(loaded) == min(found["accuracy"])
    assert measure("client_spread").of(loaded) == pytest.approx(np.std(found["accuracy"]))


def test_workers_and_vectors_agree_and_nothing_changes_where_nobody_asks(tmp_path):
    plain = run(tmp_path / "a", method="fedavg", rounds=2, data=HELD)
    workers = run(tmp_path / "b", method="fedavg", rounds=2, data=HELD, engine={"workers": 2})
    same_bits(plain.folder, workers.folder)
    assert plain.client_test == workers.client_test
    vectors = run(tmp_path / "c", method="fedavg", rounds=2, data=HELD, engine={"vectorised": True})
    assert vectors.client_test["samples"] == plain.client_test["samples"]
    assert run(tmp_path / "d", method="fedavg", rounds=1).client_test == {}
    settings = tiny(data={"client_test": 0.0})
    from gcfl import experiment

    assert experiment.build(settings)[0].identity() == experiment.build(tiny())[0].identity()
