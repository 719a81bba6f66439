"""Writing that survives a kill: whole files at once, torn lines dropped, one writer per folder."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import RunError


def write_atomic(path: Path, blob: bytes, failpoint: str = "write", secret: bool = False) -> None:
    """All of `blob` or what was there: temporary file, fsync, rename, fsync of the folder. secret:
    nobody else may read it, from the first byte on.
    """
    temporary = path.with_name(path.name + ".tmp")
    reach(f"{failpoint}.before")
    if secret:
        temporary.unlink(missing_ok=True)  # one that was left behind keeps its mode
    with open(temporary, "wb", opener=_for_us_alone if secret else None) as file:
        file.write(blob[: len(blob) // 2])
        reach(f"{failpoint}.middle")
        file.write(blob[len(blob) // 2 :])
        file.flush()
        os.fsync(file.fileno())
    reach(f"{failpoint}.rename")
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    reach(f"{failpoint}.after")


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"{path} does not exist") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not valid JSON ({error})") from None


def write_npz(path: Path, **arrays: npt.NDArray[Any]) -> None:
    """Plain arrays, whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_atomic(path, buffer.getvalue())


def write_npy(path: Path, array: npt.NDArray[Any]) -> None:
    """One plain array, whole or not at all, without a second copy of it in memory."""
    with _appearing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def new_npy(
    path: Path, shape: tuple[int, ...], dtype: type[np.generic]
) -> Iterator[npt.NDArray[Any]]:
    """An array on disk, to be filled; the file appears when all of it is written."""
    with _appearing(path) as temporary:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
        yield array
        array.flush()


def open_npy(path: Path) -> npt.NDArray[Any] | None:
    """The array in the file, mapped, copied on write; None where it is missing or damaged."""
    try:
        mapped: npt.NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return mapped


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """A name of one's own to write to, which becomes `path` if all goes well, else vanishes."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: Path, value: Any) -> None:
    """One JSON line; a kill in the middle tears at most this line, which `read_lines` drops."""
    line = (json.dumps(value, allow_nan=False) + "\n").encode()
    with open(path, "ab") as file:
        reach("line.before")
        file.write(line[: len(line) // 2])
        file.flush()
        reach("line.middle")
        file.write(line[len(line) // 2 :])
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole JSON lines; a torn last one is dropped, a torn earlier one is an error."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    values = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except ValueError:
            if number < len(lines) - 1:
                raise RunError(f"line {number + 1} of {path} is damaged") from None
    return values


# record locks do not exclude their own process, so it remembers what it holds
_held: set[Path] = set()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer per folder. The lock dies with its process; workers do not inherit it."""
    path = (folder / ".lock").resolve()
    # before opening it: closing any descriptor of a file drops the record lock on it
    if path in _held:
        raise _in_use(folder, str(os.getpid()))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _in_use(
                folder, os.pread(descriptor, 32, 0).decode().strip() or "unknown"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)
    finally:
        os.close(descriptor)


def _in_use(folder: Path, owner: str) -> RunError:
    return RunError(
        f"{folder} is in use by another run (process {owner}); wait for it or choose another --out"
    )


def owner(folder: Path) -> str | None:
    """The process that is writing into a run folder now, if any."""
    path = (folder / ".lock").resolve()
    if path in _held:
        return str(os.getpid())
    if not path.exists():
        return None
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except OSError:
        return os.pread(descriptor, 32, 0).decode().strip() or "unknown"
    finally:
        os.close(descriptor)


_passed: dict[str, int] = {}


def reach(name: str) -> None:
    """A place where a test may make the process die or a write fail, for real.

    `GCFL_FAILPOINT="name:nth:action"` strikes the nth time that `name` is passed: `kill` sends
    SIGKILL to this process, and the name of an errno (`ENOSPC`, `EROFS`) raises that OSError.
    Unset, a failpoint costs one look-up.
    """
    order = os.environ.get("GCFL_FAILPOINT")
    if not order:
        return
    wanted, nth, action = order.split(":")
    if wanted != name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] != int(nth):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    code = getattr(errno, action)
    raise OSError(code, os.strerror(code), name)
