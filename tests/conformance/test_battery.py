"""One battery for every method: the catalogue's entries and all pairs of parts in `make test`, the
full matrix in `make test-slow`.

Whatever a method is made of: any number of workers gives the same bits; a kill and a resume change
nothing; clients may come late, fail, lack a class or hold one that nobody else has; what it sends
and keeps survives the codec; and nobody looks at what is not his.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

import gcfl
from gcfl.base import codec
from gcfl.base.data_types import Broadcast
from gcfl.base.errors import ConfigError
from gcfl.data import Source
from gcfl.engine import ClientSide, InProcess
from gcfl.engine.rounds import Rounds
from gcfl.methods import WORDS, LocalRule, Replies, parse, parts_of
from helpers import dies_in_round, prepared, run, same_bits, tiny
from peeking import play_watched


def alternatives(slot: str, plain: str) -> list[str]:
    """The plain part of a slot, and every word that decides this slot and no other."""
    words = [word for word, _ in parts_of(slot) if word and list(WORDS[word].decides) == [slot]]
    return [plain, *(word for word in words if parse(word).server.uses_clients)]


SELECTORS = alternatives("select", "everything")
LOCALS = alternatives("local", "plain")
SERVERS = alternatives("server", "average")
NEEDS_NO_WORD = {"everything", "plain", "average"}


def method_name(*words: str) -> str:
    return "+".join(word for word in words if word not in NEEDS_NO_WORD) or "fedavg"


def pairwise() -> list[str]:
    """Triples such that any two parts meet in at least one of them: servers go round as selectors
    and local rules change; the pairs of a server that are still missing stand alone.
    """
    found = [
        (selector, local, SERVERS[(place + shift) % len(SERVERS)])
        for shift, selector in enumerate(SELECTORS)
        for place, local in enumerate(LOCALS)
    ]
    met = {pair for triple in found for pair in itertools.combinations(triple, 2)}
    found += [
        (one, LOCALS[0], server)
        for one, server in itertools.product(SELECTORS, SERVERS)
        if (one, server) not in met
    ]
    found += [
        (SELECTORS[0], one, server)
        for one, server in itertools.product(LOCALS, SERVERS)
        if (one, server) not in met
    ]
    return [method_name(*triple) for triple in found]


def full() -> list[str]:
    """Of robust server rules, which differ in a few lines, the pairs are enough."""
    means = [word for word in SERVERS if word in NEEDS_NO_WORD or not parse(word).server.wary]
    return [method_name(*words) for words in itertools.product(SELECTORS, LOCALS, means)]


ENTRIES = [
    *WORDS,
    "skyline+random",
    "centralised+skyline",
    "gcfl+finetune+warmstart",
    "local-only+gcfl",
    "centralised+gcfl",
    *(f"{word}+robust" for word in ("scaffold", "moon", "local-only")),
]
IN_TEST = sorted({*ENTRIES, *pairwise()})
REST = sorted(set(full()) - set(IN_TEST))
# Options that change what is remembered, sent or judged, each with a method that has them.
VARIANTS = {
    "fedavg/takes-part": {"clean": {"takes_part": True}},
    "gcfl/judged": {"clean": {"hold_out": 0.3, "keep": "best", "patience": 2}},
    "fedavg/tuned": {
        "clean": {"fine_tune": "each", "warm_start": 1},
        "server": {"weighting": "examples"},
    },
    "gcfl/weighted": {"coreset": {"weighted": True, "score": "distance"}},
    "moon/projection": {"model": {"projection": 5}},
    "gcfl/mixup": {"train": {"mixup": 0.5}, "coreset": {"weighted": True, "score": "distance"}},
    "robust/compared": {"cohort": 1.0, "labels": {"guard": 4}},
    "scaffold/fixed-steps": {"train": {"steps": 3, "clip": 1.0, "loss": "gce"}},
}
IN_TEST += VARIANTS
every_method = pytest.mark.parametrize(
    "method", [*IN_TEST, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)], ids=str
)


def settings(method: str) -> dict:
    """Partial participation, a selection every other round, a checkpoint every other round."""
    changed = tiny(
        method=method.partition("/")[0],
        cohort=3,
        rounds=5,
        data={"samples": 200, "validation": 60, "test": 30},
        model={"name": "mlp", "hidden": [8]},
        engine={"checkpoint_every": 2},
        clean={"fine_tune_epochs": 1},
        local={"preparing": 3, "tuning": 1},  # all stages of a method that has some
    )
    changed["coreset"]["allow_single"] = True
    for section, values in VARIANTS.get(method, {}).items():
        within = isinstance(values, dict)
        changed[section] = {**changed.get(section, {}), **values} if within else values
    return changed


def test_pairs_are_covered():
    met = {
        frozenset(pair) for name in pairwise() for pair in itertools.combinations(words_of(name), 2)
    }
    for one, other in itertools.combinations((SELECTORS, LOCALS, SERVERS), 2):
        for pair in itertools.product(one, other):
            assert frozenset(pair) in met, pair


def words_of(name: str) -> list[str]:
    words = name.split("+")
    return [
        next((word for word in group if word in words), group[0])
        for group in (SELECTORS, LOCALS, SERVERS)
    ]


@every_method
def test_workers_and_kills_change_nothing(method, tmp_path):
    alone = gcfl.run(out=tmp_path / "alone", **settings(method))
    assert alone.finished
    for workers in (2, 3):
        many = settings(method)
        many["engine"] = {**many["engine"], "workers": workers}
        same_bits(gcfl.run(out=tmp_path / str(workers), **many).folder, alone.folder)
    killed = tmp_path / "killed" / alone.folder.name
    dies_in_round(4, lambda: gcfl.run(out=tmp_path / "killed", **settings(method)))
    assert not (killed / "summary.json").exists()
    assert len(gcfl.load(killed).rounds) == 4
    same_bits(gcfl.resume(killed).folder, alone.folder)


@every_method
def test_everything_that_travels_survives_the_codec(method, tmp_path):
    """A transport that writes and reads every message and every memory gives the same model, and
    nothing else travels.
    """

    class Wire(InProcess):
        def exchange(self, broadcasts):
            through = {}
            for client, broadcast in broadcasts.items():
                groups, _ = codec.decode(
                    codec.encode({"model": broadcast.model, **broadcast.payload})
                )
                payload = {name: groups.get(name, {}) for name in broadcast.payload}
                through[client] = Broadcast(broadcast.round, groups["model"], payload)
            answers = super().exchange(through)
            read = {}
            for client, answer in answers.items():
                groups, _ = codec.decode(codec.encode({"delta": answer.delta, **answer.payload}))
                payload = {name: groups[name] for name in answer.payload}
                read[client] = dataclasses.replace(answer, delta=groups["delta"], payload=payload)
                assert isinstance(answer.examples, int)
                assert all(isinstance(value, int | float) for value in answer.metrics.values())
            return Replies(read, answers.failures, answers.observed)

        def commit(self, clients):
            super().commit(clients)
            for client, groups in self._states.items():
                self._states[client] = codec.decode(codec.encode(groups))[0]

    ready = prepared(**settings(method))
    ends = []
    for kind in (InProcess, Wire):
        transport = kind(ClientSide(ready.setting, ready.method, ready.federation.clients))
        rounds = ready.rounds(transport)
        state = rounds.begin()
        while not rounds.over(state):
            played = rounds.play(state)
            transport.commit(played.accepted)
            state = played.state
        ends.append(state)
    for name, tensor in ends[0].model.items():
        assert torch.equal(tensor, ends[1].model[name]), name
    for part, tree in ends[0].parts.items():
        assert all(torch.equal(tensor, ends[1].parts[part][name]) for name, tensor in tree.items())


@every_method
def test_a_client_that_fails_and_one_that_comes_late(method, tmp_path, monkeypatch):
    """Client 1 fails in two rounds, and client 4 is away for the first three; the rest goes on, and
    both come back.
    """
    if (
        not parse(method.partition("/")[0]).server.uses_clients
        or parse(method.partition("/")[0]).pooled
    ):
        pytest.skip("no clients to fail")
    work = ClientSide.work

    asked = [0] * 5

    def failing(self, client, broadcast, remembered):
        asked[broadcast.round] += 1
        if client == 1 and broadcast.round in (1, 2):
            raise ValueError("disk on fire")
        return work(self, client, broadcast, remembered)

    def late(self, round, among, seed):
        among = range(self.clients) if among is None else among
        return tuple(client for client in among if client != 4 or round >= 3)

    monkeypatch.setattr(ClientSide, "work", failing)
    monkeypatch.setattr(Rounds, "draw", late)
    result = gcfl.run(out=tmp_path, **{**settings(method), "cohort": 1.0})
    left_out = [record.left_out for record in result.rounds]
    assert left_out == [
        {},
        {"1": "ValueError: disk on fire"},
        {"1": "ValueError: disk on fire"},
        {},
        {},
    ]
    if parse(method.partition("/")[0]).local.candidates is LocalRule.candidates:
        assert asked == [4, 4, 4, 5, 5]
    assert [record.cohort for record in result.rounds] == asked
    assert result.finished


@every_method
def test_an_empty_class(method, tmp_path):
    """Class 3 exists by name only; class 2 is at one client alone."""
    draw = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50, 50, 20])
    x = draw.normal(size=(120, 4)).astype(np.float32) + y[:, None]
    server = np.tile([0, 1, 2], 10)
    held = draw.normal(size=(30, 4)).astype(np.float32) + server[:, None]
    owners = tmp_path / "owners.txt"
    owners.write_text("\n".join(["a"] * 25 + ["b"] * 25 + ["a"] * 25 + ["b"] * 25 + ["c"] * 20))
    source = Source("shapes", x, y, (0, 1, 2, 3), validation=(held, server), test=(held, server))
    data = {"partition": "given", "owners": str(owners), "noise": 0.0, "min_size": 5}
    own = {
        "method": method.partition("/")[0],
        "cohort": 1.0,
        "rounds": 3,
        "coreset": {"every": 2, "budget": 0.3},
        "train": {"lr": 0.05},
    }
    if parse(method.partition("/")[0]).clean_only:
        data["noise"] = 0.1
    result = gcfl.run(
        data=source,
        model="logistic",
        out=tmp_path,
        **own,
        **_nested(data),
    )
    assert result.finished
    assert len(result.clients) == (1 if parse(method.partition("/")[0]).pooled else 3)
    assert all(
        np.isfinite(record.train_loss) for record in result.rounds if record.train_loss is not None
    )


def _nested(data: dict) -> dict:
    return {f"data.{name}": value for name, value in data.items()}


@every_method
def test_nobody_looks_at_what_is_not_his(method, tmp_path, monkeypatch):
    """The truth raises while a round is played, the server's samples while a client works."""
    ready = prepared(**{**settings(method), "rounds": 3})
    records = play_watched(ready, tmp_path / "run", monkeypatch)
    assert len(records) == 3
    assert not any(record.left_out for record in records), "a guard was passed inside a client"


def test_contradictions_are_named(tmp_path):
    for method in (
        "fedprox+scaffold",
        "fedavgm+fedadam",
        "gcfl+random",
        "server-only+gcfl",
        "local-only+scaffold",
    ):
        with pytest.raises(ConfigError, match="contradictory"):
            run(tmp_path, method=method)
