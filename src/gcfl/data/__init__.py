"""Arrays to federations: readers, split, partition, noise."""

from gcfl.data.arrays import arrays
from gcfl.data.federation import ClientData, Federation, alone, build, normaliser
from gcfl.data.gathered import gathered, in_groups
from gcfl.data.noise import Truth
from gcfl.data.options import DataOptions, digest
from gcfl.data.readers import Reader, formats
from gcfl.data.readers.huggingface import from_huggingface, is_huggingface, on_the_hub
from gcfl.data.registry import SOURCES, augmentation, read, read_as
from gcfl.data.source import Schema, Source, data_home, subset

__all__ = [
    "SOURCES",
    "ClientData",
    "DataOptions",
    "Federation",
    "Reader",
    "Schema",
    "Source",
    "Truth",
    "alone",
    "arrays",
    "augmentation",
    "build",
    "data_home",
    "digest",
    "formats",
    "from_huggingface",
    "gathered",
    "in_groups",
    "is_huggingface",
    "normaliser",
    "on_the_hub",
    "read",
    "read_as",
    "subset",
]
