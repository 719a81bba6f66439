"""Texts and token ids, from Python: whole numbers stay whole, and a text classifier learns."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from torch import nn

import gcfl
from gcfl.api.inputs import take_data
from gcfl.api.running import brought
from gcfl.base.layout import hashed
from gcfl.models.tokens import vocabulary
from helpers import same_bits

WORDS = {
    "kitchen": "oven flour butter spoon recipe salt onion bake dough pepper",
    "music": "violin chord melody rhythm piano concert drum choir tune guitar",
    "sea": "ship wave harbour sail tide captain anchor storm fish island",
    "": "the a of and was it in to one very then with there that",
}
TOPICS = ("kitchen", "music", "sea")
PLACE = {word: place for place, word in enumerate(" ".join(WORDS.values()).split())}


def sentences(n, seed):
    """Half of the words of a sentence are of its topic."""
    draw = np.random.default_rng(seed)
    y = [TOPICS[place % 3] for place in range(n)]
    kinds = [[topic if draw.random() < 0.5 else "" for _ in range(8)] for topic in y]
    return [" ".join(draw.choice(WORDS[kind].split()) for kind in row) for row in kinds], y


def numbered(pair):
    """Token ids of one's own: whole numbers (n, 8)."""
    texts, y = pair
    return np.array([[PLACE[word] for word in text.split()] for text in texts]), y


class Bag(nn.Module):
    """What a user writes first."""

    def __init__(self, ids=8192):
        super().__init__()
        self.words = nn.EmbeddingBag(ids, 16, mode="mean", padding_idx=0)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.words(x))


class Mean(Bag):
    """The same by an Embedding."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)

    def forward(self, x):
        return self.out(self.words(x).mean(dim=1))


def run(tmp_path, method="robust", model="text", data=None, **settings):
    sets = {"validation": sentences(45, 1), "test": sentences(90, 2), **settings}
    given = {"source": sentences(240, 0) if data is None else data, "length": 8, "min_size": 5}
    rest = {"rounds": 5, "clients": 4, "noise": 0.3, "out": tmp_path}
    return gcfl.run(method, given, model, **{**rest, **sets})


def test_words_are_hashed_as_documented():
    ids = hashed(["The ship, the SHIP!", "", "ünï 2x one two three four five"], 6)
    assert ids.shape == (3, 6)
    said = ["the ship , the ship !", "", "ünï 2x one two three four"]
    for row, text in zip(ids, said, strict=True):
        wanted = [1 + zlib.crc32(word.encode()) % 8191 for word in text.split()]
        assert row.tolist() == wanted + [0] * (6 - len(wanted))
    assert ids.max() < 8192


@pytest.mark.parametrize(("method", "least"), [("robust", 0.8), ("fedavg", 0.55), ("gcfl", 0.45)])
@pytest.mark.parametrize("model", [{"name": "text", "hidden": [16]}, Bag, Mean])
def test_a_text_classifier_learns_where_30_percent_of_the_labels_are_wrong(
    tmp_path, method, least, model
):
    made = numbered if model is Mean else tuple
    data, clean, test = (made(sentences(n, seed)) for seed, n in enumerate((240, 45, 90)))
    rounds = 5 if method == "robust" else 8  # robust has learnt by then, at a higher price
    sets = {"validation": clean, "test": test, "train": {"lr": 0.3}, "rounds": rounds}
    result = run(tmp_path, method, model, data, **sets)
    assert result.accuracy > least  # guessing gives 0.33
    assert np.mean(result.predict(test[0]) == np.array(test[1])) == result.accuracy
    assert result.model.network.normaliser is None


def test_the_same_bits_with_workers_after_a_stop_and_by_calling_again(tmp_path):
    model = {"name": "text", "hidden": [8]}
    whole = run(tmp_path / "one", model=model, rounds=3)
    two = run(tmp_path / "two", model=model, rounds=3, workers=2)
    same_bits(whole.folder, two.folder)

    def stop(record):
        if record.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "three", model=model, rounds=3, on_round=stop)
    again = run(tmp_path / "three", model=model, rounds=3)
    same_bits(whole.folder, again.folder)
    sites = gcfl.audit(again).sites
    assert len(sites) == 4
    loaded = gcfl.load(again.folder)
    texts = sentences(20, 5)[0]
    assert np.array_equal(loaded.predict(texts), whole.predict(texts))
    assert np.array_equal(loaded.predict(hashed(texts, 8)), loaded.predict(texts))


def test_the_vectorised_engine_agrees_or_refuses(tmp_path):
    model = {"name": "text", "hidden": [8]}
    loop = run(tmp_path, "fedavg", model, rounds=2)
    many = run(tmp_path, "fedavg", model, rounds=2, engine={"vectorised": True})
    for name, tensor in loop.model.tree.items():
        torch.testing.assert_close(many.model.tree[name], tensor, atol=1e-5, rtol=1e-5)
    with pytest.raises(gcfl.GcflError, match=r"engine\.vectorised cannot train this model"):
        run(tmp_path, "fedavg", Bag, rounds=2, engine={"vectorised": True})


def test_texts_client_by_client_and_as_a_dataset(tmp_path):
    x, y = sentences(120, 0)

    class Texts(torch.utils.data.Dataset):
        classes = TOPICS

        def __len__(self):
            return 60

        def __getitem__(self, place):
            return x[place], self.classes.index(y[place])

    data = {"north": Texts(), "south": (np.array(x[60:]), y[60:])}
    source = take_data({}, {"source": data, "length": 8}, None, None, None)
    assert np.array_equal(source.x, hashed(x, 8))
    assert [source.classes[label] for label in source.y] == y


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "mlp"}, "texts need a model that begins with an embedding, and mlp has none"),
        (
            {"model": lambda: Bag(40)},
            r"has the token id \d+, but the model's embedding has only 40",
        ),
        ({"train": {"mixup": 1.0}}, "train.mixup is not for token ids"),
        ({"method": "fedlsr"}, "fedlsr, which trains on two views of a sample, is not for"),
        ({"model": Bag, "data": (np.full((60, 4), 0.5), [0, 1, 2] * 20)}, "cannot take samples"),
        ({"data": (["one", None, "two"] * 20, [0, 1, 2] * 20)}, "the text in row 1 is missing"),
        ({"data": ([1, "one", "two"] * 20, [0, 1, 2] * 20)}, "must hold numbers, or texts alone"),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(tmp_path, settings, message):
    if "data" in settings:
        settings = {**settings, "validation": 10, "test": 10}
    with pytest.raises(gcfl.GcflError, match=message):
        run(tmp_path, **settings)


def test_ids_that_are_none_get_a_sentence(tmp_path):
    x, y = np.random.default_rng(0).integers(0, 50, (90, 6)), np.arange(90) % 3
    x[0, 0] = -1
    with pytest.raises(gcfl.GcflError, match=r"x.* has -1 among its token ids"):
        run(tmp_path, "fedavg", Mean, (x, y), validation=20, test=20)
    result = run(tmp_path, "fedavg", Mean, (abs(x), y), validation=20, test=20, rounds=1)
    wrongs = ((abs(x) + 50, "token id 99, but"), (x + 0.5, "0.5 among"), (["a b"], "texts"))
    for wrong, message in wrongs:
        with pytest.raises(gcfl.GcflError, match=message):
            result.predict(wrong)
    noisy = {"source": (abs(x), y), "min_size": 5, "noise_kind": "attribute", "noise": 0.2}
    with pytest.raises(gcfl.GcflError, match="attribute noise is not for token ids"):
        gcfl.run("fedavg", noisy, Mean, clients=4, out=tmp_path)


def test_which_models_take_tokens():
    ids = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert vocabulary(Mean(), ids) == 50
    assert vocabulary(Mean(), ids + 0.5) is None
    assert vocabulary(nn.Linear(2, 3), ids) is None

    class Place(nn.Module):
        """An embedding of places: the numbers themselves go elsewhere."""

        def __init__(self):
            super().__init__()
            self.place, self.out = nn.Embedding(2, 4), nn.Linear(2, 4)

        def forward(self, x):
            return self.out(x.float()) + self.place(torch.arange(2)).sum(0)

    assert vocabulary(Place(), ids) is None


def test_tokens_can_be_said(tmp_path):
    """Ids for a model that turns them into something itself, and numbers that are no ids."""

    class OneHot(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(50, 3)

        def forward(self, x):
            return self.out(nn.functional.one_hot(x, 50).float().mean(dim=1))

    x, y = np.random.default_rng(0).integers(0, 50, (90, 6)), np.arange(90) % 3
    given = {"source": (x, y), "min_size": 5}
    rest = {"clients": 4, "rounds": 1, "out": tmp_path}
    with pytest.raises(gcfl.GcflError, match="the model cannot take samples"):
        gcfl.run("fedavg", given, OneHot, **rest)
    result = gcfl.run("fedavg", {**given, "tokens": True}, OneHot, **rest)
    assert len(gcfl.load(result.folder, OneHot).predict(x)) == 90


def test_a_file_may_say_how_samples_are_read(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[data]\nlength = 5\nchannels = "last"\nclients = 4\n')
    x, y = sentences(30, 0)
    found = take_data({}, (x, y), None, None, None, file=file)
    assert np.array_equal(found.x, hashed(x, 5))
    both = take_data({}, {"source": (x, y), "length": 7}, None, None, None, file=file)
    assert both.x.shape == (30, 7)  # what the call says wins
    images = np.zeros((30, 3, 3, 3), dtype=np.uint8)  # ends that could both be channels
    assert take_data({}, (images, y), None, None, None, file=file).layout.channels == "last"


def test_whole_numbers_that_float32_rounds_are_told(caplog):
    exact = np.array([[2**24, 5], [2**30, 6]])
    take_data({}, (exact, [0, 1]), None, None, None)
    assert caplog.text == ""
    take_data({}, (np.array([[1, 5], [2**24 + 1, 6], [2**62 + 1, 1]]), [0, 1, 1]), None, None, None)
    assert "x of data has 2 whole numbers that float32 rounds, first in row 1" in caplog.text


def test_the_column_of_texts_is_a_keyword(tmp_path):
    pandas = pytest.importorskip("pandas")
    texts, y = sentences(90, 3)
    frame = pandas.DataFrame({"review": texts, "topic": y, "stars": 3, "id": range(90)})
    named = {"label": "topic", "model": "text", "rounds": 1, "clients": 2, "out": tmp_path}
    run = gcfl.run(data=frame, text="review", **named)
    beside = gcfl.run(data={"source": frame, "text": "review"}, **named)
    assert run.folder == beside.folder
    with pytest.raises(gcfl.GcflError, match=r"pass the column of them, x\['review'\]$"):
        run.predict(frame[["stars", "review"]])
    for kept in ({"drop": ["id", "review"]}, {"columns": ["stars"]}):
        assert brought(frame, label="topic", **kept)[1].source.columns == ("stars",)
