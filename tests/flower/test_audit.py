"""The audit at the end of a run on Flower: each site writes its own findings, those of our engine,
and nothing leaves it that was not agreed to.
"""

from __future__ import annotations

import csv
import json
import shutil
import stat
import sys
import types
from unittest.mock import MagicMock

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict

import gcfl
from flower_grid import Here, exported, load, play
from gcfl.base.errors import RunError
from gcfl.cli import main
from gcfl.results.findings import write_findings
from helpers import spy

CLIENTS = 3
SCENE = {
    "method": "robust",
    "rounds": 5,
    "data": {"samples": 400, "clients": CLIENTS, "noise": 0.3, "alpha": 100.0},
    "clean": {"warm_start": 20, "lr": 0.05, "contribution": True},
    "coreset": {"every": 2, "budget": 0.3},
    "labels": {"guard": 0},
    "audit": {"at_end": True, "threshold": 0.6, "correct": 0.8},
}
FILES = ["audit.csv", "audit.html", "audit.json", "cleaned.csv"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the engine, and the same on Flower with the audit at its end."""
    place = tmp_path_factory.mktemp("place")
    ours, app = exported(place, **SCENE)
    with pytest.MonkeyPatch.context() as patch:
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("task_id", "run_id", "node_id"):
            patch.setattr(TaskIdentity, f"_{name}", 1)
        play(app, grid_of(place), place / "flower")
    return place, ours


@pytest.fixture
def again(finished, tmp_path):
    """A copy of everything, as if nobody had asked for an audit yet; only that is left to do."""
    for name in ("app", "state", "flower"):
        shutil.copytree(finished[0] / name, tmp_path / name)
    for folder in (tmp_path / "state").glob("*/*/audit"):
        shutil.rmtree(folder)
    (run_in(tmp_path) / "sites.json").unlink()
    return tmp_path


def run_in(place):
    (folder,) = (place / "flower").iterdir()
    return folder


def grid_of(place, **config):
    """config: more of the node configs, by name, a value for each client."""
    grid = Here(load(place / "app", "client_app"), CLIENTS)
    for client, node in enumerate(grid.contexts):
        more = {name.replace("_", "-"): values[client] for name, values in config.items()}
        where = {"partition-id": client, "state": str(place / "state" / str(client)), **more}
        grid.contexts[node] = Context(1, node, where, RecordDict(), {})
    return grid


def asks(place, share):
    """The app asks sites to share so much."""
    path = place / "app" / "experiment.toml"
    path.write_text(path.read_text().replace('share = "none"', f'share = "{share}"'))


def site_folder(place, client):
    (folder,) = (place / "state" / str(client)).glob("*/audit")
    return folder


def told(place):
    return json.loads((run_in(place) / "sites.json").read_text())["sites"]


def is_audit(message):
    return message.metadata.message_type == "query.audit"


def test_findings_are_those_of_the_engine_and_stay_at_the_site(finished, tmp_path):
    place, ours = finished
    assert run_in(place).name == ours.folder.name
    evidence = set()
    for client, site in enumerate(gcfl.audit(ours).sites):
        folder = site_folder(place, client)
        assert sorted(path.name for path in folder.iterdir()) == FILES
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        write_findings(site, tmp_path / str(client), correct=0.8, drop=0.6)
        tables = []
        for path in (folder, tmp_path / str(client)):
            with (path / "audit.csv").open() as file:
                tables.append(list(csv.DictReader(file)))
        for line in tables[1]:
            del line["truth"]  # a site does not know it
        assert tables[0] == tables[1]
        evidence |= {line["evidence"] for line in tables[0]}
        mine, theirs = (
            json.loads((path / "audit.json").read_text())
            for path in (folder, tmp_path / str(client))
        )
        assert theirs.pop("contribution")  # the server's, who keeps it
        assert mine == {**theirs, "contribution": {}}
        cleaned = [(p / "cleaned.csv").read_bytes() for p in (folder, tmp_path / str(client))]
        assert cleaned[0] == cleaned[1]
        page = (folder / "audit.html").read_text()
        assert page.count("data:image/png") >= min(len(site), 50)
        assert f"client-{client}" in page
        assert f"client-{(client + 1) % CLIENTS}" not in page
    assert evidence == {"unused", "looks"}
    assert told(place) == [{"name": str(client)} for client in range(CLIENTS)]
    left = {path.name for path in run_in(place).rglob("*")}
    assert not left & {*FILES, "audit"}


RATE = {"samples": int, "rate": float, "low": float, "high": float}
MATRIX = {**RATE, "labelled": (int, 10), "estimated": (int, 10), "confusion": (int, 100)}


def shape(value):
    """The kind of a value, and of a list its length."""
    return ({type(one) for one in value}.pop(), len(value)) if value else (None, 0)


@pytest.mark.parametrize(
    ("share", "allowed", "expected"),
    [
        ("none", ["matrix"] * 3, [{}] * 3),
        ("rate", ["matrix", "rate", "none"], [RATE, RATE, {}]),
        ("matrix", ["matrix", "rate", "none"], [MATRIX, RATE, {}]),
    ],
)
def test_nothing_else_travels(again, share, allowed, expected):
    """A whitelist of records, keys and shapes, down and up, for each level; a site lowers what is
    asked for, and cannot raise it.
    """
    asks(again, share)
    grid = grid_of(again, audit_share=allowed)
    seen = spy(grid, "send_and_receive")
    play(again / "app", grid, again / "flower")
    network = gcfl.load(run_in(again)).model.network
    model = {name: tuple(one.shape) for name, one in network.tree().items()}
    asked = 0
    for messages, answers in seen:
        for message in filter(is_audit, messages):
            asked += 1
            assert set(message.content) == {"gcfl", "model", "payload.usual"}
            arrays = message.content.array_records
            assert {name: tuple(a.shape) for name, a in arrays["model"].items()} == model
            assert {name: tuple(a.shape) for name, a in arrays["payload.usual"].items()} == {
                "means": (10, network.width),
                "quantiles": (101,),
            }
            facts = dict(message.content.config_records["gcfl"])
            assert facts.pop("classes") == [str(digit) for digit in range(10)]
            assert facts.pop("told") == ["usual"]
            assert {name: type(value) for name, value in facts.items()} == {
                "client": int,
                "accepted": int,
                "notes": list,
                "share": str,
                "threshold": float,
                "correct": float,
            }
        nodes = {message.metadata.message_id: message for message in messages}
        for reply in answers:
            if not is_audit(nodes[reply.metadata.reply_to_message_id]):
                continue
            client = (reply.metadata.src_node_id - 1000) // 7
            assert set(reply.content) == {"gcfl"}
            facts = reply.content.config_records["gcfl"]
            found = {k: shape(v) if isinstance(v, list) else type(v) for k, v in facts.items()}
            assert found == expected[client]
            small = [v for k, v in facts.items() if isinstance(v, list) for v in v if 0 <= v < 5]
            assert not small
    assert asked == CLIENTS
    keys = [set(one) - {"name"} for one in told(again)]
    as_json = {"low": "interval", "high": "interval"}
    assert keys == [{as_json.get(name, name) for name in one} for one in expected]
    site = json.loads((site_folder(again, 0) / "audit.json").read_text())
    if share != "none":
        assert told(again)[0]["rate"] == site["rate"]
        assert told(again)[0]["interval"] == site["interval"]
    if share == "matrix":
        counts = [one["labelled"] for one in site["classes"].values()]
        pairs = zip(told(again)[0]["labelled"], counts, strict=True)
        assert all(mine in (None, count) for mine, count in pairs)
        assert any(one is not None for one in told(again)[0]["labelled"])


_opened = None  # by this process, while a test looks


def _note(event, arguments):
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


sys.addaudithook(_note)  # it cannot be taken away again


def test_sites_stand_side_by_side(again, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    asks(again, "matrix")
    play(again / "app", grid_of(again, audit_share=["matrix", "rate", "none"]), again / "flower")
    assert main(["show", str(run_in(again))]) == 0
    shown = capsys.readouterr().out
    rate = f"{told(again)[1]['rate']:.1%}"
    low = f"{told(again)[0]['interval'][0]:.1%} to "
    assert all(text in shown for text in ("Sites", rate, "tells nothing", "cosine"))
    for kind in ("html", "md", "json"):
        out = again / f"report.{kind}"
        assert main(["report", str(again / "flower"), "--out", str(out)]) == 0
        text = out.read_text()
        if kind == "json":
            assert json.loads(text)["groups"][0]["runs"][0]["sites"] == told(again)
        else:
            assert rate in text
            assert low in text


def test_no_report_and_no_tracker_reads_findings(again, capsys, monkeypatch):
    """Poison where findings may lie: in the run's folder, and in sites' folders beside it."""
    asks(again, "matrix")
    play(again / "app", grid_of(again), again / "flower")
    (again / "state").rename(again / "flower" / "state")
    poison = "not a table, not a page: P0IS0N"
    shutil.copytree(site_folder(again / "flower", 0), again / "flower" / "x" / "audit" / "north")
    (again / "flower" / "x" / "audit").rename(_run(again) / "audit")
    places = [folder for folder in (again / "flower").rglob("audit") if folder.is_dir()]
    assert len(places) == CLIENTS + 1
    for place in places:
        for path in place.rglob("*.*"):
            path.write_text(poison)
    opened = []
    monkeypatch.setattr(sys.modules[__name__], "_opened", opened)
    assert main(["show", str(_run(again))]) == 0
    for kind in ("html", "csv", "json", "md"):
        assert main(["report", str(again / "flower"), "--out", str(again / f"r.{kind}")]) == 0
        assert "P0IS0N" not in (again / f"r.{kind}").read_text()
    writer = types.SimpleNamespace(SummaryWriter=MagicMock())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", writer)
    to = ["--tensorboard", str(again / "board")]
    assert main(["track", str(again / "flower"), *to]) == 0
    assert "P0IS0N" not in str(writer.SummaryWriter.mock_calls)
    assert any(path.endswith("sites.json") for path in opened)
    assert not [path for path in opened if "audit" in path]
    assert "P0IS0N" not in capsys.readouterr().out


def _run(place):
    (folder,) = (path.parent for path in (place / "flower").glob("*/sites.json"))
    return folder


def test_sites_that_fail_are_named_and_asked_again(again, caplog):
    """One raises, one is silent; the run ends well. Started again, the others are left alone."""

    def meddle(message, reply):
        if not is_audit(message) or message.metadata.dst_node_id == 1000:
            return reply
        broken = Message(Error(0, "DataError: photos\nare gone"), reply_to=message)
        return broken if message.metadata.dst_node_id == 1007 else None

    asks(again, "rate")
    grid = grid_of(again)
    grid.meddle = meddle
    play(again / "app", grid, again / "flower")
    assert "no findings of 1: DataError: photos are gone" in caplog.text
    assert "no findings of 2: no answer" in caplog.text
    first, *others = told(again)
    assert "rate" in first
    assert ["problem" in one for one in others] == [True, True]
    grid = grid_of(again)
    seen = spy(grid, "send_and_receive")
    play(again / "app", grid, again / "flower")
    asked = [m.metadata.dst_node_id for messages, _ in seen for m in messages if is_audit(m)]
    assert asked == [1007, 1014]
    assert told(again)[0] == first
    assert all("rate" in one for one in told(again))
    grid = grid_of(again)
    seen = spy(grid, "send_and_receive")
    play(again / "app", grid, again / "flower")
    assert not seen  # all is known


def test_lies_are_not_believed(again):
    def meddle(message, reply):
        if is_audit(message) and message.metadata.dst_node_id == 1000:
            lie = ConfigRecord({"samples": 9, "rate": 7.5, "low": 0.0, "high": 1.0})
            return Message(RecordDict({"gcfl": lie}), reply_to=message)
        if is_audit(message) and message.metadata.dst_node_id == 1007:
            return Message(RecordDict(), reply_to=message)
        return reply

    asks(again, "rate")
    grid = grid_of(again)
    grid.meddle = meddle
    play(again / "app", grid, again / "flower")
    assert "7.5 is not a share" in told(again)[0]["problem"]
    assert "cannot be read" in told(again)[1]["problem"]
    assert "rate" in told(again)[2]


def test_a_server_that_was_killed_before_or_in_the_audit_does_it(again):
    def stop(message, reply):
        if is_audit(message):
            raise KeyboardInterrupt
        return reply

    grid = grid_of(again)
    grid.meddle = stop
    with pytest.raises(KeyboardInterrupt):
        play(again / "app", grid, again / "flower")
    assert not (run_in(again) / "sites.json").exists()
    play(again / "app", grid_of(again), again / "flower")
    assert len(told(again)) == CLIENTS


def test_a_site_that_is_away_does_not_stop_the_audit_of_a_finished_run(again):
    grid = grid_of(again)
    del grid.contexts[1014]
    play(again / "app", grid, again / "flower", **{"wait-seconds": 0.1})
    assert told(again)[2] == {"problem": "it has not come", "name": "2"}
    assert [sorted(one) for one in told(again)[:2]] == [["name"], ["name"]]


def test_a_site_that_lost_its_memory_judges_by_the_final_model(again):
    shutil.rmtree(again / "state" / "1")
    play(again / "app", grid_of(again), again / "flower")
    summary = json.loads((site_folder(again, 1) / "audit.json").read_text())
    assert "final model alone" in summary["notes"][-1]
    assert summary["evidence"]["final"] == summary["samples"]


def test_what_cannot_be_is_said_before_anything_is_trained(tmp_path, capsys):
    flags = ["--data", "digits", "--clients", "3", "--rounds", "1"]
    for more, sentence in (
        (["--method", "local-only", "--audit.at_end", "true"], "needs one model that all sites"),
        (["--audit.share", "all"], "share must be 'none', 'rate' or 'matrix', got 'all'"),
        (["--audit.threshold", "2"], "threshold must be in [0, 1], got 2"),
    ):
        assert main(["flower", "export", str(tmp_path / "no"), *flags, *more]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["flower", "export", str(tmp_path / "app"), *flags, "--audit.share", "rate"]) == 0
    for config, sentence in (
        ({"audit_share": ["all"] * 3}, "what a site shares must be none, rate or matrix"),
        ({"state": [""] * 3}, "its node config must name it, state="),
    ):
        grid = grid_of(tmp_path, **config)
        for context in grid.contexts.values():
            context.node_config["errors"] = "details"
            if context.node_config["state"] == "":
                del context.node_config["state"]
        with pytest.raises(RunError, match=sentence):
            play(tmp_path / "app", grid, tmp_path / "flower", **{"wait-seconds": 0.1})
    assert not list((tmp_path / "flower").glob("*/rounds.jsonl"))
