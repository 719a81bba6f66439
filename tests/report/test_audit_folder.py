"""What an audit writes: whose findings lie where, and what becomes of an earlier audit's."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pandas
import pytest

import gcfl
from gcfl.base.errors import ConfigError
from gcfl.report.audit_folder import folder_names
from helpers import run

SCENE = {"method": "fedavg", "data": {"clients": 3}, "rounds": 2}


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    return gcfl.audit(run(tmp_path_factory.mktemp("runs"), **SCENE))


def called(audit, *names):
    sites = [replace(site, site=name) for site, name in zip(audit.sites, names, strict=False)]
    return replace(audit, sites=sites)


def files(folder):
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_every_site_has_a_folder_of_its_own():
    names = [
        "site A",
        "site/A",
        "site_A",
        "Site A",
        "Zürich",
        "北京",
        "上海",
        "москва",
        "..",
        "",
        "/",
    ]
    assert folder_names(names) == [
        *("site_A", "site_A-2", "site_A-3", "Site_A-4"),
        *("Zürich", "北京", "上海", "москва", "site", "site-2", "_"),
    ]
    # Letters with marks, in one code point or in two; marks that are letters of their own.
    assert folder_names(["Zu\u0308rich", "दिल्ली"]) == ["Zürich", "दिल्ली"]
    assert folder_names(["audit.html", "AUDIT.json"]) == ["audit.html-2", "AUDIT.json-2"]
    long = folder_names(["北" * 200, "北" * 201])
    assert len(set(long)) == 2
    assert all(len(one.encode()) < 200 for one in long)
    hostile = folder_names(["../x", "a\x00b", "a\udcff", "/etc/x", "a\nb"])
    assert not any(set(name) & set("/\x00\n") or name.startswith(".") for name in hostile)


def test_findings_of_names_that_look_alike_are_all_there(audit, tmp_path):
    alike = called(audit, "site A", "site/A", "北京")
    assert alike.write(tmp_path / "out") == tmp_path / "out"
    told = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert [site["site"] for site in told["sites"]] == ["site A", "site/A", "北京"]
    for site, facts in zip(alike.sites, told["sites"], strict=True):
        with (tmp_path / "out" / facts["folder"] / "audit.csv").open() as file:
            assert {line["id"] for line in csv.DictReader(file)} == set(site.ids)
    assert files(tmp_path / "out") == sorted(told["files"])


def test_a_second_audit_replaces_the_first_and_nothing_else(audit, tmp_path):
    called(audit, "north", "south", "west").write(tmp_path)
    mine = ("mine.csv", "south/notes.txt", "east/cleaned.csv")
    for name in mine:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    called(audit, "north").write(tmp_path, format="parquet")
    of_north = [f"north/{name}" for name in ("audit.json", "audit.parquet", "cleaned.csv")]
    assert files(tmp_path) == sorted(["audit.html", "audit.json", *mine, *of_north])
    assert not (tmp_path / "west").exists()


def test_a_list_of_files_from_elsewhere_removes_nothing_elsewhere(audit, tmp_path):
    out, beside = tmp_path / "out", tmp_path / "beside"
    for folder in (out, beside):
        folder.mkdir()
        (folder / "cleaned.csv").write_text("mine")
    (out / "link").symlink_to(beside)
    named = ["../beside/cleaned.csv", f"{beside}/cleaned.csv", "link/cleaned.csv", "cleaned.csv"]
    for told in ({"files": [*named, "../cleaned.csv", 3, "a\x00/cleaned.csv"]}, [], {"files": 3}):
        (out / "audit.json").write_text(json.dumps(told))
        called(audit, "north").write(out)
        assert (beside / "cleaned.csv").read_text() == "mine"
        assert (out / "cleaned.csv").read_text() == "mine"


def test_scores_are_written_for_every_site_and_in_all(audit, tmp_path):
    told = json.loads((audit.write(tmp_path, threshold=0.3) / "audit.json").read_text())
    expected = audit.scores(threshold=0.3)
    assert (told["threshold"], told["correct"]) == (0.3, 0.9)
    assert told["scores"].keys() == expected.keys()
    for name, value in told["scores"].items():
        assert np.isnan(expected[name]) if value is None else value == expected[name]
    for site, facts in zip(audit.sites, told["sites"], strict=True):
        assert facts["samples"] == len(site)
        assert facts["rate"] == site.rate
        alone = replace(audit, sites=[site]).scores(threshold=0.3)
        assert facts["scores"]["auroc"] == alone["auroc"]
        assert facts["scores"]["rate_error"] == abs(site.rate - site.truth.mean())
    unknown = replace(audit, sites=[replace(site, truth=None) for site in audit.sites])
    told = json.loads((unknown.write(tmp_path) / "audit.json").read_text())
    assert told["scores"] is None
    assert "scores" not in told["sites"][0]


def test_a_frame_has_the_lines_of_all_sites(audit, tmp_path):
    frame = audit.to_frame()
    audit.write()
    for site in audit.sites:
        lines = pandas.read_csv(audit.folder / "audit" / site.site / "audit.csv")
        mine = frame[frame["site"] == site.site].drop(columns="site").reset_index(drop=True)
        mine = mine.astype(dict(lines.dtypes))
        pandas.testing.assert_frame_equal(mine, lines)
    assert len(frame) == sum(map(len, audit.sites))
    assert (audit.to_frame(threshold=1.0)["action"] == "keep").all()


def test_what_cannot_be_written_is_told_first(audit, tmp_path):
    for wrong in ({"threshold": 2.0}, {"correct": -1}, {"threshold": "half"}, {"format": "xlsx"}):
        with pytest.raises(ConfigError, match=f"^{next(iter(wrong))} must be "):
            audit.write(tmp_path, **wrong)
    assert not list(tmp_path.iterdir())
