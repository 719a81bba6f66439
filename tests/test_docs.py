"""docs/usage.md lists every setting as the code has it."""

from __future__ import annotations

import re
from typing import get_args

from gcfl.cli.listing import settings_table
from gcfl.experiment import every_setting
from gcfl.sweep.plan import read_plan
from helpers import ROOT


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "usage.md").read_text()
    for row in settings_table():
        who = f"{', '.join(row.words)}: " if row.words else ""
        line = f"| `{row.name}` | {who}{row.text} | {row.values} | {row.default} |"
        assert line in text, f"docs/usage.md lacks or misstates {row.name}: see gcfl list settings"


def test_every_part_shows_its_own_default_and_every_choice_its_values():
    rows = {(row.name, row.words): row for row in settings_table()}
    assert rows["local.mu", ("fedprox",)].default == "0.01"
    assert rows["local.mu", ("moon",)].default == "1.0"
    assert rows["server.rate", ("fedadam",)].default == "0.01"
    assert rows["server.rate", ()].default == "1.0"
    assert rows["train.momentum", ("scaffold",)].default == "0.0"
    assert rows["train.loss", ()].values.startswith("cross-entropy, gce, sce")
    for name, owners in every_setting().items():
        for _, field in owners:
            choices = [str(one) for one in get_args(field.annotation) if isinstance(one, str)]
            shown = [row.values for row in settings_table() if row.name == name]
            assert all(choice in values for choice in choices for values in shown)


def test_the_sweep_of_the_docs_is_valid(tmp_path):
    text = (ROOT / "docs" / "compare.md").read_text()
    blocks = re.findall(r"^```toml.*?\n(.*?)^```", text, re.S | re.M)
    (block,) = (code for code in blocks if "[sweep]" in code)
    (tmp_path / "noise.toml").write_text(block)
    plan = read_plan(str(tmp_path / "noise.toml"))
    assert len(plan.cells) == 3 * 3 * 2 * 2


def test_no_page_of_the_site_fetches_a_script_from_elsewhere():
    """Left out, the offline plugin has every page load its polyfill from unpkg.com."""
    text = (ROOT / "mkdocs.yml").read_text()
    (listed,) = re.findall(r"^  polyfills:\n((?:    - .*\n)+)", text, re.M)
    scripts = re.findall(r"- (\S+)", listed)
    assert any("iframe-worker" in script for script in scripts)
    for script in scripts:
        assert (ROOT / "docs" / script).is_file(), script
