"""The server of an exported app: which node is which client, and runs that go on."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Context, RecordDict

from flower_grid import Here, exported, play, sites
from gcfl.base.errors import RunError
from gcfl.flower.nodes import NodeRegistry


def test_a_server_that_stopped_goes_on_and_sites_keep_their_memory(tmp_path):
    result, app = exported(tmp_path, method="scaffold+gcfl", cohort=3)
    grid = sites(app, 5, state=str(tmp_path / "state"))
    answered = []

    def stop(message, reply):
        answered.append(message)
        if len(answered) > 10:
            raise KeyboardInterrupt
        return reply

    grid.meddle = stop
    with pytest.raises(KeyboardInterrupt):
        play(app, grid, tmp_path / "flower")
    # Server and sites anew: only their folders are left.
    play(app, sites(app, 5, state=str(tmp_path / "state")), tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    assert (folder / "model.safetensors").read_bytes() == (
        result.folder / "model.safetensors"
    ).read_bytes()


def test_the_same_run_anew_starts_from_nothing(tmp_path):
    """The server's folder is gone, the sites' are not: what they remember is of another run."""
    result, app = exported(tmp_path, method="scaffold+gcfl", cohort=3)
    for out in ("first", "second"):
        play(app, sites(app, 5, state=str(tmp_path / "state")), tmp_path / out)
        (folder,) = (tmp_path / out).iterdir()
        assert (folder / "model.safetensors").read_bytes() == (
            result.folder / "model.safetensors"
        ).read_bytes()


def test_sites_that_do_not_come_are_named(tmp_path):
    _, app = exported(tmp_path, method="fedavg")
    with pytest.raises(RunError, match="these clients have not come: 3, 4; start their SuperNodes"):
        NodeRegistry(sites(app, 3), tuple("01234")).wait(0.1)
    grid = sites(app, 2)
    for node in grid.contexts:
        grid.contexts[node] = Context(1, node, {"partition-id": 0}, RecordDict(), {})
    with pytest.raises(RunError, match="two sites say that they are client 0"):
        NodeRegistry(grid, ("0", "1")).wait(0.1)


def test_a_simulation_with_too_few_nodes_does_not_wait_for_more(tmp_path):
    _, app = exported(tmp_path, method="fedavg")
    grid = sites(app, 2)
    # as Flower calls the Grid of its simulations
    grid.__class__ = type("InMemoryGrid", (Here,), {})
    with pytest.raises(
        RunError,
        match=r'has 5 clients, but this simulation has 2 nodes.*"num-supernodes=5 client-resources',
    ):
        NodeRegistry(grid, tuple("01234")).wait(300.0)
    assert '"num-supernodes=5 client-resources-num-cpus=1"' in (app / "README.md").read_text()


def test_the_summary_is_that_of_our_engine(tmp_path):
    server = {
        "hold_out": 0.5,
        "keep": "best",
        "fine_tune": "end",
        "fine_tune_epochs": 20,
        "fine_tune_lr": 0.01,
    }
    result, app = exported(
        tmp_path, method="fedavg", train={"lr": 0.3, "epochs": 5}, rounds=12, server=server
    )
    play(app, sites(app, 5), tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    ours, theirs = (
        json.loads((path / "summary.json").read_text()) for path in (result.folder, folder)
    )
    assert [ours[name] for name in ("accuracy", "kept_round")] == [
        theirs[name] for name in ("accuracy", "kept_round")
    ]
