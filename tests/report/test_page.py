"""The page as text: what a parser finds in it, against numbers computed here from rounds.jsonl."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

import gcfl
from gcfl import experiment as config
from gcfl.base.errors import ConfigError
from gcfl.report.axes import log_ticks, number, ticks
from gcfl.report.build import report
from helpers import run, tiny

VOID = {"meta"}
PAPER = {
    "title": "<i>paper</i> & us",
    "rows": [
        {"label": "GCFL", "paper": 47.4, "ours": 45.0},
        {"label": "x", "paper": "?", "ours": None},
    ],
}


class Page(HTMLParser):
    """Tables as lists of texts, figures by id, tags in order; complains of tags that do not
    match.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.figures: dict[str, list[str]] = {}
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag == "figure":
            self.figure = self.figures.setdefault(dict(attributes)["id"], [])
        if "figure" in self.open:
            self.figure.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def text(runs, tmp_path_factory):
    (file,) = report(runs, tmp_path_factory.mktemp("out") / "report.html", paper=PAPER)
    return file.read_text()


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def records(runs):
    """By method and noise, then seed: the rounds as they were written."""
    found: dict = {}
    for file in runs.glob("*/*/rounds.jsonl"):
        settings = config.read_toml(file.with_name("config.toml"))
        rounds = [json.loads(line) for line in file.read_text().splitlines()]
        found.setdefault((settings["method"], settings["data"]["noise"]), {})[settings["seed"]] = (
            rounds
        )
    return found


def test_it_asks_for_nothing(text, page):
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    for tag, attributes in page.seen:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "xlink:href", "srcset", "action", "data"} & attributes.keys()
    assert len(text) < 300_000


def test_the_table_is_mean_and_sd_over_seeds(runs, page):
    heads, *rows = page.tables[0]
    assert heads[:3] == ["method", "noise", "accuracy, %"]
    assert len(rows) == 4
    by_key = {(row[0], float(row[1])): dict(zip(heads, row, strict=True)) for row in rows}
    for key, seeds in records(runs).items():
        row = by_key[key]
        final = [100 * rounds[-1]["accuracy"] for rounds in seeds.values()]
        assert (
            row["accuracy, %"].removesuffix(" ★")
            == f"{np.mean(final):.1f} ± {np.std(final, ddof=1):.1f}"
        )
        cpu = [
            sum(r["time"][kind]["cpu"] for r in rounds for kind in ("select", "train", "aggregate"))
            for rounds in seeds.values()
        ]
        assert row["CPU-seconds"] == f"{np.mean(cpu):.3g} ± {np.std(cpu, ddof=1):.2g}"
        trained = np.mean(
            [sum(r["samples"]["backward"] for r in rounds) for rounds in seeds.values()]
        )
        assert row["samples trained on"] == f"{trained:,.0f}"
        assert row["runs"] == "2 seeds"
    assert not any("★" in row["accuracy, %"] for row in by_key.values())  # two seeds: none


def test_every_plot_has_a_drawing_and_a_table(page):
    wanted = {f"{kind}-{place}" for kind in ("rounds", "cpu", "bytes", "time") for place in (0, 1)}
    assert set(page.figures) == wanted | {"data-noise-0", "clean_share-1", "partition-0"}
    for name, tags in page.figures.items():
        assert "svg" in tags
        assert {"path", "rect"} & set(tags)
        assert tags.index("svg") < tags.index("details") < tags.index("table"), name


def test_curves_tell_what_was_recorded(runs, page):
    places = list(page.figures)
    table = page.tables[2 + places.index("rounds-1")]  # after the results and the paper
    assert table[0] == ["rounds", "fedavg", "gcfl"]
    for method, column in (("fedavg", 1), ("gcfl", 2)):
        seeds = records(runs)[method, 0.4].values()
        for place, row in enumerate(table[1:]):
            values = [100 * rounds[place]["accuracy"] for rounds in seeds]
            assert row[0] == str(place + 1)
            assert row[column] == f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    table = page.tables[2 + places.index("bytes-1")]
    sent = [
        np.cumsum([sum(sum(n.values()) for n in r["bytes"].values()) for r in rounds])
        for rounds in records(runs)["gcfl", 0.4].values()
    ]
    assert [row[3] for row in table[1:]] == [number(value / 1e6) for value in np.mean(sent, axis=0)]
    table = page.tables[2 + places.index("clean_share-1")]
    share = np.mean(
        [rounds[-1]["coreset"]["clean_share"] for rounds in records(runs)["gcfl", 0.4].values()]
    )
    assert table[-1][2].startswith(f"{100 * share:.1f}")


def test_the_heatmap_is_the_partition(runs, page):
    table = page.tables[2 + list(page.figures).index("partition-0")]
    folder = next((runs / "fedavg").glob("*noise40-seed0*"))
    sizes = json.loads((folder / "clients.json").read_text())["sizes"]
    counts = np.array([[int(cell) for cell in row[1:]] for row in table[1:]])
    assert counts.shape == (10, 5)
    assert counts.sum(axis=0).tolist() == sizes


def test_settings_versions_and_runs_are_there(runs, page):
    import torch

    cells = {row[0]: row[-1] for table in page.tables for row in table}
    assert cells["data.noise"] == "0; 0.4"
    assert cells["method"] == "fedavg; gcfl"
    assert cells["data.source"] == "digits"
    assert cells["torch"] == torch.__version__
    assert "processor" in cells
    for folder in runs.glob("*/*"):
        assert any(folder.name in row[0] for row in page.tables[-1])


def test_the_papers_figures_stand_beside_ours(text, page):
    assert page.tables[1] == [
        ["", "paper", "ours", "difference"],
        ["GCFL", "47.4", "45", "-2.4"],
        ["x", "?", "-", "-"],
    ]
    assert "&lt;i&gt;paper&lt;/i&gt; &amp; us" in text


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        {"title": "x"},
        [{"title": "x", "rows": [{"label": "a"}]}],
        {"title": 3, "rows": []},
        7,
    ],
)
def test_wrong_figures_of_a_paper_are_refused(runs, tmp_path, wrong):
    with pytest.raises(ConfigError, match="paper"):
        report(runs, tmp_path / "x.html", paper=wrong)
    assert not (tmp_path / "x.html").exists()


def test_odd_names_unfinished_and_damaged_runs(runs, tmp_path):
    odd = "<b>&\"'</script>"
    (tmp_path / "in").mkdir()
    first, second, third = sorted((runs / "gcfl").iterdir())[:3]
    kept = shutil.copytree(first, tmp_path / "in" / "<b>&\"'")
    (kept / "config.toml").write_text(
        (kept / "config.toml").read_text().replace('"digits"', json.dumps(odd))
    )
    (kept / "summary.json").unlink()
    shutil.copytree(second, tmp_path / "in" / "second")
    broken = shutil.copytree(third, tmp_path / "in" / "broken <i>")
    (broken / "rounds.jsonl").write_text("{}\n")
    (file,) = report(tmp_path / "in", tmp_path / "report.html", title=odd)
    text = file.read_text()
    assert "<b>" not in text
    assert "<i>" not in text
    assert text.count("</script>") == 1
    page = Page(text)
    everything = "".join(page.texts)
    assert odd in everything
    assert "1 run not finished: <b>&\"' (unfinished: 6 of 6 rounds)" in everything
    assert "Left out: broken <i>: rounds.jsonl is damaged" in everything
    assert "left out, since its data cannot be read here" in everything


def test_a_run_without_rounds_and_one_without_evaluation(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gcfl.run(out=tmp_path / "runs", on_round=stop, **tiny(engine={"evaluate_every": 5}))
    (folder,) = (tmp_path / "runs").iterdir()
    (file,) = report(folder, tmp_path / "a.html")
    assert "unfinished: 1 of 6 rounds" in file.read_text()
    (folder / "rounds.jsonl").unlink()
    (file,) = report(folder, tmp_path / "b.html")
    assert "unfinished: 0 of 6 rounds" in file.read_text()


def test_a_single_run(tmp_path):
    (file,) = report(
        run(tmp_path / "runs", method="fedavg").folder, tmp_path / "report.html", data=False
    )
    page = Page(file.read_text())
    assert page.tables[0][0][0] == "method"
    assert page.tables[0][1][0] == "fedavg"
    assert set(page.figures) == {"rounds-0", "cpu-0", "bytes-0", "clean_share-0", "time-0"}


def test_data_from_python_is_not_rebuilt(tmp_path):
    x = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    made = gcfl.run(
        method="fedavg",
        data=(x, (x[:, 0] > 0).astype(int)),
        model="logistic",
        clients=3,
        rounds=2,
        out=tmp_path / "runs",
    )
    (file,) = report(made.folder, tmp_path / "report.html")
    assert "left out, since its data came from Python" in file.read_text()


def test_ticks_are_round_and_inside():
    assert ticks(0, 15) == [0, 5, 10, 15]
    assert ticks(0, 12, whole=True) == [0, 3, 6, 9, 12]
    assert ticks(37.2, 41.9) == [38, 39, 40, 41]
    assert ticks(5, 5) != []
    for low, high in ((0.0021, 0.3), (3, 4), (1e-6, 1e6)):
        found = log_ticks(low, high)
        assert 2 <= len(found) <= 13
        assert all(low <= value <= high for value in found)
    assert [number(value) for value in (0.00123, 12.5, 1500, 25_000, 3_500_000)] == [
        "0.00123",
        "12.5",
        "1500",
        "25k",
        "3.5M",
    ]


def test_privacy_names_methods_not_folders(tmp_path):
    for seed in (0, 1):
        for method in ("gcfl", "fedavg"):
            run(tmp_path / "runs", method=method, rounds=1, seed=seed)
    text = report(tmp_path / "runs", tmp_path / "page.html", data=False)[0].read_text()
    part = text.split("<h2>Privacy</h2>")[1].split("</ul>")[0]
    bullets = part.split("<li>")[1:]
    assert any(one.startswith("clean set") and "(gcfl)</li>" in one for one in bullets)
    assert any(one.startswith("clean set") and "(fedavg)</li>" in one for one in bullets)
    (both,) = [one for one in bullets if one.startswith("clients: ")]  # it is true of all
    assert "fedavg" not in both
    assert "-seed" not in part
