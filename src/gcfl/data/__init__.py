"""Arrays to federations: sources, partition, noise."""

from gcfl.data.federation import ClientData, DataOptions, Federation, build
from gcfl.data.noise import Truth
from gcfl.data.sources import SOURCES, Source, arrays, read, subset

__all__ = ["SOURCES", "ClientData", "DataOptions", "Federation", "Source", "Truth", "arrays", "build", "read", "subset"]
