"""The exported app, through the in-process Grid: a run folder with the bits of our own engine,
resumed where it stopped.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import gcfl
from flower_grid import Here
from gcfl.base.errors import RunError
from gcfl.cli import main
from gcfl.flower import local
from gcfl.flower.server import NodeRegistry
from helpers import tiny


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def load(folder, name):
    spec = importlib.util.spec_from_file_location(
        f"{name}_{abs(hash(str(folder)))}", folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def exported(tmp_path, **changes):
    result = gcfl.run(out=tmp_path / "ours", **tiny(**changes))
    assert main(["flower", "export", str(result.folder), "--to", str(tmp_path / "app")]) == 0
    return result, tmp_path / "app"


def sites(folder, count, **node_config):
    grid = Here(load(folder, "client_app"), count)
    for node in list(grid.contexts):
        client = (node - 1000) // 7
        node_config_of = {
            "partition-id": client,
            **{key: f"{value}/{client}" for key, value in node_config.items()},
        }
        grid.contexts[node] = Context(1, node, node_config_of, RecordDict(), {})
    return grid


def play(folder, grid, out, **settings):
    context = Context(1, 1, {}, RecordDict(), {"out": str(out), "wait-seconds": 5.0, **settings})
    load(folder, "server_app")(grid, context)


@pytest.mark.parametrize("method", ["fedavg", "gcfl", "scaffold+gcfl", "moon", "server-only"])
def test_an_exported_app_gives_the_same_model(method, tmp_path):
    result, app = exported(tmp_path, method=method, cohort=3)
    assert {path.name for path in app.iterdir()} == {
        "pyproject.toml",
        "server_app.py",
        "client_app.py",
        "experiment.toml",
        "README.md",
    }
    play(app, sites(app, 5), tmp_path / "flower")
    (folder,) = (tmp_path / "flower").iterdir()
    assert folder.name == result.folder.name
    assert (folder / "model.safetensors").read_bytes() == (
        result.folder / "model.safetensors"
    ).read_bytes()
    ours, theirs = (gcfl.load(path).curve for path in (result.folder, folder))
    assert ours == theirs


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


def test_what_cannot_be_exported_says_so(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    assert main(["flower", "export", "--to", str(tmp_path / "full")]) == 2
    assert "is not empty" in capsys.readouterr().err
    for words in ([], [str(tmp_path / "full" / "file")], ["--data", "digits"]):
        assert main(["flower", "export", *words]) == 2
        assert "say where the app shall go" in capsys.readouterr().err


def test_the_folder_may_be_a_word_or_a_flag(tmp_path):
    (tmp_path / "my.toml").write_text('method = "gcfl"\n[data]\nclients = 4\n')
    flags = ["--data", "digits", "--rounds", "3"]
    lines = (
        [str(tmp_path / "a"), *flags],
        [str(tmp_path / "my.toml"), str(tmp_path / "b")],
        ["--to", str(tmp_path / "c"), *flags],
    )
    for words in lines:
        assert main(["flower", "export", *words]) == 0
    assert "clients = 4" in (tmp_path / "b" / "experiment.toml").read_text()
    assert "rounds = 3" in (tmp_path / "a" / "experiment.toml").read_text()


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


def test_a_federation_that_cannot_start_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    def broken(*_):
        raise RunError("the SuperLink does not listen")

    monkeypatch.setattr(local, "start_link", broken)
    with pytest.raises(RunError, match="does not listen"):
        local.up(tmp_path / "place", 1)
    assert not (tmp_path / "place" / "up.json").exists()


@pytest.mark.parametrize("site", ["north", "no/rth=.", "=.", "superlink=."])
def test_sites_that_cannot_be_had(site, tmp_path, capsys):
    assert main(["flower", "up", "--in", str(tmp_path / "place"), "--site", site]) == 2
    assert "--site" in capsys.readouterr().err
    assert (
        main(["flower", "up", "--in", str(tmp_path / "place"), "--site", "a=.", "--site", "a=."])
        == 2
    )
    assert "the name is taken" in capsys.readouterr().err
