"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
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
    "line",
    [
        line
        for block in re.findall(r"^```\w*\n(.*?)^```$", README, re.S | re.M)
        for line in re.findall(r"^gcfl .*$", block, re.M)
        if "..." not in line
    ],
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


def test_the_methods_are_those_of_the_catalogue():
    """Every word of `gcfl list methods` is named, and each list has as many as it says."""
    # A process of its own: other tests register methods in theirs.
    out = subprocess.run(
        [sys.executable, "-m", "gcfl", "list", "methods"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    listed = {line.split()[0] for line in out.splitlines()}
    paragraph = " ".join(README.split("Methods compose by name")[1].split("A run is")[0].split())
    paragraph = paragraph.replace(" [against liars](docs/security.md)", "")
    named = []
    for number, words in re.findall(
        r"(two|four|six|seven|ten) [a-z ]+ \(([a-z-,; ]+)\)", paragraph
    ):
        members = re.split("[,;] ", words)
        assert len(members) == {"two": 2, "four": 4, "six": 6, "seven": 7, "ten": 10}[number], words
        named += members
    assert sorted(named) == sorted(listed - {"fedavg", "robust"})


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (
                f"{target} in {page.name}"
            )
