"""The selector of docs/architecture.md, added as written there, works everywhere."""

from __future__ import annotations

import re

from gcfl.methods import catalogue
from helpers import ROOT, run, same_bits


def test_the_documented_selector(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "architecture.md").read_text()
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "class Confident" in code)
    assert len(block.strip().splitlines()) < 40
    imports = """
from typing import ClassVar
import numpy as np
from gcfl.methods.parts import ClientView, ServerView
from gcfl.methods.periodic import Periodic
from gcfl.types import Coreset, Tree
"""
    scope: dict = {"__name__": "gcfl.methods.confident"}
    exec(imports + block, scope)  # noqa: S102
    monkeypatch.setitem(catalogue.WORDS, "confident", catalogue.Word(scope["Confident"].summary, select=scope["Confident"]))
    folders = [run(tmp_path / str(workers), method="fedavg+confident", engine={"workers": workers}).folder for workers in (1, 2)]
    same_bits(*folders)
