"""A federation on this machine for trying things out: a SuperLink and SuperNodes with TLS and node
authentication.

Certificates and keys are made on the spot and are good for nothing else. What is started is written
down, and `down` ends exactly that.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gcfl.base.errors import ConfigError, RunError
from gcfl.base.files import read_json, write_atomic, write_json
from gcfl.flower.processes import alive, end_all

NAME = "gcfl"
_START_SECONDS = 90.0
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def environment(folder: Path) -> dict[str, str]:
    """Of every Flower process of this federation: its own home, our python's programs, nothing sent
    to anybody.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {
        **os.environ,
        **_QUIET,
        "FLWR_HOME": str(folder.absolute() / "home"),
        "PATH": path,
        "OMP_NUM_THREADS": "1",
    }


def up(folder: Path, nodes: int, data: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Start a SuperLink and so many SuperNodes, or one for each site and its data; returns what was
    written to up.json.
    """
    for site, place in (data or {}).items():
        if not place.exists():
            raise ConfigError(f"the data of {site} is not there: {place}")
    if (folder / "up.json").exists():
        raise ConfigError(
            f"{folder} has a federation already; end it first: gcfl flower down --in {folder}"
        )
    if shutil.which("flower-superlink", path=environment(folder)["PATH"]) is None:
        raise ConfigError("Flower's programs are not on the path: pip install 'gcfl[flower]'")
    (folder / "home").mkdir(parents=True, exist_ok=True)
    _certificates(folder)
    port = free_port()
    sites = (
        [f'client="{site}" data="{place.absolute()}"' for site, place in data.items()]
        if data
        else []
    )
    configs = sites or [f"partition-id={node} num-partitions={nodes}" for node in range(nodes)]
    names = list(data) if data else [f"node{node}" for node in range(nodes)]
    for old in (*folder.glob("state.db*"), *folder.glob("*.log")):  # of nodes that are no more
        old.unlink()
    started: dict[str, Any] = {"port": port, "pids": {}, "nodes": []}
    started["nodes"] = [
        {"name": name, "port": free_port(), "config": one}
        for name, one in zip(names, configs, strict=True)
    ]
    certificate = folder.absolute() / "ca.crt"
    address = f'[superlink.{NAME}]\naddress = "127.0.0.1:{port}"\n'
    settings = f'{address}root-certificates = "{certificate}"\n'
    write_atomic(folder / "home" / "config.toml", settings.encode())
    try:
        start_link(folder, started)
        for node, name in enumerate(names):
            _key(folder / f"{name}.key")
            flwr(folder, "supernode", "register", str(folder.absolute() / f"{name}.key.pub"), NAME)
            start_node(folder, started, node)
    except BaseException:  # Ctrl-C too: nothing half-started stays
        end_all(folder / "home")
        (folder / "up.json").unlink(missing_ok=True)
        raise
    return started


def start_link(folder: Path, started: dict[str, Any]) -> None:
    """The SuperLink; what it knew before, its database says."""
    line = [
        "flower-superlink",
        "--ssl-ca-certfile",
        "ca.crt",
        "--ssl-certfile",
        "server.crt",
        "--ssl-keyfile",
        "server.key",
    ]
    line += [
        "--enable-supernode-auth",
        "--host",
        "127.0.0.1",
        "--port",
        str(started["port"]),
        "--database",
        "state.db",
    ]
    _start(folder, started, "superlink", [*line, "--disable-runtime-dependency-installation"])
    _until_listening(started["port"], folder / "superlink.log")


def start_node(folder: Path, started: dict[str, Any], node: int) -> None:
    """One SuperNode, with its key and a folder for its memory."""
    facts = started["nodes"][node]
    state = folder.absolute() / "state" / facts["name"]
    line = [
        "flower-supernode",
        "--superlink",
        f"127.0.0.1:{started['port']}",
        "--root-certificates",
        "ca.crt",
    ]
    line += [
        "--auth-supernode-private-key",
        f"{facts['name']}.key",
        "--host",
        "127.0.0.1",
        "--port",
        str(facts["port"]),
    ]
    _start(
        folder,
        started,
        facts["name"],
        [*line, "--node-config", f'{facts["config"]} state="{state}"'],
    )


def flwr(folder: Path, *words: str, timeout: float = 120.0) -> str:
    """Flower's own command for this federation; its output."""
    settings = environment(folder)
    program = shutil.which("flwr", path=settings["PATH"]) or "flwr"
    done = subprocess.run(
        [program, *words],
        env=settings,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RunError(
            f"flwr {words[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
        )
    return done.stdout


def down(folder: Path) -> list[str]:
    """End what `up` started here, and what that started in turn; returns the names of those that
    were still there.
    """
    path = folder / "up.json"
    if not path.exists():
        raise ConfigError(f"no federation was started in {folder}")
    there = {process.pid for process in alive(folder / "home")}
    end_all(folder / "home")
    ended = [name for name, pid in read_json(path)["pids"].items() if pid in there]
    path.unlink()
    return ended


def _start(folder: Path, started: dict[str, Any], name: str, line: list[str]) -> None:
    with open(folder / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            line,
            cwd=folder,
            env=environment(folder),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    process.returncode = 0  # it lives on without us: no warning when this object goes
    started["pids"][name] = process.pid
    write_json(folder / "up.json", started)


def _until_listening(port: int, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RunError(f"the SuperLink does not listen after {_START_SECONDS:g} seconds; see {log}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _key(path: Path) -> None:
    """An ECDSA key in OpenSSH's format, which node authentication wants."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.PrivateFormat.OpenSSH
    write_atomic(
        path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_atomic(path.with_name(f"{path.name}.pub"), public)
    path.chmod(0o600)


def _certificates(folder: Path) -> None:
    """A certificate authority of its own, and a certificate for this machine."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gcfl local authority")])
    here = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    own = _certificate(
        issuer, issuer, authority, authority, x509.BasicConstraints(ca=True, path_length=0)
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    signed = _certificate(subject, issuer, server, authority, here)
    pem = serialization.Encoding.PEM
    write_atomic(folder / "ca.crt", own.public_bytes(pem))
    write_atomic(folder / "server.crt", signed.public_bytes(pem))
    private = server.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomic(folder / "server.key", private)
    (folder / "server.key").chmod(0o600)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: Any, signer: Any, extension: Any
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
    )
    built = built.serial_number(x509.random_serial_number()).not_valid_before(
        now - datetime.timedelta(minutes=5)
    )
    built = built.not_valid_after(now + datetime.timedelta(days=30))
    return built.add_extension(
        extension, critical=isinstance(extension, x509.BasicConstraints)
    ).sign(signer, hashes.SHA384())
