"""[data]: which samples, who holds them, which labels are wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from gcfl.base.options import Count, Options, Size, at_least, within
from gcfl.data.noise import Kind

Rate = Annotated[float, AfterValidator(within(0, 1, high_open=True))]


def different(kinds: list[Kind]) -> list[Kind]:
    if not kinds or len(set(kinds)) != len(kinds):
        raise ValueError(f"must name at least one kind, each once, got {kinds}")
    return kinds


def names(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError('must be a list such as ["fog", "frost"]')
    return value


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
    partition: Literal["dirichlet", "iid", "shards", "quantity", "groups", "given"] = "dirichlet"
    """who holds what: class shares ~ Dirichlet, evenly, few classes each, uneven sizes, whole
    groups (writers), or a file
    """
    alpha: Annotated[float, AfterValidator(within(0, 1e6, low_open=True))] = 0.4
    """Dirichlet concentration (dirichlet: per class; quantity: of the sizes): small is skewed"""
    classes_per_client: Count = 2
    """shards: how many classes a client holds"""
    group: str | None = None
    """tables: the column of the groups"""
    owners: str | None = None
    """given: a file with the client's name of every sample, one per line"""
    min_size: Count = 10
    """fewest samples of a client"""
    noise: Rate = 0.0
    """share of each client's samples that is noisy (open: share of the classes that is
    irrelevant)
    """
    noise_kind: Kind | Annotated[list[Kind], AfterValidator(different)] = "uniform"
    """wrong labels: uniform, pair, confusion, open, given (a file); spoiled samples: attribute; or
    several, in equal parts
    """
    noise_rates: list[Rate] | None = None
    """a rate for each client instead of one for all"""
    noise_spread: Annotated[float, AfterValidator(within(0, 1))] = 0.0
    """each client's rate is drawn from noise ± noise_spread"""
    noise_file: str | None = None
    """confusion: a text table, row c = how often class c is taken for each; given: an observed
    label per line, for every sample
    """
    corruptions: Annotated[list[str], BeforeValidator(names)] | None = None
    """attribute: which ones; unset: the paper's nine for images; missing, scale and gaussian for
    tables
    """
    severity: Annotated[int, AfterValidator(within(1, 5))] = 5
    """attribute: how strong, 1 to 5"""
    validation_noise: Rate = 0.0
    """the same noise for the server's set, which is clean unless asked"""
    test_noise: Rate = 0.0
    """the same noise for the test set, which is clean unless asked"""
    validation: Size = 0.1
    """the server's clean set: a share of the source, or a count"""
    test: Size = 0.15
    """the clean test set: a share of the source, or a count"""
    normalise: bool = True
    """scale inputs by mean and sd of the server's clean set"""

    @property
    def kinds(self) -> list[Kind]:
        """The noises to make, in the order named."""
        return [self.noise_kind] if isinstance(self.noise_kind, str) else self.noise_kind
