"""Sites with data of their own: the same labels and inputs everywhere, the bits of our own engine,
refusals by name.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import tomllib

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ArrayRecord, Context, RecordDict
from PIL import Image
from sklearn.datasets import load_digits

import gcfl
from flower_grid import Here
from gcfl import experiment as config
from gcfl.base.errors import ConfigError, DataError, RunError
from gcfl.cli import main
from gcfl.flower import client_app, server_app, site_in
from gcfl.flower.app import read_experiment
from gcfl.flower.site_data import Terms, serve_sites

NAMES = ("zero", "one", "two", "three")
SITES = ("north", "south", "west")
FLAGS = ["--model", "mlp", "--rounds", "5", "--train.lr", "0.05", "--coreset.budget", "0.3"]
SETTINGS = {
    "model": {"name": "mlp"},
    "rounds": 5,
    "train": {"lr": 0.05},
    "coreset": {"every": 2, "budget": 0.3},
}


@pytest.fixture
def places(tmp_path):
    """Folders of small pictures: the server's with all four classes, the sites' with some."""
    digits = load_digits()
    rows = {label: np.flatnonzero(digits.target == label).tolist() for label in range(4)}

    def write(folder, label, count):
        (folder / NAMES[label]).mkdir(parents=True)
        for _ in range(count):
            row = rows[label].pop()
            pixels = (digits.images[row] * 15).astype(np.uint8)
            Image.fromarray(pixels).save(folder / NAMES[label] / f"{row:04d}.png")

    for label in range(4):
        write(tmp_path / "server", label, 24)
    for site, labels in (("north", (0, 1, 2, 3)), ("south", (1, 3)), ("west", (2,))):
        for label in labels:
            write(tmp_path / site, label, 20)
    return tmp_path


def export(places, *flags, sites="north,south,west", every="2"):
    words = [
        "flower",
        "export",
        "--data",
        str(places / "server"),
        "--data.image_size",
        "8",
        *FLAGS,
        *flags,
        "--coreset.every",
        every,
    ]
    return main([*words, "--sites", sites, "--to", str(places / "app")])


def nodes(places, **data):
    """A Grid of the sites; data: other places than folders of their names."""
    grid = Here(client_app(site_in(places / "app")), len(SITES))
    for (node, _), site in zip(list(grid.contexts.items()), SITES, strict=True):
        where = {
            "client": site,
            "data": str(data.get(site, places / site)),
            "state": str(places / "state" / site),
        }
        grid.contexts[node] = Context(1, node, where, RecordDict(), {})
    return grid


def play(places, grid, **settings):
    context = Context(
        1, 1, {}, RecordDict(), {"out": str(places / "runs"), "wait-seconds": 1.0, **settings}
    )
    server_app(places / "app")(grid, context)
    (folder,) = (places / "runs").iterdir()
    return gcfl.load(folder)


def pictures(folder):
    """(x, y) in the order of the paths, read by hand."""
    files = sorted(folder.glob("*/*.png"))
    x = np.stack([np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1) for file in files])
    return x, np.array([file.parent.name for file in files])


@pytest.mark.parametrize("method", ["gcfl", "scaffold+gcfl", "fedavg"])
def test_the_same_bits_as_one_machine_that_holds_all(places, method):
    """The oracle: everything in one npz, who holds what in a file, classes and sets given. West has
    one class of four.
    """
    assert export(places, "--method", method, "--data.test", "24") == 0
    grid = nodes(places)
    theirs = play(places, grid)
    experiment = read_experiment(places / "app", Context(1, 1, {}, RecordDict(), {}))
    federation = serve_sites(experiment, SITES)[0].federation
    sets = {name: getattr(federation, name) for name in ("validation", "test")}
    parts = [pictures(places / site) for site in SITES]
    labels = sorted(NAMES)
    held = {
        "x": np.concatenate([x for x, _ in parts]),
        "y": np.concatenate([y for _, y in parts]),
        "classes": np.array(labels),
    }
    for name, shard in sets.items():
        held |= {f"x_{name}": shard.x.numpy(), f"y_{name}": np.array(labels)[shard.y.numpy()]}
    np.savez(places / "all.npz", **held)
    (places / "owners.txt").write_text(
        "".join(f"{site}\n" * len(y) for site, (_, y) in zip(SITES, parts, strict=True))
    )
    data = {
        "source": str(places / "all.npz"),
        "partition": "given",
        "owners": str(places / "owners.txt"),
    }
    ours = gcfl.run(out=places / "ours", method=method, data=data, **SETTINGS)
    assert ours.curve == theirs.curve
    for name, tensor in ours.model.tree.items():
        assert (tensor == theirs.model.tree[name]).all(), name
    assert theirs.model.classes == tuple(labels)


def test_what_travels_and_what_is_written(places):
    assert export(places, "--method", "gcfl") == 0
    grid = nodes(places)
    result = play(places, grid)
    assert tomllib.loads((places / "app" / "terms.toml").read_text())["classes"] == sorted(NAMES)
    clients = (result.folder / "clients.json").read_text()
    assert '"north"' in clients
    assert "80" in clients
    network = result.model.network
    shapes = {tuple(tensor.shape) for tensor in network.tree().values()} | {
        (4, network.width + 1),
        (),
    }
    for message in grid.seen:
        for record in message.content.values():
            if isinstance(record, ArrayRecord):
                assert all(tuple(array.shape) in shapes for array in record.values())
            else:
                assert all(isinstance(value, str | int | float | list) for value in record.values())
                assert all(
                    isinstance(one, str)
                    for value in record.values()
                    if isinstance(value, list)
                    for one in value
                )
                assert not {"indices", "labels", "data"} & set(record)
    assert {path.name for path in (places / "state").iterdir()} == set(SITES)
    assert result.finished


def test_an_unknown_class_is_refused_by_name(places, caplog):
    """The name leaves the site only where its operator lets it."""
    assert export(places) == 0
    (places / "south" / "one").rename(places / "south" / "onee")
    sentence = "has the class 'onee', which the server does not know;"
    with pytest.raises(RunError, match=r"not come: south \(south: its data cannot be used"):
        play(places, nodes(places))
    assert sentence in caplog.text
    grid = nodes(places)
    for context in grid.contexts.values():
        context.node_config["errors"] = "details"
    with pytest.raises(RunError, match=rf"not come: south \(south: .*{sentence}"):
        play(places, grid)
    assert not list((places / "runs").glob("*/rounds.jsonl"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"client": "nort"}, "client='nort', which the server does not expect; did you mean north"),
        ({"client": 7}, "client 7, but the experiment has 3 clients"),
        ({"data": None}, 'must say where this site\'s data lies: data="/path/to/it"'),
        ({"data": "/nowhere"}, "says data=./nowhere., and nothing is there"),
        ({"client": None}, "must say which client this is"),
        (
            {"data": "digits"},
            r"has the class '4', which the server|has samples of shape|has the class '0'",
        ),
    ],
)
def test_a_node_that_is_told_wrong_says_so(places, change, sentence):
    assert export(places) == 0
    node = {"client": "north", "data": str(places / "north"), **change}
    context = Context(
        1, 1, {key: value for key, value in node.items() if value is not None}, RecordDict(), {}
    )
    with pytest.raises((ConfigError, DataError), match=sentence):
        site_in(places / "app")(context)


def test_what_sites_with_their_own_data_cannot_have(places, capsys):
    for flags, sentence in (
        (["--noise", "0.4"], "data.noise has no effect where sites bring their own data"),
        (["--method", "centralised"], "puts all data in one place"),
        (["--method", "skyline"], "skyline needs the truth"),
        (["--engine.vectorised", "true"], "engine.vectorised has no effect"),
    ):
        assert export(places, *flags) == 2
        assert sentence in capsys.readouterr().err
    assert export(places, sites="a,a") == 2
    assert "two sites are called 'a'" in capsys.readouterr().err
    assert export(places, sites="a,,b") == 2
    assert "--sites must be names" in capsys.readouterr().err
    assert not (places / "app").exists()


def test_the_servers_data_must_be_what_it_was(places):
    assert export(places) == 0
    next((places / "server" / "one").iterdir()).unlink()
    with pytest.raises(ConfigError, match=r"not what it was|other files"):
        play(places, nodes(places))


def test_a_site_whose_data_changes_forgets_its_coreset_and_nothing_else(places, caplog):
    assert export(places, "--method", "scaffold+gcfl", every="100") == 0
    seen = []
    grid = nodes(places)

    def change(message, reply):
        if "delta" in reply.content and message.content.config_records["gcfl"]["client"] == 0:
            seen.append(message)
            if len(seen) == 2:  # north gets one more picture in the middle of the run
                Image.new("L", (8, 8), 99).save(places / "north" / "one" / "zzz.png")
        return reply

    grid.meddle = change
    result = play(places, grid)
    assert "its coreset is forgotten" in caplog.text
    assert len(result.curve) == 5
    lines = (result.folder / "rounds.jsonl").read_text().splitlines()
    assert not any(json.loads(line)["left_out"] for line in lines)


def test_tables_are_read_by_their_columns_names(tmp_path):
    """A site's columns may stand in another order, with others between them; a missing one is
    named.
    """
    draw = np.random.default_rng(0)

    def write(name, header, rows):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    values = draw.normal(size=(60, 2)).round(4)
    kinds = ["sick" if value else "well" for value in draw.random(60) > 0.5]
    write(
        "server.csv",
        ["age", "weight", "label"],
        [[a, w, k] for (a, w), k in zip(values, kinds, strict=True)],
    )
    write(
        "site.csv",
        ["id", "weight", "label", "age"],
        [["x7", 2.5, "well", 1.5], ["x8", 4.5, "well", 3.5]],
    )
    write("lacks.csv", ["weight", "label"], [[2.5, "well"]])
    settings = {"data": {"source": str(tmp_path / "server.csv")}, "model": {"name": "logistic"}}
    experiment, sites = config.build(settings)[0], ("a",)
    _, terms = serve_sites(experiment, sites)
    (tmp_path / "terms.toml").write_text(terms.to_toml())
    again = Terms.read(tmp_path)
    assert again.to_toml() == terms.to_toml()
    assert all(
        (one == other).all() for one, other in zip(again.normaliser, terms.normaliser, strict=True)
    )
    (tmp_path / "experiment.toml").write_text(experiment.to_toml())

    def site(name):
        return site_in(tmp_path)(
            Context(1, 1, {"client": "a", "data": str(tmp_path / name)}, RecordDict(), {})
        )

    shard = site("site.csv").shard
    assert shard.x.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert shard.y.tolist() == [1, 1]
    with pytest.raises(DataError, match="has no column 'age', which the server's table has"):
        site("lacks.csv")


@pytest.mark.parametrize("flags", [(), ("--clean.hold_out", "0.3")], ids=["all", "hold-out"])
def test_a_run_may_have_another_seed_than_the_app(places, flags):
    """The seed would move the server's split, and what is held out of its clean set, and so the
    normalisation that sites were told.
    """
    assert export(places, "--method", "fedavg", *flags) == 0
    run = play(places, nodes(places), seed=3)
    assert run.finished
    assert run.seed == 3


def findings(places, site):
    (folder,) = (places / "state" / site).glob("*/audit")
    return folder


def test_each_site_audits_its_own_files(places, capsys):
    """South has one sample left, west's photos are gone by the last round; the run ends well."""
    for photo in sorted((places / "south").glob("*/*.png"))[1:]:
        photo.unlink()
    (places / "south" / "three").rmdir()
    assert (
        export(places, "--method", "sift", "--labels.evidence", "true", "--audit.share", "matrix")
        == 0
    )
    grid = nodes(places)

    def lose(message, reply):
        if message.content.config_records.get("gcfl", {}).get("round") == 4:
            shutil.rmtree(places / "west", ignore_errors=True)
        return reply

    grid.meddle = lose
    result = play(places, grid)
    assert result.finished
    assert {site for site in SITES if any((places / "state" / site).glob("*/audit"))} == {
        "north",
        "south",
    }
    with (findings(places, "north") / "audit.csv").open() as file:
        lines = list(csv.DictReader(file))
    photos = {str(path.relative_to(places / "north")) for path in (places / "north").glob("*/*")}
    assert {line["id"] for line in lines} == photos
    assert {line["action"] for line in lines} <= {"keep", "correct", "drop"}
    page = (findings(places, "north") / "audit.html").read_text()
    assert "Audit of north" in page
    assert page.count("data:image/png") == len(lines) == 80
    north, south, west = result.sites["sites"]
    assert north["samples"] == 80
    assert north["name"] == "north"
    assert south == {"samples": 1, "name": "south"}
    assert west["problem"].startswith("its node config or another setting does not fit")
    # What the sites hold is not here, and is not made up from the server's own samples.
    assert main(["audit", str(result.folder)]) == 2
    assert "sites that bring their own data judge them there" in capsys.readouterr().err


def test_a_sites_table_shows_its_strangest_columns(tmp_path):
    draw = np.random.default_rng(0)
    for name in ("server", "site"):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = [[*draw.normal(size=2).round(3), "ab"[place % 2]] for place in range(60)]
            csv.writer(file).writerows([["age", "weight", "label"], *rows])
    flags = ["--model", "logistic", "--rounds", "2", "--audit.at_end", "true", "--sites", "a"]
    app, server = str(tmp_path / "app"), str(tmp_path / "server.csv")
    assert main(["flower", "export", app, "--data", server, *flags]) == 0
    grid = Here(client_app(site_in(tmp_path / "app")), 1)
    where = {"client": "a", "data": str(tmp_path / "site.csv"), "state": str(tmp_path / "state/a")}
    grid.contexts[1000] = Context(1, 1000, where, RecordDict(), {})
    play(tmp_path, grid)
    page = (findings(tmp_path, "a") / "audit.html").read_text()
    assert re.search(r"(age|weight) = -?\d.* sd (above|below)", page)
