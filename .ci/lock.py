"""Write requirements.lock: what gcfl needs at run time, at the versions of constraints.txt, with
the digest of the very file that pip takes on this platform.

    make lock

A digest in constraints.txt would not do: pip then wants one of everything, and installs nothing
editable. The local part of torch's version (+cpu) is left out, as in constraints.txt: the digest
says which build it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HEAD = """\
# What gcfl needs at run time, with digests: CPython {python}, {system} {machine}, torch {torch}.
#   pip install --require-hashes -r requirements.lock
#   pip install --no-deps .
# Made by `make lock`. Another build of torch (another platform, CUDA) has another digest and other
# dependencies; there, pip install -c constraints.txt pins versions alone.
"""


def resolved() -> dict[str, Any]:
    """pip's report of what it would install into an empty environment."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    line += ["--disable-pip-version-check", "--report", "-", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*line, *wanted], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    report = resolved()
    pins, versions = [], {}
    for one in report["install"]:
        name, version = one["metadata"]["name"], one["metadata"]["version"]
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        versions[name] = version
        pins.append(f"{name}=={version.partition('+')[0]} \\\n    --hash=sha256:{digest}\n")
    here = report["environment"]
    head = HEAD.format(
        python=here["python_version"],
        system=here["platform_system"],
        machine=here["platform_machine"],
        torch=versions["torch"],
    )
    (ROOT / "requirements.lock").write_text(head + "".join(sorted(pins, key=str.lower)))


if __name__ == "__main__":
    main()
