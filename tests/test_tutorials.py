"""The tutorials are run as they stand."""

from __future__ import annotations

import re
import shlex

from gcfl import cli
from helpers import ROOT


def blocks(page):
    """Code blocks in order: ("python", text) or ("", commands)."""
    return re.findall(r"```(\w*)\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)


def test_own_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    names = {"__name__": "tutorial"}
    for language, text in blocks("own-data.md"):
        if language == "python":
            capsys.readouterr()
            exec(text, names)  # noqa: S102
            continue
        for line in text.strip().splitlines():
            assert cli.main([*shlex.split(line)[1:], "--quiet"]) == 0, line
    table, photos = capsys.readouterr().out.strip().splitlines()
    assert table.startswith("patients.csv-mlp-gcfl")
    assert table.endswith("12 clients")
    assert float(table.split()[1].rstrip(",")) > 0.8
    assert photos.startswith("photos-cnn-gcfl")
    assert float(photos.split()[1].rstrip(",")) > 0.5
    assert {file.name for file in (tmp_path / "data-look").iterdir()} == {"clients.png", "noise.png", "samples.png"}
