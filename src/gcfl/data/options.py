"""[data]: which samples, who holds them, which labels are wrong."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from gcfl.options import Count, Options, Size, at_least, within


class DataOptions(Options):
    """[data]"""

    source: str = "digits"
    """a name of `gcfl list data`, or a path: image folders, CSV, parquet, npz, IDX, LEAF, CIFAR"""
    label: str = "label"
    """tables: the column of the labels"""
    image_size: Annotated[int, AfterValidator(at_least(4))] = 32
    """image folders: pixels per side after resizing"""
    samples: Annotated[int, AfterValidator(at_least(10))] | None = None
    """use only so many samples of the source (blobs: draw so many)"""
    clients: Count = 10
    """how many clients share the data"""
    partition: Literal["dirichlet", "iid"] = "dirichlet"
    """how the samples are dealt to the clients"""
    alpha: Annotated[float, AfterValidator(within(0, 1e6, low_open=True))] = 0.4
    """Dirichlet concentration per class: small is skewed"""
    min_size: Count = 10
    """fewest samples of a client"""
    noise: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.0
    """share of each client's labels that is flipped (closed set)"""
    validation: Size = 0.1
    """the server's clean set: a share of the source, or a count"""
    test: Size = 0.15
    """the clean test set: a share of the source, or a count"""
    normalise: bool = True
    """scale inputs by mean and sd of the server's clean set"""
