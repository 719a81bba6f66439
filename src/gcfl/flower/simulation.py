"""An exported app in Flower's Ray simulation, as `flwr run` does it, in a home of its own; what that starts is ended.

`flwr run` starts a SuperLink that stays, that starts a process for the run, and that starts Ray. None of them is our child, so they
are known by the home in their environment, and by whose children they are.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from gcfl.errors import ConfigError, RunError
from gcfl.flower.local import environment, free_port

_PROCESSES = Path("/proc")
_END_SECONDS = 10.0


def simulate(app: Path, out: Path, nodes: int, place: Path, actors: int = 2, seconds: float = 600.0) -> None:
    """All rounds of the app with so many nodes on so many Ray actors of one CPU each; its run folder lies below `out`.

    `place` holds Flower's home and the run's log. Returns once the run is completed and nothing of it is alive.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'gcfl[simulation]'")
    if not _PROCESSES.is_dir():
        raise ConfigError("a simulation is started from here only where /proc tells of its processes, which is Linux")
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
    try:
        words = ["run", str(app), "--stream", "--federation-config", federation, "-c", f"out='{out.absolute()}'"]
        with log.open("w") as file:
            _flwr(settings, words, end, stdout=file)
        # Flower's command succeeds whether the run does or not.
        while not (state := _state(settings, end)).startswith("finished"):
            time.sleep(0.5)
        if state != "finished:completed":
            raise RunError(f"the simulation is {state}: {_last_error(log)}; see {log}")
    finally:
        end_all(home)
        shutil.rmtree(ray, ignore_errors=True)


def _flwr(settings: dict[str, str], words: list[str], end: float, **streams: object) -> str:
    program = shutil.which("flwr", path=settings["PATH"]) or "flwr"
    left = max(1.0, end - time.monotonic())
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **streams}
    try:
        done = subprocess.run([program, *words], env=settings, text=True, timeout=left, check=False, **options)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        raise RunError(f"flwr {words[0]} is not done in the time that it was given") from None
    if done.returncode:
        raise RunError(f"flwr {words[0]} failed: {done.stdout or 'see its log'}")
    return str(done.stdout)


def _state(settings: dict[str, str], end: float) -> str:
    """finished:completed, finished:failed, running, ..."""
    if time.monotonic() > end:
        raise RunError("the simulation is not finished in the time that it was given")
    told = _flwr(settings, ["ls", "--format", "json"], end)
    return str(json.loads(told[told.index("{") :])["runs"][0]["status"])


def _last_error(log: Path) -> str:
    found = [line.strip() for line in log.read_text(errors="replace").splitlines() if "Error" in line]
    return found[-1] if found else "no error was told"


def alive(home: Path) -> set[tuple[int, str]]:
    """(pid, when it started) of what has this home in its environment, and of the children of that, which may have lost it."""
    mark, running = f"FLWR_HOME={home.absolute()}".encode(), _running()
    found = {pid for pid in running if mark in _environment(pid) and pid != os.getpid()}
    while children := {pid for pid, (parent, _) in running.items() if parent in found} - found:
        found |= children
    return {(pid, running[pid][1]) for pid in found}


def end_all(home: Path) -> None:
    """End what lives in this home, by pid: first asked, then made to."""
    known = alive(home)

    def left() -> set[tuple[int, str]]:
        # Who loses its parent is still ours.
        running = {(pid, started) for pid, (_, started) in _running().items()}
        known.update(alive(home))
        return known & running

    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, _ in left():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        end = time.monotonic() + _END_SECONDS
        while left() and time.monotonic() < end:
            time.sleep(0.1)
    if left():
        raise RunError(f"these processes of a simulation could not be ended: {sorted(pid for pid, _ in left())}")


def _running() -> dict[int, tuple[int, str]]:
    """pid -> (its parent, when it started); what has ended and only waits to be counted is left out."""
    found = {}
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # gone since
                continue
            if fields[0] not in "ZX":
                found[int(entry.name)] = (int(fields[1]), fields[19])
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []
