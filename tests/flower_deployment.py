"""What the tests on real processes share: waiting for conditions, asking Flower about its runs and
nodes.
"""

from __future__ import annotations

import json
import time

from gcfl.flower import local


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds} seconds")


def states(folder):
    """Of every run, the newest first: finished:completed, running, ..."""
    return [
        run["status"]
        for run in json.loads(local.flwr(folder, "ls", local.NAME, "--format", "json"))["runs"]
    ]


def online(folder):
    found = json.loads(local.flwr(folder, "supernode", "list", local.NAME, "--format", "json"))[
        "nodes"
    ]
    return sorted(node["status"] for node in found)


def start_run(folder, app, **settings):
    words = " ".join(f"{name}={value!r}" for name, value in settings.items())
    local.flwr(folder, "run", str(app), local.NAME, "-c", words)


def finish(folder, seconds):
    wait_until(lambda: states(folder)[0].startswith("finished"), seconds, "the run is finished")
    return states(folder)[0]
