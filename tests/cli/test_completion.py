"""Shell completion answers at once, and with what is there."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from gcfl.cli.completion import collected, words
from helpers import command


def test_the_words_are_those_that_there_are():
    assert words() == collected(), "python -m gcfl.cli.completion writes words.json anew"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_does_not_import_torch(tmp_path, shell):
    code = (
        "import sys; from gcfl.cli import main; "
        f"code = main(['completion', '{shell}']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "train.loss" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_verbs_flags_and_values(tmp_path):
    (tmp_path / "gcfl.sh").write_text(command("completion", "bash", cwd=tmp_path).stdout)
    (tmp_path / "my.toml").touch()
    wanted = {
        "gcfl ru": ["run"],
        "gcfl run --train.lo": ["--train.loss"],
        "gcfl run --train.loss g": ["gce"],
        "gcfl data des": ["describe"],
        "gcfl data describe --noi": ["--noise"],
        "gcfl run --method fedav": ["fedavg", "fedavgm"],
        "gcfl run my": ["my.toml"],
        "gcfl list mod": ["models"],
        "gcfl show --noi": [],
    }
    lines = ["source gcfl.sh"]
    for line in wanted:
        lines += [f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _gcfl"]
        lines += ['echo "${COMPREPLY[*]}"']
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert [line.split() for line in done.stdout.splitlines()] == list(wanted.values())
