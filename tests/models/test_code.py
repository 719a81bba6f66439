"""Models of one's own code: found, called, told apart, and refused with a sentence."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

import pytest
import torch

import gcfl
from gcfl import experiment as config
from gcfl.cli import main
from helpers import command, same_bits, tiny

NETS = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, classes, width=8):
        size = shape[0] * shape[1] * shape[2]
        super().__init__(
            nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, classes)
        )

def make():
    return Net((1, 8, 8), 10)

def fails():
    raise RuntimeError("no such thing\\nat all")

def number():
    return 3

def hungry(depth):
    return make()

made = make()
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name, out="runs", **changes):
    settings = tiny(**{"rounds": 3, **changes})
    settings["model"] = {"name": name, **changes.get("model", {})}
    return gcfl.run(out=out, **settings)


def test_a_file_gives_what_the_class_itself_gives(nets):
    by_file = run("nets.py:Net")
    from gcfl.models.code import made_by

    kind = type(made_by("nets.py:Net", 0, (1, 8, 8), 10))
    settings = tiny(rounds=3)
    settings.pop("model")
    by_class = gcfl.run(model=kind, out="python", **settings)
    assert by_file.curve == by_class.curve
    for name, tensor in by_class.model.tree.items():
        assert torch.equal(tensor, by_file.model.tree[name])


def test_shape_classes_and_arguments_are_passed(nets):
    wide = run("nets.py:Net", model={"arguments": {"width": 12}})
    assert wide.model.tree["1.weight"].shape == (12, 64)
    assert run("nets.py:make").model.tree["1.weight"].shape == (8, 64)
    assert len({run(name).folder for name in ("nets.py:Net",)} | {wide.folder}) == 2


def test_the_place_of_the_file_does_not_count_but_the_code_does(nets, monkeypatch):
    first = run("nets.py:Net")
    (nets / "far").mkdir()
    shutil.copy("nets.py", "far/nets.py")
    monkeypatch.chdir(nets / "far")
    moved = run("nets.py:Net", out="runs")
    assert moved.folder.name == first.folder.name
    (nets / "far" / "nets.py").write_text(NETS.replace("nn.ReLU", "nn.Tanh"))
    assert run("nets.py:Net", out="runs").folder.name != first.folder.name


def test_a_run_goes_on_is_shown_loaded_and_audited_without_the_model(nets, tmp_path, capsys):
    straight = run("nets.py:Net", out="straight", method="robust", rounds=4)
    settings = tiny(method="robust", rounds=4) | {"model": {"name": "nets.py:Net"}}
    (nets / "run.toml").write_text(config.build(settings)[0].to_toml())
    killed = command("run", "run.toml", "--quiet", cwd=nets, failpoint="round.end:2:kill")
    assert killed.returncode == -9
    (folder,) = (nets / "runs").iterdir()
    (nets / "elsewhere").mkdir()
    resumed = command("resume", str(folder), "--workers", "2", cwd=nets / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr
    same_bits(straight.folder, folder)
    assert main(["show", str(folder)]) == 0
    assert str(nets) not in capsys.readouterr().out.replace(str(folder), "")
    loaded = gcfl.load(folder)
    assert loaded.predict(torch.zeros(2, 1, 8, 8)).shape == (2,)
    assert len(gcfl.audit(loaded).sites) == 5


def test_a_changed_or_lost_file_is_named(nets, caplog):
    folder = run("nets.py:Net").folder
    shutil.rmtree(folder / "checkpoint")
    (nets / "nets.py").write_text(NETS.replace("nn.ReLU", "nn.Tanh"))
    with pytest.raises(gcfl.GcflError, match=r"other code than what is there now \(.*nets.py:Net"):
        gcfl.resume(folder)
    with caplog.at_level(logging.WARNING, "gcfl"):
        _ = gcfl.load(folder).model
    assert "other layers or other code" in caplog.text
    (nets / "nets.py").unlink()
    with pytest.raises(gcfl.GcflError, match=r"there is no file .*nets.py; .*gcfl.load\(folder, m"):
        _ = gcfl.load(folder).model
    assert gcfl.load(folder).accuracy > 0  # what needs no model needs no code


def test_code_in_a_run_folder_is_never_run(nets):
    folder = run("nets.py:Net").folder
    file = gcfl.load(folder).model  # as long as it lies outside
    assert file.classes
    from gcfl.models.trained import unpack
    from gcfl.results.folder import RunFolder

    (folder / "trap.py").write_text("raise SystemExit('run')")
    groups, meta = RunFolder.open(folder).read_model()
    meta["model"]["name"] = f"{folder.absolute()}/trap.py:Net"
    with pytest.raises(gcfl.GcflError, match="names code of its own as its model, which is never"):
        unpack(groups, meta, None, folder)
    # nor does what a stranger's file names choose what is called
    shout = nets / "shouted"
    meta["model"]["arguments"] = {"args": ["touch", str(shout)]}
    for name in ("subprocess:call", f"{subprocess.__file__}:call", "nets.py:nn"):
        meta["model"]["name"] = name
        with pytest.raises(gcfl.GcflError, match="neither a torch module nor defined in a file"):
            unpack(groups, meta, None, folder)
    assert not shout.exists()


def test_a_run_folder_cannot_have_its_own_code_run_by_going_on(nets):
    folder = run("nets.py:Net", out="runs").folder
    trap = folder / "trap.py"
    trap.write_text("raise SystemExit('run')")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace(str(nets / "nets.py"), str(trap.absolute())))
    (folder / "summary.json").unlink()
    with pytest.raises(gcfl.GcflError, match="names code of its own as its model, which is never"):
        gcfl.resume(folder)


def test_what_the_code_calls_counts_too(nets):
    helped = NETS.replace("def make", "def scale(x):\n    return 2 * x\n\ndef make")
    (nets / "nets.py").write_text(helped)
    first = run("nets.py:Net").folder.name
    (nets / "nets.py").write_text(helped.replace("2 * x", "3 * x"))
    assert run("nets.py:Net").folder.name != first


def test_packages_of_the_working_directory_keep_their_own_imports(nets, monkeypatch):
    package = nets / "my_nets_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text("WIDTH = 5\n")
    (package / "vision.py").write_text(
        NETS.replace(
            "from torch import nn", "from torch import nn\nfrom .sizes import WIDTH"
        ).replace("width=8", "width=WIDTH")
    )
    result = run("my_nets_package.vision:Net")
    assert result.model.tree["1.weight"].shape == (5, 64)
    assert result.config["model"]["name"] == f"{package}/vision.py:Net"
    (nets / "elsewhere").mkdir()
    monkeypatch.chdir(nets / "elsewhere")
    again = run(f"{package}/vision.py:Net")
    assert again.folder.name == result.folder.name
    for name in [one for one in sys.modules if one.startswith("my_nets_package")]:
        del sys.modules[name]


def test_what_is_installed_keeps_its_name(nets):
    assert config.build(tiny(model={"name": "torch.nn:Linear"}))[0].model.name == "torch.nn:Linear"
    from gcfl.models.code import whole_name

    assert whole_name("torch.nn:Linear") == "torch.nn:Linear"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.py:make", "there is no file .*nowhere.py"),
        ("nets.py", "must say what makes the model: file.py:make or package.module:Class"),
        ("nets.py:", "must say what makes the model"),
        ("nets.py:maek", "nets.py has no 'maek'; did you mean make?"),
        ("no_such_package.nets:Net", "there is no module 'no_such_package', neither installed nor"),
        ("nets.py:fails", "nets.py:fails failed: .*no such thing at all"),
        ("nets.py:number", "nets.py:number must return a torch module, got int"),
        ("nets.py:made", "must be a class or function that makes the model, got Net"),
        ("nets.py:hungry", "must work without arguments but shape, classes and model.arguments"),
        ("broken.py:Net", "importing broken.py failed: .*invalid syntax"),
        ("lacking.py:Net", "importing lacking.py failed: .*No module named 'not_there'"),
    ],
)
def test_one_sentence(nets, name, sentence):
    (nets / "broken.py").write_text("def (:\n")
    (nets / "lacking.py").write_text("import not_there\n")
    with pytest.raises(gcfl.GcflError, match=sentence) as caught:
        run(name)
    assert "\n" not in str(caught.value)
    assert not (nets / "runs").exists()


def test_arguments_for_nobody(nets):
    with pytest.raises(gcfl.GcflError, match="are for a model of your own code, not for mlp"):
        run("mlp", model={"arguments": {"width": 3}})
    with pytest.raises(gcfl.GcflError, match="got an unexpected keyword argument 'depth'"):
        run("nets.py:Net", model={"arguments": {"depth": 3}})


def test_the_command_line_takes_them(nets, capsys):
    words = ["run", "--model", "nets.py:Net", "--model.arguments", "{width = 9}"]
    words += ["--data", "digits", "--rounds", "2", "--clients", "3", "--method", "fedavg"]
    assert main([*words, "--quiet"]) == 0
    (folder,) = (nets / "runs").iterdir()
    assert folder.name.startswith("digits-nets.py_Net-fedavg-seed0-")
    assert gcfl.load(folder).model.tree["1.weight"].shape == (9, 64)
