"""Arrays to federations: sources, partition, noise."""

from gcfl.data import side_files
from gcfl.data.arrays import arrays
from gcfl.data.cut import statistics
from gcfl.data.federation import ClientData, Federation, alone, build
from gcfl.data.known import Known
from gcfl.data.noise import Truth
from gcfl.data.options import DataOptions
from gcfl.data.readers.huggingface import from_huggingface, is_huggingface, on_the_hub
from gcfl.data.source import Source, subset
from gcfl.data.sources import SOURCES, read, read_known

__all__ = [
    "SOURCES",
    "ClientData",
    "DataOptions",
    "Federation",
    "Known",
    "Source",
    "Truth",
    "alone",
    "arrays",
    "build",
    "from_huggingface",
    "is_huggingface",
    "on_the_hub",
    "read",
    "read_known",
    "side_files",
    "statistics",
    "subset",
]
