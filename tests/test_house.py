"""The house keeps its walls: no import cycles, short files, few doors, lines that can be read."""

from __future__ import annotations

import graphlib

from helpers import ROOT

SOURCE = ROOT / "src" / "gcfl"


def test_no_module_imports_itself_in_a_circle():
    import grimp

    graph = grimp.build_graph("gcfl")
    imports = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    list(graphlib.TopologicalSorter(imports).static_order())  # raises CycleError


def test_modules_are_short():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, path


def test_the_top_level_can_be_taken_in_at_a_glance():
    entries = [path.name for path in SOURCE.iterdir() if not path.name.startswith("__")]
    assert len(entries) <= 15, sorted(entries)


def test_every_file_of_the_package_stands_in_the_architecture():
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in SOURCE.rglob("*.py"):
        if path.stem not in ("__init__", "__main__"):
            assert f"`{path.name}`" in page, f"docs/architecture.md does not name {path}"
