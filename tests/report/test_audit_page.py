"""The page of an audit: as text against numbers computed here, and in a real browser."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from gcfl.report.audit_page import audit_page
from gcfl.report.audit_samples import as_bytes, png, strangest
from gcfl.results.findings import EVIDENCE, Findings, detection
from report.browser import FOUND, Browser

HOSTILE = "</script><img src=x onerror=document.title='run'>"


def site(n=40, name="north", classes=("cat", "dog", "eel"), seed=0, **given):
    """A site with random numbers; a wrong label has a higher probability of being wrong."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, len(classes), n)
    truth = draw.random(n) < 0.3
    wrong = np.clip(draw.beta(2, 4, n) + 0.4 * truth, 0, 1)
    other = (labels + draw.integers(1, max(2, len(classes)), n)) % len(classes)
    found = Findings(
        site=name,
        classes=tuple(classes),
        ids=tuple(f"{name}-{place}" for place in range(n)),
        labels=labels,
        wrong=wrong,
        suggested=np.where(wrong > 0.5, other, labels),
        confidence=draw.uniform(0.5, 1, n),
        strange=draw.random(n),
        evidence=draw.integers(0, len(EVIDENCE), n),
        rate=0.3,
        interval=(0.25, 0.35),
        transition=np.eye(len(classes)),
        prior=np.full(len(classes), 1 / len(classes)),
        truth=truth,
    )
    return replace(found, **given)


def colours(number, places):
    return np.full((len(places), 3, 4, 4), 100 * number + 50, dtype=np.uint8)


def nothing(number, places):
    return None


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(text)


class Text(HTMLParser):
    """Tags, tables and plain text of a page, without scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.tables, self.words, self._inside = [], [], [], ""
        self._cell = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._inside = tag
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_endtag(self, tag):
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self._inside in ("script", "style"):
            return
        self.words.append(data)
        if self._cell:
            self.tables[-1][-1][-1] += data


def facts(page, table=0):
    """The table of a single site."""
    return {row[0]: row[1] for row in Text(page).tables[table] if row[0]}


def test_names_are_shown_not_run():
    hostile = site(
        name=HOSTILE,
        classes=(HOSTILE, "<b>dog</b>"),
        ids=tuple(f"{HOSTILE}{place}" for place in range(40)),
        notes=(HOSTILE,),
    )
    columns, typical = (HOSTILE, "y"), (np.zeros(2), np.ones(2))

    def table(number, places):
        return np.ones((len(places), 2))

    page = audit_page(HOSTILE, [hostile, site(seed=1)], table, columns, typical)
    text = Text(page)
    assert "img" not in text.tags
    assert "b" not in text.tags
    assert page.count("</script>") == 2  # that of the data and that of the script
    assert "onerror=document.title='run'>" not in re.sub(
        r"<script.*?</script>", "", page, flags=re.S
    )
    assert HOSTILE in "".join(text.words)
    data = data_of(page)
    assert HOSTILE in data["sites"]
    assert HOSTILE in data["classes"]
    assert HOSTILE in data["cells"][0][0]
    assert "img-src data:" in page
    assert "default-src 'none'" in page
    assert "http:" not in page
    assert "https:" not in page


def test_names_that_are_no_text_can_be_written(tmp_path):
    odd = site(name="a\udcff", classes=("x\udcff", "y"))
    (tmp_path / "page.html").write_text(audit_page("odd", [odd], nothing), encoding="utf-8")


def test_all_samples_are_there_worst_first():
    sites = [site(30, "a"), site(50, "b", seed=1)]
    data = data_of(audit_page("t", sites, nothing))
    lines = [
        (sites[number].wrong[place], number, place)
        for number in range(2)
        for place in range(len(sites[number]))
    ]
    lines.sort(key=lambda line: -line[0])
    for row, (wrong, number, place) in enumerate(lines):
        line = sites[number].line(place)
        assert data["sites"][data["site"][row]] == sites[number].site
        assert data["id"][row] == line["id"]
        assert data["classes"][data["label"][row]] == line["label"]
        assert data["classes"][data["suggested"][row]] == line["suggested"]
        assert data["evidence"][data["evidenced"][row]] == line["evidence"]
        assert data["truth"][row] == line["truth"]
        assert data["wrong"][row] == pytest.approx(1e4 * wrong, abs=1.01)
        assert data["confidence"][row] == pytest.approx(1e4 * line["confidence"], abs=1.01)
        assert data["strange"][row] == pytest.approx(1e4 * line["strange"], abs=1.01)
    assert len(data["id"]) == 80
    assert data["pictures"] is None
    assert data["cells"] is None


def test_rounding_keeps_the_side_of_the_threshold():
    wrong = np.array([0.5, 0.50001, 0.49999, 1.0, 0.99999, 0.0])
    data = data_of(audit_page("t", [site(6, wrong=wrong, strange=np.full(6, 0.98999))], nothing))
    assert data["wrong"] == [10000, 9999, 5001, 5000, 5000, 0]
    assert max(data["strange"]) < data["strangeFrom"]


def test_as_many_inputs_as_asked_for():
    sites = [site(30, "a", strange=np.full(30, np.nan)), site(50, "b", seed=1)]
    sites[1] = replace(sites[1], strange=np.full(50, np.nan))
    asked = []

    def inputs(number, places):
        asked.append((number, places))
        return colours(number, places)

    data = data_of(audit_page("t", sites, inputs, embedded=10))
    assert data["rows"] == list(range(10))
    assert len(data["pictures"]) == 10
    assert sorted(number for number, _ in asked) == sorted({data["site"][row] for row in range(10)})
    named = {f"{'ab'[number]}-{place}" for number, places in asked for place in places}
    assert named == set(data["id"][:10])
    for row in range(10):  # each has the picture of its own site
        address = data["pictures"][row].removeprefix("data:image/png;base64,")
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(address))))
        assert picture.shape == (4, 4, 3)
        assert (picture == 100 * data["site"][row] + 50).all()
    assert data_of(audit_page("t", sites, colours, embedded=0))["pictures"] is None
    assert len(data_of(audit_page("t", sites, colours))["pictures"]) == 80


def test_strange_inputs_get_a_fifth_of_the_places():
    strange = np.zeros(40)
    one = site(40)
    quiet = one.worst_first[-8:]  # whose labels look right
    strange[quiet] = np.linspace(0.991, 0.999, 8)
    data = data_of(audit_page("t", [replace(one, strange=strange)], colours, embedded=20))
    assert data["rows"] == [*range(16), *range(36, 40)]


def test_the_summary_of_one_site():
    one = site(200, notes=("few samples",))
    page = audit_page("t", [one], nothing, threshold=0.4)
    found = facts(page)
    kept = dict(one.cleaned(drop=0.4))
    labels = {id: one.classes[label] for id, label in zip(one.ids, one.labels, strict=True)}
    assert found["samples"] == "200"
    assert found["wrong labels, estimated (95% interval)"] == "30% (25% to 35%)"
    assert found["strange inputs"] == str((one.strange >= 0.99).sum())
    assert found["taken for wrong, above 40%"] == str((one.wrong > 0.4).sum())
    assert found["to drop"] == str(200 - len(kept))
    sure = (one.wrong > 0.4) & (one.confidence >= 0.9) & (one.suggested != one.labels)
    assert found["to correct"] == str(sure.sum())
    assert any(kept[id] != labels[id] for id in kept)
    counts = np.bincount(one.evidence)
    assert found["judged"] == ", ".join(f"{a} {b}" for a, b in zip(EVIDENCE, counts, strict=True))
    assert "north: few samples" in Text(page).words


def test_the_summary_of_several_sites():
    sites = [site(30, "a"), site(50, "b", seed=1, truth=None)]
    first, second = Text(audit_page("t", sites, nothing)).tables[:2]
    assert [row[0] for row in first] == ["site", "a", "b", "all sites"]
    assert [row[1] for row in first[1:]] == ["30", "50", "80"]
    assert second[1][1:] == second[3][1:]  # the truth is known of the first alone
    assert set(second[2][1:]) == {"-"}


def test_metrics_are_their_definitions():
    one = site(300)
    bad, wrong = one.truth, one.wrong
    found = detection(bad, wrong, 0.5)
    higher = wrong[bad][:, None] > wrong[~bad][None]
    ties = wrong[bad][:, None] == wrong[~bad][None]
    assert found["AUROC"] == pytest.approx((higher + ties / 2).mean())
    ranked = bad[np.argsort(-wrong, kind="stable")]
    at_each = np.cumsum(ranked) / np.arange(1, 301)
    assert found["average precision"] == pytest.approx(at_each[ranked].mean())  # no ties below 1
    above = wrong > 0.5
    assert found["precision"] == pytest.approx(bad[above].mean())
    assert found["recall"] == pytest.approx(above[bad].mean())
    shown = facts(audit_page("t", [one], nothing), table=1)
    assert {name: shown[name] for name in found} == {k: f"{v:.3f}" for k, v in found.items()}


@pytest.mark.parametrize(
    ("truth", "wrong", "missing"),
    [
        ([False, False], [0.9, 0.1], {"AUROC", "average precision", "recall"}),
        ([True, True], [0.9, 0.1], {"AUROC"}),
        ([True, False], [0.2, 0.1], {"precision"}),
        ([], [], {"AUROC", "average precision", "precision", "recall"}),
    ],
)
def test_what_is_not_defined_is_a_dash(truth, wrong, missing):
    found = detection(np.array(truth, dtype=bool), np.array(wrong), 0.5)
    assert {name for name, value in found.items() if value is None} == missing
    n = len(truth)
    shown = facts(
        audit_page("t", [site(n, truth=np.array(truth, bool), wrong=np.array(wrong))], nothing), 1
    )
    assert {name for name in found if shown[name] == "-"} == missing


def test_without_truth_there_are_no_metrics():
    page = audit_page("t", [site(truth=None)], nothing)
    assert "AUROC" not in "".join(Text(page).words)
    assert data_of(page)["truth"] is None


def test_strange_unknown():
    page = audit_page("t", [site(strange=np.full(40, np.nan))], nothing)
    assert facts(page)["strange inputs"] == "-"
    assert set(data_of(page)["strange"]) == {None}
    assert 'id="by-strange"' not in page  # nothing to choose from
    mixed = site(strange=np.where(np.arange(40) < 20, np.nan, 0.995))
    page = audit_page("t", [mixed], nothing)
    assert facts(page)["strange inputs"] == "20"
    assert 'id="by-strange"' in page


def test_an_empty_site_and_no_site():
    empty = site(0, rate=float("nan"), interval=(float("nan"), float("nan")))
    page = audit_page("t", [empty], colours)
    assert facts(page)["wrong labels, estimated (95% interval)"] == "-"
    assert "There are no samples." in Text(page).words
    assert len(data_of(audit_page("t", [empty, site(5, "b")], colours))["pictures"]) == 5
    assert data_of(audit_page("t", [], colours))["id"] == []


def test_one_class():
    page = audit_page("t", [site(classes=("cat",), suggested=np.zeros(40, dtype=int))], nothing)
    assert "Every sample looks like its label." in Text(page).words


def test_the_matrix_adds_up():
    sites = [site(60, "a"), site(60, "b", classes=("eel", "fox"), seed=1)]
    matrix = Text(audit_page("t", sites, nothing)).tables[2]
    assert matrix[0] == ["label", "cat", "dog", "eel", "fox"]
    for row, name in zip(matrix[1:], matrix[0][1:], strict=True):
        assert row[0] == name
        for cell, other in zip(row[1:], matrix[0][1:], strict=True):
            pairs = [one.line(place) for one in sites for place in range(len(one))]
            same = [p for p in pairs if (p["label"], p["suggested"]) == (name, other)]
            assert int(cell) == len(same)


def test_each_site_has_its_classes_and_estimated_confusions():
    names, matrix = ("cat", "dog"), np.array([[0.9, 0.1], [0.25, 0.75]])
    one = site(40, HOSTILE, classes=names, transition=matrix, prior=np.array([0.3, 0.7]))
    page = audit_page("t", [one, site(40, "b", classes=names, seed=1)], nothing)
    assert "<summary>b</summary>" in page
    table = next(table for table in Text(page).tables if table[0][0] == "class")
    assert table[0] == ["class", "labelled so", "estimated", "as cat", "as dog"]
    cats = int((one.labels == 0).sum())
    assert table[1:] == [
        ["cat", str(cats), "12.0", "90%", "10%"],
        ["dog", str(40 - cats), "28.0", "25%", "75%"],
    ]
    assert "was not recorded: clean.contribution" in page
    many = site(40, classes=tuple(map(str, range(30))))
    assert "They are in audit.json" in audit_page("t", [many], nothing)


def test_many_classes_show_the_commonest_pairs():
    one = site(4000, classes=tuple(f"class {place}" for place in range(30)))
    *_, pairs = Text(audit_page("t", [one], nothing)).tables
    apart = one.confusion - np.diag(np.diag(one.confusion))
    assert len(pairs) == 21
    assert [int(row[2]) for row in pairs[1:]] == sorted(apart.ravel().tolist(), reverse=True)[:20]
    label, other, times = pairs[1]
    assert apart[one.classes.index(label), one.classes.index(other)] == int(times)


def test_images_of_any_kind_become_bytes():
    def shades(raw):
        return np.stack(list(as_bytes(raw))).ravel().astype(int)

    bytes_ = np.arange(48, dtype=np.uint8).reshape(1, 3, 4, 4)
    assert shades(bytes_).tolist() == list(range(48))
    assert shades(np.array([[[[0.0, 0.5], [0.25, 1.0]]]])).tolist() == [0, 128, 64, 255]
    wide = shades(np.linspace(-3, 5, 64).reshape(1, 1, 8, 8))
    assert (wide.min(), wide.max()) == (0, 255)
    assert (np.diff(wide) >= 0).all()
    two = shades(np.stack([np.full((1, 2, 2), 2.0), np.full((1, 2, 2), 4.0)]))
    assert two.tolist() == [0] * 4 + [255] * 4  # one scale for all, so that dark stays dark
    assert shades(np.full((1, 1, 2, 2), 7.0)).tolist() == [0] * 4
    assert shades(np.full((1, 1, 2, 2), np.nan)).tolist() == [0] * 4
    broken = np.linspace(0, 16, 10_000).reshape(1, 1, 100, 100)
    broken[0, 0, 0, :3] = [1e9, np.inf, np.nan]  # a few pixels do not make all others black
    assert shades(broken).mean() > 100


def shown(address):
    kind, _, blob = address.removeprefix("data:image/").partition(";base64,")
    picture = Image.open(io.BytesIO(base64.b64decode(blob)))
    assert picture.format == kind.upper()
    return picture


@pytest.mark.parametrize(("most", "white"), [(1, 255), (16, 255), (31, 255), (32, 32), (200, 200)])
def test_dark_bytes_are_stretched_by_one_scale_for_all_sites(most, white):
    def pictures(number, places):
        raw = np.zeros((len(places), 1, 2, 2), dtype=np.uint8)
        raw[:, 0, 0, 0] = most if number else most // 2
        return raw

    data = data_of(audit_page("t", [site(3, "a"), site(3, "b")], pictures))
    for owner, address in zip(data["site"], data["pictures"], strict=True):
        light = np.asarray(shown(address)).max()
        assert light == (white if owner else round(white * (most // 2) / most))


def test_photos_are_shown_from_their_own_files(tmp_path):
    one = site(6)
    sizes = [(300, 200), (90, 400), (10, 6), None, (64, 64), (40, 40)]
    for place, (id, size) in enumerate(zip(one.ids, sizes, strict=True)):
        if size is not None:
            Image.new("RGB", size, (10 * place, 90, 200)).save(tmp_path / id, "PNG")
    (tmp_path / one.ids[4]).write_bytes(b"no picture any more")

    def small(_, places):
        return np.full((len(places), 3, 8, 8), 77, dtype=np.uint8)

    data = data_of(audit_page("t", [one], small, root=tmp_path))
    found = dict(zip(data["id"], map(shown, data["pictures"]), strict=True))
    expected = [("JPEG", 128), ("JPEG", 90), ("PNG", 8), ("PNG", 8), ("PNG", 8), ("PNG", 40)]
    for place, (id, (kind, side)) in enumerate(zip(one.ids, expected, strict=True)):
        picture = found[id]
        assert (picture.format, picture.size) == (kind, (side, side))
        colour = np.asarray(picture)[side // 2, side // 2]
        own = (10 * place, 90, 200) if place not in (3, 4) else (77, 77, 77)
        assert np.abs(colour.astype(int) - own).max() <= 3
    assert {shown(one).size for one in data_of(audit_page("t", [one], small))["pictures"]} == {
        (8, 8)
    }


@pytest.mark.parametrize("shape", [(1, 300, 200), (3, 300, 200), (300, 200)])
def test_large_pictures_are_made_smaller(shape):
    address = png(np.zeros(shape, dtype=np.uint8)).removeprefix("data:image/png;base64,")
    picture = Image.open(io.BytesIO(base64.b64decode(address)))
    assert picture.size == (85, 128)
    assert picture.mode == ("RGB" if shape[0] == 3 else "L")


def test_the_strangest_columns_of_a_row():
    names, mean, sd = ("a", "b", "c", "d"), np.array([0, 10, 1, 5.0]), np.array([1, 2, 1, 0.0])
    rows = np.array([[3.0, 4, 1.5, 5], [0.5, np.nan, 1, 6], [np.nan] * 4])
    assert strangest(rows, names, (mean, sd)) == [
        ["a = 3 (3.0 sd above)", "b = 4 (3.0 sd below)", "c = 1.5 (0.5 sd above)"],
        ["d = 6 (always 5 in the clean set)", "a = 0.5 (0.5 sd above)", "c = 1 (0.0 sd below)"],
        ["a is missing", "b is missing", "c is missing"],
    ]
    assert strangest(rows, None, (mean, sd))[0][0] == "column 1 = 3 (3.0 sd above)"
    with pytest.raises(ValueError, match="4 columns, 2 names"):
        strangest(rows, ("a", "b"), (mean, sd))


def test_inputs_that_cannot_be_drawn_are_left_out():
    for raw in (np.full((40, 2), "x"), np.zeros((40, 2, 3, 3, 3)), np.zeros((40, 5))):
        data = data_of(audit_page("t", [site()], lambda _, places, raw=raw: raw[: len(places)]))
        assert data["pictures"] is None
        assert data["cells"] is None


def test_sixty_thousand_samples_stay_small():
    page = audit_page("t", [site(60_000)], nothing)
    assert len(page) < 4_000_000


# In a browser.

slow = pytest.mark.slow
needs_chromium = pytest.mark.skipif(FOUND is None, reason="chromium is not installed")
SHOWN = "document.querySelectorAll('#cards .card').length"
STATUS = "document.getElementById('status').textContent"
ROWS = "document.querySelectorAll('#list .rows .row').length"
CUT = """[...document.querySelectorAll("h1, h2, h3, p, figcaption, button, label, select, .card")]
  .filter((one) => !one.closest(".scroll")).filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width && (box.left < -1 || box.right > innerWidth + 1);
  }).map((one) => one.textContent)"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page's text, and checks at the end that it asked for nothing and did not complain."""

    def open_(text, width=1280, dark=False):
        path = tmp_path / "audit.html"
        path.write_text(text, encoding="utf-8")
        browser.open(path, width, dark)
        return browser

    browser.requests.clear()
    browser.complaints.clear()
    yield open_
    asked = [one for one in browser.requests if not one.startswith("data:")]
    assert set(asked) <= {(tmp_path / "audit.html").resolve().as_uri()}
    assert browser.complaints == []


def put(browser, id, value):
    browser.ask(
        f"(() => {{ const asked = document.getElementById('{id}'); asked.value = {value!r};"
        "asked.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )


def digits():
    x, y = load_digits(return_X_y=True)
    names = tuple(f"digit {place}" for place in range(10))
    sites = [
        site(300, name, names, seed, labels=y[300 * seed : 300 * seed + 300].astype(np.int64))
        for seed, name in enumerate(("a hospital with a rather long name", "north"))
    ]
    return sites, lambda number, places: x[300 * number + places].reshape(-1, 1, 8, 8)


@slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_are_seen(opened, tmp_path, width, dark):
    browser = opened(audit_page("digits", *digits()), width, dark)
    assert browser.ask(SHOWN) == 48
    browser.ask("Promise.all([...document.images].map((image) => image.decode()))")
    assert browser.ask("[...document.images].every((one) => one.naturalWidth === 8)")
    browser.ask("document.getElementById('more').click()")
    assert browser.ask(SHOWN) == 96
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(CUT) == []
    numbers = "document.querySelectorAll('.row:not(.head) > :is(.wrong, .strange, .evidence)')"
    assert browser.ask(f"[...{numbers}].every((one) => one.scrollWidth <= one.clientWidth)")
    browser.picture(tmp_path / "page.png")
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("L"))
    assert (np.median(pixels[:800]) < 60) == dark


@slow
@needs_chromium
def test_filters_change_what_is_shown(opened):
    sites, inputs = digits()
    browser = opened(audit_page("digits", sites, inputs))
    assert browser.ask(STATUS) == "All 600 samples."
    joined = {
        name: np.concatenate([getattr(one, name) for one in sites])
        for name in ("labels", "suggested", "wrong", "strange")
    }

    def says(mask):
        return browser.ask(STATUS) == f"{int(mask.sum())} of 600 samples."

    put(browser, "by-label", "3")
    assert says(joined["labels"] == 3)
    words = "[...document.querySelectorAll('.card')].every((one) => one.innerText.includes('{}'))"
    assert browser.ask(words.format("label: digit 3"))
    put(browser, "by-suggested", "4")
    assert says((joined["labels"] == 3) & (joined["suggested"] == 4))
    browser.ask("document.querySelector('button[type=reset]').click()")
    browser.ask("new Promise((done) => setTimeout(done, 50))")
    assert browser.ask(STATUS) == "All 600 samples."
    put(browser, "by-site", "1")
    assert browser.ask(STATUS) == "300 of 600 samples."
    assert browser.ask(words.format("north"))
    put(browser, "by-site", "")
    browser.ask("document.getElementById('at').click()")
    assert says(joined["wrong"] > 0.5)
    put(browser, "by-wrong", "70")
    assert says(joined["wrong"] > 0.7)
    assert browser.ask("document.getElementById('least').textContent") == "70%"
    put(browser, "by-wrong", "0")
    browser.ask("document.getElementById('by-strange').click()")
    assert says(joined["strange"] >= 0.99)
    browser.ask("document.getElementById('by-strange').click()")
    put(browser, "by-id", "NORTH-17")
    assert browser.ask(STATUS) == f"{sum('north-17' in i for i in sites[1].ids)} of 600 samples."
    put(browser, "by-id", "no such sample")
    assert browser.ask(SHOWN) == 0
    assert not browser.ask("document.getElementById('nothing').hidden")
    put(browser, "by-id", "")
    put(browser, "sort", "strange")
    first = "document.querySelector('#list .rows .id').textContent"
    ids = sites[0].ids + sites[1].ids
    assert browser.ask(first) == ids[int(np.argmax(np.floor(joined["strange"] * 1e4)))]
    pressed = "(() => { const one = document.querySelector('.matrix button'); one.click(); "
    times = browser.ask(pressed + "return one.textContent; })()")
    assert browser.ask(STATUS) == f"{times} of 600 samples."


@slow
@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_sixty_thousand_rows_are_drawn_as_one_scrolls(opened, width):
    one = site(60_000)
    browser = opened(audit_page("many", [one], nothing), width)
    assert browser.ask(STATUS) == "All 60,000 samples."
    assert 5 < browser.ask(ROWS) < 100
    assert browser.ask("document.querySelectorAll('*').length") < 3000
    last = one.ids[one.worst_first[-1]]
    bottom = "(() => { const list = document.getElementById('list'); list.scrollTop = 1e9; })()"
    browser.ask(bottom)
    browser.ask("new Promise((done) => setTimeout(done, 300))")
    seen = browser.ask(
        "(() => { const list = document.getElementById('list').getBoundingClientRect();"
        "const rows = [...document.querySelectorAll('#list .rows .row')];"
        "const last = rows[rows.length - 1], box = last.getBoundingClientRect();"
        "return [last.querySelector('.id').textContent, last.getAttribute('aria-rowindex'),"
        "box.bottom <= list.bottom + 1 && box.top >= list.top]; })()"
    )
    assert seen == [last, "60001", True]
    assert browser.ask(ROWS) < 100
    # a row is as high as the script believes
    assert browser.ask(
        "document.querySelector('#list .rows .row').offsetHeight === "
        "parseFloat(getComputedStyle(document.getElementById('list')).getPropertyValue('--high'))"
    )


@slow
@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_rows_of_a_table_show_their_strangest_columns(opened, width):
    columns, typical = ("height", "weight", "age"), (np.zeros(3), np.ones(3))

    def table(number, places):
        return np.tile([1.0, -7.0, 2.0], (len(places), 1))

    browser = opened(audit_page("table", [site()], table, columns, typical), width)
    cell = browser.ask("document.querySelector('#worst .cells').innerText")
    assert cell.split("\n")[0] == "weight = -7 (7.0 sd below)"
    assert browser.ask("document.querySelectorAll('#worst tr').length") == 40
    assert browser.ask("document.documentElement.scrollWidth") <= width


@slow
@needs_chromium
def test_hostile_names_do_nothing(opened):
    hostile = site(
        name=HOSTILE, classes=(HOSTILE, "dog"), ids=tuple(f"{HOSTILE}{n}" for n in range(40))
    )
    browser = opened(audit_page(HOSTILE, [hostile, site(seed=1)], colours))
    browser.ask("new Promise((done) => setTimeout(done, 100))")
    assert browser.ask("document.title") == HOSTILE
    assert browser.ask("document.querySelectorAll('img:not([src^=\"data:\"])').length") == 0
    assert HOSTILE in browser.ask("document.getElementById('list').textContent")
    assert HOSTILE in browser.ask("document.getElementById('cards').textContent")


@slow
@needs_chromium
def test_an_empty_audit_opens(opened):
    browser = opened(audit_page("empty", [site(0)], colours))
    assert "There are no samples." in browser.ask("document.body.innerText")
