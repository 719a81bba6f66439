"""gcfl recommend: short trials on held-out clean samples, and nothing of the test set."""

from __future__ import annotations

import io
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch

import gcfl
from gcfl import cli
from gcfl import experiment as config
from gcfl.api.candidates import KNOWN, Candidate, Wanted, candidates
from gcfl.api.recommendation import DOUBT, Facts, Trial, chosen
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError, Interrupted
from gcfl.cli import recommend
from gcfl.engine.prepare import Given, prepare
from helpers import prepared, tiny

HELD = {"clean": {"hold_out": 0.3}, "engine": {"evaluate_on": "held-out"}}


def settings(**changes):
    found = tiny(**{"rounds": 10, "data": {"validation": 100}, **changes})
    del found["method"]
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return gcfl.recommend(out=tmp_path_factory.mktemp("trials"), **settings())


def losses(recommendation):
    return {trial.name: trial.losses.tolist() for trial in recommendation.trials}


def test_held_out_samples_take_the_place_of_the_test_set():
    plain, held = (prepared(method="random", **more) for more in ({}, HELD))
    judged = set(held.federation.test.ids.tolist())
    server = set(held.federation.validation.ids.tolist())
    assert judged | server == set(plain.federation.validation.ids.tolist())
    assert not judged & (server | set(plain.federation.test.ids.tolist()))
    assert len(judged) == 18
    mean, _ = held.federation.normaliser
    assert float(mean) == pytest.approx(float(held.federation.validation.x.double().mean()))


def test_each_class_is_held_out_alike():
    data = {"validation": 200, "validation_balanced": True, "samples": 600}
    held = prepared(data=data, **HELD).federation
    assert torch.bincount(held.test.y).tolist() == [6] * 10


def test_measuring_on_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"needs clean\.hold_out"):
        prepared(engine={"evaluate_on": "held-out"})


def test_the_test_set_is_not_looked_at(found, tmp_path, monkeypatch):
    """Another test set, full of what would spoil every number: the same answer."""
    from gcfl.api import recommending

    federate = recommending.federate

    def poisoned(*arguments):
        source, federation = federate(*arguments)
        nan = Shard(federation.test.x * torch.nan, federation.test.y - 100, federation.test.ids)
        return source, replace(federation, test=nan)

    monkeypatch.setattr(recommending, "federate", poisoned)
    again = gcfl.recommend(out=tmp_path, **settings())
    assert losses(again) == losses(found)
    assert again.command == found.command
    assert all(trial.run.config["engine"]["evaluate_on"] == "held-out" for trial in again.trials)


def test_the_baselines_are_always_tried(found):
    assert {trial.name for trial in found.trials} >= {"robust", "fedavg", "server-only"}
    fedavg = next(trial for trial in found.trials if trial.name == "fedavg")
    robust = next(trial for trial in found.trials if trial.name == "robust")
    per_round = [[record.samples.backward for record in one.run.rounds] for one in (fedavg, robust)]
    assert per_round[0] == per_round[1]  # equal cost
    assert fedavg.run.config["train"]["loss"] == "cross-entropy"


def test_losses_are_of_the_held_out_samples_at_the_best_temperature(found):
    trial = found.trials[0]
    held = prepare(config.build({**settings(method="robust"), **HELD})[0], Given()).federation.test
    p = trial.run.model.predict_proba(held.x.numpy()).astype(float)
    grid = [
        -np.log((p**s / (p**s).sum(1, keepdims=True))[np.arange(len(p)), held.y.numpy()])
        for s in np.geomspace(1 / 20, 20, 2000)
    ]
    best = min(grid, key=np.mean)
    assert trial.loss == pytest.approx(best.mean(), abs=1e-4)
    assert trial.losses == pytest.approx(best, abs=0.02)
    assert trial.accuracy == pytest.approx((p.argmax(1) == held.y.numpy()).mean())


def test_all_start_from_the_model_without_clients(found):
    first = next(trial.run for trial in found.trials if trial.name == "server-only")
    others = [trial.run for trial in found.trials if trial.name != "server-only"]
    assert {run.config["model"]["weights"] for run in others} == {
        str(first.folder / "model.safetensors")
    }
    assert {run.config["clean"]["warm_start"] for run in others} == {0}
    assert not any(run.rounds[0].chosen for run in others)
    weights = found.experiment.resolved()
    assert weights["clean"]["warm_start"] == "auto"  # the full run chooses by itself
    assert "weights" not in weights["model"]


def test_it_shows_itself_in_a_few_lines(found):
    assert repr(found) == str(found)
    assert len(repr(found)) < 600
    assert repr(found.trials[0]).startswith(f"{found.trials[0].name}: loss ")
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + len(found.trials)
    assert f"<td>→ {found.choice.name}</td>" in html
    lines = found.table[1]
    assert [float(line[2]) for line in lines] == sorted(float(line[2]) for line in lines)


@pytest.mark.parametrize("width", [80, 160])
def test_its_table_fits_the_terminal(found, width, monkeypatch):
    from rich import console

    seen = []

    class Terminal(console.Console):
        def __init__(self, **_):
            super().__init__(file=io.StringIO(), width=width, force_terminal=True)
            seen.append(self)

    monkeypatch.setattr(console, "Console", Terminal)
    recommend._show(found)
    text = seen[0].file.getvalue()
    rows = [line for line in text.splitlines() if line.startswith("│")]
    assert max(map(len, rows)) <= width
    for trial in found.trials:
        (row,) = [line for line in rows if f" {trial.name} " in line]
        assert f"{trial.accuracy:.3f}" in row
        assert (trial.candidate.what in row) == (width == 160)
        assert trial.candidate.what in text


def test_a_second_call_plays_nothing_again(found, monkeypatch):
    monkeypatch.setattr("gcfl.engine.rounds.Rounds.play", lambda *_: pytest.fail("played"))
    again = gcfl.recommend(out=found.folder.parent, **settings())
    assert losses(again) == losses(found)
    assert again.cost == found.cost


def test_what_was_stopped_goes_on(found, tmp_path):
    rounds = []

    def stop(record):
        rounds.append(record)
        if len(rounds) == 4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="the same call goes on"):
        gcfl.recommend(out=tmp_path, on_round=stop, **settings())
    rest = []
    again = gcfl.recommend(out=tmp_path, on_round=rest.append, **settings())
    assert losses(again) == losses(found)
    assert len(rounds) + len(rest) == sum(len(trial.run.rounds) for trial in found.trials)


def test_the_command_runs_what_is_recommended(found, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(found.command)
    assert words[:2] == ["gcfl", "run"]
    assert cli.main([*words[1:], "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == found.experiment.folder_name()
    assert found.run(out=tmp_path / "runs").folder.name == folder.name
    ours = gcfl.load(folder)
    assert found.expected.samples == pytest.approx(ours.cost["samples"]["backward"], rel=0.35)
    assert found.method in capsys.readouterr().out


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--data.samples", "400", "--rounds", "3", "--data.validation", "80", "--lr", "0.05"]
    flags += ["--model.hidden", "[16]", "--method", "fedprox"]
    assert cli.main(["recommend", *flags]) == 0
    shown = capsys.readouterr()
    assert "80 clean samples" in shown.out
    assert "held-out clean samples" in shown.out
    assert "your fedprox" in shown.out
    assert "trying server-only" in shown.err
    assert cli.main(["recommend", *flags, "--quiet"]) == 0
    (command,) = capsys.readouterr().out.splitlines()
    assert command in shown.out
    assert "--data.samples 400" in command
    assert command.count("--method") == 1


def test_one_round_is_one_round(tmp_path, capsys):
    flags = ["--data.samples", "400", "--rounds", "1", "--data.validation", "80"]
    assert cli.main(["recommend", *flags, "--out", str(tmp_path)]) == 0
    told = "".join(capsys.readouterr())
    assert "trying server-only, " in told
    assert "trying robust, 1 round\n" in told
    assert "After 1 round, on" in told
    assert "full run of 1 round would" in told
    again = gcfl.recommend(
        out=tmp_path, data={"source": "digits", "samples": 400, "validation": 80}, rounds=1
    )
    assert " for 1 round\n" in str(again)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--data.validation", "20"], "20 samples, too few to hold some back"),
        (["--privacy.clean_epsilon", "8"], "cannot keep a privacy budget"),
        (["--budget", "2"], "budget must be in"),
        (["a.toml", "b.toml"], "unexpected argument 'b.toml'"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path, monkeypatch, capsys, flags, sentence):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["recommend", *flags]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def trial(name, values, run=None):
    return Trial(Candidate(name, "", {}), run, np.asarray(values, float), 0.0, None)


def test_within_the_noise_experience_decides():
    rng = np.random.default_rng(0)
    common = rng.exponential(size=50)
    first, second = common + rng.normal(0, 0.1, 50) + 0.001, common
    behind, error = trial("a", first).worse_than(trial("b", second))
    assert behind == pytest.approx((first - second).mean())
    assert error == pytest.approx(np.std(first - second, ddof=1) / np.sqrt(50))
    assert behind < DOUBT * error
    assert chosen([trial("a", first), trial("b", second)]).name == "a"
    assert chosen([trial("a", first + 1), trial("b", second)]).name == "b"
    assert chosen([trial("a", first + 1), trial("b", second + 0.1), trial("c", second)]).name == "c"
    three = (DOUBT + 1) * error + second  # more than enough for a method with clients
    alone = [trial("a", three + (first - second - behind)), trial("server-only", second)]
    assert chosen(alone).name == "a"
    assert chosen([trial("a", first + 1), trial("server-only", second)]).name == "server-only"


def test_named_methods_are_tried_and_what_needs_the_truth_is_not():
    names = [one.name for one in KNOWN]

    def tried(method):
        return [one.name for one in candidates(Wanted(None, {"method": method}))]

    assert tried("fedavg") == [*names, "your fedavg"]
    for method in ("robust", "skyline", "centralised", "local-only"):
        assert tried(method) == names


def test_facts():
    federation = prepared(data={"partition": "iid"}).federation
    facts = Facts.of(federation)
    sizes = sorted(federation.clients.partition.sizes.tolist())
    assert facts.sizes == (sizes[0], sizes[2], sizes[-1])
    labels = federation.clients.y.numpy()
    whole = np.bincount(labels, minlength=10) / len(labels)
    apart = [
        abs(np.bincount(labels[rows], minlength=10) / len(rows) - whole).sum() / 2
        for rows in map(federation.clients.partition.__getitem__, range(5))
    ]
    assert facts.skew == pytest.approx(np.mean(apart))
    assert "5 clients" in str(facts)


def test_from_python_the_call_is_told(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    x = rng.normal(size=(400, 4)) + 3 * y[:, None]
    found = gcfl.recommend(
        (x, y),
        "logistic",
        clients=4,
        rounds=4,
        validation=80,
        noise=0.2,
        out=tmp_path,
    )
    assert re.match(r"gcfl\.run\(data=\{'source': \.\.\., .*rounds=4", found.command)
    assert found.run(out=tmp_path / "runs").accuracy > 0.9
    assert str(found).startswith(f"{found.method}: ")
    json.dumps(found.settings)


def test_the_call_from_python_can_be_made(tmp_path):
    """With what was brought in the place of the dots it is the recommended run."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 150)
    frame = pandas.DataFrame(rng.normal(size=(300, 2)) + 3 * y[:, None], columns=["a", "b"])
    frame["income"] = y
    clean, rest = frame[::4], frame.drop(frame.index[::4])
    brought = {"model": "logistic", "validation": clean, "test": clean}
    found = gcfl.recommend(rest, **brought, label="income", clients=3, rounds=2, out=tmp_path)
    assert found.command.startswith(
        "gcfl.run(data={'source': ..., 'label': 'income', 'clients': 3}, model='logistic', "
        "validation=..., test=..., rounds=2"
    )
    call = found.command.replace("'source': ...", "'source': rest").replace("=...", "=clean")
    names = {"gcfl": gcfl, "out": tmp_path / "runs", "rest": rest, "clean": clean}
    made = eval(call[:-1] + ", out=out)", names)  # noqa: S307
    assert made.folder.name == found.run(out=tmp_path / "runs").folder.name
