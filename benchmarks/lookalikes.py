"""Wrong labels on CIFAR-10, as people make them: what the weak model is like, what it costs, and
how well a plain logistic model can tell right labels from wrong ones.

python benchmarks/lookalikes.py        needs CIFAR-10 in the data home (gcfl data fetch cifar10)
"""

from __future__ import annotations

import os
import tempfile
import time

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gcfl.data import SOURCES, DataOptions, build, read
from gcfl.data.lookalikes import look, taken_for


def main() -> None:
    if SOURCES["cifar10"].find() is None:
        print("skipped: CIFAR-10 is not in the data home; gcfl data fetch cifar10")
        return
    torch.set_num_threads(1)
    source = read(DataOptions(source="cifar10"), 0)
    rows, names = np.arange(len(source)), source.classes
    flat = source.x.reshape(len(source), -1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GCFL_DATA_HOME"] = folder
        seconds = []
        for _ in range(2):
            start = time.process_time()
            found = taken_for(source.x, source.y, rows, 10, 0)
            seconds.append(time.process_time() - start)
        right = (found.argmax(axis=1) == source.y).mean()
        print(f"accuracy of the weak model {right:.1%}; ", end="")
        print(f"{seconds[0]:.1f} CPU-seconds, again {seconds[1]:.2f}")
        odds = look(source.x, source.y, rows, 10, 0).odds
        for place in np.argsort(-odds, axis=None)[:10]:
            true, seen = divmod(int(place), 10)
            print(f"  {names[true]} taken for {names[seen]}: {odds[true, seen]:.2f}")
        for kind in ("uniform", "similar", "mistakes"):
            options = DataOptions(source="cifar10", noise=0.4, noise_kind=kind)
            federation = build(source, options, 0)
            plain = make_pipeline(
                StandardScaler(), PCA(64, random_state=0), LogisticRegression(max_iter=1000)
            )
            clean = federation.validation
            plain.fit(clean.x.numpy().reshape(len(clean), -1).astype(np.float32), clean.y.numpy())
            likely = plain.predict_proba(flat.astype(np.float32))
            trust = likely[rows, federation.clients.y.numpy()]
            area = roc_auc_score(~federation.truth.noisy, trust)
            print(f"{kind}: the probability of the label tells right from wrong, AUROC {area:.3f}")


if __name__ == "__main__":
    main()
