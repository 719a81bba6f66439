"""Arrays to federations: sources, partition, noise."""

from gcfl.data import side_files
from gcfl.data.arrays import arrays
from gcfl.data.cut import statistics
from gcfl.data.federation import ClientData, Federation, build
from gcfl.data.noise import Truth
from gcfl.data.options import DataOptions
from gcfl.data.readers.huggingface import from_huggingface, is_huggingface, on_the_hub
from gcfl.data.source import Source, subset
from gcfl.data.sources import SOURCES, read

__all__ = [
    "SOURCES",
    "ClientData",
    "DataOptions",
    "Federation",
    "Source",
    "Truth",
    "arrays",
    "build",
    "from_huggingface",
    "is_huggingface",
    "on_the_hub",
    "read",
    "side_files",
    "statistics",
    "subset",
]
