"""A folder of photos, every third in the wrong folder: find them, mend them, train again.

Shows: photos in a folder per class go in by path; `gcfl.audit` tells at each site which labels are
wrong and what they should be, without moving a photo; its cleaned.csv files are the labels of a
second run.

    python examples/photos_audit.py        # about 10 seconds
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import gcfl
from gcfl.results.findings import write_findings

SITES = 5


def make_photos(folder: Path, seed: int = 0) -> set[str]:
    """Digits as PNG files: test/ was checked by hand, of train/ a third lies in a wrong folder.
    Returns the ids of the misplaced photos: folder and name, as an audit has them.
    """
    draw, digits = np.random.default_rng(seed), load_digits()
    misplaced = set()
    for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        part = "test" if number % 4 == 0 else "train"
        if part == "train" and draw.random() < 1 / 3:
            digit = (digit + draw.integers(1, 10)) % 10
            misplaced.add(f"digit {digit}/{number}.png")
        place = folder / part / f"digit {digit}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).save(place / f"{number}.png")
    return misplaced


def main(out: Path) -> dict[str, float]:
    misplaced = make_photos(out / "photos")
    # The server's 150 clean photos and the test set are both cut from test/.
    photos = {"source": out / "photos", "image_size": 8, "validation": 150, "clients": SITES}
    settings = {"model": "mlp", "rounds": 30, "out": out / "runs"}
    plain = {"lr": 0.05, "epochs": 5, **settings}

    before = gcfl.run("fedavg", photos, **plain)
    judge = gcfl.run("robust", photos, **settings)  # keeps what it learns of each label, on the way
    audit = gcfl.audit(judge)
    for site in audit.sites:
        write_findings(site, out / "audit" / site.site)
    after = gcfl.run("fedavg", photos | {"labels": out / "audit"}, **plain)

    called = {
        id
        for site in audit.sites
        for id, wrong in zip(site.ids, site.wrong, strict=True)
        if wrong > 0.5
    }
    found = {
        "before": before.accuracy,
        "after": after.accuracy,
        "precision": len(called & misplaced) / len(called),
        "recall": len(called & misplaced) / len(misplaced),
    }
    for site in audit.sites:
        low, high = site.interval
        worst = site.worst_first[0]
        print(
            f"{site.site}: {len(site)} photos, {site.rate:.0%} misplaced ({low:.0%}-{high:.0%}), "
            f"worst: {site.ids[worst]}, rather {site.classes[site.suggested[worst]]}"
        )
    print(
        f"\n{len(called)} photos are called misplaced, {found['precision']:.0%} of them rightly; "
        f"{found['recall']:.0%} of all {len(misplaced)} misplaced ones are found"
    )
    print(f"FedAvg on the folders as they were: accuracy {found['before']:.3f}")
    print(f"FedAvg on the cleaned labels:       accuracy {found['after']:.3f}")
    return found


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="gcfl-photos-"))
    main(folder)
    print(f"\nphotos, runs, and audit/*/audit.csv, cleaned.csv: {folder}")
