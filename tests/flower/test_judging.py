"""Labels judged in a Flower app that exists: the estimates and choices of our own engine, the loss
that goes by them, and what is told of them.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp import strategy as flowers
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from flower_grid import Here
from gcfl.base.data_types import Update
from gcfl.base.errors import ConfigError
from gcfl.engine.client import judge
from gcfl.flower import GCFL, coreset, corrected_loss, gcfl_mod
from gcfl.labels import label_posterior, pool_rates
from gcfl.methods import ClientView, Replies, ServerView
from helpers import prepared

NODES, SIZES, CLASSES = 4, (60, 45, 80, 52), 3
WRONG = (0.1, 0.4, 0.5, 0.2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def samples(client, n, wrong=0.0):
    """Three clouds, some labels wrong."""
    draw = np.random.default_rng([7, client])
    y = np.arange(n) % CLASSES
    x = draw.normal(size=(n, 4)) + 2 * np.eye(CLASSES, 4)[y]
    flipped = draw.permutation(n)[: round(wrong * n)]
    y[flipped] = (y[flipped] + 1) % CLASSES
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def first_arrays():
    """A model that knows the clouds a little."""
    torch.manual_seed(0)
    model, (x, y) = Net(), samples(99, 60)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(20):
        optimiser.zero_grad()
        cross_entropy(model(x), y).backward()
        optimiser.step()
    return ArrayRecord(model.state_dict())


def app(seen, mods=(gcfl_mod,), load=None):
    """One corrected step on the coreset; who saw and chose what is noted in `seen`."""
    made = ClientApp()

    @made.train(mods=list(mods))
    def train(message, context):
        client = int(context.node_config["partition-id"])
        model = Net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = load(client) if load else samples(client, SIZES[client], WRONG[client])
        chosen = coreset(model, TensorDataset(*data), context)
        criterion = corrected_loss(context)
        seen.append((client, message.content, chosen.indices, criterion))
        x, y = (part[chosen.indices] for part in data)
        criterion(model(x), y).backward()
        with torch.no_grad():
            for part in model.parameters():
                part -= 0.1 * part.grad
        records = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(chosen), "loss": 0.5}),
        }
        return Message(RecordDict(records), reply_to=message)

    return made


def nodes(made, folder=None):
    """Node ids as large as Flower draws them."""
    grid = Here(made, 0)
    for client in range(NODES):
        config = {"partition-id": client, **({"state": f"{folder}/{client}"} if folder else {})}
        node = 2**64 - 1 - 11 * client
        grid.contexts[node] = Context(1, node, config, RecordDict(), {})
    return grid


def wrapped(inner=None, **options):
    options = {"selector": "sift", "every": 2, "budget": 0.3, "seed": 5, **options}
    return GCFL(inner or flowers.FedAvg(), model=Net, validation=samples(99, 60), **options)


def play(strategy, grid, server_round, arrays):
    random.seed(server_round)
    messages = list(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
    return strategy.aggregate_train(server_round, grid.send_and_receive(messages))[0]


def by_client(seen, place):
    """What was noted in the last round."""
    return {entry[0]: entry[place] for entry in seen[-NODES:]}


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (None, {}),
        ({"pooling": False, "model": "full"}, {"redraw": False}),
        ({}, {"selector": "random", "pool": 2.0}),
    ],
    ids=str,
)
def test_choices_and_losses_are_those_of_our_own_parts(labels, options):
    """Over five rounds: server and clients played by hand with the engine's views."""
    selector = {"budget": 0.3, **{k: v for k, v in options.items() if k != "selector"}}
    settings = {"labels": labels or {}, "train": {"loss": "corrected"}, "seed": 5}
    ready = prepared(
        method=options.get("selector", "sift"),
        coreset={"every": 2, **selector},
        data={"source": "blobs", "samples": 300},
        model={"name": "logistic"},
        **settings,
    )
    method, network = ready.method, ready.setting.network
    seen, made = [], ClientApp()
    shards = [ready.federation.clients.shard(client) for client in range(5)]

    @made.train(mods=[gcfl_mod])
    def train(message, context):
        client = int(context.node_config["partition-id"])
        network.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = TensorDataset(network.prepare(shards[client].x), shards[client].y)
        chosen = coreset(network.module, data, context)
        seen.append((client, chosen.indices, corrected_loss(context)))
        # The model changes from round to round, and from client to client.
        moved = {
            name: tensor + 0.3 * torch.sin(tensor + client)
            for name, tensor in message.content["arrays"].to_torch_state_dict().items()
        }
        records = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(records), reply_to=message)

    grid = Here(made, 0)
    for client in range(5):
        context = Context(1, 100 + client, {"partition-id": client}, RecordDict(), {})
        grid.contexts[100 + client] = context
    clean = network.prepare(ready.federation.validation.x), ready.federation.validation.y
    strategy = GCFL(
        flowers.FedAvg(),
        model=network.module,
        validation=clean,
        seed=5,
        every=2,
        labels=labels,
        **{"selector": "sift", "budget": 0.3, **options},
    )
    arrays = ArrayRecord(network.module.state_dict())
    rates, memory = method.labels.server_init({}), {client: ({}, {}) for client in range(5)}
    logits = torch.randn(40, network.classes, generator=torch.Generator().manual_seed(1))
    given = torch.arange(40) % network.classes
    choices = []
    for server_round in range(1, 6):
        model = arrays.to_torch_state_dict()
        arrays = play(strategy, grid, server_round, arrays)
        found = {entry[0]: entry[1:] for entry in seen[-5:]}
        due = tuple(range(5)) if server_round % 2 else ()
        view = ServerView(
            ready.setting, server_round, model, ready.federation.validation, due, selecting=due
        )
        told = method.labels.announce(rates, view)
        sends = {}
        for client in range(5):
            mine = ClientView.of(ready.setting, server_round, client, model, shards[client])
            mine, estimate = judge(method, mine, told.get(client), memory[client][1])
            choice = method.select.select(mine, {} if due else None, memory[client][0])
            memory[client] = choice.memory, estimate.memory
            sends[client] = Update({}, {"labels": estimate.sends}, 1, {})
            assert found[client][0] == choice.coreset.indices.tolist()
            p = logits.double().softmax(1)
            seen_as = (p @ estimate.transition.double())[torch.arange(40), given]
            expected = -seen_as.log().mean()
            assert found[client][1](logits, given).item() == pytest.approx(
                float(expected), abs=1e-5
            )
        rates = method.labels.merge(rates, view, Replies(sends))
        choices.append([found[client][0] for client in range(5)])
    # Fresh draws in every round, or one that stays.
    assert (choices[0] == choices[1]) == (options.get("redraw") is False)


def test_rates_are_pooled_over_what_sites_told():
    """From the second selection on, every site is sent the mean and the weight of what all said."""
    seen = []
    grid, strategy = nodes(app(seen)), wrapped()
    arrays, sent = first_arrays(), {}
    for server_round in (1, 2, 3):
        model = Net()
        model.load_state_dict(arrays.to_torch_state_dict())
        grid.traffic.clear()
        arrays = play(strategy, grid, server_round, arrays)
        down = [content for _, content in grid.traffic if "metrics" not in content]
        sent[server_round] = [content.get("gcfl.labels") for content in down]
        if server_round == 1:
            with torch.no_grad():
                data = map(samples, range(NODES), SIZES, WRONG)
                rates = [label_posterior(model(x), y).rate for x, y in data]
    assert sent[1] == sent[2] == [None] * NODES
    expected = pool_rates(rates, list(SIZES))
    for record in sent[3]:
        assert record["pooled"].numpy() == pytest.approx(expected, rel=1e-4)
    assert np.std(rates) > 0.05


@pytest.mark.parametrize("pooling", [True, False])
def test_a_site_tells_its_rate_and_size_or_nothing(pooling):
    """No sample, no label, no index, no posterior, no matrix: every entry of every message."""
    grid, strategy = nodes(app([])), wrapped(labels={"pooling": pooling})
    arrays = first_arrays()
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    for server_round in (1, 2, 3):
        arrays = play(strategy, grid, server_round, arrays)
    told = {"labels.rate": float, "labels.size": int} if pooling else {}
    down = {"round": int, "seed": int, "select": bool}
    down |= {"selector": str, "options": str, "judge": str}
    for node, content in grid.traffic:
        extra = {"gcfl.labels"} & set(content)
        assert {name: tuple(one.shape) for name, one in content["arrays"].items()} == shapes
        facts = {name: type(value) for name, value in content["gcfl"].items()}
        if "metrics" in content:
            assert set(content) == {"arrays", "metrics", "gcfl"}
            assert facts == {"selected": int, **told}
            if pooling:
                assert content["gcfl"]["labels.size"] == SIZES[(2**64 - 1 - node) // 11]
        else:
            assert set(content) - extra == {"arrays", "config", "gcfl"}
            assert facts == down
            assert bool(extra) == (pooling and content["gcfl"]["round"] == 3)
        for name in extra:
            assert {key: tuple(one.shape) for key, one in content[name].items()} == {"pooled": (2,)}


def test_other_mods_and_strategies_see_what_they_would_without_us():
    clipping = flowers.DifferentialPrivacyClientSideFixedClipping(
        flowers.FedAvg(), 0.01, clipping_norm=1.0, num_sampled_clients=NODES
    )
    for inner, mods in ((flowers.FedAdam(eta=0.01), ()), (clipping, (fixedclipping_mod,))):
        seen = []
        grid, arrays = nodes(app(seen, (gcfl_mod, *mods))), first_arrays()
        strategy = wrapped(inner)
        for server_round in (1, 2, 3):
            arrays = play(strategy, grid, server_round, arrays)
        assert len(seen) == 3 * NODES
        for _, content, _, _ in seen:
            assert not {"gcfl", "gcfl.labels", "gcfl.target"} & set(content)
            assert len(content.array_records) == 1
    for context in grid.contexts.values():  # of ours only what a node remembers stays
        assert {name for name in context.state if "gcfl" in name} == {"gcfl-coreset"}


def test_the_loss_is_cross_entropy_until_there_is_an_estimate_and_after_it_was_lost(tmp_path):
    draw = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(9, CLASSES, generator=draw), torch.arange(9) % CLASSES
    plain = cross_entropy(logits, labels)
    for folder in (None, tmp_path):
        seen = []
        grid, strategy, arrays = nodes(app(seen), folder), wrapped(every=9), first_arrays()
        play(strategy, grid, 1, arrays)
        first = {client: loss(logits, labels) for client, loss in by_client(seen, 3).items()}
        assert abs(first[1] - plain) > 1e-2
        assert abs(first[2] - plain) > 1e-2
        for node, context in grid.contexts.items():  # the SuperNode starts again
            grid.contexts[node] = Context(1, node, context.node_config, RecordDict(), {})
        play(strategy, grid, 2, arrays)
        again = {client: loss(logits, labels) for client, loss in by_client(seen, 3).items()}
        assert again == (first if folder else dict.fromkeys(first, plain))
        told = [
            content["gcfl"] for _, content in grid.traffic[-2 * NODES :] if "metrics" in content
        ]
        assert all((facts["labels.size"] > 0) == bool(folder) for facts in told)
    for node, context in grid.contexts.items():  # another run begins
        grid.contexts[node] = Context(2, node, context.node_config, RecordDict(), {})
    strategy._selected = dict.fromkeys(grid.contexts, 2)
    play(strategy, grid, 3, arrays)
    assert all(loss(logits, labels) == plain for loss in by_client(seen, 3).values())


def test_the_loss_has_the_slope_of_its_formula():
    seen = []
    play(wrapped(), nodes(app(seen)), 1, first_arrays())
    logits = torch.randn(6, CLASSES, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(6) % CLASSES
    (loss,) = (entry[3] for entry in seen if entry[0] == 2)
    value = loss(logits, labels)
    (slope,) = torch.autograd.grad(value, logits)
    for place in ((0, 0), (3, 2), (5, 1)):
        step = torch.zeros_like(logits)
        step[place] = 1e-6
        rise = loss(logits.detach() + step, labels) - loss(logits.detach() - step, labels)
        assert float(rise) / 2e-6 == pytest.approx(float(slope[place]), abs=1e-6)


@pytest.mark.parametrize("lie", [1.5, float("nan"), -0.1, "all", None])
def test_a_node_that_tells_nonsense_is_not_pooled(lie, caplog):
    grid, strategy, arrays = nodes(app([])), wrapped(every=1), first_arrays()
    liar = max(grid.contexts)

    def spoil(message, reply):
        if reply.metadata.src_node_id == liar:
            facts = {name: v for name, v in reply.content["gcfl"].items() if name != "labels.rate"}
            said = {} if lie is None else {"labels.rate": lie}
            reply.content["gcfl"] = ConfigRecord({**facts, **said})
        return reply

    grid.meddle = spoil
    for server_round in (1, 2):
        arrays = play(strategy, grid, server_round, arrays)
    assert strategy._rates["sizes"].tolist() != []
    assert SIZES[0] not in strategy._rates["sizes"].tolist()
    assert sum("tells no rate" in line for line in caplog.messages) == 1


def test_bad_input_is_one_clear_sentence():
    cases = {
        "labels must be a table of settings, got True": {"labels": True},
        "model must be 'uniform', 'full' or 'auto', got 'half'": {"labels": {"model": "half"}},
        "unknown setting (labels.pool); did you mean coreset.pool": {"labels": {"pool": 1}},
        "labels.average cannot be had in an app of one's own": {"labels": {"average": 0.5}},
        "labels.guard cannot be had in an app of one's own": {"labels": {"guard": 10}},
    }
    for sentence, options in cases.items():
        with pytest.raises(ConfigError) as caught:
            wrapped(**options)
        assert sentence in str(caught.value)
    errors, made = [], ClientApp()

    def unjudged(message, context):
        with pytest.raises(ConfigError) as caught:
            corrected_loss(context)
        errors.append(str(caught.value))
        return Message(RecordDict(), reply_to=message)

    made.train(mods=[gcfl_mod])(unjudged)
    grid = nodes(made)
    strategy = wrapped(selector="random")
    grid.send_and_receive(strategy.configure_train(1, first_arrays(), ConfigRecord(), grid))
    assert len(errors) == NODES
    assert "GCFL(...) makes them with selector='sift', or with labels={}" in errors[0]
    with pytest.raises(ConfigError, match=r"corrected_loss\(\.\.\.\) needs gcfl_mod"):
        corrected_loss(Context(1, 1, {}, RecordDict(), {}))
