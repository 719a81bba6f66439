"""The tutorials are run as they stand."""

from __future__ import annotations

import re

import pytest

import gcfl
from gcfl import cli
from gcfl.base.errors import ConfigError
from gcfl.methods import catalogue
from gcfl.methods.base import Plain
from helpers import same_bits
from pages import blocks, play


def test_own_data(tmp_path, monkeypatch):
    played = play("docs/own-data.md", tmp_path, monkeypatch, short=False)
    *_, told, _, last = played.printed
    table, photos = told.splitlines()
    assert last.splitlines()[-1].endswith("report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(
        name in page for name in ("Photos with 40% wrong labels", "fedavg", "random", "gcfl")
    )
    assert table.startswith("patients.csv-mlp-robust")
    assert table.endswith("12 clients")
    assert float(table.split()[1].rstrip(",")) > 0.8
    assert photos.startswith("photos-cnn-robust")
    assert float(photos.split()[1].rstrip(",")) > 0.5
    assert {file.name for file in (tmp_path / "data-look").iterdir()} == {
        "clients.png",
        "noise.png",
        "samples.png",
    }


def test_texts(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas", reason="pandas is not installed")
    played = play("docs/texts.md", tmp_path, monkeypatch, short=False)
    names = played.names
    frame = names["result"]
    (folder,) = (one for one in (tmp_path / "runs").iterdir() if one != frame.folder.resolve())
    accuracy, predicted = played.printed[-1].splitlines()
    assert accuracy.endswith("with 6 shops")
    assert float(accuracy.split()[1]) > 0.9
    assert predicted == "delivery, repair"
    by_command = gcfl.load(folder)
    assert by_command.accuracy == frame.accuracy  # a frame is what its file is
    for name, tensor in frame.model.tree.items():
        assert tensor.equal(by_command.model.tree[name])
    assert cli.main(["predict", str(folder), str(tmp_path / "new.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(",")[:2] for line in lines] == [["0", "delivery"], ["1", "repair"]]
    assert cli.main(["predict", str(folder), str(tmp_path / "nothing.csv")]) == 2
    (tmp_path / "other.csv").write_text("leter\na word\n")
    capsys.readouterr()
    assert cli.main(["predict", str(folder), str(tmp_path / "other.csv")]) == 2
    said = capsys.readouterr().err
    assert "no column 'letter'; did you mean leter? (data.text names the column" in said
    with pytest.raises(gcfl.GcflError, match="this model takes texts: pass the column of them"):
        frame.predict(names["pd"].read_csv("test.csv"))
    with pytest.raises(ConfigError, match=r"data.drop has no effect with data.text"):
        gcfl.run(
            data={"source": "letters.csv", "text": "letter", "drop": ["shop"]}, label="department"
        )


def test_an_audit_and_a_second_run(tmp_path, monkeypatch):
    played = play("docs/audit.md", tmp_path, monkeypatch, short=False)
    lines = "".join(played.printed).splitlines()
    called = next(line for line in lines if "labels are called wrong" in line)
    shares = [int(one) for one in re.findall(r"(\d+)%", called)]
    assert min(shares) > 80
    before, after = (float(re.search(r"accuracy ([\d.]+)", line)[1]) for line in lines[-2:])
    assert after > before


def test_a_method_of_ones_own(tmp_path, monkeypatch, own_words):
    assert all(len(block.code.splitlines()) < 40 for block in blocks("docs/new-method.md"))
    names = play("docs/new-method.md", tmp_path, monkeypatch).names
    assert names["result"].finished
    assert names["result"].config["local"]["calm"] == 0.02
    settings = {
        "clients": 5,
        "noise": 0.4,
        "rounds": 4,
        "lr": 0.05,
        "coreset": {"budget": 0.2, "every": 2},
    }
    alone, two = (
        gcfl.run("steady+confident", "digits", out=tmp_path / str(n), workers=n, **settings)
        for n in (1, 2)
    )
    same_bits(alone.folder, two.folder)
    many = gcfl.run(
        "steady+confident", "digits", out=tmp_path, engine={"vectorised": True}, **settings
    )
    assert many.accuracy == pytest.approx(alone.accuracy, abs=0.02)


def test_names_are_checked(own_words):
    class Mine(Plain):
        name = "fedavg"

    for part, message in ((Mine, "already"), (int, "no part of a method")):
        with pytest.raises(ConfigError, match=message):
            catalogue.register(part)
    with pytest.raises(ConfigError, match="small letters"):
        catalogue.register(Mine, "My Rule")
    catalogue.register(Mine, "mine")
    catalogue.register(Mine, "mine")  # again is no contradiction
    assert "mine" in catalogue.WORDS


def test_parts_of_other_packages(own_words, monkeypatch, caplog):
    class Entry:
        def __init__(self, name, part):
            self.name, self._part = name, part

        def load(self):
            if self._part is None:
                raise ImportError("not installed right")
            return self._part

    class Theirs(Plain):
        summary = "theirs"

    monkeypatch.setattr(
        catalogue, "entry_points", lambda **_: [Entry("theirs", Theirs), Entry("broken", None)]
    )
    catalogue.register_installed.cache_clear()
    assert catalogue.parse("theirs").local is Theirs
    assert catalogue.WORDS["theirs"].decides == {"local": Theirs}
    assert "broken of another package cannot be used" in caplog.text
