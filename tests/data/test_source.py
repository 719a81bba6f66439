from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gcfl.base.errors import DataError
from gcfl.data import Schema, Source, data_home, subset


def numbers(n=30):
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    return Source("numbers", x, np.arange(n) % 3, ("a", "b", "c"), test=(x[:4], np.arange(4) % 3))


def test_some_samples_know_their_rows_among_all(tmp_path):
    whole = replace(numbers(), groups=np.array([f"g{row}" for row in range(30)]))
    some = subset(subset(whole, 20, 0), 12, 1)
    assert (len(some), some.of) == (12, 30)
    assert np.array_equal(some.x, whole.x[some.rows])
    assert np.array_equal(some.y, whole.y[some.rows])
    assert some.groups.tolist() == [f"g{row}" for row in some.rows]
    assert (np.diff(some.rows) > 0).all()
    assert np.array_equal(some.test[0], whole.test[0])
    (tmp_path / "names.txt").write_text("\n".join(f"name {row}" for row in range(30)))
    lines = some.lines(str(tmp_path / "names.txt"), "data.owners")
    assert lines == [f"name {row}" for row in some.rows]
    assert subset(whole, 30, 0) is whole
    with pytest.raises(DataError, match=r"data\.samples is 31, but numbers has only 30 samples"):
        subset(whole, 31, 0)


def test_a_digest_tells_apart_what_differs():
    one = numbers()
    other = one.x.copy()
    other[-1, -1] += 1
    changed = [
        replace(one, x=other),
        replace(one, x=one.x.astype(np.float64)),
        replace(one, y=1 - one.y % 2),
        replace(one, classes=("a", "b", "d")),
        replace(one, test=None),
        replace(one, groups=np.array(["g"] * 30)),
    ]
    assert numbers().digest() == one.digest()
    assert len({one.digest(), *(source.digest() for source in changed)}) == 7


def test_a_schema_says_what_a_sites_samples_must_be():
    schema = Schema.of(numbers(), ("c", "a", "b"))
    assert schema.codes(["a", "b", "c", "a"], "here").tolist() == [1, 2, 0, 1]
    assert Schema((7, 8), (2,), "float32").codes(["8", 7], "here").tolist() == [1, 0]
    with pytest.raises(DataError, match="here has the class 'd', which the server does not know"):
        schema.codes(["a", "d"], "here")
    schema.check(numbers())
    with pytest.raises(DataError, match="numbers of type float64, but the server's are float32"):
        schema.check(replace(numbers(), x=numbers().x.astype(np.float64)))


def test_the_data_home(monkeypatch, tmp_path):
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path))
    assert data_home() == tmp_path
    monkeypatch.delenv("GCFL_DATA_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert data_home() == tmp_path / "caches" / "gcfl"
