"""What a release consists of: metadata, lock, citation, workflow; and that it installs and runs."""

from __future__ import annotations

import email
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gcfl
from helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)[^)]*\)")


def pins(text):
    return {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==([\w.+!]+)", text, re.M)
    }


LOCK = (ROOT / "requirements.lock").read_text()


def test_the_lock_has_the_versions_of_the_constraints():
    constraints = pins((ROOT / "constraints.txt").read_text())
    locked = pins(LOCK)
    assert locked.items() <= constraints.items()
    # nothing but comments, pins and one digest for each
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert len(lines) == 2 * len(locked)
    for pin, digest in zip(lines[::2], lines[1::2], strict=True):
        assert re.fullmatch(r"[\w.-]+==[\w.]+ \\", pin)
        assert re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", digest)


@pytest.mark.skipif(
    not torch.__version__.endswith("+cpu"), reason="the lock is for the CPU build of torch"
)
def test_the_lock_has_all_that_the_package_needs_and_no_more():
    """By the metadata of what is installed here."""
    needed, todo = set(), [Requirement(one) for one in PROJECT["project"]["dependencies"]]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and name not in needed:
            needed.add(name)
            todo += map(Requirement, importlib.metadata.requires(name) or ())
    assert needed == set(pins(LOCK))


def test_every_tool_is_pinned():
    constraints = pins((ROOT / "constraints.txt").read_text())
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(one for all in extras.values() for one in all)]
    for one in map(Requirement, asked):
        version = constraints[canonicalize_name(one.name)]
        assert one.specifier.contains(version), one


def test_only_what_was_run_is_claimed():
    """The versions of Python are those of the workflow."""
    claimed = [
        one.split(" :: ")[-1]
        for one in PROJECT["project"]["classifiers"]
        if one.startswith("Programming Language :: Python :: 3.")
    ]
    assert claimed == [workflow()["steps"][1]["with"]["python-version"]]
    assert (ROOT / "src" / "gcfl" / "py.typed").exists()


def workflow():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    return job


def test_the_workflow_calls_the_script_and_nothing_else():
    steps = workflow()["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    used = [step["uses"].partition("@")[0] for step in steps if "uses" in step]
    assert used == ["actions/checkout", "actions/setup-python"]
    assert steps[1]["with"]["cache"] == "pip"
    for path in steps[1]["with"]["cache-dependency-path"].split():
        assert (ROOT / path).is_file()
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_citation():
    """The required fields of the Citation File Format 1.2, and what they say."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= cited.keys()
    assert cited["version"] == gcfl.__version__
    assert cited["license"] == PROJECT["project"]["license"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", cited["date-released"])
    (paper,) = cited["references"]
    assert paper["type"] == "conference-paper"
    assert {"title", "authors", "conference", "year"} <= paper.keys()
    assert [one["family-names"] for one in paper["authors"]] == [
        "Sivasubramanian",
        "Nagalapatti",
        "Iyer",
        "Ramakrishnan",
    ]


@pytest.mark.parametrize(
    "page",
    [
        "CONTRIBUTING.md",
        "SECURITY.md",
        "examples/README.md",
        "examples/flower-quickstart/README.md",
    ],
)
def test_pages_lead_somewhere(page):
    targets = LINK.findall((ROOT / page).read_text())
    assert targets
    for target in targets:
        assert ((ROOT / page).parent / target).exists(), target


def check_description(text):
    """No link of it needs the repository; code and words are those of the README."""
    for target in LINK.findall(text):
        assert target.startswith("https://"), target
    fences = re.compile(r"^```.*?^```", re.S | re.M)
    assert fences.findall(text) == fences.findall(README)
    assert len(text) > 0.8 * len(README)


def test_the_description_stands_without_the_repository():
    text = README
    for one in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    check_description(text)


def call(*words, cwd):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_release_is_built_and_runs_in_a_clean_environment(tmp_path):
    tree, dist = tmp_path / "tree", tmp_path / "dist"
    apart = shutil.ignore_patterns(
        ".git", ".venv", "*cache*", ".hypothesis", "dist", "runs", "site"
    )
    shutil.copytree(ROOT, tree, ignore=apart)
    stray = ["runs/one/model.safetensors", "data/photos.npz", "src/gcfl/__pycache__/a.pyc"]
    stray += ["sweeps/two/summary.json", ".venv/bin/python", "docs/results/new/runs/a/rounds.jsonl"]
    for name in stray:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("what lies about while one works")

    # python -m build makes the wheel from the sdist
    call(sys.executable, "-m", "build", "--outdir", dist, tree, cwd=tmp_path)
    (source,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    call(sys.executable, "-m", "twine", "check", "--strict", source, wheel, cwd=tmp_path)
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not names.intersection(stray)
    assert {"pyproject.toml", "LICENSE", "CITATION.cff", "tests/test_release.py"} <= names
    with zipfile.ZipFile(wheel) as archive:
        info = f"gcfl-{gcfl.__version__}.dist-info/"
        packed = {name for name in archive.namelist() if not name.startswith(info)}
        about = email.message_from_bytes(archive.read(info + "METADATA"))
    package = ROOT / "src"
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert packed == {path.relative_to(package).as_posix() for path in files}
    assert about["Description-Content-Type"] == "text/markdown"
    check_description(about.get_payload(decode=True).decode())

    call(sys.executable, "-m", "venv", tmp_path / "clean", cwd=tmp_path)
    python = tmp_path / "clean" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet"]
    if torch.__version__.endswith("+cpu"):
        call(*pip, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=tmp_path)
    else:  # a world with other builds of torch: versions alone
        call(*pip, "-c", ROOT / "constraints.txt", *pins(LOCK), cwd=tmp_path)
    call(*pip, "--no-deps", "--no-index", wheel, cwd=tmp_path)
    call(python, "-m", "pip", "check", cwd=tmp_path)
    command = python.parent / "gcfl"
    assert call(command, "--version", cwd=tmp_path).split() == ["gcfl", gcfl.__version__]
    assert "robust" in call(command, "list", "methods", cwd=tmp_path)
    run = ["run", "--data", "digits", "--noise", "0.4", "--rounds", "5", "--quiet"]
    accuracy = float(re.search(r"accuracy ([\d.]+)", call(command, *run, cwd=tmp_path))[1])
    assert accuracy > 0.7
