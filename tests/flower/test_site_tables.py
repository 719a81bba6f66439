"""Sites with tables of their own: encoded as the server's is, new values in their place."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Context, RecordDict

import gcfl
from data_files import adults, write_table
from flower_grid import Here
from gcfl.base.cells import cells
from gcfl.base.errors import DataError
from gcfl.cli import main
from gcfl.data import DataOptions, read_as
from gcfl.flower import client_app, server_app, site_in
from gcfl.flower.site_data import Terms

SITES = ("north", "south")
PLANTED = "Zanzibarquux"


@pytest.fixture
def app(tmp_path):
    """A server's table, and one of each site, whose columns come in another order."""
    write_table(tmp_path / "server.csv", adults(200))
    for seed, site in enumerate(SITES, start=1):
        table = {name: np.array(column, object) for name, column in adults(60, seed).items()}
        table["job"][:9] = PLANTED
        table["extra"] = np.arange(60)
        write_table(tmp_path / f"{site}.csv", {name: table[name] for name in sorted(table)})
    words = ["flower", "export", "--data", str(tmp_path / "server.csv"), "--label", "income"]
    words += ["--data.drop", "row_id,country,hospital", "--method", "fedavg", "--rounds", "2"]
    words += ["--model", "logistic", "--sites", ",".join(SITES), "--to", str(tmp_path / "app")]
    assert main(words) == 0
    return tmp_path


def test_sites_take_the_servers_encoding(app):
    terms = Terms.read(app / "app")
    encoding = terms.schema.encoding
    options = DataOptions(source=str(app / "north.csv"), label="income")
    found = read_as(options, 0, terms.schema)
    table = adults(60, seed=1)
    table["job"] = [PLANTED] * 9 + list(table["job"][9:])
    expected = encoding.apply({name: cells(column, name) for name, column in table.items()}, "t")
    assert np.array_equal(found.x, expected)
    assert found.columns == encoding.names
    assert found.x[:, found.columns.index("job=(other)")].sum() == 9
    (app / "north.csv").write_text((app / "north.csv").read_text().replace("hours", "hour", 1))
    with pytest.raises(DataError, match="no column 'hours', which the server's table has"):
        read_as(options, 0, terms.schema)


def test_sites_read_dates_as_the_server_writes_them(tmp_path):
    def table(rows, seed=0):
        found = adults(rows, seed)
        return found | {"since": [f"{day:%d/%m/%Y}" for day in found["since"].astype(object)]}

    write_table(tmp_path / "server.csv", table(200))
    write_table(tmp_path / "north.csv", table(60, 1))
    words = ["flower", "export", "--data", str(tmp_path / "server.csv"), "--label", "income"]
    words += ["--data.columns", "age,since", "--data.date_format", "%d/%m/%Y", "--sites", "north"]
    words += ["--method", "fedavg", "--model", "logistic", "--to", str(tmp_path / "app")]
    assert main(words) == 0
    terms = Terms.read(tmp_path / "app")
    options = DataOptions(source=str(tmp_path / "north.csv"), label="income")
    found = read_as(options, 0, terms.schema)
    expected = np.array(adults(60, 1)["since"], "datetime64[D]").astype(float)
    assert np.array_equal(found.x[:, found.columns.index("since")], expected.astype(np.float32))


def test_a_run_over_sites(app):
    grid = Here(client_app(site_in(app / "app")), len(SITES))
    for (node, _), site in zip(list(grid.contexts.items()), SITES, strict=True):
        data, state = str(app / f"{site}.csv"), str(app / "state" / site)
        where = {"client": site, "data": data, "state": state}
        grid.contexts[node] = Context(1, node, where, RecordDict(), {})
    settings = {"out": str(app / "runs"), "wait-seconds": 1.0}
    server_app(app / "app")(grid, Context(1, 1, {}, RecordDict(), settings))
    (folder,) = (app / "runs").iterdir()
    run = gcfl.load(folder)
    assert [one["samples"] for one in run.clients] == [60, 60]
    assert run.model.encoding == Terms.read(app / "app").schema.encoding
    for file in (*folder.rglob("*"), *(app / "app").rglob("*")):
        assert not file.is_file() or PLANTED.encode() not in file.read_bytes()
