"""What all pages share: one HTML file that asks for nothing from anywhere, its colours, tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources

from gcfl.report.plots import PALETTE

# The browser itself refuses every request, should a name ever slip through the escaping.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def document(
    title: str,
    body: Sequence[str],
    styles: Sequence[str],
    scripts: Sequence[str],
    images: bool = False,
) -> str:
    """A whole page. styles and scripts: files beside this one. images: the page carries pictures in
    itself.
    """
    policy = f"{_POLICY}; img-src data:" if images else _POLICY
    style, script = ("".join(map(_file, names)) for names in (styles, scripts))
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_colours()}{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>\n{script}</script>\n</body>\n</html>\n"
    )
    # Names of files need not be valid text; what cannot be written is shown as a question mark.
    return text.encode(errors="replace").decode()


def html_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[str] = (), kind: str = ""
) -> str:
    """marks: the class of each row; kind: the class of the table."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = []
    for place, row in enumerate(rows):
        mark = f' class="{marks[place]}"' if marks and marks[place] else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    named = f' class="{kind}"' if kind else ""
    inside = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return scrolling(f"<table{named}>{inside}</table>")


def scrolling(table: str) -> str:
    """A table that scrolls sideways where it does not fit, by keyboard too."""
    region = 'class="scroll" role="region" aria-label="table" tabindex="0"'
    return f"<div {region}>{table}</div>"


def _file(name: str) -> str:
    return resources.files("gcfl.report").joinpath(name).read_text(encoding="utf-8")


def _colours() -> str:
    """The palette as variables of the style sheet, on light, dark and printed paper."""
    light, dark = (
        " ".join(f"--c{place}: {pair[which]};" for place, pair in enumerate(PALETTE))
        for which in (0, 1)
    )
    classes = " ".join(f".c{place} {{ --c: var(--c{place}); }}" for place in range(len(PALETTE)))
    return (
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"@media print {{ :root {{ {light} }} }}\n{classes}\n"
    )
