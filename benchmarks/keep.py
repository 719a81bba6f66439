"""Keep what long measurements found, without their models, so that they need not be made again.

    python benchmarks/keep.py sweeps/robust docs/results/robust     # after (a part of) a sweep
    cp -r docs/results/robust sweeps/robust && gcfl sweep robust    # plays only what is missing

Of every finished run its settings, records and summary are kept: what tables and figures need.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

FILES = ("config.toml", "environment.json", "clients.json", "rounds.jsonl", "summary.json")


def keep(sweep: Path, kept: Path) -> list[str]:
    """The names of the runs that were not kept before."""
    found = []
    for summary in sorted(sweep.glob("runs/*/summary.json")):
        target = kept / "runs" / summary.parent.name
        if (target / summary.name).exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if (summary.parent / name).exists():
                shutil.copy2(summary.parent / name, target / name)
        found.append(target.name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path)
    parser.add_argument("kept", type=Path)
    options = parser.parse_args()
    for name in keep(options.sweep, options.kept):
        print(name)


if __name__ == "__main__":
    main()
