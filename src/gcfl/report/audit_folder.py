"""What an audit writes: a folder for each site, the page of all, and what was found in all.

audit.html                   the page
audit.json                   the sites side by side, scores where the truth is known, and files:
                             what this audit wrote, which the next one there replaces
SITE/audit.csv, audit.json, cleaned.csv     as `results.findings` has them
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from gcfl.base.errors import RunError
from gcfl.base.files import read_json, write_atomic, write_json
from gcfl.engine.audit import Audit
from gcfl.report.audit_page import audit_page
from gcfl.results.findings import Findings, scores, write_findings

PAGE, SUMMARY = "audit.html", "audit.json"
_OF_SITES = ("audit.csv", "audit.parquet", "audit.json", "cleaned.csv")
_LONGEST = 120  # bytes of a folder's name, of the 255 that a file system takes


def write_audit(
    found: Audit, out: Path, threshold: float, correct: float, format: Literal["csv", "parquet"]
) -> None:
    """All files of an audit below `out`; those of an earlier audit that are not written again go,
    and nothing else does.
    """
    folders = folder_names([site.site for site in found.sites])
    of_site = (f"audit.{format}", "audit.json", "cleaned.csv")
    files = [PAGE, SUMMARY, *(f"{folder}/{name}" for folder in folders for name in of_site)]
    out.mkdir(parents=True, exist_ok=True)
    stale = [name for name in _written(out) if name not in files]
    # Named before they are there, so that an audit that is stopped leaves nothing unknown.
    summary = _summary(found, folders, threshold, correct)
    write_json(out / SUMMARY, summary | {"files": [*files, *stale]})
    for site, folder in zip(found.sites, folders, strict=True):
        write_findings(site, out / folder, correct, threshold, format)
    title = f"Audit of {found.folder.name}"
    page = audit_page(
        title,
        found.sites,
        found.inputs,
        found.columns,
        found.typical,
        threshold,
        correct=correct,
        root=found.root,
    )
    write_atomic(out / PAGE, page.encode(errors="backslashreplace"))
    for name in stale:
        (out / name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody's own files lie there, too
            (out / name).parent.rmdir()
    write_json(out / SUMMARY, summary | {"files": files})


def folder_names(sites: Sequence[str]) -> list[str]:
    """A folder's name for each site, whatever is in its own: letters, marks and digits of any
    script stay. No two are the same, also where upper case counts as lower case.
    """
    found: list[str] = []
    taken = {PAGE, SUMMARY}
    for site in sites:
        name, number = _as_folder(site).encode()[:_LONGEST].decode(errors="ignore") or "site", 1
        unique = name
        while unique.casefold() in taken:
            number += 1
            unique = f"{name}-{number}"
        taken.add(unique.casefold())
        found.append(unique)
    return found


def _as_folder(site: str) -> str:
    text = unicodedata.normalize("NFC", site)
    fits = (one if one in "._-" or unicodedata.category(one)[0] in "LMN" else " " for one in text)
    return re.sub(r" +", "_", "".join(fits)).lstrip(".")


def _written(out: Path) -> list[str]:
    """The files of sites that an earlier audit says it wrote here. Only names that an audit may
    write count, in folders that lie here.
    """
    try:
        told = read_json(out / SUMMARY)
    except (RunError, OSError, UnicodeDecodeError):
        return []
    files = told.get("files") if isinstance(told, dict) else None
    named = files if isinstance(files, list) else []
    parts = [name.split("/") for name in named if isinstance(name, str)]
    return [
        "/".join(one)
        for one in parts
        if len(one) == 2
        and 0 < len(one[0]) <= _LONGEST + 10
        and one[0] == _as_folder(one[0])
        and one[1] in _OF_SITES
        and not (out / one[0]).is_symlink()
    ]


def _summary(
    found: Audit, folders: Sequence[str], threshold: float, correct: float
) -> dict[str, Any]:
    def told(site: Findings, folder: str) -> dict[str, Any]:
        summary = {"folder": folder, **site.summary()}
        if site.truth is None:
            return summary
        return summary | {"scores": _plain(scores([site], threshold, correct))}

    return {
        "run": found.folder.name,
        "threshold": threshold,
        "correct": correct,
        "scores": _plain(found.scores(threshold, correct)),
        "sites": [told(*pair) for pair in zip(found.sites, folders, strict=True)],
    }


def _plain(found: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """NaN is no number of JSON's."""
    if found is None:
        return None
    return {name: None if math.isnan(value) else value for name, value in found.items()}
