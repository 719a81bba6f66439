from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from gcfl import cli


@pytest.mark.parametrize("verb", ["report", "compare", "track"])
def test_help_does_not_import_torch(verb):
    call = f"try:\n    main([{verb!r}, '--help'])\nexcept SystemExit:\n    pass"
    code = f"import sys\nfrom gcfl.cli import main\n{call}\nassert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"gcfl {verb}" in done.stdout


def test_report(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", str(runs)]) == 0
    assert capsys.readouterr().out == "report.html\n"
    (tmp_path / "paper.json").write_text(
        json.dumps({"title": "Table 9", "rows": [{"label": "GCFL", "paper": 1, "ours": 2}]})
    )
    arguments = ["-o", "x/y.html", "--title", "Mine", "--paper", "paper.json", "--no-data"]
    assert cli.main(["report", *map(str, (runs / "gcfl", runs / "fedavg")), *arguments]) == 0
    text = (tmp_path / "x" / "y.html").read_text()
    assert "<h1>Mine</h1>" in text
    assert "Table 9" in text
    assert "Who holds what" not in text
    for format in ("csv", "json", "md"):
        assert cli.main(["report", str(runs), "--format", format]) == 0
        assert (tmp_path / f"report.{format}").exists()


def test_bad_input_is_one_sentence(runs, tmp_path, capsys):
    (tmp_path / "bad.json").write_text("{")
    for arguments, words in (
        ([str(tmp_path / "nothing")], "does not exist"),
        ([str(tmp_path)], "no run that can be read"),
        ([str(runs), "--format", "doc"], "format must be"),
        ([str(runs), "--paper", str(tmp_path / "bad.json")], "not valid JSON"),
        ([str(runs), "--frmat", "md"], "does not take --frmat"),
        ([], "required: RUNS"),
    ):
        assert cli.main(["report", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_damaged_folders_never_end_in_a_traceback(runs, tmp_path, capsys):
    for place, folder in enumerate(sorted(runs.glob("*/*"))):
        spoiled = shutil.copytree(folder, tmp_path / "in" / str(place))
        file = sorted(
            path
            for path in spoiled.iterdir()
            if path.is_file() and path.suffix in (".toml", ".json", ".jsonl")
        )
        for path in file[place % len(file) : place % len(file) + 1]:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    shutil.copytree(folder, tmp_path / "in" / "whole")
    assert cli.main(["report", str(tmp_path / "in"), "-o", str(tmp_path / "r.html")]) == 0
    assert "Left out" in (tmp_path / "r.html").read_text()
