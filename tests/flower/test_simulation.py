"""An exported app in Flower's Ray simulation: our engine's bits, and nothing of it left alive."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

import gcfl
from flower_deployment import LIMIT_SECONDS
from flower_grid import exported
from gcfl.base.errors import RunError
from gcfl.flower.local import alive
from gcfl.flower.simulation import simulate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'gcfl[simulation]'",
    ),
]


@pytest.mark.parametrize(
    ("method", "clients", "cohort"), [("scaffold+gcfl", 3, 1.0), ("moon", 4, 2)]
)
def test_the_same_bits_and_the_same_curve(method, clients, cohort, tmp_path):
    ours, app = exported(
        tmp_path, rounds=4, method=method, cohort=cohort, data={"clients": clients}
    )
    simulate(app, tmp_path / "theirs", clients, tmp_path / "place", seconds=LIMIT_SECONDS)
    assert not alive(tmp_path / "place" / "home")
    (folder,) = (tmp_path / "theirs").iterdir()
    assert folder.name == ours.folder.name
    assert (folder / "model.safetensors").read_bytes() == (
        ours.folder / "model.safetensors"
    ).read_bytes()
    theirs = gcfl.load(folder)
    assert theirs.curve == ours.curve
    assert len(theirs.curve) == 4
    for name in ("cohort", "left_out", "samples", "steps", "bytes", "loss"):
        assert [getattr(record, name) for record in theirs.rounds] == [
            getattr(record, name) for record in ours.rounds
        ], name


def test_a_simulation_with_too_few_nodes_fails_and_says_what_to_type(tmp_path):
    """Flower's command succeeds all the same."""
    _, app = exported(tmp_path, rounds=4, method="fedavg", data={"clients": 3})
    with pytest.raises(
        RunError,
        match=r"finished:failed.*has 3 clients, but this simulation has 2 nodes.*num-supernodes=3",
    ):
        simulate(app, tmp_path / "theirs", 2, tmp_path / "place", seconds=LIMIT_SECONDS)
    assert not alive(tmp_path / "place" / "home")
