"""A federation on this machine to try things on: SuperLink and SuperNodes, TLS and node keys.

Certificates and keys are made on the spot and are good for nothing else. What is started is written
down, and `down` ends exactly that. `flwr run` and a SuperLink start others in sessions of their
own, and Ray gives its workers other names: none of them need be our child, but each has the
federation's home in its environment, or is a child of one that has.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gcfl.base.errors import ConfigError, RunError
from gcfl.base.files import read_json, write_atomic, write_json

NAME = "gcfl"
_START_SECONDS = 90.0
_END_SECONDS = 10.0


def environment(folder: Path) -> dict[str, str]:
    """Of every process of this federation: its own home, our programs, nothing sent to anybody."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(folder.absolute() / "home"),
        "PATH": path,
        "OMP_NUM_THREADS": "1",
    }


def up(
    folder: Path,
    nodes: int,
    data: Mapping[str, Path] | None = None,
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """Start a SuperLink and so many SuperNodes, or one for each site; returns what up.json says.

    more: what else the node configs of sites say, as texts.
    """
    for site, place in (data or {}).items():
        if not place.exists():
            raise ConfigError(f"the data of {site} is not there: {place}")
        if not str(place).isprintable() or {'"', "\\"} & set(str(place)):
            raise ConfigError(f"Flower cannot be told of a path with quotes: {str(place)!r}")
    if (folder / "up.json").exists():
        down = f"gcfl flower down --in {shlex.quote(str(folder))}"
        raise ConfigError(f"{folder} has a federation already; end it first: {down}")
    if shutil.which("flower-superlink", path=environment(folder)["PATH"]) is None:
        raise ConfigError("Flower's programs are not on the path: pip install 'gcfl[flower]'")
    (folder / "home").mkdir(parents=True, exist_ok=True)
    _make_certificates(folder)
    for old in (*folder.glob("state.db*"), *folder.glob("*.log")):  # of nodes that are no more
        old.unlink()
    configs = {
        f"node{node}": f"partition-id={node} num-partitions={nodes}" for node in range(nodes)
    }
    if data:
        configs = {
            site: _config(
                {"client": site, "data": str(place.absolute()), **(more or {}).get(site, {})}
            )
            for site, place in data.items()
        }
    started: dict[str, Any] = {"port": free_port(), "pids": {}}
    started["nodes"] = [
        {"name": name, "port": free_port(), "config": text} for name, text in configs.items()
    ]
    address, certificates = f"127.0.0.1:{started['port']}", str(folder.absolute() / "ca.crt")
    settings = {"superlink": {NAME: {"address": address, "root-certificates": certificates}}}
    write_atomic(folder / "home" / "config.toml", tomli_w.dumps(settings).encode())
    try:
        start_link(folder, started)
        for node, name in enumerate(configs):
            make_node_key(folder / f"{name}.key")
            flwr(folder, "supernode", "register", str(folder.absolute() / f"{name}.key.pub"), NAME)
            start_node(folder, started, node)
    except BaseException:  # Ctrl-C too: nothing half-started stays
        end_all(folder / "home")
        (folder / "up.json").unlink(missing_ok=True)
        raise
    return started


def _config(texts: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{text}"' for name, text in texts.items())


def start_link(folder: Path, started: dict[str, Any]) -> None:
    """The SuperLink; what it knew before, its database says."""
    line = (
        "flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.crt "
        "--ssl-keyfile server.key --enable-supernode-auth --database state.db "
        f"--host 127.0.0.1 --port {started['port']} --disable-runtime-dependency-installation"
    )
    _start(folder, started, "superlink", line.split())
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", started["port"])) == 0:
                return
        time.sleep(0.1)
    raise RunError(
        f"the SuperLink does not listen after {_START_SECONDS:g} seconds; see "
        f"{folder / 'superlink.log'}"
    )


def start_node(folder: Path, started: dict[str, Any], node: int) -> None:
    """One SuperNode, with its key and a folder for its memory."""
    facts = started["nodes"][node]
    line = (
        f"flower-supernode --superlink 127.0.0.1:{started['port']} --root-certificates ca.crt "
        f"--host 127.0.0.1 --port {facts['port']}"
    )
    key = ["--auth-supernode-private-key", f"{facts['name']}.key"]
    state = folder.absolute() / "state" / facts["name"]
    config = ["--node-config", f'{facts["config"]} state="{state}"']
    _start(folder, started, facts["name"], [*line.split(), *key, *config])


def _start(folder: Path, started: dict[str, Any], name: str, line: list[str]) -> None:
    with open(folder / f"{name}.log", "ab") as log:
        settings = environment(folder)
        process = subprocess.Popen(
            line, cwd=folder, env=settings, stdout=log, stderr=log, start_new_session=True
        )
    process.returncode = 0  # it lives on without us: no warning when this object goes
    started["pids"][name] = process.pid
    write_json(folder / "up.json", started)


def flwr(folder: Path, *words: str, timeout: float = 120.0) -> str:
    """Flower's own command for this federation; its output."""
    done = run_flwr(environment(folder), words, timeout, capture_output=True)
    if done.returncode:
        raise RunError(
            f"flwr {words[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
        )
    return done.stdout


def run_flwr(
    settings: Mapping[str, str], words: Sequence[str], timeout: float, **streams: Any
) -> subprocess.CompletedProcess[str]:
    line = [shutil.which("flwr", path=settings["PATH"]) or "flwr", *words]
    return subprocess.run(line, env=settings, text=True, timeout=timeout, check=False, **streams)


def down(folder: Path) -> list[str]:
    """End what `up` started, and what that started; returns the names of what was still alive."""
    path = folder / "up.json"
    if not path.exists():
        raise ConfigError(f"no federation was started in {folder}")
    pids = {process.pid for process in alive(folder / "home")}
    end_all(folder / "home")
    ended = [name for name, pid in read_json(path)["pids"].items() if pid in pids]
    path.unlink()
    return ended


def alive(home: Path) -> set[psutil.Process]:
    """What has this home in its environment, and what that has started."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone since, or somebody else's
            settings = process.environ() if process.pid != os.getpid() else {}
            if settings.get("FLWR_HOME") == str(home.absolute()):
                found |= {process, *process.children(recursive=True)}
    return set(filter(_runs, found))


def end_all(home: Path) -> None:
    """End what lives in this home: first asked, then made to."""
    known = alive(home)
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in known:
            with suppress(psutil.NoSuchProcess):
                end(process)
        _, left = psutil.wait_procs(known, timeout=_END_SECONDS)
        known = set(filter(_runs, left)) | alive(home)  # who loses its parent is still ours
    if known:
        raise RunError(
            f"these processes could not be ended: {sorted(process.pid for process in known)}"
        )


def _runs(process: psutil.Process) -> bool:
    """Not gone, and not one that has ended and only waits to be counted."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_node_key(path: Path) -> None:
    """An ECDSA key in OpenSSH's format, which node authentication wants."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_atomic(path.with_name(f"{path.name}.pub"), public)


def _make_certificates(folder: Path) -> None:
    """A certificate authority of its own, and a certificate for this machine."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gcfl local authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    signs = x509.BasicConstraints(ca=True, path_length=0)
    here = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    root = _certificate(issuer, issuer, authority, authority, signs)
    signed = _certificate(subject, issuer, server, authority, here)
    for name, certificate in (("ca.crt", root), ("server.crt", signed)):
        write_atomic(folder / name, certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: Any, signer: Any, extension: Any
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(signer, hashes.SHA384())
    )


def _write_private(path: Path, key: Any, form: serialization.PrivateFormat) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_atomic(path, pem, private=True)
