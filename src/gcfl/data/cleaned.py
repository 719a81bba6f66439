"""Labels that somebody looked through, in place of those that the data have: `data.labels`.

A CSV table with the columns id and label, as an audit's cleaned.csv; or a folder with such files in
it, at any depth, one per site. A client's sample gets the label of its line; one without a line is
dropped. The server's clean set and the test set stay as they are.
"""

from __future__ import annotations

import csv
import logging
from dataclasses import replace

import numpy as np

from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError, did_you_mean
from gcfl.data.add_noise import Observed
from gcfl.data.noise import Truth, code
from gcfl.data.partition import Partition
from gcfl.data.source import Source, label_files, read_text

log = logging.getLogger("gcfl.data")
_OF_FINDINGS = {"wrong", "suggested", "action"}  # columns of audit.csv


def read_cleaned(path: str) -> dict[str, str]:
    """Labels by id."""
    found: dict[str, str] = {}
    for file in label_files(path):
        table = csv.DictReader(read_text(str(file), "data.labels").splitlines())
        if not {"id", "label"} <= set(table.fieldnames or ()):
            raise DataError(f"{file} (data.labels) needs the columns id and label")
        if set(table.fieldnames or ()) >= _OF_FINDINGS:
            raise DataError(
                f"{file} (data.labels) is an audit's list of findings, with the labels as they "
                "were; take cleaned.csv, which lies beside it"
            )
        for number, line in enumerate(table, start=2):
            id, label = line["id"], line["label"]
            if id is None or label is None:
                raise DataError(f"line {number} of {file} (data.labels) lacks an id or a label")
            id = id.removeprefix("'")  # as a spreadsheet's defused cell
            if found.get(id, label) != label:
                raise DataError(f"{file} (data.labels) has two labels for {id}")
            found[id] = label
    return found


def relabelled(
    source: Source, partition: Partition, observed: Observed, path: str
) -> tuple[Partition, Observed]:
    """The clients' samples with these labels, without those that have none."""
    labels_of = read_cleaned(path)
    names = {str(source.classes[one]): place for place, one in enumerate(observed.classes)}
    unknown = next((label for label in labels_of.values() if label not in names), None)
    if unknown is not None:
        raise DataError(
            f"{path} (data.labels) has the label {unknown!r}, which is not a class of "
            f"{source.name}{did_you_mean(unknown, names)}"
        )
    ids = source.ids_of(partition.order)
    has = np.array([id in labels_of for id in ids], dtype=bool)
    if not has.any():
        raise DataError(
            f"{path} (data.labels) has no line for any of the clients' samples; its ids are like "
            f"{next(iter(labels_of), '')!r}, theirs like {ids[0]!r}"
        )
    if not has.all():
        log.warning(
            "%d of the clients' %d samples have no line in %s (data.labels) and are left out",
            len(has) - int(has.sum()),
            len(has),
            path,
        )
    kept = partition.keep(has)
    if int(kept.sizes.min()) == 0:
        raise DataError(
            f"{path} (data.labels) leaves client {int(kept.sizes.argmin())} without a sample"
        )
    rows: IntArray = kept.order
    labels = observed.labels.copy()
    wanted = zip(ids, has, strict=True)
    labels[rows] = [names[labels_of[id]] for id, there in wanted if there]
    return kept, replace(observed, labels=labels, truth=_truth(observed.truth, labels, rows))


def _truth(before: Truth, labels: IntArray, rows: IntArray) -> Truth:
    """What is wrong now: samples that are no class's, or spoiled, stay so; other labels are right
    where they are the clean one.
    """
    kinds = before.kinds.copy()
    beyond = before.hit_by("open") | before.hit_by("attribute")
    free = rows[~beyond[rows]]
    wrong = labels[free] != before.labels[free]
    kinds[free] = np.where(wrong, np.where(kinds[free] > 0, kinds[free], code("given")), 0)
    return Truth(before.labels, kinds)
