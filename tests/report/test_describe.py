from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from gcfl import experiment as config
from gcfl.cli import main
from gcfl.data.corruption import NINE, image_of, measure
from gcfl.engine.prepare import Given, federate
from gcfl.report.describe import _sheet_rows
from gcfl.report.partition import class_counts, label_counts


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))


def experiment(**data):
    return config.build({"data": {"clients": 4, **data}})[0]


def test_the_table_and_the_pictures(tmp_path, capsys):
    arguments = [
        "--noise",
        "0.4",
        "--clients",
        "4",
        "--data.noise_kind",
        '["uniform", "attribute"]',
        "--out",
        str(tmp_path / "look"),
    ]
    assert main(["data", "describe", *arguments]) == 0
    text = capsys.readouterr().out
    assert "digits: 1,797 samples of shape 1 x 8 x 8" in text
    assert "4 clients hold 1,347 samples" in text
    assert "noise: 40." in text
    for name in ("clients", "noise", "samples"):
        pixels = np.asarray(Image.open(tmp_path / "look" / f"{name}.png").convert("L"))
        assert pixels.shape[0] > 300
        assert len(np.unique(pixels)) > 20, f"{name}.png is empty"
    assert (
        main(["data", "describe", "--data", "blobs", "--out", str(tmp_path / "table"), "--quiet"])
        == 0
    )
    assert {file.name for file in (tmp_path / "table").iterdir()} == {"clients.png", "noise.png"}


def test_counts_are_the_clients_own():
    source, federation = federate(experiment(noise=0.3), Given())
    table = label_counts(federation).values
    noisy = label_counts(federation, federation.truth.noisy).values
    for client in range(4):
        shard = federation.clients.shard(client)
        assert np.array_equal(table[client], np.bincount(shard.y, minlength=10))
        wrong = shard.y.numpy()[shard.y.numpy() != source.y[shard.ids]]
        assert np.array_equal(noisy[client], np.bincount(wrong, minlength=10))


@pytest.mark.parametrize("kind", ["uniform", "open"])
def test_the_table_counts_true_classes_where_they_are_known(kind):
    source, federation = federate(experiment(noise=0.3, noise_kind=kind), Given())
    found = class_counts(source, federation)
    assert found.classes == source.classes
    for client in range(4):
        assert np.array_equal(
            found.values[client],
            np.bincount(source.y[federation.clients.shard(client).ids], minlength=10),
        )
    unknown = class_counts(source, dataclasses.replace(federation, truth=None))
    assert np.array_equal(unknown.values, label_counts(federation).values)


@pytest.mark.parametrize("kind", ["uniform", "attribute", "open", "mistakes"])
def test_the_sheet_shows_what_it_says(kind):
    built = experiment(noise=0.4, noise_kind=kind)
    source, federation = federate(built, Given())
    rows = dict(_sheet_rows(built, source, federation))
    assert set(rows) == {"clean", *(("before", "attribute") if kind == "attribute" else (kind,))}
    if kind == "attribute":
        scale = measure(source.x, federation.clients.ids)
        for (before, _), (after, caption) in zip(rows["before"], rows["attribute"], strict=True):
            assert not np.array_equal(before, after)
            assert caption in NINE
            if caption in ("brightness", "pixelate", "jpeg_compression"):  # those that draw nothing
                assert np.array_equal(image_of(before, caption, 5, 0, scale.low, scale.high), after)
    else:
        for _, caption in rows[kind]:
            seen, really = (line.split(": ")[1] for line in caption.split("\n"))
            assert seen != really


def test_odd_names_many_clients_and_stale_pictures(tmp_path, recwarn):
    lines = ["a,label,site"] + [
        f"{i % 7},{['cost in $_{', '価格', 'a very long name of a class'][i % 3]},s${i % 70}"
        for i in range(2800)
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "look").mkdir()
    (tmp_path / "look" / "samples.png").write_bytes(b"of another look")
    data = [
        "--data",
        str(tmp_path / "t.csv"),
        "--data.group",
        "site",
        "--data.partition",
        "groups",
        "--clients",
        "70",
    ]
    assert (
        main(
            [
                "data",
                "describe",
                *data,
                "--noise",
                "0.2",
                "--out",
                str(tmp_path / "look"),
                "--quiet",
            ]
        )
        == 0
    )
    assert {file.name for file in (tmp_path / "look").iterdir()} == {"clients.png", "noise.png"}
    assert not [warning for warning in recwarn if "lyph" in str(warning.message)]


def test_names_of_given_clients_are_shown(tmp_path, capsys):
    names = np.array(["north", "Zürich [old]", "south"])[np.arange(1797) % 3]
    (tmp_path / "owners.txt").write_text("\n".join(names), encoding="utf-8")
    arguments = [
        "--data.partition",
        "given",
        "--data.owners",
        str(tmp_path / "owners.txt"),
        "--out",
        str(tmp_path / "look"),
    ]
    assert main(["data", "describe", *arguments]) == 0
    text = capsys.readouterr().out
    assert "Zürich [old]" in text
    assert "north" in text
    assert "noise: 0.0%" in text


def test_bad_settings_are_refused_before_work(capsys):
    assert main(["data", "describe", "--noize", "0.4"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["data", "list", "--noise", "0.4"]) == 2
    assert main(["data", "fetch"]) == 2
