"""Building CIFAR-10 over 10 clients with 40% attribute noise: the first time, and again.

python benchmarks/attribute_noise.py        needs CIFAR-10 in the data home (gcfl data fetch
cifar10)
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

from gcfl.data import SOURCES, DataOptions, build, read
from gcfl.data.source import data_home


def main() -> None:
    if SOURCES["cifar10"].find() is None:
        print("skipped: CIFAR-10 is not in the data home; gcfl data fetch cifar10")
        return
    torch.set_num_threads(1)
    options = DataOptions(source="cifar10", clients=10, noise=0.4, noise_kind="attribute")
    with tempfile.TemporaryDirectory() as folder:
        for place in SOURCES["cifar10"].places:
            if (data_home() / place).exists():
                (Path(folder) / place).symlink_to((data_home() / place).resolve())
        os.environ["GCFL_DATA_HOME"] = folder
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            build(read(options, 0), options, 0)
            seconds.append(time.perf_counter() - start)
    first, *again = seconds
    print(
        f"first time {first:.1f} s, again {again[0]:.2f} and {again[1]:.2f} s: "
        f"{min(again) / first:.3f} of the first"
    )


if __name__ == "__main__":
    main()
