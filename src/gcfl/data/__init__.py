"""Arrays to federations: readers, split, partition, noise."""

from gcfl.data.arrays import arrays
from gcfl.data.encoding import encoded, schema_of
from gcfl.data.federation import ClientData, Federation, alone, build, normaliser
from gcfl.data.gathered import beside_arrays, gathered, in_groups
from gcfl.data.noise import Truth
from gcfl.data.options import DataOptions, digest
from gcfl.data.readers import Reader, formats
from gcfl.data.readers.huggingface import (
    from_huggingface,
    from_options,
    is_huggingface,
    on_the_hub,
)
from gcfl.data.registry import SOURCES, augmentation, read, read_as, sets
from gcfl.data.sets import named_sets, with_frames
from gcfl.data.source import Schema, Source, data_home, subset
from gcfl.data.tabular import FRAME, from_frame, from_frames, is_whole
from gcfl.data.unlabelled import Unlabelled, read_unlabelled
from gcfl.data.useless import warn_of_useless

__all__ = [
    "FRAME",
    "SOURCES",
    "ClientData",
    "DataOptions",
    "Federation",
    "Reader",
    "Schema",
    "Source",
    "Truth",
    "Unlabelled",
    "alone",
    "arrays",
    "augmentation",
    "beside_arrays",
    "build",
    "data_home",
    "digest",
    "encoded",
    "formats",
    "from_frame",
    "from_frames",
    "from_huggingface",
    "from_options",
    "gathered",
    "in_groups",
    "is_huggingface",
    "is_whole",
    "named_sets",
    "normaliser",
    "on_the_hub",
    "read",
    "read_as",
    "read_unlabelled",
    "schema_of",
    "sets",
    "subset",
    "warn_of_useless",
    "with_frames",
]
