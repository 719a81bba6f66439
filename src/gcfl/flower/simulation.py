"""An exported app in Flower's Ray simulation, in a home of its own; what that starts is ended."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError, RunError
from gcfl.flower.local import end_all, environment, free_port, run_flwr


def simulate(
    app: Path, out: Path, nodes: int, place: Path, actors: int = 2, seconds: float = 600.0
) -> None:
    """All rounds of the app, by `flwr run`, with so many nodes on so many Ray actors of one CPU
    each; its run folder lies below `out`.

    `place` holds Flower's home and the run's log. Returns once the run is completed and nothing of
    it is alive.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'gcfl[simulation]'")
    home, end = (place / "home").absolute(), time.monotonic() + seconds
    home.mkdir(parents=True, exist_ok=True)
    ray = tempfile.mkdtemp(prefix="ray-")  # Ray's sockets lie here, and their paths must be short
    settings = {
        **environment(place),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
        "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
        "RAY_TMPDIR": ray,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    log = place / "simulation.log"
    federation = f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus={actors}"
    words = ["run", str(app), "--stream", "--federation-config", federation]
    try:
        with log.open("w") as file:
            _flwr(settings, [*words, "-c", f"out='{out.absolute()}'"], end, stdout=file)
        # Flower's command succeeds whether the run does or not.
        while not (state := _state(settings, end)).startswith("finished"):
            time.sleep(0.5)
        if state != "finished:completed":
            raise RunError(f"the simulation is {state}: {_last_error(log)}; see {log}")
    finally:
        end_all(home)
        shutil.rmtree(ray, ignore_errors=True)


def _flwr(settings: dict[str, str], words: list[str], end: float, stdout: Any) -> str:
    left = max(1.0, end - time.monotonic())
    try:
        done = run_flwr(settings, words, left, stdout=stdout, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        raise RunError(f"flwr {words[0]} is not done in the time that it was given") from None
    if done.returncode:
        raise RunError(f"flwr {words[0]} failed: {done.stdout or 'see its log'}")
    return str(done.stdout)


def _state(settings: dict[str, str], end: float) -> str:
    """finished:completed, finished:failed, running, ..."""
    if time.monotonic() > end:
        raise RunError("the simulation is not finished in the time that it was given")
    listed = _flwr(settings, ["ls", "--format", "json"], end, stdout=subprocess.PIPE)
    return str(json.loads(listed[listed.index("{") :])["runs"][0]["status"])


def _last_error(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.strip() for line in lines if "Error" in line]
    return errors[-1] if errors else "no error was told"
