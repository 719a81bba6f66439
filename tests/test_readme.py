"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from gcfl import cli
from gcfl import experiment as config
from helpers import ROOT, run

README = (ROOT / "README.md").read_text()


def test_own_data_and_model_in_ten_lines(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    exec(block, {"__name__": "readme"})  # noqa: S102
    accuracy = float(capsys.readouterr().out.split()[0])
    assert accuracy > 0.8


def test_the_toml_is_valid():
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.S)
    _, unused = config.build(tomllib.loads(block))
    assert unused == []


@pytest.mark.parametrize(
    "line", [line for line in re.findall(r"^gcfl .*$", README, re.M) if "..." not in line]
)
def test_the_commands_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)[1:]
    if words[0] in ("run", "recommend"):
        words[words.index("--rounds") + 1] = "2"
    if "--seeds" in words:
        words[words.index("--seeds") + 1] = "1"
    if words[0] == "show":
        run(tmp_path / "runs")
    assert cli.main(words) == 0


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (
                f"{target} in {page.name}"
            )
