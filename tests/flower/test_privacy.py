"""Private runs over Flower: the same settings, and nothing in messages that is not covered."""

from __future__ import annotations

import tomllib

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ArrayRecord

from flower_grid import federation, over_grid, rounds, same
from gcfl import experiment as config
from gcfl.base.errors import ConfigError
from gcfl.engine import ClientSide, InProcess
from gcfl.flower.app import export
from gcfl.methods.noise import SECRET
from gcfl.methods.privacy import STATE
from helpers import prepared, tiny

CLEAN = {"clean_epsilon": 8.0, "input_range": [0.0, 16.0]}
KINDS = {
    "clean": {"method": "gcfl", "privacy": CLEAN},
    "central": {"method": "gcfl", "privacy": {**CLEAN, "client_epsilon": 8.0}},
    "local": {"method": "fedavg", "privacy": {"client_epsilon": 8.0, "client_where": "local"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_messages_hold_no_secret_and_nothing_that_is_not_covered(kind):
    ready = prepared(rounds=3, **KINDS[kind])
    grid = federation(ready)
    state, records = rounds(ready, over_grid(ready, grid), 3)
    secret = state.parts[STATE][SECRET].numpy().tobytes()
    for message in grid.seen:
        for record in message.content.values():
            assert SECRET not in record
            values = list(record.values())
            if isinstance(record, ArrayRecord):
                values = [array.numpy().tobytes() for array in values]
                assert all(len(value) != len(secret) for value in values)
            assert all(secret not in value for value in values if isinstance(value, bytes))
        told = message.content.metric_records.get("metrics")
        if kind == "local" and told is not None:
            assert set(told.values()) == {0.0}
    if kind != "clean":
        assert all(record.train_loss is None for record in records)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_as_in_process(kind):
    changes = KINDS[kind]
    privacy = {**changes["privacy"], "simulated_seed": True}
    ready = prepared(rounds=3, **{**changes, "privacy": privacy})
    side = ClientSide(ready.setting, ready.method, ready.federation.clients)
    ours, records = rounds(ready, InProcess(side), 3)
    flowers, again = rounds(ready, over_grid(ready, federation(ready)), 3)
    same(ours, flowers)
    assert [one.privacy for one in records] == [one.privacy for one in again]


def test_a_public_seed_is_refused(tmp_path):
    asked = config.build(tiny(privacy={**CLEAN, "simulated_seed": True}))[0]
    with pytest.raises(ConfigError, match="simulated_seed"):
        export(asked, tmp_path / "app")


@pytest.mark.parametrize("privacy", [{}, CLEAN])
def test_an_app_asks_for_what_it_needs(privacy, tmp_path):
    export(config.build(tiny(privacy=privacy))[0], tmp_path / "app")
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["gcfl[flower,privacy]" if privacy else "gcfl[flower]"]


def test_an_app_says_nothing_of_the_servers_samples(tmp_path):
    """Not even a digest: it would confirm a guess of them."""
    rows = "".join(f"{number % 7}.5,{number % 5}.25,{'ab'[number % 2]}\n" for number in range(60))
    (tmp_path / "clean.csv").write_text("u,v,label\n" + rows)
    asked = tiny(privacy={**CLEAN, "input_range": [-3.0, 3.0]})
    asked["data"] = {"source": str(tmp_path / "clean.csv"), "validation": 30, "test": 20}
    told = []
    for name in ("one", "two"):
        export(config.build(asked)[0], tmp_path / name, ("north", "south"))
        told.append(config.read_settings(tmp_path / name / "experiment.toml")["given"]["files"])
    assert told[0] != told[1]
