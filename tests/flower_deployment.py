"""What the tests on real processes share: waiting, and asking Flower about its runs and nodes."""

from __future__ import annotations

import json
import time

from gcfl.flower import local

# against a test that hangs, not against a slow machine
LIMIT_SECONDS = 1800.0


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {LIMIT_SECONDS} seconds")


def flwr(folder, *words):
    return local.flwr(folder, *words, timeout=LIMIT_SECONDS)


def listed(folder, *words):
    """What one of Flower's lists holds of this federation."""
    return json.loads(flwr(folder, *words, local.NAME, "--format", "json"))


def states(folder):
    """Of every run, the newest first: finished:completed, running, ..."""
    return [run["status"] for run in listed(folder, "ls")["runs"]]


def online(folder):
    return sorted(node["status"] for node in listed(folder, "supernode", "list")["nodes"])


def start_run(folder, app, **settings):
    words = " ".join(f"{name}={value!r}" for name, value in settings.items())
    flwr(folder, "run", str(app), local.NAME, "-c", words)


def finish(folder):
    wait_until(lambda: states(folder)[0].startswith("finished"), "the run is finished")
    return states(folder)[0]
