"""Writing that survives a kill: whole files at once, torn lines dropped, one writer per folder."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import RunError

_STALE_SECONDS = 3600.0  # a temporary file that nobody has written to for so long was left behind


def write_atomic(path: Path, blob: bytes, failpoint: str = "write", private: bool = False) -> None:
    """All of `blob` or what was there: temporary file, fsync, rename, fsync of the folder. What is
    private is for its owner's eyes from the first byte on.
    """
    temporary = path.with_name(path.name + ".tmp")
    reach(f"{failpoint}.before")
    if private:
        temporary.unlink(missing_ok=True)  # one that was left there keeps its mode
    mode = 0o600 if private else 0o666
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
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


def write_json(path: Path, value: Any, private: bool = False) -> None:
    blob = (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
    write_atomic(path, blob, private=private)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"{path} does not exist") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not valid JSON ({error})") from None


def write_npz(path: Path, **arrays: npt.NDArray[Any]) -> None:
    """Plain arrays, whole or not at all."""
    with _appearing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


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
        _take_room(temporary, path)
        yield array
        array.flush()


def open_npy(path: Path) -> npt.NDArray[Any] | None:
    """The array in the file, mapped, copied on write; None where it is missing or damaged."""
    try:
        mapped: npt.NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return mapped


def _take_room(file: Path, path: Path) -> None:
    """All of a file's bytes on disk now: a mapped file that meets a full disk later ends in a
    signal, not in an error.
    """
    if hasattr(os, "posix_fallocate"):
        descriptor = os.open(file, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
        finally:
            os.close(descriptor)


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """A name of one's own to write to, which becomes `path` if all goes well, else vanishes."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):  # another may clear it too
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: Path, value: Any) -> bytes:
    """One JSON line, which is returned; a kill in the middle tears at most this line, which
    `read_lines` drops.
    """
    line = (json.dumps(value, allow_nan=False) + "\n").encode()
    with open(path, "ab") as file:
        reach("line.before")
        file.write(line[: len(line) // 2])
        file.flush()
        reach("line.middle")
        file.write(line[len(line) // 2 :])
        file.flush()
        os.fsync(file.fileno())
    return line


def read_lines(path: Path) -> list[tuple[Any, bytes]]:
    """All whole JSON lines, each with its bytes; a torn last one is dropped, a torn earlier one is
    an error.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    values = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            values.append((json.loads(line), line + b"\n"))
        except (ValueError, RecursionError):
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
