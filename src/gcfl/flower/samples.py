"""Samples as Flower apps hold them: a torch Dataset or DataLoader whose batches are (x, y) or
dictionaries.
"""

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
_SAME = (
    "batch_size",
    "collate_fn",
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
)
_ALSO = ("generator", "prefetch_factor", "persistent_workers")


class Chosen(Subset[Any]):
    """Part of a dataset, and the weights (b,) of its samples: 0 for one that only fills the
    budget.
    """

    def __init__(self, dataset: Any, coreset: Coreset) -> None:
        super().__init__(dataset, coreset.indices.tolist())
        self.weights = torch.from_numpy(coreset.weights)


def dataset_of(data: Any) -> Any:
    """The dataset that positions count in; an error where there are no positions to choose."""
    loader = isinstance(data, DataLoader)
    dataset = data.dataset if loader else data
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    ):
        raise ConfigError(
            f"a coreset needs a dataset with a length and positions, got {type(dataset).__name__}"
        )
    if loader and (
        data.batch_size is None or not isinstance(data.sampler, RandomSampler | SequentialSampler)
    ):
        raise ConfigError(
            "a DataLoader with a sampler of its own cannot be narrowed to a coreset; pass its "
            "dataset instead"
        )
    if len(dataset) == 0:
        raise ConfigError("there are no samples to choose from: the dataset is empty")
    return dataset


def narrowed(data: Any, chosen: Chosen) -> Any:
    """A dataset becomes the chosen part of it, a DataLoader one like it over that part."""
    if not isinstance(data, DataLoader):
        return chosen
    same = {name: getattr(data, name) for name in (*_SAME, *_ALSO)}
    # a coreset smaller than a batch is a batch
    whole_batches = data.drop_last and len(chosen) >= (data.batch_size or 1)
    return DataLoader(
        chosen, shuffle=isinstance(data.sampler, RandomSampler), drop_last=whole_batches, **same
    )


def batches(data: Any, read: Read | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """x (m, ...) and labels (m,), in the order of the dataset. Call it inside `rng.isolated`:
    datasets may draw.
    """
    dataset = dataset_of(data)
    collate = data.collate_fn if isinstance(data, DataLoader) else None
    for batch in DataLoader(dataset, batch_size=_BATCH, collate_fn=collate):
        x, y = read(batch) if read else _read(batch)
        yield _inputs(x), _labels(y)


def shard_of(data: Any, read: Read | None = None) -> Shard:
    """All samples at once: arrays (x, y), a dataset or a DataLoader."""
    if (
        isinstance(data, tuple | list)
        and len(data) == 2
        and all(hasattr(part, "shape") for part in data)
    ):
        x, y = (
            part if isinstance(part, Tensor) else torch.from_numpy(np.array(part)) for part in data
        )
        if len(x) != len(y):
            raise DataError(f"there are {len(x)} samples and {len(y)} labels")
        if len(x) == 0:
            raise ConfigError("there are no samples: the arrays are empty")
        x, y = _inputs(x), _labels(y)
    else:
        with rng.isolated(0, "validation"):
            parts = list(batches(data, read))
        x, y = torch.cat([part for part, _ in parts]), torch.cat([part for _, part in parts])
    return Shard(x, y, np.arange(len(y)))


def check_labels(labels: Tensor, classes: int, whose: str) -> None:
    """Class numbers must be those of the model's outputs."""
    wrong = sorted(set(labels[(labels < 0) | (labels >= classes)].tolist()))
    if wrong:
        named = ", ".join(str(label) for label in wrong[:5])
        raise DataError(
            f"{whose} labels must be in 0 .. {classes - 1}, the classes of the server's model, got "
            f"{named}"
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


def _inputs(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise DataError(f"a batch's inputs must be one tensor (n, ...), got {type(x).__name__}")
    return x


def _labels(y: Any) -> Tensor:
    if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point() or y.is_complex():
        given = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise DataError(f"labels must be class numbers (n,), got {given}")
    return y.to("cpu", torch.int64)
