"""A round costs its cohort, not the population. (Times are in benchmarks/population.py.)"""

from __future__ import annotations

import numpy as np

import gcfl
from gcfl.data import ClientData


def test_a_hundred_thousand_clients(tmp_path, monkeypatch):
    clients, samples, cohort, rounds = 100_000, 10, 100, 3
    generator = np.random.default_rng(0)
    y = generator.integers(0, 4, clients * samples)
    x = (np.eye(4)[y] * 2 + generator.normal(size=(len(y), 4))).astype(np.float32)
    touched = []
    shard = ClientData.shard
    monkeypatch.setattr(
        ClientData, "shard", lambda self, client: touched.append(client) or shard(self, client)
    )
    clean = (x[:400], y[:400])
    result = gcfl.run(
        data=(x, y),
        validation=clean,
        test=clean,
        method="gcfl",
        model="logistic",
        clients=clients,
        cohort=cohort,
        rounds=rounds,
        noise=0.4,
        out=tmp_path,
    )
    # Only the cohorts' samples were ever looked at, and only their memories are kept.
    assert len(touched) == cohort * rounds
    assert [len(result.coresets[round]) for round in range(rounds)] == [
        len(set(touched[cohort * round : cohort * (round + 1)]) - set(touched[: cohort * round]))
        for round in range(rounds)
    ]
    size = sum(path.stat().st_size for path in (result.folder / "checkpoint").iterdir())
    assert size < 500_000
    assert result.finished
