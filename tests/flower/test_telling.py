"""What a site tells of an error: a fixed sentence, and never the text of an exception."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Context, Message, RecordDict

from flower_grid import Here, federation, load, over_grid, play, rounds
from gcfl import experiment as config
from gcfl.base.errors import ConfigError, DataError, ModelError, RunError
from gcfl.flower import client, export
from gcfl.flower.nodes import NodeRegistry
from gcfl.flower.telling import told
from helpers import prepared, tiny

PRIVATE = "/srv/ward-7/mrs-smith.png"
KINDS = {
    ConfigError: "its node config or another setting does not fit",
    DataError: "its data cannot be used as it is",
    ModelError: "the model does not fit its data",
    RunError: "what it was sent, or what it remembers, cannot be used",
    FileNotFoundError: "a file or a device failed",
    MemoryError: "it has not enough memory",
    ZeroDivisionError: "something failed in its program",
    type(f"Of_{PRIVATE.split('/')[2]}", (Exception,), {}): "something failed in its program",
}


def everything(messages):
    """All that travelled, errors too, as text."""
    return " ".join(
        str(one.error.reason) if one.has_error() else str(dict(one.content)) for one in messages
    )


def raising(error):
    def fail(*_, **__):
        try:
            raise ValueError(f"first: {PRIVATE}")
        except ValueError:
            raise error(f"cannot read {PRIVATE}") from None

    return fail


@pytest.fixture
def scene():
    ready = prepared(method="fedavg")
    return ready, federation(ready)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_while_training(kind, scene, monkeypatch, caplog):
    ready, grid = scene
    honest = client.answer

    def answer(setting, method, number, *rest):
        return raising(kind)() if number == 2 else honest(setting, method, number, *rest)

    monkeypatch.setattr(client, "answer", answer)
    with caplog.at_level(logging.ERROR, "gcfl"):
        _, (record,) = rounds(ready, over_grid(ready, grid), 1)
    assert record.left_out == {"2": f"{KINDS[kind]}; its own log says more"}
    assert "ward-7" not in everything(grid.seen)
    assert PRIVATE in caplog.text  # the site's own log


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_at_the_start(kind, monkeypatch, scene, caplog):
    _, grid = scene
    monkeypatch.setattr(client, "lower", raising(kind))  # as every site begins to say who it is
    with (
        caplog.at_level(logging.ERROR, "gcfl"),
        pytest.raises(RunError, match=f"{KINDS[kind]}; its own log says more"),
    ):
        NodeRegistry(grid, tuple("01234")).wait(0.1)
    assert "ward-7" not in everything(grid.seen)
    assert PRIVATE in caplog.text


def test_a_message_that_nobody_handles_stays_an_error(scene):
    """Flower's own sentence for it would name what the app is made of."""
    _, grid = scene
    (node, *_) = grid.contexts
    asked = Message(RecordDict(), dst_node_id=node, message_type="query.passwords")
    (reply,) = grid.send_and_receive([asked])
    assert reply.error.reason == "something failed in its program; its own log says more"


def test_the_operator_of_a_site_may_let_details_out():
    error = DataError(f"cannot read\n{PRIVATE}")
    quiet, open_ = (
        told(error, Context(1, 1, config, RecordDict(), {}))
        for config in ({}, {"errors": "details"})
    )
    assert PRIVATE not in quiet
    assert open_ == f"DataError: cannot read {PRIVATE}"


def test_a_whole_run_over_a_data_folder_that_is_gone(tmp_path, caplog):
    """The path in a site's node config is the site's."""
    app = tmp_path / "app"
    export(config.build(tiny(method="fedavg", data={"noise": 0.0}))[0], app, ("north", "south"))
    grid = Here(load(app, "client_app"), 2)
    for node, name in zip(grid.contexts, ("north", "south"), strict=True):
        grid.contexts[node] = Context(1, node, {"client": name, "data": PRIVATE}, RecordDict(), {})
    with pytest.raises(RunError, match="north: its node config or another setting does not fit"):
        play(app, grid, tmp_path / "flower", **{"wait-seconds": 0.1})
    assert "ward-7" not in everything(grid.seen)
    assert PRIVATE in caplog.text
