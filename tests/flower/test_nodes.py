"""A client's number stays with its node and its key, also when the server starts again."""

from __future__ import annotations

import json
import logging

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from flower_grid import Here, exported, play, sites
from gcfl.base.errors import ConfigError, RunError
from gcfl.flower import nodes
from gcfl.flower.nodes import NodeRegistry, named
from gcfl.flower.transport import FACTS

NAMES = ("north", "south")
NORTH, SOUTH, THIEF = 1000, 1007, 500  # the thief's id is the first to be asked
KEYS = {NORTH: b"key of north", SOUTH: b"key of south", THIEF: b"key of a thief"}


def grid_of(nodes, keys=KEYS):
    """A Grid of sites that only say who they are. nodes: node -> client."""
    app = ClientApp()

    @app.query()
    def who(message, context):
        facts = {"client": context.node_config["client"], "samples": 5}
        return Message(RecordDict({FACTS: ConfigRecord(facts)}), reply_to=message)

    grid = Here(app, 0)
    grid.contexts = {
        node: Context(1, node, {"client": client}, RecordDict(), {})
        for node, client in nodes.items()
    }
    grid.keys = keys
    return grid


@pytest.fixture
def file(tmp_path):
    """The bindings of a server that knew both sites."""
    path = tmp_path / "nodes.json"
    assert NodeRegistry(grid_of({NORTH: 0, SOUTH: 1}), NAMES, path).wait(0.1) == {
        0: NORTH,
        1: SOUTH,
    }
    return path


def refusal(caplog, registry):
    with caplog.at_level(logging.WARNING, "gcfl"), pytest.raises(RunError, match="not come: north"):
        registry.wait(0.1)
    (warning,) = caplog.messages
    return warning


def test_what_is_kept_is_for_the_server_alone_and_holds_no_key(file):
    assert file.stat().st_mode & 0o777 == 0o600
    assert "key of" not in file.read_text()
    assert {name: one["node"] for name, one in json.loads(file.read_text())["clients"].items()} == {
        "0": NORTH,
        "1": SOUTH,
    }


@pytest.mark.parametrize("keys", [KEYS, {}], ids=["keys", "no keys"])
def test_after_a_restart_nobody_takes_a_place_whose_node_is_there(file, keys, caplog):
    grid = grid_of({THIEF: 0, NORTH: 0, SOUTH: 1}, keys)
    with caplog.at_level(logging.WARNING, "gcfl"):
        assert NodeRegistry(grid, NAMES, file).wait(0.1) == {0: NORTH, 1: SOUTH}
    assert f"node {THIEF} is refused" in caplog.text


@pytest.mark.parametrize("keys", [KEYS, {}], ids=["keys", "no keys"])
def test_after_a_restart_nobody_takes_a_place_whose_node_is_gone(file, keys, caplog):
    grid = grid_of({THIEF: 0, SOUTH: 1}, keys)
    warning = refusal(caplog, NodeRegistry(grid, NAMES, file))
    assert f"north was node {NORTH}, which is gone, and node {THIEF} has not its key" in warning
    assert "rebind='north'" in warning


def test_without_what_is_kept_the_first_to_come_has_the_number(file):
    """What the tests above are about can fail."""
    file.unlink()
    grid = grid_of({THIEF: 0, SOUTH: 1})
    assert NodeRegistry(grid, NAMES, file).wait(0.1) == {0: THIEF, 1: SOUTH}


def test_the_same_key_under_another_id_is_the_same_site(file, caplog):
    """As after a SuperLink that lost its database. It is bound anew: the next start knows it."""
    new = 2000
    keys = {**KEYS, new: KEYS[NORTH]}
    with caplog.at_level(logging.WARNING, "gcfl"):
        for nodes in ({THIEF: 0, new: 0, SOUTH: 1}, {new: 0, SOUTH: 1}):
            found = NodeRegistry(grid_of(nodes, keys), NAMES, file).wait(0.1)
            assert found == {0: new, 1: SOUTH}
    assert f"north has come back as another node: {new}, after {NORTH}" in caplog.text


def test_another_key_under_the_same_id_is_another_site(file, caplog):
    grid = grid_of({NORTH: 0, SOUTH: 1}, {**KEYS, NORTH: b"another"})
    assert f"node {NORTH} is refused" in refusal(caplog, NodeRegistry(grid, NAMES, file))


def test_the_operator_may_let_a_site_come_back_once_it_is_gone(file, caplog):
    grid = grid_of({THIEF: 0, NORTH: 0, SOUTH: 1})
    registry = NodeRegistry(grid, NAMES, file, named("north", NAMES))
    assert registry.wait(0.1)[0] == NORTH
    del grid.contexts[NORTH]
    with caplog.at_level(logging.WARNING, "gcfl"):
        assert registry.ask()[0] == THIEF
    assert f"north has come back as another node: {THIEF}, after {NORTH}" in caplog.text
    # south is not named
    grid = grid_of({THIEF: 1, NORTH: 0})
    with pytest.raises(RunError, match="south was node"):
        NodeRegistry(grid, NAMES, file, named("north", NAMES)).wait(0.1)


class Slow:
    """A Grid on a slow machine: who is given less than 0.1 seconds answers too late."""

    def __init__(self, grid):
        self._grid = grid

    def __getattr__(self, name):
        return getattr(self._grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        return [] if timeout < 0.1 else self._grid.send_and_receive(messages, timeout=timeout)


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(nodes, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(nodes, "_LOOK_EVERY_SECONDS", 0.0)


def test_slow_nodes_are_given_longer_with_each_question(hurried):
    """Else no answer is ever in time, however long the server waits."""
    grid = Slow(grid_of({NORTH: 0, SOUTH: 1}))
    assert NodeRegistry(grid, NAMES).wait(60) == {0: NORTH, 1: SOUTH}


def test_nodes_that_are_there_and_silent_are_told_from_those_that_did_not_come(monkeypatch):
    monkeypatch.setattr(nodes, "_ANSWER_SECONDS", 0.01)
    grid = Slow(grid_of({NORTH: 0}))
    with pytest.raises(RunError, match="1 of the SuperNodes that are there did not answer in time"):
        NodeRegistry(grid, NAMES).wait(0.0)
    with pytest.raises(RunError, match="start their SuperNodes"):
        NodeRegistry(grid_of({}), NAMES).wait(0.0)


def test_who_may_come_back_is_named():
    assert named("", NAMES) == frozenset()
    assert named("south, north", NAMES) == named("all", NAMES) == frozenset(NAMES)
    with pytest.raises(ConfigError, match="rebind names 'nort'; did you mean north"):
        named("nort", NAMES)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"clients": {"0": 5}}', '{"clients": [], "format": 1}']
)
def test_damage_is_one_sentence(file, text):
    file.write_text(text)
    with pytest.raises(RunError, match=r"nodes\.json"):
        NodeRegistry(grid_of({}), NAMES, file)


def test_a_flipped_digit_is_noticed(file):
    file.write_text(file.read_text().replace(f"{NORTH}", f"{THIEF}"))
    with pytest.raises(RunError, match="damaged"):
        NodeRegistry(grid_of({}), NAMES, file)


def test_a_simulations_nodes_are_new_in_every_run(file):
    grid = grid_of({31: 0, 32: 1}, {})
    grid.__class__ = type("InMemoryGrid", (Here,), {})
    assert NodeRegistry(grid, NAMES, file).wait(0.1) == {0: 31, 1: 32}


def test_a_server_that_starts_again_knows_its_sites(tmp_path, caplog):
    """Killed in round 2; then a thief is first to claim client 2, and its true node is slow."""
    result, app = exported(tmp_path, method="scaffold+gcfl", cohort=1.0)
    grid = sites(app, 5, state=str(tmp_path / "state"))
    asked = []

    def stop(message, reply):
        if message.metadata.message_type == "train" and message.content[FACTS]["round"] == 2:
            raise KeyboardInterrupt
        return reply

    grid.meddle = stop
    with pytest.raises(KeyboardInterrupt):
        play(app, grid, tmp_path / "flower")
    grid = sites(app, 5, state=str(tmp_path / "state"))
    thief = Context(1, THIEF, {"partition-id": 2}, RecordDict(), {})
    grid.contexts[THIEF] = thief
    slow = []

    def meddle(message, reply):
        node = message.metadata.dst_node_id
        if message.metadata.message_type == "train":
            asked.append(node)
        elif node == 1014 and not slow:
            slow.append(node)
            return None
        return reply

    grid.meddle = meddle
    play(app, grid, tmp_path / "flower")
    assert slow
    assert THIEF not in asked
    (folder,) = (tmp_path / "flower").iterdir()
    model = "model.safetensors"
    assert (folder / model).read_bytes() == (result.folder / model).read_bytes()
