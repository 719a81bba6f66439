"""The coreset for one's own training loop: kinds of data, what is left alone, and what is
an error.
"""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from gcfl.base.errors import ConfigError, DataError, GcflError, ModelError
from gcfl.flower import coreset, gcfl_mod

N, CLASSES = 30, 3


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def tensors():
    draw = torch.Generator().manual_seed(2)
    return torch.randn(N, 1, 2, 2, generator=draw), torch.arange(N) % CLASSES


class Dictionaries(Dataset):
    """Samples as {"img": ..., "label": ...}."""

    def __init__(self, *more):
        self.x, self.y = tensors()
        self.more = more

    def __len__(self):
        return len(self.y)

    def __getitem__(self, place):
        return {"img": self.x[place], "label": int(self.y[place]), **dict.fromkeys(self.more, 0)}


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


FACTS = {
    "round": 1,
    "seed": 0,
    "selector": "gcfl",
    "options": json.dumps({"budget": 0.2, "score": "distance"}),
}


def called(work, target=True, facts=FACTS, context=None):
    """`work(context)` as the mod calls an app, with a message as the server sends it; (what it
    gave, the answer's records).
    """
    found = []
    content = RecordDict({"arrays": ArrayRecord({"w": Array(torch.zeros(1).numpy())})})
    if facts:
        content["gcfl"] = ConfigRecord({**facts, "select": target})
    if target:
        draw = torch.Generator().manual_seed(3)
        goal = -torch.rand(CLASSES, 6, generator=draw)
        content["gcfl.target"] = ArrayRecord({"target": Array(goal.numpy())})
    context = context or Context(1, 7, {}, RecordDict(), {})

    def app(message, context):
        assert set(message.content) == {"arrays"}
        found.append(work(context))
        return Message(RecordDict(), reply_to=message)

    reply = gcfl_mod(Message(content, dst_node_id=7, message_type="train"), context, app)
    assert not {"gcfl", "gcfl.target"} & set(context.state)
    return found[0], reply.content


def plain():
    return TensorDataset(*tensors())


def test_every_kind_of_data_gives_the_same_choice():
    expected = called(lambda context: coreset(model(), plain(), context))[0].indices
    assert len(expected) == 6
    kinds = [
        Dictionaries(),
        Dictionaries("id"),
        DataLoader(plain(), batch_size=4),
        DataLoader(Dictionaries(), batch_size=4, shuffle=True),
    ]
    for data in kinds:
        found = called(lambda context, data=data: coreset(model(), data, context))[0]
        assert (found.dataset if isinstance(found, DataLoader) else found).indices == expected
    swapped = TensorDataset(*tensors()[::-1])
    found = called(
        lambda context: coreset(model(), swapped, context, read=lambda batch: (batch[1], batch[0]))
    )[0]
    assert found.indices == expected


def test_a_hugging_face_dataset():
    datasets = pytest.importorskip(
        "datasets", reason="datasets is not installed: pip install 'gcfl[huggingface]'"
    )
    x, y = tensors()
    table = datasets.Dataset.from_dict({"pixels": x.flatten(1).tolist(), "label": y.tolist()})

    def transform(batch):
        batch["pixels"] = [torch.tensor(row).view(1, 2, 2) for row in batch["pixels"]]
        return batch

    loader = DataLoader(table.with_transform(transform), batch_size=8, shuffle=True)
    expected = called(lambda context: coreset(model(), plain(), context))[0].indices
    found = called(lambda context: coreset(model(), loader, context))[0]
    assert found.dataset.indices == expected
    assert sum(len(batch["label"]) for batch in found) == 6


def test_a_loader_comes_back_like_it_went_in():
    def collate(rows):
        return torch.stack([x for x, _ in rows]), torch.tensor([int(y) for _, y in rows])

    data = DataLoader(plain(), batch_size=4, shuffle=True, drop_last=True, collate_fn=collate)
    found = called(lambda context: coreset(model(), data, context))[0]
    assert (found.batch_size, found.collate_fn, found.drop_last) == (4, collate, True)
    assert isinstance(found.sampler, RandomSampler)
    assert [len(y) for _, y in found] == [4]
    small = called(lambda context: coreset(model(), data, context, budget=0.1))[0]
    assert [len(y) for _, y in small] == [3]  # fewer than a batch: not dropped
    in_order = called(lambda context: coreset(model(), DataLoader(plain()), context))[0]
    assert isinstance(in_order.sampler, SequentialSampler)


def test_weights_come_with_it_and_the_answer_tells_the_round():
    found, answer = called(lambda context: coreset(model(), plain(), context))
    assert found.weights.shape == (6,)
    assert (found.weights >= 0).all()
    assert found.weights.max() > 0
    assert dict(answer["gcfl"]) == {"selected": 1}
    labels = [int(y) for _, y in found]
    assert sorted(labels) == [0, 0, 1, 1, 2, 2]  # the label-wise budget


def test_the_model_and_the_generators_are_left_alone():
    class Noisy(TensorDataset):
        def __getitem__(self, place):
            x, y = super().__getitem__(place)
            return x + torch.randn(x.shape), y

    net = nn.Sequential(
        nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, CLASSES)
    )
    before, state = (
        {name: value.clone() for name, value in net.state_dict().items()},
        torch.get_rng_state(),
    )
    choices = [
        called(lambda context: coreset(net, Noisy(*tensors()), context))[0].indices
        for _ in range(2)
    ]
    assert choices[0] == choices[1]
    assert torch.equal(state, torch.get_rng_state())
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(part.grad is None for part in net.parameters())


def test_token_numbers_are_inputs_too():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(50, 5), nn.Linear(5, CLASSES)

        def forward(self, tokens):
            return self.head(self.words(tokens).mean(1))

    texts = TensorDataset(torch.arange(N * 4).view(N, 4) % 50, tensors()[1])
    assert len(called(lambda context: coreset(Text(), texts, context))[0]) == 6


def test_between_selections_the_choice_stays_unless_the_samples_changed():
    context = Context(1, 7, {}, RecordDict(), {})
    first = called(lambda c: coreset(model(), plain(), c), context=context)[0].indices
    later, answer = called(
        lambda c: coreset(model(), plain(), c),
        target=False,
        facts={**FACTS, "round": 4},
        context=context,
    )
    assert later.indices == first
    assert dict(answer["gcfl"]) == {"selected": 1}
    x, y = tensors()
    fewer = TensorDataset(x[:20], y[:20])
    drawn, answer = called(
        lambda c: coreset(model(), fewer, c),
        target=False,
        facts={**FACTS, "round": 5},
        context=context,
    )
    assert len(drawn) == 4
    assert max(drawn.indices) < 20
    assert dict(answer["gcfl"]) == {"selected": -1}


def test_a_failing_app_leaves_no_trace_and_other_messages_pass():
    context = Context(1, 7, {}, RecordDict(), {})
    with pytest.raises(ZeroDivisionError):
        called(lambda _: 1 // 0, context=context)
    assert not context.state
    query = Message(
        RecordDict({"gcfl": ConfigRecord({"mine": 1})}), dst_node_id=7, message_type="query"
    )
    assert gcfl_mod(query, context, lambda message, _: message) is query
    assert set(query.content) == {"gcfl"}


def test_a_missing_half_is_named():
    with pytest.raises(
        ConfigError, match="needs gcfl_mod, first in the mods of the train function"
    ):
        coreset(model(), plain(), Context(1, 7, {}, RecordDict(), {}))
    with pytest.raises(ConfigError, match="the server's strategy is not wrapped in GCFL"):
        called(lambda context: coreset(model(), plain(), context), facts=None, target=False)
    # An app with the mod but without GCFL at the server answers as it would without the mod.
    assert set(called(lambda _: None, facts=None, target=False)[1]) == set()


def relabelled(labels):
    return TensorDataset(tensors()[0], labels)


@pytest.mark.parametrize(
    ("net", "data", "options", "error", "sentence"),
    [
        (model, plain, {"budget": 0.0}, ConfigError, r"budget must be in \(0, 1\], got 0.0"),
        (model, plain, {"budget": "much"}, ConfigError, "budget must be a number, got 'much'"),
        (model, Stream, {}, ConfigError, "a dataset with a length and positions, got Stream"),
        (model, list, {}, ConfigError, "the dataset is empty"),
        (
            model,
            lambda: DataLoader(plain(), sampler=WeightedRandomSampler([1.0] * N, N)),
            {},
            ConfigError,
            "a sampler of its own",
        ),
        (
            model,
            lambda: TensorDataset(tensors()[0]),
            {},
            ConfigError,
            r"pass read=, as batch -> \(x, y\)",
        ),
        (
            model,
            lambda: [{"a": 0.0, "b": 1.0, "label": 1}] * 9,
            {},
            ConfigError,
            r"which entries of a batch \(a, b, label\)",
        ),
        (
            model,
            lambda: relabelled(tensors()[1] + 1),
            {},
            DataError,
            "this client's labels must be in 0 .. 2, .* got 3",
        ),
        (
            model,
            lambda: relabelled(tensors()[1] - 1),
            {},
            DataError,
            "this client's labels must be in 0 .. 2, .* got -1",
        ),
        (
            model,
            lambda: relabelled(tensors()[1] / 2),
            {},
            DataError,
            r"labels must be class numbers \(n,\), got torch.float32",
        ),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 7)),
            plain,
            {},
            ModelError,
            "gives 7 outputs .* 3 classes",
        ),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
            plain,
            {},
            ConfigError,
            "6 numbers per class at the server, 5 at this client",
        ),
        (
            lambda: nn.Sequential(model(), nn.Softmax(1)),
            plain,
            {},
            ModelError,
            "does not end in a Linear layer",
        ),
    ],
)
def test_bad_input_is_one_clear_sentence(net, data, options, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        called(lambda context: coreset(net(), data(), context, **options))
    assert isinstance(caught.value, GcflError)
    assert "\n" not in str(caught.value)
