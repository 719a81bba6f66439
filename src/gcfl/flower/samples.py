"""Samples as Flower apps hold them: a Dataset or DataLoader of batches (x, y) or dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset

from gcfl.base import rng
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError, DataError
from gcfl.coreset import Coreset

Read = Callable[[Any], tuple[Tensor, Tensor]]
_LABELS = ("label", "labels", "target", "targets", "fine_label", "y")
_INPUTS = ("img", "image", "pixel_values", "x", "features", "input_ids")
_BATCH = 256
# what a DataLoader over a coreset takes over
_SAME = (
    *("batch_size", "collate_fn", "num_workers", "pin_memory", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "persistent_workers"),
)


class WeightedSubset(Subset[Any]):
    """A coreset of a dataset. weights (b,): 0 for a sample that only fills the budget."""

    def __init__(self, dataset: Any, coreset: Coreset) -> None:
        super().__init__(dataset, coreset.indices.tolist())
        self.weights = torch.from_numpy(coreset.weights)


def dataset_of(data: Any) -> Any:
    """The dataset that positions count in; an error where there are no positions to choose."""
    loader = data if isinstance(data, DataLoader) else None
    dataset: Any = data if loader is None else loader.dataset
    has_positions = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if isinstance(dataset, IterableDataset) or not has_positions:
        raise ConfigError(
            f"a coreset needs a dataset with a length and positions, got {type(dataset).__name__}"
        )
    usual = RandomSampler | SequentialSampler
    if loader and (loader.batch_size is None or not isinstance(loader.sampler, usual)):
        raise ConfigError(
            "a DataLoader with a sampler of its own cannot be narrowed to a coreset; pass its "
            "dataset instead"
        )
    if len(dataset) == 0:
        raise ConfigError("there are no samples to choose from: the dataset is empty")
    return dataset


def narrowed(data: Any, coreset: Coreset) -> Any:
    """Of a dataset the coreset as a dataset, of a DataLoader one like it over the coreset."""
    subset = WeightedSubset(dataset_of(data), coreset)
    if not isinstance(data, DataLoader):
        return subset
    same = {name: getattr(data, name) for name in _SAME}
    shuffle = isinstance(data.sampler, RandomSampler)
    # a coreset smaller than a batch is a batch
    drop_last = data.drop_last and len(subset) >= (data.batch_size or 1)
    return DataLoader(subset, shuffle=shuffle, drop_last=drop_last, **same)


def batches(data: Any, read: Read | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """x (m, ...) and labels (m,), in order. Call it inside `rng.isolated`: datasets may draw."""
    dataset = dataset_of(data)
    collate = data.collate_fn if isinstance(data, DataLoader) else None
    for batch in DataLoader(dataset, batch_size=_BATCH, collate_fn=collate):
        x, y = read(batch) if read else _read(batch)
        if not isinstance(x, Tensor):
            raise DataError(f"a batch's inputs must be one tensor (n, ...), got {type(x).__name__}")
        yield x, _labels(y)


def shard_of(data: Any, read: Read | None = None) -> Shard:
    """All samples at once: arrays (x, y), a dataset or a DataLoader."""
    pair = isinstance(data, tuple | list) and len(data) == 2
    if pair and all(hasattr(part, "shape") for part in data):
        x, y = (one if isinstance(one, Tensor) else torch.from_numpy(np.array(one)) for one in data)
        if len(x) != len(y):
            raise DataError(f"there are {len(x)} samples and {len(y)} labels")
        if len(x) == 0:
            raise ConfigError("there are no samples: the arrays are empty")
        y = _labels(y)
    else:
        with rng.isolated(0, "validation"):
            parts = list(batches(data, read))
        x, y = (torch.cat(column) for column in zip(*parts, strict=True))
    return Shard(x, y, np.arange(len(y)))


def check_labels(labels: Tensor, classes: int, whose: str) -> None:
    """Class numbers must be those of the model's outputs."""
    wrong = sorted(set(labels[(labels < 0) | (labels >= classes)].tolist()))
    if wrong:
        raise DataError(
            f"{whose} labels must be in 0 .. {classes - 1}, the classes of the server's model, got "
            f"{', '.join(map(str, wrong[:5]))}"
        )


def _read(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, Mapping):
        label = next((name for name in _LABELS if name in batch), None)
        others = [name for name in batch if name != label]
        known = [name for name in _INPUTS if name in others]
        found = others if len(others) == 1 else known
        if label is not None and len(found) == 1:
            return batch[found[0]], batch[label]
        entries = ", ".join(str(name) for name in batch)
        raise ConfigError(
            f"which entries of a batch ({entries}) are inputs and labels? pass read=, as batch -> "
            "(x, y)"
        )
    raise ConfigError(
        f"a batch must be (x, y) or a dictionary, got {type(batch).__name__}; pass read=, as batch "
        "-> (x, y)"
    )


def _labels(y: Any) -> Tensor:
    if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point() or y.is_complex():
        given = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise DataError(f"labels must be class numbers (n,), got {given}")
    return y.to("cpu", torch.int64)
