"""The selector of docs/architecture.md, added as written there, works everywhere."""

from __future__ import annotations

import re

from gcfl.methods import catalogue
from helpers import ROOT, run, same_bits


def test_the_documented_selector(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "architecture.md").read_text()
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "class SmallLoss" in code)
    assert len(block.strip().splitlines()) < 40
    imports = """
from typing import ClassVar
import numpy as np
from torch.nn.functional import cross_entropy
from gcfl.methods.parts import ClientView, ServerView
from gcfl.methods.periodic import Periodic
from gcfl.types import Coreset, Tree
"""
    scope: dict = {"__name__": "gcfl.methods.small_loss"}
    exec(imports + block, scope)  # noqa: S102
    monkeypatch.setitem(catalogue.WORDS, "small-loss", catalogue.Word(scope["SmallLoss"].summary, select=scope["SmallLoss"]))
    folders = [run(tmp_path / str(workers), method="fedavg+small-loss", engine={"workers": workers}).folder for workers in (1, 2)]
    same_bits(*folders)
