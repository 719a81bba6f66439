"""Small things that many tests need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gcfl
from gcfl import experiment as config
from gcfl.api import Result
from gcfl.base import files
from gcfl.engine.prepare import Given, Prepared, prepare

ROOT = Path(__file__).parent.parent
TINY: dict[str, Any] = {
    "method": "gcfl",
    "data": {
        "source": "digits",
        "samples": 300,
        "clients": 5,
        "noise": 0.4,
        "validation": 60,
        "test": 60,
    },
    "model": {"name": "mlp", "hidden": [16]},
    "rounds": 6,
    "train": {"lr": 0.05},
    "coreset": {"every": 2, "budget": 0.2},
}


def tiny(**changes: Any) -> dict[str, Any]:
    """Settings of a run that takes a fraction of a second."""
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in TINY.items()}
    for name, value in changes.items():
        if isinstance(value, dict):
            merged.setdefault(name, {}).update(value)
        else:
            merged[name] = value
    return merged


def run(out: Path, **changes: Any) -> Result:
    return gcfl.run(out=out, **tiny(**changes))


def prepared(given: Given | None = None, **changes: Any) -> Prepared:
    return prepare(config.build(tiny(**changes))[0], given or Given())


def prepared_from(settings: dict[str, Any]) -> Prepared:
    return prepare(config.build(settings)[0], Given())


def spy(carrier: Any, way: str = "exchange") -> list[tuple[Any, Any]]:
    """What goes over a transport (or a Grid, by its `send_and_receive`) from now on: a pair of all
    messages and all answers for each call.
    """
    seen: list[tuple[Any, Any]] = []
    through = getattr(carrier, way)

    def watched(messages: Any, **options: Any) -> Any:
        answers = through(messages, **options)
        seen.append((messages, answers))
        return answers

    setattr(carrier, way, watched)
    return seen


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """A round's record without its clocks: the part that must repeat."""
    return {key: value for key, value in record.items() if key != "time"}


def same_bits(first: Path, second: Path) -> None:
    """Two run folders hold the same result, bit for bit: model, records, coresets, checkpoint."""
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    for name in ("rounds.jsonl",):
        lines = [
            [timeless(json.loads(line)) for line in (folder / name).read_text().splitlines()]
            for folder in (first, second)
        ]
        assert lines[0] == lines[1]
    for part in ("coresets", "checkpoint"):
        files = [
            {path.name: path.read_bytes() for path in (folder / part).glob("*.safetensors")}
            for folder in (first, second)
        ]
        assert files[0].keys() == files[1].keys()
        for name in files[0]:
            assert files[0][name] == files[1][name], f"{part}/{name} differs"


def command(
    *arguments: str, cwd: Path, failpoint: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The gcfl command in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "GCFL_FAILPOINT"}
    environment["OMP_NUM_THREADS"] = "1"
    if failpoint:
        environment["GCFL_FAILPOINT"] = failpoint
    line = [sys.executable, "-m", "gcfl.cli", *arguments]
    return subprocess.run(
        line,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        **options,
    )


def dies_in_round(number: int, call: Callable[[], Any]) -> None:
    """The call in a process of its own, which SIGKILL ends after so many rounds."""
    child = os.fork()
    if child == 0:
        files._passed.clear()
        os.environ["GCFL_FAILPOINT"] = f"round.end:{number}:kill"
        try:
            call()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9


def equal_trees(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
