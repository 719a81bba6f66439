"""The only source of randomness: every draw is named, so its value depends on the seed and its
names and on nothing else.

`stream` gives a numpy generator for one named purpose. `order` gives the batch orders of many
clients in one vectorised counter-based draw, where a generator per client would cost more than the
client's training. `isolated` fences modules that draw from torch's global generator (dropout,
default initialisation), `fenced` libraries that draw from numpy's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base.data_types import FloatArray, IntArray

Name = str | int
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(seed: int, *names: Name) -> int:
    """A 128-bit key; ("a", "bc") and ("ab", "c") differ, and so do 1 and "1"."""
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in (seed, *names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def keys(numbers: list[int], seed: int, *names: Name) -> list[int]:
    """key(seed, *names, number) for many numbers."""
    start = "\x1f".join(f"{type(name).__name__}:{name}" for name in (seed, *names))
    prefix = hashlib.blake2b(f"{start}\x1fint:".encode(), digest_size=16)
    found = []
    for number in numbers:
        digest = prefix.copy()
        digest.update(b"%d" % number)
        found.append(int.from_bytes(digest.digest(), "little"))
    return found


def stream(seed: int, *names: Name) -> np.random.Generator:
    """A generator of its own for one named purpose."""
    return np.random.Generator(np.random.Philox(key=key(seed, *names)))


def _mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: a bijection whose outputs pass for independent draws."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def words(base: int, counters: npt.NDArray[np.integer], length: int) -> npt.NDArray[np.uint64]:
    """(..., length) random words: word k of counter c depends on (base, c, k) alone."""
    with np.errstate(over="ignore"):
        row = _mix(np.asarray(counters).astype(np.uint64) * _GOLDEN + np.uint64(base & (2**64 - 1)))
        row = _mix(row ^ np.uint64((base >> 64) & (2**64 - 1)))
        column = np.arange(1, length + 1, dtype=np.uint64) * _GOLDEN
        return _mix(row[..., None] + column)


def words_of(bases: list[int], counter: int, length: int) -> npt.NDArray[np.uint64]:
    """(m, length) each base's `words` of one counter, in one draw."""
    low = np.array([base & (2**64 - 1) for base in bases], dtype=np.uint64)
    high = np.array([base >> 64 for base in bases], dtype=np.uint64)
    with np.errstate(over="ignore"):
        row = _mix(_mix(np.uint64(counter) * _GOLDEN + low) ^ high)
        return _mix(row[:, None] + np.arange(1, length + 1, dtype=np.uint64) * _GOLDEN)


def order(base: int, counter: int, length: int) -> IntArray:
    """A random permutation of 0 .. length - 1, the same drawn alone or with many others."""
    return np.argsort(words(base, np.array(counter), length), kind="stable").astype(np.int64)


def uniform(words: npt.NDArray[np.uint64]) -> FloatArray:
    """Words as numbers in (0, 1), never an end."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def orders(bases: list[int], counter: int, lengths: IntArray) -> IntArray:
    """(m, longest) each base's `order` of its length, padded with what is beyond."""
    longest = int(lengths.max())
    drawn = words_of(bases, counter, longest)
    if int(lengths.min()) < longest:
        drawn[np.arange(longest) >= lengths[:, None]] = np.uint64(2**64 - 1)
    return np.argsort(drawn, axis=1, kind="stable").astype(np.int64)


@contextmanager
def isolated(seed: int, *names: Name) -> Iterator[None]:
    """Inside, torch's generators start from the named key; outside, nothing was drawn."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    start = key(seed, *names) & (2**63 - 1)
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(start)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(start)
        yield


@contextmanager
def fenced(word: int) -> Iterator[None]:
    """Inside, numpy's global generator starts from the word; outside, nothing was drawn."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(word)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
