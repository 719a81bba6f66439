"""An audit as one HTML file: which samples of which site have a wrong label, worst first.

The page carries its pictures and asks for nothing from anywhere. It shows samples, so it stays
where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from gcfl import __version__
from gcfl.report.audit_samples import Inputs, Typical, class_names, json_block, samples
from gcfl.report.audit_summary import commonest_pairs, label_counts, percent, summary
from gcfl.report.markup import document, html_table, scrolling
from gcfl.results.findings import Findings

_MOST_CLASSES = 20  # of a matrix that one can still read; also the pairs shown where there are more
_MOST_SITES = 50  # whose classes the page has


def audit_page(
    title: str,
    sites: Sequence[Findings],
    inputs: Inputs,
    columns: tuple[str, ...] | None = None,
    typical: Typical | None = None,
    threshold: float = 0.5,
    embedded: int = 500,
    correct: float = 0.9,
    root: Path | None = None,
) -> str:
    """The page's text.

    inputs: a site's number and places of samples -> their raw inputs, images (m, 1 or 3, height,
    width) or rows of a table (m, columns), or None where they cannot be shown; asked for the worst
    `embedded` samples only. columns: the names of a table's columns. typical: mean and standard
    deviation of each on the clean set; without them a table's rows show no columns. threshold: a
    label is taken for wrong above this probability; correct: it is then corrected where another
    class is at least so likely, else dropped, as in cleaned.csv. root: the folder below which ids
    are image files, which are then shown in place of what the model got of them.
    """
    data = samples(sites, inputs, columns, typical, embedded, root)
    body = [f"<h1>{escape(title)}</h1>", *summary(sites, threshold, correct)]
    if data["id"]:
        body += [*_confusion(sites), *_by_site(sites), *_filters(data, threshold), *_lists(data)]
    else:
        body.append("<p>There are no samples.</p>")
    body.append(f'<p class="note">Page made by gcfl {escape(__version__)}.</p>')
    body.append(json_block(data, "data"))
    return document(title, body, ["page.css", "audit.css"], ["tables.js", "audit.js"], images=True)


def _confusion(sites: Sequence[Findings]) -> list[str]:
    """Labels by suggested classes; the commonest pairs alone where the matrix would be large."""
    names, table = class_names(sites), label_counts(sites)
    pairs = commonest_pairs(table, _MOST_CLASSES)
    head = "<h2>Labels and what the samples look like</h2>"
    if not pairs:
        return [head, "<p>Every sample looks like its label.</p>"]
    press = '<p class="note">Press a number to see its samples.</p>'
    if len(names) > _MOST_CLASSES:
        rows = "".join(
            f"<tr><td>{escape(names[a])}</td><td>{escape(names[b])}</td>"
            f"{_cell(names, a, b, times, pairs[0][2])}</tr>"
            for a, b, times in pairs
        )
        heads = "".join(f'<th scope="col">{h}</th>' for h in ("label", "looks like", "samples"))
        words = f"<p>Of {len(names)} classes, the pairs that are confused most often.</p>"
        inside = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
        return [
            head,
            words,
            scrolling(f'<table class="pairs">{inside}</table>'),
            press,
        ]
    heads = "".join(f'<th scope="col"><div>{escape(name)}</div></th>' for name in names)
    rows = "".join(
        f'<tr><th scope="row"><div>{escape(name)}</div></th>'
        + "".join(_cell(names, a, b, int(table[a, b]), pairs[0][2]) for b in range(len(names)))
        + "</tr>"
        for a, name in enumerate(names)
    )
    words = "Samples of all sites" if len(sites) > 1 else "Samples"
    inside = f'<thead><tr><th scope="col">label</th>{heads}</tr></thead><tbody>{rows}</tbody>'
    return [
        head,
        f'<p class="note" id="matrix">{words}: a line per label, a column per suggested class.</p>',
        scrolling(f'<table class="matrix" aria-labelledby="matrix">{inside}</table>'),
        press,
    ]


def _by_site(sites: Sequence[Findings]) -> list[str]:
    """Each site's class balance and estimated confusions, folded up."""
    head = "<h2>Classes and their labels, site by site</h2>"
    most = max(len(site.classes) for site in sites)
    if most > _MOST_CLASSES or len(sites) > _MOST_SITES:
        return [head, "<p>They are in audit.json, in the folder of each site.</p>"]
    note = (
        "A line per class: how many samples are labelled so, how many are estimated to be of it, "
        "and which labels samples of the class get, as estimated from all samples of the site."
    )
    parts = [head, f'<p class="note">{note}</p>']
    for site in sites:
        heads = ["class", "labelled so", "estimated", *(f"as {name}" for name in site.classes)]
        rows = [
            [name, f"{one['labelled']:,}", f"{one['estimated']:,.1f}", *map(percent, shares)]
            for (name, one), shares in zip(
                site.summary()["classes"].items(), site.transition, strict=True
            )
        ]
        inside = html_table(heads, rows, kind="sites")
        parts.append(f"<details><summary>{escape(site.site)}</summary>{inside}</details>")
    return parts


def _cell(names: Sequence[str], label: int, suggested: int, times: int, most: int) -> str:
    """A shaded number, which shows its samples when pressed. The diagonal has no shade: there are
    so many that they would hide the mistakes.
    """
    if label == suggested:
        return f'<td class="same">{times:,}</td>'
    if not times:
        return '<td class="none">0</td>'
    share = times / most  # a tenth at least, or one would not see it
    words = f"{times} labelled {names[label]}, look like {names[suggested]}"
    button = (
        f'<button type="button" data-label="{label}" data-suggested="{suggested}" '
        f'title="{escape(words)}" aria-label="{escape(words)}">{times:,}</button>'
    )
    return f'<td class="shade" style="--share: {0.1 + 0.9 * share:.2f}">{button}</td>'


def _filters(data: dict[str, Any], threshold: float) -> list[str]:
    """What one can ask for. Questions with a single answer are left out."""
    classes = list(enumerate(data["classes"]))
    asked = []
    if len(data["sites"]) > 1:
        asked.append(_choice("site", "Site", list(enumerate(data["sites"]))))
    for name, words in (("label", "Label"), ("suggested", "Looks like")):
        used = set(data[name])
        asked.append(_choice(name, words, [one for one in classes if one[0] in used]))
    asked.append('<label>Id contains <input type="search" id="by-id" autocomplete="off"></label>')
    asked.append(
        '<label class="slider"><span>Label wrong with more than <output id="least">0%</output>'
        '</span><input type="range" id="by-wrong" min="0" max="99.9" step="0.1" value="0"></label>'
    )
    if any(value is not None for value in data["strange"]):
        asked.append(
            '<label>Sort by <select id="sort"><option value="wrong">wrong label</option>'
            '<option value="strange">strange input</option></select></label>'
        )
        asked.append(
            '<label class="tick"><input type="checkbox" id="by-strange">'
            " only strange inputs</label>"
        )
    at = f'<button type="button" id="at" data-at="{100 * threshold:.1f}">'
    asked.append(f"{at}Above the threshold: {percent(threshold)}</button>")
    asked.append('<button type="reset">Show all</button>')
    return [
        '<h2 id="samples">Samples, worst first</h2>',
        f'<form id="filters" class="filters">{"".join(asked)}</form>',
        '<p id="status" aria-live="polite"></p>',
        '<noscript><p class="warn">The samples are shown by a script, which this browser does not '
        "run. They are in audit.csv too.</p></noscript>",
    ]


def _choice(name: str, words: str, options: Sequence[tuple[int, str]]) -> str:
    lines = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in options)
    choices = f'<option value="">all</option>{lines}'
    return f'<label>{words} <select id="by-{name}">{choices}</select></label>'


def _lists(data: dict[str, Any]) -> list[str]:
    """Empty places, which the script fills: samples with their input, and all samples."""
    parts = []
    if data["pictures"] or data["cells"]:
        number = len(data["rows"])
        which = f"The {number:,} worst samples are"
        if number == len(data["id"]):
            which = "All samples are"
        elif data["rows"] != list(range(number)):
            which = f"{number:,} samples, the worst ones and some strange inputs, are"
        if data["pictures"]:
            room = '<div id="cards" class="cards"></div>'
            note = f"{which} shown with their picture."
        else:
            head = '<thead><tr id="heads"></tr></thead><tbody id="worst"></tbody>'
            room = scrolling(f'<table class="worst">{head}</table>')
            note = (
                f"{which} shown with the columns that are farthest from the clean set's mean, in "
                f"standard deviations (sd) of the clean set."
            )
        parts += [
            f'<h3>With their input</h3><p class="note">{escape(note)}</p>{room}',
            '<p id="nothing" hidden>None of these samples carries its input; see the list.</p>',
            '<button type="button" id="more" class="more" hidden></button>',
        ]
    told = " told" if data["truth"] else ""
    parts.append(
        '<section class="all"><h3>All of them</h3>'
        f'<div id="list" class="list{told}" role="table" aria-label="samples" tabindex="0"></div>'
        '<p class="note">The same lines are in audit.csv.</p></section>'
    )
    return parts
