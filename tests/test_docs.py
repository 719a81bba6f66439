"""docs/usage.md lists every setting as the code has it."""

from __future__ import annotations

from gcfl.report.listing import listing
from helpers import ROOT


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "usage.md").read_text()
    for name, line in listing("settings"):
        description, _, default = line.rpartition(" [")
        assert f"| `{name}` | {description} | {default[:-1]} |" in text, (
            f"docs/usage.md lacks or misstates {name}: see gcfl list settings"
        )
