"""The documentation holds: what it shows runs, and where it points to, something is."""

from __future__ import annotations

import re
import tomllib

import pytest

from gcfl import experiment as config
from gcfl.results.collect import collect
from gcfl.sweep.plan import read_plan
from helpers import ROOT
from pages import PAGES, PLAYED, anchors, blocks, check, links, name_of, play, prose

NAMES = [name_of(page) for page in PAGES]
# Pages that others write at their own pace: blocks without a language, long lines.
FREE = ("README.md", "docs/results.md")


def has_code(name):
    return any(
        not one.reason and one.language in ("python", "shell", "", "before") for one in blocks(name)
    )


@pytest.mark.parametrize("name", [one for one in NAMES if one not in PLAYED and has_code(one)])
def test_a_page_runs(name, tmp_path, monkeypatch):
    play(name, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["docs/index.md", "docs/howto.md", "docs/privacy.md"])
def test_what_a_page_runs_on_digits_gives_a_good_model(name, tmp_path, monkeypatch):
    """At the length and the rates that the page shows; guessing has 0.1."""
    play(name, tmp_path, monkeypatch, short=False)
    runs = collect([tmp_path / "runs"]).runs
    found = {run.name: run.accuracy for run in runs if "digits-" in run.name}
    assert found
    assert min(found.values()) > 0.8, found


@pytest.mark.parametrize(("name", "where"), PLAYED.items())
def test_other_pages_are_played_by_their_own_tests(name, where):
    assert name.removeprefix("docs/") in (ROOT / where).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_run_or_says_why_not(name):
    text = (ROOT / name).read_text()
    assert len(re.findall(r"^ *```", text, re.M)) == 2 * sum(
        block.language != "before" for block in blocks(name)
    ), "a fence that does not begin its line, or whose words are not understood"
    assert not re.search(r"^ {4}(gcfl|python|make|pip) ", prose(name), re.M), "code without a fence"
    for block in blocks(name):
        where = f"{name}:{block.line}"
        assert block.language or name in FREE, f"{where} names no language"
        assert block.language in ("before", "python", "toml", "shell", "text", ""), where
        for test in re.findall(r"tests/[\w/]+\.py", block.reason or ""):
            assert (ROOT / test).exists(), f"{where}: {test}"
        if block.language == "text":
            assert not re.search(r"^(gcfl|flwr|python|pip|make) ", block.code, re.M), where
        if block.language in ("shell", ""):
            check_commands(block, where)


def check_commands(block, where):
    """Every gcfl line is right; every other line is one of make, or said not to be run."""
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.M)
    for words in block.commands():
        if words[0] == "gcfl":
            check(words)
        elif words[0] == "make":
            assert set(words[1:]) <= set(targets), where
        else:
            assert block.reason, f"{where}: {words[0]} is not run, and nothing says why"
        if words[0] == "python":
            assert (ROOT / words[1]).exists(), where


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_valid(name, tmp_path):
    for block in blocks(name):
        if block.language != "toml" or block.reason:
            continue
        settings = tomllib.loads(block.code)
        if "sweep" in settings:
            (tmp_path / "sweep.toml").write_text(block.code)
            assert read_plan(str(tmp_path / "sweep.toml")).cells
        else:
            assert config.build(settings)[1] == []


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md"])
def test_links_lead_somewhere(name):
    for link in links(name):
        if re.match(r"(https?|mailto):", link):
            continue
        target, _, anchor = link.partition("#")
        file = (ROOT / name).parent / target if target else ROOT / name
        assert file.exists(), f"{link} in {name}"
        if anchor:
            assert anchor in anchors(file.resolve()), f"{link} in {name}"


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_short(name):
    if name in FREE:
        pytest.skip("wrapped by its own authors")
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        assert len(line) <= 100 or line.startswith("|"), f"{name}:{number}"


def test_every_page_stands_in_the_menu():
    """The builder does not mind a menu that leads nowhere, nor a page that nobody finds."""
    menu = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(menu) == [name.removeprefix("docs/") for name in sorted(NAMES[1:])]
