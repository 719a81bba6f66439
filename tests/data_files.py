"""Files and samples that tests of the data room write."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

from gcfl.data import DataOptions, read


def source(path, **options):
    return read(DataOptions(source=str(path), **options), 0)


def cifar_arrays(classes: int, train: int = 50, test: int = 20):
    draw = np.random.default_rng(1)
    return {
        part: (draw.integers(0, 256, (n, 3, 32, 32)).astype(np.uint8), draw.integers(0, classes, n))
        for part, n in (("train", train), ("test", test))
    }


def write_binary(folder: Path, classes: int, parts) -> None:
    folder.mkdir(parents=True)
    for part, (x, y) in parts.items():
        coarse = [np.zeros((len(y), 1), np.uint8)] if classes == 100 else []
        rows = np.hstack([*coarse, y[:, None].astype(np.uint8), x.reshape(len(x), -1)])
        if classes == 100:
            rows.tofile(folder / f"{part}.bin")
        elif part == "test":
            rows.tofile(folder / "test_batch.bin")
        else:
            for number, chunk in enumerate(np.array_split(rows, 5), start=1):
                chunk.tofile(folder / f"data_batch_{number}.bin")


def write_python(folder: Path, classes: int, parts) -> None:
    """As the publisher did: pickles with byte strings as keys."""
    folder.mkdir(parents=True)
    key = b"labels" if classes == 10 else b"fine_labels"

    def dump(name, x, y):
        batch = {
            b"data": x.reshape(len(x), -1),
            key: [int(label) for label in y],
            b"filenames": [b"x.png"] * len(y),
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))

    x, y = parts["train"]
    if classes == 100:
        dump("train", x, y)
        dump("test", *parts["test"])
        (folder / "meta").write_bytes(
            pickle.dumps({b"fine_label_names": [f"n{i}".encode() for i in range(100)]}, protocol=2)
        )
        return
    for number, rows in enumerate(np.array_split(np.arange(len(y)), 5), start=1):
        dump(f"data_batch_{number}", x[rows], y[rows])
    dump("test_batch", *parts["test"])
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a"] * 10}, protocol=2))


def photos(folder: Path, modes=("RGB",), n: int = 3) -> None:
    for name, shade in (("dark ones", 30), ("helle Töne", 220)):
        (folder / name).mkdir(parents=True)
        for number in range(n):
            mode = modes[number % len(modes)]
            grey = np.full((20, 30), shade, dtype=np.uint8)
            if mode == "I;16":
                Image.fromarray(grey.astype(np.uint16) * 257).save(folder / name / f"{number}.png")
            elif mode == "CMYK":
                Image.fromarray(np.stack([grey] * 3, 2)).convert("CMYK").save(
                    folder / name / f"{number}.jpg", quality=95
                )
            elif mode == "webp":
                Image.fromarray(np.stack([grey] * 3, 2)).save(folder / name / f"{number}.webp")
            elif mode == "RGBA":
                Image.fromarray(np.stack([grey] * 3 + [np.full_like(grey, 255)], 2)).save(
                    folder / name / f"{number}.png"
                )
            else:
                Image.fromarray(np.stack([grey] * 3, 2)).convert(mode).save(
                    folder / name / f"{number}.png"
                )


def write_csv(path: Path, rows: int = 80) -> None:
    lines = ["height,weight,label"] + [
        f"{i % 7},{i * 0.5},{'yes' if i % 2 else 'no'}" for i in range(rows)
    ]
    path.write_text("\n".join(lines) + "\n")


def adults(rows: int = 420, seed: int = 0):
    """A mixed table as people have them, by column: text, gaps, dates, true and false, an id, a
    constant, many towns, and the hospital of each row. Age, job and sex make the label.
    """
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 80, rows)
    sex, job = draw.choice(["female", "male"], rows), draw.choice(JOBS, rows)
    smoker = draw.random(rows) < 0.3
    score = (age - 45) / 12 + 2 * np.isin(job, JOBS[2:]) - 1 + 0.5 * (sex == "male") - smoker
    blank = {name: draw.random(rows) < share for name, share in (("age", 0.15), ("sex", 0.1))}
    return {
        "row_id": np.arange(1000, 1000 + rows),
        "age": ["" if gone else str(one) for one, gone in zip(age, blank["age"], strict=True)],
        "sex": np.where(blank["sex"], "?", sex),
        "job": job,
        "hours": draw.normal(40, 8, rows).round(2),
        "since": np.datetime64("2020-01-01") + draw.integers(0, 1500, rows),
        "smoker": smoker,
        "town": [f"town {one}" for one in draw.integers(0, 200, rows)],
        "country": ["here"] * rows,
        "hospital": draw.choice(["east", "north", "south"], rows),
        "income": np.where(score + draw.normal(0, 0.2, rows) > 0, ">50K", "<=50K"),
    }


JOBS = ["clerk", "farmer", "nurse", "teacher"]


def write_table(path: Path, columns) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def pictures(count=30, side=20, seed=0):
    draw = np.random.default_rng(seed)
    return [
        Image.fromarray(draw.integers(0, 255, (side, side, 3)).astype(np.uint8))
        for _ in range(count)
    ]
