"""What the README shows is run, and says what the code says (tests/test_pages.py has the rest)."""

from __future__ import annotations

import re

from helpers import ROOT, command
from pages import blocks, play

README = (ROOT / "README.md").read_text()


def test_own_data_and_model_in_ten_lines_and_every_command(tmp_path, monkeypatch):
    printed = play("README.md", tmp_path, monkeypatch).printed
    ((block, told),) = (
        pair
        for pair in zip(blocks("README.md"), printed, strict=True)
        if "import gcfl" in pair[0].code
    )
    assert len([line for line in block.code.splitlines() if line.strip()]) <= 10
    assert float(told.split()[0]) > 0.8


def test_the_methods_are_those_of_the_catalogue(tmp_path):
    """Every word of `gcfl list methods` is named, and each list has as many as it says."""
    # A process of its own: other tests register methods in theirs.
    done = command("list", "methods", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines()}
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
