"""The pages of the documentation, and what stands in them: code blocks, links, headings.

What a code block is for stands in its fence:

    ```python                   run, block after block, in one namespace and one folder per page
    ```python title="nets.py"   a file of that name, for the blocks that follow; so with toml
    ```toml                     an experiment or, with [sweep] in it, a sweep: checked
    ```shell                    gcfl: run; make: its target is looked up
    ```text                     no code: formulas, trees of files, what is printed

A block after `<!-- not run: reason -->` is not run, but its gcfl lines are read by the parser and
their settings checked; so is a line with `...` in it, where something of the reader's own goes.
`<!-- before: ... -->` holds Python that is run and not shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gcfl import cli
from gcfl.cli.settings import wanted_of
from gcfl.experiment import compose
from helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages whose own tests play them, and look at what comes out.
PLAYED = {
    "README.md": "tests/test_readme.py",
    "docs/audit.md": "tests/test_tutorials.py",
    "docs/coresets.md": "tests/coreset/test_select.py",
    "docs/labels.md": "tests/labels/test_recovery.py",
    "docs/new-method.md": "tests/test_tutorials.py",
    "docs/own-data.md": "tests/test_tutorials.py",
    "docs/texts.md": "tests/test_tutorials.py",
}
_BLOCK = re.compile(
    r"^<!-- before:\n(?P<before>.*?)^-->$"
    r"|(?:^<!-- not run: (?P<reason>[^\n]+) -->\n+)?"
    r"^(?P<fence>`{3,})(?P<language>\w*)(?: title=\"(?P<title>[\w./-]+)\")?\n"
    r"(?P<code>.*?)^(?P=fence)$",
    re.S | re.M,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int
    title: str | None = None
    reason: str | None = None

    def commands(self) -> list[list[str]]:
        """The words of each command, without comments; a backslash joins two lines."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path | str) -> list[Block]:
    """In order; what is run unseen has the language "before"."""
    text = (ROOT / page).read_text()
    found = []
    for one in _BLOCK.finditer(text):
        line = text.count("\n", 0, one.start()) + 1
        if one["before"] is not None:
            found.append(Block("before", one["before"], line))
        else:
            found.append(Block(one["language"], one["code"], line, one["title"], one["reason"]))
    return found


def prose(page: Path | str) -> str:
    """The page without code and comments, line by line as it was."""
    text = re.sub(r"<!--.*?-->", _blank, (ROOT / page).read_text(), flags=re.S)
    text = re.sub(r"^(`{3,}).*?^\1$", _blank, text, flags=re.S | re.M)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", _blank, text, flags=re.S)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def anchors(page: Path | str) -> set[str]:
    """What headings are called in addresses, on the site and on GitHub alike."""
    text = re.sub(r"^(`{3,}).*?^\1$", _blank, (ROOT / page).read_text(), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.+?)$", text, re.M)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower())) for title in titles}


def links(page: Path | str) -> Iterator[str]:
    """Where links and pictures lead."""
    yield from re.findall(r"\]\(([^()\s]+)\)", prose(page))
    yield from re.findall(r"(?:href|src)=\"([^\"]+)\"", prose(page))


def check(words: list[str]) -> None:
    """A gcfl command as its parser reads it, and its settings, without playing it."""
    given = [word for word in words[1:] if word != "..."]
    options, rest = cli._parser().parse_known_args(given)
    assert options.verb, words
    if not options.takes_settings:
        assert not rest, f"gcfl {options.verb} does not take {rest[0]}"
        return
    place = next((n for n, word in enumerate(rest) if word.startswith("--")), len(rest))
    wanted = wanted_of(rest[place:])
    for method in str(wanted.explicit.get("method", "robust")).split(","):
        compose(None, {**wanted.explicit, "method": method}, wanted.flags)


def shortened(words: list[str]) -> list[str]:
    """Two rounds and one seed of whatever is trained."""
    words = list(words)
    for flag, value in (("--rounds", "2"), ("--seeds", "1")):
        if flag in words:
            words[words.index(flag) + 1] = value
        elif flag == "--rounds" and words[1] in ("run", "recommend", "audit"):
            words += [flag, value]
    return words


@dataclass
class Played:
    """What became of a page: the names that its Python made, and what each block printed."""

    names: dict[str, Any] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)


def play(page: str, folder: Path, monkeypatch: Any, *, short: bool = True) -> Played:
    """Run a page in a folder: as it stands, or with its commands shortened."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GCFL_DATA_HOME", str(folder / "home"))
    played = Played({"__name__": Path(page).stem})
    for block in blocks(page):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if block.reason:
                pass
            elif block.title:
                (folder / block.title).write_text(block.code)
            elif block.language in ("python", "before"):
                code = compile(block.code, f"{page}:{block.line}", "exec", dont_inherit=True)
                exec(code, played.names)  # noqa: S102
            elif block.language in ("shell", ""):
                for words in block.commands():
                    if words[0] == "gcfl" and not any("..." in word for word in words):
                        line = shortened(words) if short else words
                        assert cli.main([*line[1:], "--quiet"]) == 0, shlex.join(line)
        played.printed.append(out.getvalue())
    return played
