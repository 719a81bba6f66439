"""Bad input gets one clear sentence and exit code 2 before any work starts, and earlier results
stay untouched.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import gcfl
from gcfl import cli
from gcfl import experiment as config
from gcfl.base import files
from helpers import TINY, command, tiny

# (arguments of gcfl, what the one sentence must contain)
COMMANDS = [
    (["run", "--budget", "1.5"], r"budget must be in (0, 1], got 1.5 (--budget)"),
    (["run", "--budget", "0"], "budget must be in (0, 1], got 0"),
    (["run", "--budget", "nan"], "budget must be"),
    (["run", "--noise", "1.0"], "noise must be in [0, 1), got 1.0 (--noise)"),
    (["run", "--noise", "-0.1"], "noise must be in [0, 1), got -0.1"),
    (["run", "--rounds", "0"], "rounds must be at least 1, got 0 (--rounds)"),
    (["run", "--rounds", "ten"], "rounds must be a whole number, got 'ten' (--rounds)"),
    (["run", "--rounds", "2.5"], "rounds must be a whole number, got 2.5"),
    (["run", "--rounds", "true"], "rounds must be a whole number, got True"),
    (["run", "--rounds"], "--rounds needs a value"),
    (["run", "--rounds", "3", "--rounds", "4"], "--rounds is given twice"),
    (["run", "--seed", "-1"], "seed must be at least 0, got -1"),
    (["run", "--workers", "0"], "workers must be at least 1, got 0 (--workers)"),
    (["run", "--clients", "5000"], "lower data.clients or data.min_size"),
    (["run", "--clients", "0"], "clients must be at least 1, got 0"),
    (["run", "--method", "gclf"], "method 'gclf' is unknown; did you mean gcfl?"),
    (
        ["run", "--method", "gcfl+random"],
        "gcfl and random both decide which samples",
    ),
    (["run", "--method", "7"], "method must be text, got 7"),
    (
        ["run", "--data", "digit"],
        "data.source 'digit' is neither a path that exists nor a name; did you mean digits?",
    ),
    (["run", "--data", "arrays"], "pass data=(x, y) to gcfl.run"),
    (["run", "--model", "cnnn"], "model.name 'cnnn' is unknown; did you mean cnn?"),
    (["run", "--model", "given"], "pass model=... to gcfl.run"),
    (["run", "--model", "cnn", "--data", "blobs"], "cnn needs images (channels, height, width)"),
    (["run", "--device", "cuda"], "engine.device 'cuda' is not available on this machine"),
    (["run", "--device", "gpu"], "engine.device 'gpu' is no device that torch knows"),
    (["run", "--bugdet", "0.1"], "unknown option --bugdet; did you mean --budget?"),
    (
        ["run", "--coreset.bugdet", "0.1"],
        "unknown option --coreset.bugdet; did you mean --coreset.budget?",
    ),
    (["run", "--train.lr", "0"], "lr must be in (0, inf), got 0 (--train.lr)"),
    (["run", "--train.lr", "inf"], "lr must be"),
    (["run", "--train.batch", "0"], "batch must be at least 1"),
    (["run", "--train.steps", "few"], "steps must be a whole number, got 'few'"),
    (["run", "--train", "0.1"], "unknown option --train"),
    (["run", "--trian.lr", "0.1"], "unknown option --trian.lr; did you mean --train.lr?"),
    (["run", "--seed.x", "1"], "unknown option --seed.x"),
    (["run", "--score", "distance"], "unknown option --score; did you mean --coreset.score?"),
    (["run", "--validation", "5"], "unknown option --validation; did you mean --data.validation?"),
    (["run", "--verbose"], "unknown option --verbose"),
    (["run", "--data.alpha", "1e308"], "alpha must be in (0, 1000000]"),
    (["run", "--clients", "100000000000000000000000"], "clients must be at most 2147483647"),
    (["run", "--clients", "2000000000"], "lower data.clients or data.min_size"),
    (["run", "--model.hidden", "[10000000000000]"], "the model mlp cannot be built at this size"),
    (["run", "--model.hidden", "64"], "hidden must be a list such as [64, 32], got 64"),
    (["run", "--server.rate", "1e300"], "rate must be in (0, 1000]"),
    (
        ["run", "--method", "server-only+gcfl"],
        "server-only trains without clients, so gcfl has no effect",
    ),
    (
        ["run", "--method", "gcfl", "--coreset.variant", "whole", "--data.validation", "1"],
        "a single sample, which its gradient would reveal",
    ),
    (["run", "short.toml"], "unknown setting (noise in short.toml); did you mean data.noise?"),
    (
        ["run", "--method", "gcfl", "--coreset.score", "best"],
        "score must be 'correlation', 'cosine', 'distance' or 'nearest', got 'best'",
    ),
    (["run", "--data.alpha", "0"], "alpha must be in (0, 1000000], got 0"),
    (["run", "--data.validation", "1797"], "leave nothing of the 1797 samples for the clients"),
    (
        ["run", "--data.validation", "1.5"],
        "validation must be a share in (0, 1] or a whole count of at least 1, got 1.5",
    ),
    (["run", "--data.samples", "5000"], "digits has only 1797 samples"),
    (["run", "--method", "gcfl", "--data.validation", "12"], "a single sample of class"),
    (["run", "--cohort", "11"], "cohort is 11, but there are only 10 clients"),
    (["run", "--model.hidden", "[]"], "hidden must be a list of at least one positive width"),
    (["run", "--method", "skyline", "--noise", "0.99"], "no clean sample left"),
    (["run", "missing.toml"], "missing.toml does not exist"),
    (["run", "folder"], "folder is a folder; a configuration is a TOML file"),
    (["run", "broken.toml"], "broken.toml is not valid TOML"),
    (["run", "binary.toml"], "binary.toml is not valid TOML"),
    (
        ["run", "typo.toml"],
        "unknown setting (coreset.buget in typo.toml); did you mean coreset.budget?",
    ),
    (["run", "range.toml"], "budget must be in (0, 1], got 1.5 (coreset.budget in range.toml)"),
    (["run", "table.toml"], "train must be a table of settings, got 3 (train in table.toml)"),
    (["run", "section.toml"], "unknown setting (corset in section.toml); did you mean coreset?"),
    (["run", "good.toml", "stray"], "unexpected argument 'stray': one configuration file"),
    (["resume"], "RUN"),
    (["resume", "nowhere"], "nowhere does not exist"),
    (["resume", "folder"], "folder is not a run folder: it has no config.toml"),
    (["show", "nowhere"], "nowhere does not exist"),
    (["list", "everything"], "invalid choice"),
    (["fly"], "invalid choice"),
    (["show", "folder", "--fast"], "gcfl show does not take --fast"),
    (["demo", "--seeds", "0"], "--seeds must be at least 1"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "folder").mkdir()
    (folder / "broken.toml").write_text("method = \n")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "typo.toml").write_text("[coreset]\nbuget = 0.1\n")
    (folder / "range.toml").write_text("[coreset]\nbudget = 1.5\n")
    (folder / "section.toml").write_text("corset = 1\n")
    (folder / "table.toml").write_text("train = 3\n")
    (folder / "short.toml").write_text("noise = 0.4\n")
    (folder / "good.toml").write_text("rounds = 2\n")
    gcfl.run(out=folder / "runs", **tiny())
    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def the_sentence(errors: str) -> str:
    """The one line that tells the error; warnings may stand above it."""
    *above, line = errors.strip().splitlines()
    assert all(other.startswith("warning: ") for other in above), above
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "sentence"), COMMANDS, ids=[" ".join(arguments) for arguments, _ in COMMANDS]
)
def test_commands(place, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(place)
    before = fingerprint(place)
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line = the_sentence(captured.err)
    assert sentence in line
    assert fingerprint(place) == before


class NoLinear(nn.Module):
    def forward(self, x):
        return x


X = np.random.default_rng(0).normal(size=(120, 4))
Y = np.arange(120) % 3


def spoiled(value):
    x = X.copy()
    x[7, 2] = value
    return x


ARRAYS = [
    ({"data": (spoiled(np.nan), Y)}, "NaN or infinite values in 1 samples, first in row 7"),
    ({"data": (spoiled(np.inf), Y)}, "NaN or infinite values"),
    ({"data": (X, Y[:-1])}, "120 samples, but y has 119 labels"),
    ({"data": (X[:0], Y[:0])}, "data is empty"),
    ({"data": (X[:, 0], Y)}, "got shape (120,)"),
    ({"data": (X.astype(str), Y)}, "must hold numbers"),
    ({"data": (X, Y + 0.5)}, "y of data must be one row of whole numbers or names"),
    ({"data": (X, np.stack([Y, Y], 1))}, "y of data must be one row"),
    ({"data": (X, np.zeros(120, dtype=int))}, "at least two classes"),
    ({"data": X}, "data must be a pair (x, y)"),
    ({"data": (X, Y, Y)}, "data must be a pair (x, y)"),
    ({"data": ([[1, 2], [3]], [0, 1])}, "not a regular array"),
    (
        {"data": (X, Y), "classes": [0, 1]},
        "y of data has the label 2, which is not among the 2 classes",
    ),
    ({"data": (X, Y), "classes": [0, 1, 1]}, "classes must be different"),
    ({"data": (X, Y), "validation": (X, Y + 1)}, "y of validation has the label 3"),
    (
        {"data": (X, Y), "test": (X[:, :3], Y)},
        "x of test has samples of shape (3,), but data has (4,)",
    ),
    ({"data": "digits", "validation": (X, Y)}, "go with data=(x, y)"),
    ({"data": (X, Y), "model": NoLinear}, "has no parameter to train"),
    ({"data": (X, Y), "model": nn.Linear(4, 7)}, "7 outputs"),
    ({"data": (X, Y), "model": nn.Linear(5, 3)}, "cannot take samples of shape (4,)"),
    ({"data": (X, Y), "model": lambda: 3}, "must return a torch module, got int"),
    ({"data": (X, Y), "model": 3}, "must be a name, a torch module or a function"),
    (
        {"data": (X, Y), "model": nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))},
        "does not end in a Linear layer",
    ),
    ({"data": (X, Y), "model": nn.Linear}, "must work without arguments"),
    ({"data": (X, Y), "model": nn.LazyLinear(3)}, "lazy layers"),
    ({"data": (X, Y), "validation": X}, "validation must be a pair (x, y)"),
    ({"data": (X, Y), "method": "skyline"}, "skyline needs the truth"),
    ({"data": (X, Y), "data.samples": 500}, "only 120 samples"),
    ({"data": (X, Y), "no_such_setting": 1}, "unknown setting (no_such_setting)"),
    ({"data": (X, Y), "clients": "many"}, "clients must be a whole number, got 'many'"),
    ({"data": (X, Y), "train": {"lr": "fast"}}, "lr must be a number, got 'fast'"),
    ({"data": (X, Y), "config_file": "nowhere.toml"}, "nowhere.toml does not exist"),
]


@pytest.mark.parametrize(("settings", "sentence"), ARRAYS, ids=[sentence for _, sentence in ARRAYS])
def test_python(tmp_path, settings, sentence):
    settings = {"model": "logistic", "clients": 3, "rounds": 2, "validation": 40, **settings}
    with pytest.raises(gcfl.GcflError) as caught:
        gcfl.run(out=tmp_path / "runs", **settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def half(tmp_path):
    """A run that was stopped after three of six rounds."""
    path = tmp_path / "run.toml"
    path.write_text(config.build(TINY)[0].to_toml())
    killed = command("run", str(path), "--quiet", cwd=tmp_path, failpoint="round.end:3:kill")
    assert killed.returncode == -9
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def damage_server(folder):
    path = next((folder / "checkpoint").glob("server-*"))
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(blob)
    return "checkpoint is damaged"


def cut_clients(folder):
    path = next((folder / "checkpoint").glob("clients-*"))
    path.write_bytes(path.read_bytes()[:100])
    return "checkpoint is damaged"


def remove_server(folder):
    next((folder / "checkpoint").glob("server-*")).unlink()
    return "No such file"


def break_manifest(folder):
    (folder / "checkpoint" / "manifest.json").write_text("{")
    return "is not valid JSON"


def empty_manifest(folder):
    (folder / "checkpoint" / "manifest.json").write_text("[]")
    return "manifest.json is not a table"


def break_lines(folder):
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    return "line 2 of"


def lose_lines(folder):
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    return "has 1 of the 3 rounds"


def change_config(folder):
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("lr = 0.05", "lr = 0.5"))
    return "config.toml was changed"


def lists_for_records(folder):
    (folder / "rounds.jsonl").write_text("[]\n[]\n[]\n")
    return "is not the record of a round"


def half_records(folder):
    (folder / "rounds.jsonl").write_text('{"round": 0}\n')
    return "is not the record of a round"


def folder_for_records(folder):
    (folder / "rounds.jsonl").unlink()
    (folder / "rounds.jsonl").mkdir()
    return "Is a directory"


def break_config(folder):
    (folder / "config.toml").write_text("seed = -3\n")
    return "seed must be at least 0"


DAMAGES = [
    damage_server,
    cut_clients,
    remove_server,
    break_manifest,
    empty_manifest,
    break_lines,
    lose_lines,
    change_config,
    break_config,
    lists_for_records,
    half_records,
    folder_for_records,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_runs(half, capsys, damage):
    sentence = damage(half)
    before = fingerprint(half)
    before.pop(".lock", None)
    assert cli.main(["resume", str(half), "--quiet"]) == 2
    line = the_sentence(capsys.readouterr().err)
    assert sentence in line
    after = fingerprint(half)
    after.pop(".lock", None)
    assert after == before


@pytest.mark.parametrize("action", ["ENOSPC", "EROFS"])
@pytest.mark.parametrize(
    "point",
    [
        "checkpoint.middle:3",
        "line.middle:2",
        "write.middle:5",
        "write.rename:1",
        "checkpoint.before:4",
    ],
)
def test_a_full_or_read_only_disk_loses_nothing(tmp_path, monkeypatch, capsys, point, action):
    path = tmp_path / "run.toml"
    path.write_text(config.build(TINY)[0].to_toml())
    monkeypatch.setattr(files, "_passed", {})
    monkeypatch.setenv("GCFL_FAILPOINT", f"{point}:{action}")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "run.toml", "--quiet"]) == 2
    line = the_sentence(capsys.readouterr().err)
    assert {"ENOSPC": "No space left on device", "EROFS": "Read-only file system"}[action] in line
    # before the configuration there is nothing to resume
    assert ("gcfl resume runs/" in line) == (point != "write.rename:1")
    monkeypatch.delenv("GCFL_FAILPOINT")
    assert cli.main(["run", "run.toml", "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    straight = gcfl.run(out=tmp_path / "straight", **TINY).folder
    assert (folder / "model.safetensors").read_bytes() == (
        straight / "model.safetensors"
    ).read_bytes()


def test_two_runs_on_one_folder(tmp_path):
    """The second one is refused, from another process and from this one, and the first one ends
    well.
    """
    refused = []

    def second(record):
        if record.round == 1:
            with pytest.raises(gcfl.GcflError, match="in use by another run"):
                gcfl.run(config_file=path, out=tmp_path / "runs")
            refused.append(command("run", str(path), "--quiet", cwd=tmp_path))

    path = tmp_path / "run.toml"
    path.write_text(config.build(TINY)[0].to_toml())
    result = gcfl.run(config_file=path, out=tmp_path / "runs", on_round=second)
    assert refused[0].returncode == 2
    assert f"in use by another run (process {os.getpid()})" in refused[0].stderr
    assert result.finished


def test_out_is_a_file(tmp_path, capsys):
    (tmp_path / "taken").write_text("mine")
    assert cli.main(["run", "--rounds", "1", "--out", str(tmp_path / "taken"), "--quiet"]) == 2
    assert "Not a directory" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_model_that_diverges_says_so(tmp_path, capsys):
    arguments = ["run", "--rounds", "30", "--train.lr", "1e30", "--out", str(tmp_path), "--quiet"]
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert "round 0: the model has NaN or infinite values" in said
    assert "lower train.lr" in said
    assert cli.main([*arguments, "--method", "gcfl"]) == 2
    assert (
        "no client gave a valid update (client 0: the update has NaN or infinite values"
        in capsys.readouterr().err
    )
    assert cli.main([*arguments, "--method", "server-only"]) == 2
    assert "round 0: the model has NaN or infinite values in" in capsys.readouterr().err


def test_an_unfinished_or_foreign_model_cannot_be_loaded(half, tmp_path):
    with pytest.raises(gcfl.GcflError, match="not finished"):
        gcfl.load(half).predict(np.zeros((1, 1, 8, 8)))
    done = gcfl.run(
        data=(X, Y), model=nn.Linear(4, 3), clients=3, rounds=1, validation=40, out=tmp_path / "own"
    ).folder
    with pytest.raises(gcfl.GcflError, match="pass the same class or module"):
        gcfl.load(done).predict(X)
    with pytest.raises(gcfl.GcflError, match="does not have the tensors"):
        gcfl.load(done, model=nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))).predict(X)
    with pytest.raises(gcfl.GcflError, match=r"x must be \(n, 4\), got shape \(120, 3\)"):
        gcfl.load(done, model=nn.Linear(4, 3)).predict(X[:, :3])
    for wrong, sentence in (
        (X.astype(str), "must hold numbers"),
        (X * np.nan, "has NaN"),
        ([[1, 2], [3]], "not a regular array"),
    ):
        with pytest.raises(gcfl.GcflError, match=sentence):
            gcfl.load(done, model=nn.Linear(4, 3)).predict(wrong)
    (done / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(gcfl.GcflError, match="is damaged"):
        gcfl.load(done, model=nn.Linear(4, 3)).predict(X)


def test_debug_shows_the_traceback():
    with pytest.raises(gcfl.GcflError):
        cli.main(["run", "--rounds", "0", "--debug"])


def test_malicious_files_are_never_unpickled(half):
    """A checkpoint or model that is a pickle is refused, and nothing of it runs."""
    import pickle

    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {half}/owned",))

    for path in (half / "checkpoint").glob("*.safetensors"):
        path.write_bytes(pickle.dumps(Evil()))
        manifest = half / "checkpoint" / "manifest.json"
        facts = json.loads(manifest.read_text())
        facts["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest.write_text(json.dumps({"round": facts["round"], "files": facts["files"]}))
    with pytest.raises(gcfl.GcflError, match="damaged or was not written by gcfl"):
        gcfl.resume(half)
    assert not (half / "owned").exists()


def test_the_table_is_long_enough():
    assert len(COMMANDS) + len(ARRAYS) + len(DAMAGES) >= 40
