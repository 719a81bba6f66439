"""A file's samples, predicted by a finished run's model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl import experiment as config
from gcfl.api.running import load
from gcfl.base.text import csv_bytes
from gcfl.data import read_unlabelled
from gcfl.engine import one_thread
from gcfl.results.folder import RunFolder
from gcfl.results.run import Run


@dataclass(frozen=True)
class Predictions:
    """Of n samples: what their owner calls them, and (n, C) probabilities of the classes. unseen:
    how many cells of a table's columns hold a value that the model does not know.
    """

    ids: list[str]
    classes: tuple[str | int, ...]
    probabilities: npt.NDArray[np.float32]
    unseen: dict[str, int]

    def to_csv(self, every: bool = False) -> bytes:
        """A line for each sample: id, class, probability; every: that of every class, too."""
        lines: list[dict[str, Any]] = []
        for id, row in zip(self.ids, self.probabilities, strict=True):
            best = int(row.argmax())
            line = {"id": id, "class": self.classes[best], "probability": f"{row[best]:.4f}"}
            if every:
                pairs = zip(self.classes, row, strict=True)
                line |= {f"p({name})": f"{value:.4f}" for name, value in pairs}
            lines.append(line)
        return csv_bytes(lines)


def predict(run: Run | str | os.PathLike[str], file: str | os.PathLike[str]) -> Predictions:
    """What the model of a finished run says of a file of any format that gcfl reads; labels are not
    needed, and not looked at.
    """
    run = run if isinstance(run, Run) else load(run)
    model = run.model
    options = config.compose(RunFolder.open(run.folder).config, {})[0].data
    with one_thread():
        found = read_unlabelled(Path(file).expanduser(), options, model.encoding)
        probabilities = model.predict_proba(found.x)
    return Predictions(found.ids, model.classes, probabilities, found.unseen)
