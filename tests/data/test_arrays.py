"""Arrays and torch Datasets: the same samples whichever way they come."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from data_files import pictures
from gcfl.base.errors import DataError
from gcfl.data import arrays


def test_class_names_are_kept_in_order():
    source = arrays((np.zeros((6, 2)), np.array(["b", "a", "c", "b", "a", "c"])))
    assert source.classes == ("a", "b", "c")
    assert source.y.tolist() == [1, 0, 2, 1, 0, 2]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_any_number_type_is_taken(dtype):
    source = arrays((np.ones((4, 3), dtype=dtype), [0, 1, 0, 1]))
    assert source.x.dtype == (np.uint8 if dtype == np.uint8 else np.float32)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros((4, 0)), [0, 1, 0, 1]), "samples without values"),
        ((np.full((4, 2), 1e300), [0, 1, 0, 1]), "NaN or infinite values in 4 samples"),
        ((np.zeros((4, 2)), np.array([b"a", b"\xff", b"a", b"b"])), "not UTF-8"),
    ],
)
def test_bad_arrays_get_their_sentence(data, message):
    with pytest.raises(DataError, match=message):
        arrays(data)


def test_classes_must_be_names():
    with pytest.raises(DataError, match="classes must be names or whole numbers"):
        arrays((np.zeros((4, 2)), [0, 1, 0, 1]), classes=[["a"], ["b"]])
    assert arrays((np.zeros((2, 2)), np.array(["ä".encode(), b"b"]))).classes == ("b", "ä")


class Photos(torch.utils.data.Dataset):
    """As users write them: a transform inside, a label as a number, and names for the numbers."""

    classes = ("cat", "dog")

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, place):
        return self.images[place], torch.tensor(place % 2)


def test_a_torch_dataset():
    images = pictures(12)
    source = arrays(Photos(images), test=Photos(images[:4]))
    assert source.x.shape == (12, 3, 20, 20)
    assert source.x.dtype == np.uint8
    assert source.classes == ("cat", "dog")
    assert source.y.tolist() == [0, 1] * 6
    assert np.array_equal(source.test[0], source.x[:4])
    x, y = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    tensors = arrays(torch.utils.data.TensorDataset(x, y))
    assert np.array_equal(tensors.x, x.numpy())
    assert tensors.classes == (0, 1, 2)
    assert arrays(Photos([image.convert("L") for image in images])).x.shape == (12, 1, 20, 20)


def test_bad_torch_datasets_get_their_sentence():
    images = pictures(4)
    with pytest.raises(
        DataError, match=r"sample 3 of data is uint8 of shape \(3, 9, 9\), but the first is"
    ):
        arrays(Photos([*images[:3], images[3].resize((9, 9))]))
    with pytest.raises(DataError, match="data is empty"):
        arrays(Photos([]))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from ()

    with pytest.raises(DataError, match="with a length"):
        arrays(Stream())

    class Broken(Photos):
        def __getitem__(self, place):
            raise OSError("no such photo")

    with pytest.raises(DataError, match="sample 0 of data cannot be read: OSError: no such photo"):
        arrays(Broken(images))
    with pytest.raises(
        DataError,
        match=r"the label of sample 0 of data must be one number or name, got shape \(2,\)",
    ):
        arrays(torch.utils.data.TensorDataset(torch.zeros(4, 3), torch.zeros(4, 2)))
    with pytest.raises(DataError, match="sample 0 of test must be a pair"):
        arrays(Photos(images), test=torch.utils.data.TensorDataset(torch.zeros(3, 2)))


def test_a_torch_dataset_with_random_transforms_is_the_same_each_time():
    class Jittered(Photos):
        def __getitem__(self, place):
            return torch.rand(3) + torch.from_numpy(np.random.rand(3)), place % 2  # noqa: NPY002

    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (arrays(Jittered(pictures(6))) for _ in range(2))
    assert np.array_equal(first.x, second.x)
    assert len(np.unique(first.x)) == 18
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_part_of_a_torch_dataset_has_its_classes():
    whole = Photos(pictures(10))
    part = torch.utils.data.Subset(torch.utils.data.Subset(whole, range(8)), [0, 2, 4])
    assert arrays(part).classes == ("cat", "dog")
    assert arrays(part).y.tolist() == [0, 0, 0]


def test_palette_images_of_a_torch_dataset_are_colours():
    images = [Image.new("RGB", (6, 6), colour).convert("P") for colour in ("red", "lime")]
    source = arrays(Photos(images))
    assert source.x.shape == (2, 3, 6, 6)
    assert source.x[:, :, 0, 0].tolist() == [[255, 0, 0], [0, 255, 0]]
