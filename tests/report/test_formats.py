from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from statistics import mean, stdev

import numpy as np
import pytest
from PIL import Image

from gcfl.base.errors import ConfigError, RunError
from gcfl.report.build import report

FIGURES = {
    "accuracy-over-rounds",
    "accuracy-over-cpu-seconds",
    "accuracy-over-bytes",
    "accuracy-over-noise",
    "clean-share-over-rounds",
    "time-per-round",
    "who-holds-what",
}


def final(runs, method, noise):
    """The last accuracies as written, by no code of the report."""
    tag = f"-noise{100 * noise:g}" if noise else ""
    files = sorted((runs / method).glob(f"digits-mlp-{method}{tag}-seed*/rounds.jsonl"))
    return [json.loads(file.read_text().splitlines()[-1])["accuracy"] for file in files]


def test_csv_and_json_hold_the_plain_numbers(runs, tmp_path):
    (file,) = report(runs, tmp_path / "table.csv")
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    (other,) = report(runs, tmp_path, "json")
    assert other == tmp_path / "report.json"
    told = json.loads(other.read_text())
    assert told["common"]["data.source"] == "digits"
    assert told["left_out"] == []
    assert len(rows) == len(told["groups"]) == 4
    for row, group in zip(rows, told["groups"], strict=True):
        values = final(runs, row["method"], float(row["data.noise"]))
        assert len(values) == 2
        assert float(row["accuracy_mean"]) == pytest.approx(mean(values))
        assert float(row["accuracy_sd"]) == pytest.approx(stdev(values))
        assert group["accuracy"] == {
            "mean": float(row["accuracy_mean"]),
            "sd": float(row["accuracy_sd"]),
            "n": 2,
        }
        assert group["settings"] == {
            "method": row["method"],
            "data.noise": float(row["data.noise"]),
        }
        assert row["seeds"] == "0 1"
        assert row["energy_kwh_estimate_mean"] == ""


def test_markdown(runs, tmp_path):
    (file,) = report(runs, tmp_path / "table.md")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("| method | noise | accuracy, % |")
    assert all(line.count("|") == lines[0].count("|") for line in lines[:6])
    values = final(runs, "gcfl", 0.4)
    assert (
        f"| gcfl | 0.4 | {100 * mean(values):.1f} ± {100 * stdev(values):.1f}" in file.read_text()
    )


@pytest.mark.parametrize("format", ["png", "svg"])
def test_figures_into_a_folder_or_one_file(runs, tmp_path, format):
    files = report(runs, tmp_path / "figures", format)
    assert {file.stem for file in files} == FIGURES
    (whole,) = report(runs, tmp_path / f"all.{format}")
    for file in (*files, whole):
        if format == "png":
            pixels = np.asarray(Image.open(file).convert("L"))
            assert len(np.unique(pixels)) > 20, f"{file} is empty"
        else:
            assert len(ElementTree.parse(file).getroot()) > 0  # noqa: S314


def test_the_same_runs_give_the_same_page(runs, tmp_path):
    first, second = (report(runs, tmp_path / name)[0].read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_wrong_targets_are_refused_before_work(runs, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out, format, words in (
        (tmp_path / "x.csv", "html", "ends in .csv, but the format is html"),
        (tmp_path / "x", "pdf", "format must be html, csv, json, md, png or svg, got 'pdf'"),
        (tmp_path / "file", "png", "is a file"),
    ):
        with pytest.raises(ConfigError, match=words):
            report(runs, out, format)
    with pytest.raises(RunError, match="cannot write"):
        report(runs, tmp_path / "file" / "x.html")
    assert (tmp_path / "file").read_text() == "mine"
