"""GCFL around Flower's strategies: what they see, who is asked to select and when, what travels,
and what is an error.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flowers
from flwr.supercore.privacy_accounting import PrivacySpent, SamplingMethod
from torch import nn
from torch.utils.data import TensorDataset

from flower_grid import Here
from gcfl.base.errors import ConfigError, DataError, GcflError, RunError
from gcfl.coreset import GradientMatching
from gcfl.flower import GCFL, coreset, gcfl_mod
from gcfl.methods import ClientView, ServerView, periodic
from helpers import prepared
from wrapped_app import (
    CLASSES,
    NODES,
    Net,
    asked,
    client,
    dp,
    first_arrays,
    play,
    samples,
    wrapped,
)


@pytest.fixture(autouse=True)
def draws():
    random.seed(0)  # Flower draws its nodes from here


def everything(model, data, context):
    return data


INSIDE = {
    "FedAvg": (lambda: wrapped(flowers.FedAvg()), ()),
    "FedAvgM": (lambda: wrapped(flowers.FedAvgM(server_momentum=0.5)), ()),
    "FedProx": (lambda: wrapped(flowers.FedProx(proximal_mu=0.1)), ()),
    "FedAdam": (lambda: wrapped(flowers.FedAdam(eta=0.01)), ()),
    "FedYogi": (lambda: wrapped(flowers.FedYogi(eta=0.01)), ()),
    "FedMedian": (lambda: wrapped(flowers.FedMedian()), ()),
    "FedTrimmedAvg": (lambda: wrapped(flowers.FedTrimmedAvg()), ()),
    "Krum": (lambda: wrapped(flowers.Krum(num_malicious_nodes=1)), ()),
    "MultiKrum": (
        lambda: wrapped(flowers.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=2)),
        (),
    ),
    "DP server": (lambda: wrapped(dp("ServerSideFixed", flowers.FedAvg(), clipping_norm=1.0)), ()),
    "DP client": (
        lambda: wrapped(dp("ClientSideFixed", flowers.FedAvg(), clipping_norm=1.0)),
        (fixedclipping_mod,),
    ),
    "DP adaptive": (
        lambda: wrapped(dp("ClientSideAdaptive", flowers.FedAvg())),
        (adaptiveclipping_mod,),
    ),
    "DP of Krum": (
        lambda: wrapped(
            dp("ServerSideFixed", flowers.Krum(num_malicious_nodes=1), clipping_norm=1.0)
        ),
        (),
    ),
    "DP around GCFL": (
        lambda: dp("ClientSideFixed", wrapped(flowers.FedAdam(eta=0.01)), clipping_norm=1.0),
        (fixedclipping_mod,),
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_every_strategy_inside_aggregates(name):
    make, mods = INSIDE[name]
    seen = []
    grid, first = Here(client(seen, [gcfl_mod, *mods]), NODES), first_arrays()
    result = make().start(grid=grid, initial_arrays=first, num_rounds=3)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3]
    assert len(seen) == 3 * NODES
    assert all(len(chosen) == 8 for _, _, chosen in seen)
    assert result.arrays.keys() == first.keys()
    for key, array in result.arrays.items():
        assert np.isfinite(array.numpy()).all()
        assert not np.array_equal(array.numpy(), first[key].numpy()), key
    # once each in three rounds, so every acknowledgement was heard
    assert asked(grid) == sorted(grid.contexts)


class Counting:
    """A privacy accountant that only counts."""

    class config:  # noqa: N801
        sampling_method = SamplingMethod.NO_AMPLIFICATION
        max_epsilon, population_size = None, NODES

    def __init__(self):
        self.releases = 0

    def compose(self, event, count=1):
        self.releases += count

    def get_privacy_spent(self, delta=None):
        return PrivacySpent(
            epsilon=0.0, delta=0.1, num_releases=self.releases, accounting_method="none"
        )


def test_the_privacy_accountant_counts_inside_and_refuses_us_inside_it():
    counting = Counting()
    inner = dp("ServerSideFixed", flowers.FedAvg(), clipping_norm=1.0, accountant=counting)
    wrapped(inner).start(grid=Here(client([]), NODES), initial_arrays=first_arrays(), num_rounds=3)
    assert counting.releases == 3
    with pytest.raises(ValueError, match="requires a strategy using FedAvg"):
        dp("ServerSideFixed", wrapped(), clipping_norm=1.0, accountant=Counting())


class Spy(flowers.FedAvg):
    """Notes what it makes and what it is given."""

    def __init__(self):
        super().__init__()
        self.made, self.given = [], []

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        self.made += [message.content for message in messages]
        return messages

    def aggregate_train(self, server_round, replies):
        self.given += [
            (reply.metadata.src_node_id, RecordDict(dict(reply.content))) for reply in replies
        ]
        return super().aggregate_train(server_round, replies)


def test_the_strategy_inside_and_the_app_see_what_they_would_without_gcfl():
    views = []
    for around, mods in ((lambda inner: inner, []), (wrapped, [gcfl_mod])):
        spy, seen = Spy(), []
        random.seed(0)
        arrays = play(around(spy), Here(client(seen, mods, everything), NODES), 1, first_arrays())
        assert all(set(content) == {"arrays", "config"} for content in spy.made)
        # Flower's own shared records: ours were added to copies
        assert len({id(content) for content in spy.made}) == 1
        views.append((spy.given, [(node, content) for node, content, _ in seen], arrays))
    assert views[0] == views[1]


def test_who_is_due():
    seen = []
    grid, strategy = Here(client(seen), NODES), wrapped(every=3)
    nodes, late = sorted(grid.contexts), 9000
    late_context = Context(1, late, {}, RecordDict(), {})
    lost = nodes[1]
    arrays = first_arrays()
    told = {}
    for server_round in range(1, 8):
        grid.meddle = lambda message, reply, now=server_round: (
            None if (now, message.metadata.dst_node_id) == (1, lost) else reply
        )
        if server_round == 3:
            grid.contexts[late] = late_context
        arrays = play(strategy, grid, server_round, arrays)
        told[server_round] = asked(grid)
    others = [node for node in nodes if node != lost]
    assert told == {1: nodes, 2: [lost], 3: [late], 4: others, 5: [lost], 6: [late], 7: others}
    play(strategy, grid, 1, arrays)  # a second start() with the same strategy: rounds begin again
    assert asked(grid) == sorted(grid.contexts)
    by_node = {}
    for node, _, chosen in seen:
        by_node.setdefault(node, []).append(chosen.indices)
    # Between two selections the choice stays; a new one is made with another model.
    assert by_node[others[0]][0] == by_node[others[0]][1] == by_node[others[0]][2]
    assert all(len(set(choice)) == 8 for choices in by_node.values() for choice in choices)


def test_a_node_that_lost_its_memory_draws_at_random_and_is_asked_again(caplog):
    seen = []
    grid, strategy = Here(client(seen), NODES), wrapped(every=5)
    node = sorted(grid.contexts)[2]
    arrays = play(strategy, grid, 1, first_arrays())
    grid.contexts[node].state = RecordDict()
    asked(grid)
    arrays = play(strategy, grid, 2, arrays)
    assert asked(grid) == []
    before, after = (chosen.indices for who, _, chosen in seen if who == node)
    assert len(after) == 8 == len(set(after))
    assert sorted(before) != sorted(after)
    assert f"node {node} had no coreset and trained on a random one" in caplog.text
    play(strategy, grid, 3, arrays)
    assert asked(grid) == [node]


def test_a_folder_keeps_the_coreset_through_a_restart_but_not_for_another_run(tmp_path):
    seen = []
    grid, strategy = Here(client(seen), NODES), wrapped(every=9)
    for node in grid.contexts:
        grid.contexts[node] = Context(
            1, node, {"state": str(tmp_path / str(node))}, RecordDict(), {}
        )
    arrays = play(strategy, grid, 1, first_arrays())
    for node, context in grid.contexts.items():
        grid.contexts[node] = Context(context.run_id, node, context.node_config, RecordDict(), {})
    play(strategy, grid, 2, arrays)
    first, again = (
        {node: chosen.indices for node, _, chosen in part} for part in (seen[:NODES], seen[NODES:])
    )
    assert first == again
    for node, context in grid.contexts.items():
        grid.contexts[node] = Context(2, node, context.node_config, RecordDict(), {})
    play(strategy, grid, 3, arrays)
    other = {node: chosen.indices for node, _, chosen in seen[2 * NODES :]}
    assert all(sorted(first[node]) != sorted(other[node]) for node in first)


def test_only_the_gradient_goes_down_and_only_a_round_comes_up():
    grid, strategy = Here(client([]), NODES), wrapped(every=2)
    arrays = first_arrays()
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    for server_round in (1, 2, 3):
        arrays = play(strategy, grid, server_round, arrays)
    names = {"arrays", "config", "metrics", "gcfl", "gcfl.target"}
    for _, content in grid.traffic:
        assert set(content) <= names
        assert {name: tuple(array.shape) for name, array in content["arrays"].items()} == shapes
        if "gcfl.target" in content:
            assert {name: tuple(array.shape) for name, array in content["gcfl.target"].items()} == {
                "target": (CLASSES, 9)
            }
        if "metrics" in content:  # an answer
            assert dict(content["gcfl"]).keys() == {"selected"}
            assert content["gcfl"]["selected"] in (1, 3)
            assert "gcfl.target" not in content
        else:
            assert set(content["gcfl"]) == {
                "round",
                "seed",
                "selector",
                "options",
                "select",
            }
        assert not any(isinstance(value, list | bytes) for value in content["gcfl"].values())


@pytest.mark.parametrize("score", ["correlation", "distance", "nearest"])
@pytest.mark.parametrize("absent", [False, True])
def test_the_coreset_is_the_one_that_our_engine_picks(score, absent):
    ready = prepared(method="gcfl", data={"alpha": 0.3})
    network, clients, validation = (
        ready.setting.network,
        ready.federation.clients,
        ready.federation.validation,
    )
    if absent:
        kept = torch.nonzero(validation.y != 3)[:, 0]
        validation = type(validation)(
            validation.x[kept], validation.y[kept], validation.ids[kept.numpy()]
        )
    selector = periodic(GradientMatching)(score=score, budget=0.2)
    model = network.tree()
    target = selector.target(ServerView(ready.setting, 1, model, validation, ()))
    found = {}
    app = ClientApp()

    @app.train(mods=[gcfl_mod])
    def train(message, context):
        shard = clients.shard(context.node_config["partition-id"])
        network.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        found[context.node_config["partition-id"]] = coreset(
            network.module, TensorDataset(network.prepare(shard.x), shard.y), context
        )
        return Message(RecordDict(), reply_to=message)

    grid = Here(app, len(clients))
    for number, node in enumerate(grid.contexts):
        grid.contexts[node] = Context(1, node, {"partition-id": number}, RecordDict(), {})
    arrays = ArrayRecord(network.module.state_dict())
    clean = (network.prepare(validation.x), validation.y)
    options = {"score": score, "budget": 0.2, "seed": ready.setting.seed, "allow_single": True}
    strategy = GCFL(flowers.FedAvg(), model=network.module, validation=clean, **options)
    replies = grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    assert not [reply.error for reply in replies if reply.has_error()]
    for number in range(len(clients)):
        view = ClientView.of(ready.setting, 1, number, model, clients.shard(number))
        expected = selector.select(view, target, {}).coreset
        assert found[number].indices == expected.indices.tolist()
        torch.testing.assert_close(
            found[number].weights, torch.from_numpy(expected.weights), atol=1e-5, rtol=1e-4
        )


def test_a_round_without_a_valid_answer_is_an_error(caplog):
    grid, strategy = Here(client([]), NODES), wrapped()
    arrays = first_arrays()
    bad = sorted(grid.contexts)[0]

    def from_the_superlink(message, reply):
        if message.metadata.dst_node_id != bad:
            return reply
        error = Message(Error(4, "the node is gone"), reply_to=message)
        error.metadata.__dict__["_src_node_id"] = 1
        return error

    grid.meddle = from_the_superlink
    assert play(strategy, grid, 1, arrays) is not None
    assert f"round 1: node {bad} failed: the node is gone" in caplog.text
    grid.meddle = lambda *_: None
    with pytest.raises(
        RunError, match=r"round 2: none of 5 nodes gave a valid answer; node \d+: no answer$"
    ):
        play(strategy, grid, 2, arrays)
    wrong_order = Here(client([], [fixedclipping_mod, gcfl_mod]), NODES)
    strategy = wrapped(dp("ClientSideFixed", flowers.FedAvg(), clipping_norm=1.0))
    with pytest.raises(
        RunError, match=r"none of 5 nodes .* \(gcfl_mod must be the first of the mods\)"
    ):
        strategy.start(grid=wrong_order, initial_arrays=arrays, num_rounds=2)


def test_an_app_without_the_mod_or_the_call_is_told_of(caplog):
    strategy = wrapped()
    grid = Here(client([], [], everything), NODES)
    play(strategy, grid, 1, first_arrays())
    assert sum("answers without gcfl_mod" in line for line in caplog.messages) == NODES
    play(strategy, grid, 2, first_arrays())
    assert sum("answers without gcfl_mod" in line for line in caplog.messages) == NODES  # once each
    play(wrapped(), Here(client([], [gcfl_mod], everything), NODES), 1, first_arrays())
    assert sum("does not call gcfl.flower.coreset" in line for line in caplog.messages) == NODES


def test_arrays_may_be_numbered_and_must_fit():
    ordered = ArrayRecord(first_arrays().to_numpy_ndarrays())
    grid = Here(client([]), NODES)

    def target(arrays):
        return (
            wrapped()
            .configure_train(1, arrays, ConfigRecord(), grid)[0]
            .content["gcfl.target"]["target"]
            .numpy()
        )

    np.testing.assert_array_equal(target(ordered), target(first_arrays()))
    with pytest.raises(
        ConfigError, match=r"not the one that the strategy trains: they differ in 'head\.weight'"
    ):
        target(ArrayRecord(Net(classes=7).state_dict()))
    broken = ArrayRecord(
        {
            key: torch.full_like(value, torch.nan)
            for key, value in first_arrays().to_torch_state_dict().items()
        }
    )
    with pytest.raises(RunError, match="round 1: the clean set's gradient has NaN"):
        target(broken)


class Softmax(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget": 1.5}, r"budget must be in \(0, 1\], got 1.5"),
        ({"budget": "all"}, "budget must be a number, got 'all'"),
        ({"every": 0}, "every must be at least 1, got 0"),
        (
            {"score": "closest"},
            "score must be 'correlation', 'cosine', 'distance' or 'nearest', got 'closest'",
        ),
        ({"seed": -1}, "seed must be"),
        ({"model": nn.Flatten}, "the model has no parameter to train"),
        ({"model": Softmax}, "the model does not end in a Linear layer"),
        (
            {"model": lambda: 3},
            "model must be a torch module or a function that makes one, got int",
        ),
        ({"model": nn.Linear(7, 4)}, "the model cannot take samples of shape"),
        (
            {"validation": (torch.empty(0, 6), torch.empty(0, dtype=torch.int64))},
            "the arrays are empty",
        ),
        ({"validation": TensorDataset(torch.empty(0, 6), torch.empty(0))}, "the dataset is empty"),
        ({"validation": (samples(0)[0], samples(0)[1][:3])}, "there are 40 samples and 3 labels"),
        (
            {"validation": (samples(0)[0], samples(0)[1] + 2)},
            "the clean set's labels must be in 0 .. 3, .* got 4, 5",
        ),
        (
            {"validation": (samples(0)[0], samples(0)[1] / 3)},
            r"labels must be class numbers \(n,\), got torch.float32",
        ),
        (
            {"validation": samples(0, 4)},
            "a single sample of class 0, 1, 2, 3, and its gradient would reveal",
        ),
        (
            {"inner": "FedAvg"},
            "strategy must be one of flwr.serverapp.strategy, as FedAvg.. is, got str",
        ),
    ],
)
def test_bad_input_is_one_clear_sentence(options, sentence):
    with pytest.raises(GcflError, match=sentence) as caught:
        wrapped(**options)
    assert isinstance(caught.value, GcflError)
    assert "\n" not in str(caught.value)


def test_few_clean_samples_and_a_start_that_is_not_used_are_told_of(caplog):
    wrapped(validation=samples(0, 4), allow_single=True)
    assert "fewer than 5 samples of class 0, 1, 2, 3" in caplog.text

    class Own(flowers.FedAvg):
        def start(self, *arguments, **options):
            return super().start(*arguments, **options)

    wrapped(Own())
    assert "Own has a start() of its own" in caplog.text
    with pytest.raises(DataError):
        wrapped(validation=samples(0, 4))


def test_making_the_strategy_leaves_models_and_generators_alone():
    arrays, model = first_arrays(), Net()
    before, state = (
        {key: value.clone() for key, value in model.state_dict().items()},
        torch.get_rng_state(),
    )
    wrapped(model=model).configure_train(1, arrays, ConfigRecord(), Here(client([]), NODES))
    wrapped(model=Net)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
