"""Labels that somebody looked through: `data.labels`."""

from __future__ import annotations

import numpy as np
import pytest

import gcfl
from gcfl.base.errors import ConfigError, DataError
from gcfl.data.cleaned import read_cleaned
from helpers import prepared, run, tiny

BASE = {"method": "fedavg", "data": {"samples": 200, "clients": 4}}


def with_labels(path):
    return {**BASE, "data": {**BASE["data"], "labels": str(path)}}


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("id,label\n" + "".join(f"{id},{label}\n" for id, label in lines))
    return path


def test_a_sample_gets_the_label_of_its_line_and_one_without_is_dropped(tmp_path, caplog):
    before = prepared(**BASE).federation
    rows = before.clients.ids
    whole = prepared(**BASE, model={"name": "logistic"})
    assert whole.federation.truth is not None
    # Ids are rows of the whole source, though only 200 of it are in use.
    from gcfl.engine.prepare import Given, federate

    source, _ = federate(whole.experiment, Given())
    ids = source.ids_of(rows)
    truth = before.truth.labels[rows]
    lines = [(id, label) for id, label in zip(ids, truth, strict=True)][:-10]
    caplog.clear()
    after = prepared(**with_labels(write(tmp_path / "cleaned.csv", lines))).federation
    (said,) = [one for one in caplog.messages if "data.labels" in one]
    assert said.startswith(f"10 of the clients' {len(rows)} samples have no line in {tmp_path}")
    assert len(after.clients.y) == len(rows) - 10
    assert after.clients.ids.tolist() == rows[:-10].tolist()
    assert after.clients.y.tolist() == truth[:-10].tolist()
    assert not after.truth.noisy[after.clients.ids].any()
    assert after.validation.y.tolist() == before.validation.y.tolist()
    owner = {row: c for c in range(4) for row in before.clients.source_rows[c].tolist()}
    for client in range(4):
        assert {owner[row] for row in after.clients.source_rows[client].tolist()} == {client}


def test_what_is_still_wrong_is_known_in_a_simulation(tmp_path, caplog):
    before = prepared(**BASE).federation
    from gcfl.engine.prepare import Given, federate

    source, _ = federate(prepared(**BASE).experiment, Given())
    observed = before.clients.y.numpy()
    lines = zip(source.ids_of(before.clients.ids), observed, strict=True)
    after = prepared(**with_labels(write(tmp_path / "cleaned.csv", lines))).federation
    assert "data.labels" not in caplog.text  # every sample has its line
    assert np.array_equal(after.truth.noisy, before.truth.noisy)


def test_a_folder_of_sites_and_the_identity_of_a_run(tmp_path):
    write(tmp_path / "north" / "cleaned.csv", [("'-1", 3)])
    write(tmp_path / "south" / "cleaned.csv", [("5", 4)])
    assert read_cleaned(str(tmp_path)) == {"-1": "3", "5": "4"}
    before = run(tmp_path / "runs", **BASE, rounds=1)
    from gcfl.engine.prepare import Given, federate

    source, federation = federate(prepared(**BASE).experiment, Given())
    ids = source.ids_of(federation.clients.ids)
    folders = set()
    for label in (1, 2):
        path = write(tmp_path / "mine.csv", [(id, label) for id in ids])
        result = gcfl.run(out=tmp_path / "runs", labels=str(path), **tiny(**BASE, rounds=1))
        folders.add(result.folder)
    assert len(folders | {before.folder}) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name,label\n1,2\n", "needs the columns id and label"),
        ("id,label,wrong,suggested,action\n1,2,0,2,keep\n", "list of findings.*take cleaned.csv"),
        ("id,label\n1,2\n1,3\n", "has two labels for 1"),
        ("id,label\n1,cat\n", "has the label 'cat', which is not a class of digits"),
        ("id,label\nx.png,2\n", "has no line for any of the clients' samples"),
        ("id,label\n1\n", "line 2 of"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "cleaned.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=sentence):
        prepared(**with_labels(path))


def test_missing_files_and_clients_that_lose_everything(tmp_path):
    with pytest.raises((DataError, ConfigError), match="cannot be read"):
        prepared(**with_labels(tmp_path / "nothing.csv"))
    with pytest.raises(DataError, match=r"a folder without a cleaned\.csv"):
        prepared(**with_labels(tmp_path))
    from gcfl.engine.prepare import Given, federate

    source, federation = federate(prepared(**BASE).experiment, Given())
    ids = source.ids_of(federation.clients.source_rows[0])
    path = write(tmp_path / "cleaned.csv", [(id, 1) for id in ids])
    with pytest.raises(DataError, match="leaves client 1 without a sample"):
        prepared(**with_labels(path))
