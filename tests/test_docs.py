"""docs/usage.md lists every setting as the code has it."""

from __future__ import annotations

import re

from gcfl.cli.listing import listing
from gcfl.sweep.plan import read_plan
from helpers import ROOT


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "usage.md").read_text()
    for name, line in listing("settings"):
        description, _, default = line.rpartition(" [")
        assert f"| `{name}` | {description} | {default[:-1]} |" in text, (
            f"docs/usage.md lacks or misstates {name}: see gcfl list settings"
        )


def test_the_sweep_of_the_docs_is_valid(tmp_path):
    text = (ROOT / "docs" / "usage.md").read_text()
    (block,) = (code for code in re.findall(r"```toml\n(.*?)```", text, re.S) if "[sweep]" in code)
    (tmp_path / "noise.toml").write_text(block)
    plan = read_plan(str(tmp_path / "noise.toml"))
    assert len(plan.cells) == 3 * 3 * 2 * 2
