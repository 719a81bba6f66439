"""The page in a real browser: silent, alone, nothing empty, nothing on top of anything else, on a
phone and on a desk.
"""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from gcfl.report.build import report
from report.browser import FOUND, Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOUND is None, reason="chromium is not installed"),
]

EMPTY = """[...document.querySelectorAll("figure")].filter((figure) => {
  const plot = figure.querySelector("svg.plot"), box = plot.getBoundingClientRect();
  const drawn = [...plot.querySelectorAll(".line, .dot, .fill, .cell")].filter((mark) => {
    const size = mark.getBoundingClientRect();
    return size.width + size.height > 1 && getComputedStyle(mark).display !== "none";
  });
  return box.width < 200 || box.height < 30 || drawn.length === 0;
}).map((figure) => figure.id)"""
OVERLAPS = """[...document.querySelectorAll("svg.plot")].flatMap((plot) => {
  const words = [...plot.querySelectorAll("text")].map(
    (text) => [text.textContent, text.getBoundingClientRect()]);
  return words.flatMap(([first, a], place) => words.slice(place + 1).filter(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  ).map(([second]) => `${plot.getAttribute("aria-label")}: ${first} | ${second}`));
})"""
OUTSIDE = """[...document.querySelectorAll(
  "h1, h2, p, figcaption, svg.plot text, button, summary")].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && (box.left < -1 || box.right > innerWidth + 1);
}).map((one) => one.textContent)"""


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    paper = {"title": "Beside", "rows": [{"label": "GCFL", "paper": 47.4, "ours": 45.0}]}
    return report(runs, tmp_path_factory.mktemp("page") / "report.html", paper=paper)[0]


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page(page, browser, width, dark, tmp_path):
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(page, width, dark)
    assert browser.ask("document.querySelectorAll('figure').length") == 11
    assert browser.ask(EMPTY) == []
    assert browser.ask(OVERLAPS) == []
    assert browser.ask(OUTSIDE) == []
    assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.ask("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.ask(
        "[...document.querySelectorAll('figure')].every((one) => "
        "one.querySelector('td').offsetHeight > 0)"
    )
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert set(browser.requests) == {page.resolve().as_uri()}
    assert browser.complaints == []
    browser.picture(tmp_path / "page.png")
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("L"))
    assert pixels.shape[1] == width
    assert (np.median(pixels) < 60) == dark


def test_a_name_hides_its_line(page, browser):
    browser.open(page, 1280)
    shown = (
        "[...document.querySelectorAll('#rounds-0 [data-line]')]"
        ".filter((one) => getComputedStyle(one).display !== 'none').length"
    )
    assert browser.ask(shown) == 2
    browser.ask("document.querySelector('button[data-shows]').click()")
    assert browser.ask(shown) == 1
    # one legend for all plots
    assert browser.ask("document.querySelectorAll('button[aria-pressed=false]').length") == 1
    assert browser.ask("document.querySelectorAll('#cpu-1 [data-line].off').length") == 1
    browser.ask("document.querySelector('button[data-shows]').click()")
    assert browser.ask(shown) == 2


HEADING = "parseFloat(getComputedStyle(document.querySelector('h3')).fontSize)"
AXIS = "document.querySelector('#rounds-0 text').getBoundingClientRect().height"


def test_the_width_is_used(page, browser):
    """Two columns on a desk, one on a phone; axis text is smaller than headings, and readable."""
    lefts = (
        "[...new Set([...document.querySelectorAll('figure')].map("
        "(one) => Math.round(one.getBoundingClientRect().left)))].length"
    )
    widest = (
        "Math.max(...[...document.querySelectorAll('figure')].map("
        "(one) => one.getBoundingClientRect().right))"
    )
    for width, columns in ((1280, 2), (390, 1)):
        browser.open(page, width)
        assert browser.ask(lefts) == columns
        assert browser.ask(widest) > 0.94 * width
        # a line of text is about 1.2 times as high as its letters
        assert 9 < browser.ask(AXIS) / 1.2 < browser.ask(HEADING)


def test_a_table_that_scrolls_says_so(page, browser):
    table = "document.querySelector('.scroll')"
    kinds = f"[...{table}.classList].slice(1).sort().join(' ')"
    settled = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    browser.open(page, 390)
    browser.ask(settled)
    assert browser.ask(kinds) == "after"
    assert "gradient" in browser.ask(f"getComputedStyle({table}).maskImage")
    assert browser.ask(f"{table}.focus(), document.activeElement === {table}")
    browser.ask(f"{table}.scrollLeft = 40")
    browser.ask(settled)
    assert browser.ask(kinds) == "after before"
    browser.ask(f"{table}.scrollLeft = 4000")
    browser.ask(settled)
    assert browser.ask(kinds) == "before"
    browser.open(page, 1280)
    browser.ask(settled)
    assert browser.ask(kinds) == ""
    assert browser.ask(f"{table}.hasAttribute('tabindex')") is False


def test_on_a_phone_no_room_is_lost_above_the_heads(page, browser):
    """Heads that wrap, out of sight, made the row as high as the highest of them."""
    browser.open(page, 390)
    heights = browser.ask(
        "[...document.querySelectorAll('.scroll table:not(.text) thead tr')]"
        ".map((row) => row.getBoundingClientRect().height)"
    )
    assert heights
    assert max(heights) < 40


def test_it_prints(page, browser, tmp_path):
    browser.open(page, 1280, dark=True)
    browser.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_the_browser_would_tell(browser, tmp_path):
    """The checks above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<figure id="a"><svg class="plot"></svg></figure><svg class="plot"><text '
        'y="20">one</text><text y="22">two</text></svg>'
        '<img src="http://127.0.0.1:9/x.png"><script>missing()</script>'
    )
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(bad, 390)
    assert browser.ask(EMPTY) == ["a"]
    assert len(browser.ask(OVERLAPS)) == 1
    assert "http://127.0.0.1:9/x.png" in browser.requests
    assert any("missing is not defined" in told for told in browser.complaints)
