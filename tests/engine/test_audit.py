"""Which labels are wrong, site by site, from a finished run."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn

import gcfl
from gcfl.base.errors import ConfigError, RunError
from gcfl.cli import main
from gcfl.engine.checkpoint import Checkpoint
from gcfl.labels import label_posterior
from gcfl.labels.evidence import past
from gcfl.report.audit_page import audit_page
from gcfl.results.findings import EVIDENCE, Findings, write_findings
from helpers import ROOT, run

SCENE = {
    "method": "robust",
    "data": {"samples": 900, "clients": 4, "validation": 100, "test": 100},
    "model": {"name": "mlp", "hidden": [64]},
    "train": {"lr": 0.05, "epochs": 2},
    "clean": {"warm_start": 30, "lr": 0.05},
    "coreset": {"every": 5, "budget": 0.2},
    "rounds": 20,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs"), **SCENE)


@pytest.fixture(scope="module")
def audit(finished):
    return gcfl.audit(finished)


def test_an_audit_shows_itself_in_a_few_lines(audit):
    shown = repr(audit).splitlines()
    assert len(shown) == 1 + len(audit.sites)
    for line, site in zip(shown[1:], audit.sites, strict=True):
        assert line == repr(site)
        assert line.startswith(f"{site.site}: samples {len(site):,}, wrong labels, % ")
        assert f"{100 * site.rate:.1f} (" in line
        assert len(line) < 120
    many = replace(audit, sites=audit.sites * 10)
    assert len(repr(many).splitlines()) == 12
    assert repr(many).endswith(f"and {len(many.sites) - 10} more: audit.sites")
    html = audit._repr_html_()
    assert html.count("<tr>") == 1 + len(audit.sites)
    assert f"<td>{audit.sites[0].row()[2]}</td>" in html
    strange = replace(audit.sites[0], site="<b>\x1b[2J")
    assert "<b>" not in strange._repr_html_()
    assert "\x1b" not in repr(strange)


def test_wrong_labels_are_found(audit):
    scores = audit.scores()
    truth = np.concatenate([site.truth for site in audit.sites])
    wrong = np.concatenate([site.wrong for site in audit.sites])
    assert scores["auroc"] == pytest.approx(roc_auc_score(truth, wrong))
    assert scores["auroc"] > 0.97
    assert scores["average_precision"] == pytest.approx(average_precision_score(truth, wrong))
    called = wrong > 0.5
    assert scores["precision"] == pytest.approx(truth[called].mean())
    assert scores["recall"] == pytest.approx(called[truth].mean())
    assert scores["rate_error"] < 0.05
    # Corrected labels against the classes that the data came with.
    federation, right, changed = audit.prepared.federation, 0, 0
    for client, site in enumerate(audit.sites):
        true = federation.truth.labels[federation.clients.shard(client).ids]
        for place in np.flatnonzero((site.wrong > 0.5) & (site.confidence >= 0.9)):
            changed += 1
            right += site.suggested[place] == true[place]
    assert changed > 50
    assert scores["corrected_right"] == pytest.approx(right / changed)
    assert scores["corrected_right"] > 0.9
    assert np.isnan(audit.scores(correct=1.0 + 1e-9)["corrected_right"])
    assert np.isnan(scores["strange_auroc"])  # nothing is strange here


def test_findings_are_the_final_posterior_and_that_of_the_looks_before(finished, audit):
    """Against the run's own parts, put together by hand."""
    _, memory = Checkpoint(finished.folder / "checkpoint").load()
    federation, setting = audit.prepared.federation, audit.prepared.setting
    model = {name: finished.model.module.state_dict()[name] for name in setting.network.tree()}
    for client, site in enumerate(audit.sites):
        shard = federation.clients.shard(client)
        final = label_posterior(setting.network.outputs(model, shard.x).logits, shard.y)
        before, last = past(memory[client]["labels"])
        posterior = ((final.posterior + before) / 2).numpy()
        rows = np.arange(len(shard))
        assert np.allclose(site.wrong, 1 - posterior[rows, shard.y], atol=1e-6)
        assert np.array_equal(site.suggested, posterior.argmax(1))
        assert site.rate == pytest.approx(final.rate, abs=1e-6)
        assert site.interval[0] <= site.rate <= site.interval[1]
        # When each sample was last trained on, by the coresets that the run recorded.
        expected = np.full(len(shard), -1)
        for round, chosen in finished.coresets.items():
            place = {row: at for at, row in enumerate(shard.ids.tolist())}
            expected[[place[row] for row in chosen[client].indices.tolist()]] = round
        assert np.array_equal(last.numpy(), expected)
        unused = site.evidence == EVIDENCE.index("unused")
        assert np.array_equal(unused, expected < 0)


def test_workers_and_many_at_once_keep_the_same_evidence(finished, tmp_path):
    one = gcfl.audit(finished)
    for engine, close in (({"workers": 2}, 0.0), ({"vectorised": True}, 1e-2)):
        other = gcfl.audit(run(tmp_path, **SCENE, engine=engine))
        for mine, theirs in zip(one.sites, other.sites, strict=True):
            assert np.allclose(mine.wrong, theirs.wrong, atol=close)


def test_findings_tell_how_much_a_site_helped(tmp_path, capsys):
    asked = {**SCENE, "rounds": 3, "clean": {**SCENE["clean"], "contribution": True}}
    result = run(tmp_path, **asked)
    site = gcfl.audit(result).sites[2]
    assert main(["audit", str(result.folder)]) == 0
    shown = capsys.readouterr().out
    assert "helped" in shown
    assert ("cosine" if site.contribution["gain"] is None else "gain") in shown
    assert "was not recorded" not in shown
    assert site.contribution["rounds"] == 3
    write_findings(site, tmp_path / "site")
    told = json.loads((tmp_path / "site" / "audit.json").read_text())["contribution"]
    assert told["cosine"] == pytest.approx(site.contribution["cosine"])
    page = audit_page("t", [site], lambda *_: None)
    gain, cosine = site.contribution["gain"], site.contribution["cosine"]
    assert (f"cosine {cosine:+.3f}" if gain is None else f"gain {gain:+.4f}") in page
    assert "helped" not in audit_page("t", [replace(site, contribution={})], lambda *_: None)


def test_a_run_without_evidence_says_what_it_lacks(finished, tmp_path):
    copy = shutil.copytree(finished.folder, tmp_path / finished.folder.name)
    shutil.rmtree(copy / "checkpoint")
    found = gcfl.audit(copy)
    assert all("final model alone" in site.notes[0] for site in found.sites)
    assert all((site.evidence == EVIDENCE.index("final")).all() for site in found.sites)
    assert found.scores()["auroc"] > 0.95
    plain = gcfl.audit(run(tmp_path, **{**SCENE, "method": "fedavg", "rounds": 3}))
    assert "final model alone" in plain.sites[0].notes[0]


def test_folders_of_the_first_version_can_be_audited(tmp_path):
    stored = ROOT / "tests/results/version0/runs"
    (old,) = [folder for folder in stored.iterdir() if "mlp-gcfl-noise40" in folder.name]
    found = gcfl.audit(shutil.copytree(old, tmp_path / old.name))
    assert found.sites
    assert "final model alone" in found.sites[0].notes[-1]


def test_cleaned_labels_make_a_better_second_run(finished, audit, tmp_path):
    for site in audit.sites:
        write_findings(site, tmp_path / "audit" / site.site)
    plain = {**SCENE, "method": "fedavg", "rounds": 10}
    before = run(tmp_path, **plain)
    again = run(tmp_path, **{**plain, "data": {**SCENE["data"], "labels": str(tmp_path / "audit")}})
    assert again.rounds[-1].coreset.clean_share > 0.95
    assert again.accuracy > before.accuracy + 0.05


def test_files_of_a_site(audit, tmp_path):
    site = audit.sites[0]
    write_findings(site, tmp_path, correct=0.9, drop=0.5)
    with (tmp_path / "audit.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["wrong"]) for line in lines] == sorted(
        (round(float(one), 4) for one in site.wrong), reverse=True
    )
    assert {line["id"] for line in lines} == set(site.ids)
    with (tmp_path / "cleaned.csv").open() as file:
        cleaned = {line["id"]: line["label"] for line in csv.DictReader(file)}
    actions = {line["id"]: line["action"] for line in lines}
    assert set(actions.values()) == {"keep", "correct", "drop"}
    for place, id in enumerate(site.ids):
        action = actions[id]
        assert (action == "drop") == (id not in cleaned)
        assert (action == "keep") == (site.wrong[place] <= 0.5)
        if site.wrong[place] <= 0.5:
            assert cleaned[id] == site.classes[site.labels[place]]
        elif site.confidence[place] >= 0.9:
            assert cleaned[id] == site.classes[site.suggested[place]]
        else:
            assert id not in cleaned
    facts = json.loads((tmp_path / "audit.json").read_text())
    assert facts["samples"] == len(site)
    assert sum(facts["evidence"].values()) == len(site)
    assert sum(one["labelled"] for one in facts["classes"].values()) == len(site)
    assert site.confusion.sum() == len(site)


def test_parquet_has_the_same_lines(finished, tmp_path, monkeypatch, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind in ("csv", "parquet"):
        out = ["--out", str(tmp_path / kind), "--format", kind]
        assert main(["audit", str(finished.folder), *out]) == 0
    shown = capsys.readouterr().out
    assert "of corrected labels are right" in shown
    assert "was not recorded: clean.contribution" in " ".join(shown.split())
    for folder in (tmp_path / "parquet").glob("client-*"):
        assert not (folder / "audit.csv").exists()
        with (tmp_path / "csv" / folder.name / "audit.csv").open() as file:
            lines = list(csv.DictReader(file))
        rows = parquet.read_table(folder / "audit.parquet").to_pylist()
        assert [{k: str(v) for k, v in row.items()} for row in rows] == lines
        assert (folder / "cleaned.csv").exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["audit", str(finished.folder), "--format", "parquet"]) == 2
    assert "parquet files need pyarrow: pip install" in capsys.readouterr().err


def test_thresholds_are_the_runs_own_unless_told(tmp_path):
    chosen = {**SCENE, "rounds": 2, "audit": {"threshold": 0.3, "correct": 0.95}}
    result = run(tmp_path, **chosen)
    assert result.folder.name == run(tmp_path, **{**SCENE, "rounds": 2}).folder.name
    for flags, threshold in ((["--out", str(tmp_path / "a")], 0.3), (["--threshold", "0.7"], 0.7)):
        assert main(["audit", str(result.folder), *flags]) == 0
        out = tmp_path / "a" if threshold == 0.3 else result.folder / "audit"
        with (out / "client-0" / "audit.csv").open() as file:
            lines = list(csv.DictReader(file))
        near = [line for line in lines if abs(float(line["wrong"]) - threshold) > 1e-4]
        for line in near:
            same = line["label"] == line["suggested"] and float(line["confidence"]) >= 0.5
            kept = float(line["wrong"]) < threshold or same
            assert (line["action"] == "keep") == kept


@pytest.mark.parametrize(
    ("drop", "correct", "actions"),
    [
        # its own label is likelier than not; it is the likeliest, but not likely; another one is
        (0.5, 0.9, ["keep", "drop", "drop", "correct"]),
        (0.05, 0.9, ["keep", "drop", "drop", "correct"]),
        (0.05, 0.2, ["keep", "keep", "correct", "correct"]),
        (0.97, 0.2, ["keep", "keep", "keep", "keep"]),
    ],
)
def test_nothing_is_corrected_to_the_label_that_it_has(tmp_path, drop, correct, actions):
    right, suggested = np.array([0.8, 0.4, 0.2, 0.04]), np.array([0, 0, 1, 1])
    confidence = np.array([0.8, 0.4, 0.45, 0.95])
    found = replace(
        small(4), wrong=1 - right, suggested=suggested, confidence=confidence, right=suggested
    )
    assert found.actions(correct, drop).tolist() == actions
    assert found.corrected(correct, drop) == (actions.count("correct"),) * 2
    labels = {"keep": "a", "correct": "b"}
    assert list(found.cleaned(correct, drop)) == [
        (str(place), labels[action]) for place, action in enumerate(actions) if action != "drop"
    ]


def test_what_cannot_be_audited_is_told_before_any_training(tmp_path, capsys):
    asked = ["--data", "digits", "--method", "local-only", "--runs", str(tmp_path)]
    assert main(["audit", *asked]) == 2
    assert "needs one model that all sites trained" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def small(n, **given):
    """A site of n samples with the label a, whose audit is filled in by the test."""
    one = np.full(n, 0.1)
    found = Findings(
        site="x",
        classes=("a", "b"),
        ids=tuple(map(str, range(n))),
        labels=np.zeros(n, dtype=int),
        wrong=one,
        suggested=np.ones(n, dtype=int),
        confidence=one,
        strange=np.full(n, np.nan),
        evidence=np.full(n, 2),
        rate=0.1,
        interval=(0.0, 0.2),
        transition=np.eye(2),
        prior=np.array([0.5, 0.5]),
    )
    return replace(found, **given)


def test_cells_that_a_spreadsheet_would_run_are_defused(tmp_path):
    site = small(1, classes=("=1+1", "b"), ids=("@cmd",))
    write_findings(site, tmp_path)
    assert (tmp_path / "audit.csv").read_text().splitlines()[
        1
    ] == "'@cmd,'=1+1,0.1,b,0.1,,final,keep"


def test_a_run_from_python_is_audited_at_once_and_again_from_its_folder(tmp_path):
    x, y = load_breast_cancer(return_X_y=True)

    def net():
        return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))

    result = gcfl.run(
        data=(x, y), model=net, clients=4, noise=0.3, validation=60, rounds=8, out=tmp_path
    )
    first = gcfl.audit(result)
    assert first.scores()["auroc"] > 0.9
    assert first.columns is None
    assert len(first.typical[0]) == 30
    places = np.array([0, 2])
    shard = first.prepared.federation.clients.shard(1)
    assert np.array_equal(first.inputs(1, places), shard.x[torch.from_numpy(places)].numpy())
    with pytest.raises(ConfigError, match="was made from Python: pass the same data and model"):
        gcfl.audit(result.folder)
    again = gcfl.audit(result.folder, data=(x, y), model=net)
    assert np.array_equal(first.sites[0].wrong, again.sites[0].wrong)
    with pytest.raises(ConfigError, match="made with other data"):
        gcfl.audit(result.folder, data=(x + 1, y), model=net)


def test_texts_show_no_columns_and_photos_their_files(tmp_path):
    words = [f"{'good fine' if n % 2 else 'bad sad'} film {n}" for n in range(120)]
    texts = gcfl.audit(
        run(
            tmp_path,
            method="fedavg",
            data={
                "source": (words, np.arange(120) % 2),
                "samples": 100,
                "validation": 20,
                "test": 20,
                "clients": 2,
            },
            model={"name": "text"},
            rounds=1,
        )
    )
    assert texts.typical is None  # a token's number is no quantity
    assert texts.root is None
    draw = np.random.default_rng(0)
    for number in range(120):
        file = tmp_path / "photos" / f"class {number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (90, 90, 3), dtype=np.uint8)).save(file)
    mine = {"source": str(tmp_path / "photos"), "image_size": 8, "samples": 100, "clients": 2}
    photos = gcfl.audit(
        run(tmp_path, method="fedavg", data={**mine, "validation": 20, "test": 20}, rounds=1)
    )
    assert all((photos.root / id).is_file() for site in photos.sites for id in site.ids)
    page = (photos.write(tmp_path / "out") / "audit.html").read_text()
    assert page.count("data:image/jpeg;base64,") == sum(map(len, photos.sites))
    spoiled = {**mine, "noise_kind": "attribute"}
    changed = run(tmp_path, method="fedavg", data={**spoiled, "validation": 20}, rounds=1)
    assert gcfl.audit(changed).root is None


def test_unfinished_runs_and_models_that_never_meet_are_refused(finished, tmp_path):
    copy = shutil.copytree(finished.folder, tmp_path / finished.folder.name)
    (copy / "summary.json").unlink()
    with pytest.raises(RunError, match="is not finished: gcfl resume"):
        gcfl.audit(copy)
    alone = run(tmp_path, **{**SCENE, "method": "local-only", "rounds": 1})
    with pytest.raises(ConfigError, match="needs one model that all sites trained"):
        gcfl.audit(alone)


def test_a_class_that_the_clean_set_lacks_is_named(tmp_path):
    x, y = load_breast_cancer(return_X_y=True)
    labels = np.concatenate([y, np.full(40, 2)])
    inputs = np.concatenate([x, x[:40] + 500])
    result = gcfl.run(
        method="fedavg",
        data=(inputs, labels),
        validation=(x[:80], y[:80]),
        test=(x[80:160], y[80:160]),
        model="logistic",
        clients=3,
        rounds=2,
        out=tmp_path,
    )
    found = gcfl.audit(result)
    assert "the clean set has no sample of 2" in found.sites[0].notes[0]
    assert found.scores() is None  # nobody knows what is wrong in one's own data
