"""What leaves a site: no count under 5, and none that follows from what is told."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from gcfl.base.errors import ConfigError
from gcfl.results.findings import Findings
from gcfl.results.shared import WITHHELD, lower, read_share, share_of, withheld


def findings(labels, suggested, classes=3, prior=None):
    n = len(labels)
    return Findings(
        site="x",
        classes=tuple("abcdef"[:classes]),
        ids=tuple(map(str, range(n))),
        labels=np.array(labels, dtype=np.int64),
        wrong=np.zeros(n),
        suggested=np.array(suggested, dtype=np.int64),
        confidence=np.ones(n),
        strange=np.zeros(n),
        evidence=np.zeros(n, dtype=np.int64),
        rate=0.25,
        interval=(0.125, 0.5),
        transition=np.eye(classes),
        prior=np.bincount(labels, minlength=classes) / n if prior is None else np.array(prior),
    )


@pytest.mark.parametrize(("classes", "most"), [(2, 20), (3, 20), (4, 18)])
def test_nothing_that_is_withheld_can_be_worked_out(classes, most):
    """By brute force: whoever knows the rule and the sum sees, for every count that is withheld,
    several values that lead to the very same message; sums that reach beyond what is tried here
    are left out.
    """
    behind = defaultdict(list)
    for counts in product(range(most + 1), repeat=classes):
        if 5 <= sum(counts) <= most:
            hidden = withheld(np.array(counts), range(classes))
            told = tuple(WITHHELD if h else c for h, c in zip(hidden, counts, strict=True))
            assert all(count == WITHHELD or count >= 5 for count in told)
            behind[told, sum(counts)].append(counts)
    for (told, _), several in behind.items():
        for place, count in enumerate(told):
            if count == WITHHELD:
                assert len({counts[place] for counts in several}) > 1, (told, several)


def test_what_each_level_tells():
    labels = [0] * 40 + [1] * 20 + [2] * 3
    suggested = [0] * 30 + [1] * 8 + [2] * 2 + [1] * 20 + [2] * 3
    found = findings(labels, suggested)
    assert share_of(found, "none") == {}
    rate = {"samples": 63, "rate": 0.25, "low": 0.125, "high": 0.5}
    assert share_of(found, "rate") == rate
    # Class c has 3 samples: withheld, and class a with it, or c's number would follow.
    assert share_of(found, "matrix") == {
        **rate,
        "labelled": [-1, 20, -1],
        "estimated": [-1, 20, -1],
        "confusion": [-1, -1, -1, -1, -1, -1, -1, -1, -1],
    }
    labels, suggested = [0] * 40 + [1] * 20 + [2] * 9, [0] * 30 + [1] * 8 + [2] * 2
    several = share_of(findings(labels, suggested + [1] * 13 + [0] * 7 + [2] * 9), "matrix")
    assert several["labelled"] == [40, 20, 9]
    # 2 is withheld, and 8 beside it; 0 is withheld, and 7 beside it; the last line as a whole.
    assert several["confusion"] == [30, -1, -1, -1, 13, -1, -1, -1, -1]


def test_a_class_that_seems_rare_is_withheld_as_a_whole():
    labels = [0] * 30 + [1] * 30 + [2] * 30
    told = share_of(findings(labels, labels, prior=[0.5, 0.48, 0.02]), "matrix")
    assert told["labelled"] == [-1, 30, -1]
    assert told["estimated"] == [-1, 43, -1]


def test_a_tiny_site_tells_its_size_alone():
    for level in ("rate", "matrix"):
        assert share_of(findings([0], [1]), level) == {"samples": 1}


def test_a_site_lowers_and_never_raises():
    assert lower("matrix", "rate") == lower("rate", "matrix") == "rate"
    assert lower("none", "matrix") == "none"
    with pytest.raises(ConfigError, match="must be none, rate or matrix, got 'all'"):
        lower("rate", "all")


def test_what_a_site_tells_is_checked_and_more_than_asked_is_not_looked_at():
    labels = [0] * 40 + [1] * 20 + [2] * 9
    told = share_of(findings(labels, labels), "matrix")
    whole = read_share(told, "matrix", 3)
    assert whole["confusion"][0] == [None, None, None]
    assert whole["labelled"] == [40, 20, 9]
    assert read_share(told, "rate", 3) == {"samples": 69, "rate": 0.25, "interval": [0.125, 0.5]}
    assert read_share(told, "none", 3) == {}
    for name, value in (
        ("samples", "many"),
        ("samples", -3),
        ("samples", True),
        ("rate", float("nan")),
        ("rate", 1.5),
        ("low", "0"),
        ("labelled", [1, 2]),
        ("labelled", "abc"),
        ("confusion", [-2] * 9),
        ("estimated", [0.5, 1.0, 2.0]),
    ):
        with pytest.raises((ValueError, TypeError)):
            read_share({**told, name: value}, "matrix", 3)
    with pytest.raises(KeyError):
        read_share({"samples": 9, "rate": 0.5}, "rate", 3)
