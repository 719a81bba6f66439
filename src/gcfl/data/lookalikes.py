"""Wrong labels as people make them: what a weak model takes samples for.

similar     a sample of class c that is hit gets the label k with probability odds[c, k], as likely
            as class c is taken for class k on average
mistakes    of client i's samples j that no other noise has hit, the round(rate · n_i) with the
            largest leaning_j = max p_j[k] over k ≠ y_j get the label other_j = argmax p_j[k] over
            k ≠ y_j. What nothing can be learnt of comes last, and gets any other label, equally
            likely

The weak model is an approximate kernel machine on inputs of d values, standardised and cut off at
±10: PCA to at most 64 of them, exp(-|x - x'|² / d) to at most 1,000 drawn samples (Nyström),
logistic regression. Images above 32 pixels a side are thinned out before. It is cross-fitted: the
samples are dealt into three folds, class by class, and p_j is said by a model that was fitted to
the two folds without j (to at most 20,000 samples of them). All draws follow from the seed, and one
thread does the work, so that the bits do too. What was found is kept on disk, for all noise rates
and partitions of the same samples: the same seed again is read, not fitted.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base import rng
from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.files import open_npy, write_npy
from gcfl.data.source import cache_folder, progress

_FOLDS = 3
_MOST_FITTED = 20_000
_MOST_VALUES = 1 << 26  # of all fitted samples together: a bound on memory
_MOST_COMPONENTS = 64
_MOST_LANDMARKS = 1000
_LARGEST_SIDE = 32
_FARTHEST = 10.0  # standard deviations: one wild value must not become an infinite distance
_BLOCK = 4096


@dataclass(frozen=True)
class Lookalikes:
    """odds (C, C): row c adds up to 1, and says how often class c is taken for each other class.
    By row of the data: other (n,), the class but its own that a sample is most likely taken for,
    and leaning (n,), how likely; -1 and 0 where that is not known.
    """

    odds: FloatArray
    other: IntArray
    leaning: npt.NDArray[np.float32]


def look(
    x: npt.NDArray[Any], labels: IntArray, rows: IntArray, classes: int, seed: int
) -> Lookalikes:
    """Of x (n, ...) and clean labels (n,), these rows alone.

    odds[c, k] ∝ Σ_j p_j[k] + 1 / (C - 1) for k ≠ c, over the rows j of class c, where p_j are the
    probabilities of `taken_for`: equal odds for a class with nothing to learn from, such as one
    with a single sample.
    """
    own, others = labels[rows], taken_for(x, labels, rows, classes, seed).copy()
    others[np.arange(len(rows)), own] = 0
    sums = np.full((classes, classes), 1 / (classes - 1))
    for label in np.unique(own):
        sums[label] += others[own == label].sum(axis=0, dtype=np.float64)
    np.fill_diagonal(sums, 0)
    other = np.full(len(labels), -1, dtype=np.int64)
    leaning = np.zeros(len(labels), dtype=np.float32)
    leaning[rows] = others.max(axis=1)
    other[rows] = np.where(leaning[rows] > 0, others.argmax(axis=1), -1)
    return Lookalikes(sums / sums.sum(axis=1, keepdims=True), other, leaning)


def taken_for(
    x: npt.NDArray[Any], labels: IntArray, rows: IntArray, classes: int, seed: int
) -> npt.NDArray[np.float32]:
    """(m, C) the cross-fitted probability of each class, for these rows (m,) of x and labels.

    All 0 where there was nothing to learn from: no sample of the row's class, or of any other class
    than that, among those that its model was fitted to.
    """
    cache = cache_folder() / f"taken-for-{_key(x, labels, rows, classes, seed)}.npy"
    found = open_npy(cache)
    if found is None:
        found = np.zeros((len(rows), classes), dtype=np.float32)
        draw = rng.stream(seed, "look-alikes")
        order = draw.permutation(len(rows))
        fold_of = np.empty(len(rows), dtype=np.int64)
        by_class = order[np.argsort(labels[rows[order]], kind="stable")]
        fold_of[by_class] = np.arange(len(rows)) % _FOLDS
        for fold in progress(_FOLDS, "fitting a weak model"):
            inside = np.flatnonzero(fold_of == fold)
            outside = order[fold_of[order] != fold]
            word = int(draw.integers(2**31))
            found[inside] = _predicted(x, labels, rows[outside], rows[inside], classes, word)
        write_npy(cache, found)
    return found


def _key(x: npt.NDArray[Any], labels: IntArray, rows: IntArray, classes: int, seed: int) -> str:
    import sklearn

    key = hashlib.blake2b(digest_size=12)
    key.update(f"1|{sklearn.__version__}|{seed}|{classes}|{x.shape[1:]}|{x.dtype}".encode())
    key.update(np.ascontiguousarray(labels[rows]).data)
    for start in range(0, len(rows), _BLOCK):  # x may be a file larger than memory
        key.update(np.ascontiguousarray(x[rows[start : start + _BLOCK]]).data)
    return key.hexdigest()


def _predicted(
    x: npt.NDArray[Any],
    labels: IntArray,
    fitted: IntArray,
    asked: IntArray,
    classes: int,
    word: int,
) -> npt.NDArray[np.float32]:
    """(m, C) what a weak model that is fitted to some rows, in random order, says of others (m,).

    word: what the model's draws follow from.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    said = np.zeros((len(asked), classes), dtype=np.float32)
    width = _flat(x[:1]).shape[1]
    fitted = fitted[: min(_MOST_FITTED, max(1, _MOST_VALUES // width))]
    seen = np.unique(labels[fitted])
    if len(seen) < 2:
        return said
    model = _model(len(fitted), width, word)
    # Sums by several threads have no fixed order. A weak model need not converge, nor inputs vary.
    with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(_flat(x[fitted]), labels[fitted])
        for start in range(0, len(asked), _BLOCK):
            block = asked[start : start + _BLOCK]
            said[start : start + _BLOCK, seen] = model.predict_proba(_flat(x[block]))
    said[~np.isin(labels[asked], seen)] = 0
    return said


def _model(samples: int, width: int, word: int) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    landmarks = min(_MOST_LANDMARKS, samples)
    steps = [
        StandardScaler(),
        FunctionTransformer(np.clip, kw_args={"a_min": -_FARTHEST, "a_max": _FARTHEST}),
        Nystroem(gamma=1 / width, n_components=landmarks, random_state=word),
        LogisticRegression(C=10, max_iter=100),
    ]
    if width > _MOST_COMPONENTS:
        steps.insert(2, PCA(min(_MOST_COMPONENTS, samples), random_state=word))
    return make_pipeline(*steps)


def _flat(block: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """(m, d) of samples (m, ...): pixels of images in steps that leave at most 32 a side."""
    if block.ndim == 4:
        down, across = (-(-side // _LARGEST_SIDE) for side in block.shape[2:])
        block = block[:, :, ::down, ::across]
    return block.reshape(len(block), -1).astype(np.float32)
