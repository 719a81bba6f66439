from __future__ import annotations

import numpy as np
import pytest

from gcfl.report.tables import cells
from gcfl.results.groups import study
from gcfl.results.lead import lead
from gcfl.results.styles import spread
from gcfl.results.verdict import headline, verdicts


def test_groups_differ_in_the_seed_alone(made):
    runs = [
        made(method=m, seed=s, data__noise=n, engine__workers=s + 1)
        for m in ("gcfl", "fedavg")
        for s in (0, 1)
        for n in (0.0, 0.4)
    ]
    found = study(runs)
    assert found.columns == ["method", "data.noise"]
    assert [(group.label, len(group.runs)) for group in found.groups] == [
        ("fedavg, noise 0", 2),
        ("gcfl, noise 0", 2),
        ("fedavg, noise 0.4", 2),
        ("gcfl, noise 0.4", 2),
    ]
    assert found.common == {"rounds": 1}


def test_what_a_method_brings_along_is_no_column(made):
    runs = [
        made(method="fedavg", train__lr=0.1),
        made(method="gcfl", train__lr=0.2, coreset__budget=0.1),
    ]
    found = study(runs)
    assert found.columns == ["method"]
    assert set(found.implied) == {"train.lr", "coreset.budget"}
    assert [group.line for group in found.groups] == ["fedavg", "gcfl"]


def test_what_varies_within_a_method_is_a_column_and_names_it_alone(made):
    budgets = [
        made(coreset__budget=b, coreset__score=s)
        for b, s in ((0.1, "distance"), (0.2, "correlation"))
    ]
    found = study([*budgets, made(method="random", coreset__budget=0.1)])
    assert found.columns == ["method", "coreset.budget", "coreset.score"]
    assert [group.line for group in found.groups] == [
        "gcfl, budget 0.1, score distance",
        "gcfl, budget 0.2, score correlation",
        "random",
    ]


def test_digests_follow_the_seed_unless_seeds_collide(made):
    seeds = [made(seed=s, given__model=f"weights {s}") for s in (0, 1)]
    assert len(study(seeds).groups) == 1
    models = [made(seed=0, given__model=f"weights {s}") for s in (0, 1)]
    assert len(study(models).groups) == 2


def test_finished_runs_count_and_skyline_is_no_competitor(made):
    runs = [
        made(0.5, seed=0),
        made(0.7, seed=1),
        made(0.1, seed=2, finished=False),
        made(0.9, method="skyline"),
        made(0.65, method="fedavg", finished=False),
        made(0.55, method="random"),
    ]
    found = study(runs)
    by_line = {group.line: group for group in found.groups}
    assert by_line["gcfl"].accuracy == spread([0.5, 0.7])
    assert by_line["gcfl"].state == "2 of 3 seeds finished"
    assert by_line["fedavg"].accuracy.mean == 0.65
    assert by_line["fedavg"].state == "unfinished: 1 of 1 round"
    assert [group.line for group in found.ranked(found.groups)] == ["gcfl", "random"]
    assert found.best == []  # one seed of a rival tells nothing


@pytest.mark.parametrize(
    ("first", "second", "clear"),
    [
        # seed by seed 0.1 and 0.12 apart, though both sway by far more than that
        ([0.9, 0.5, 0.7], [0.8, 0.38, 0.59], True),
        ([0.9, 0.5, 0.7], [0.5, 0.85, 0.6], False),
        ([0.9, 0.9, 0.9], [0.9, 0.9, 0.9], False),
    ],
)
def test_a_star_is_for_more_than_the_seeds_spread(made, first, second, clear):
    runs = [made(a, seed=s) for s, a in enumerate(first)]
    runs += [made(a, seed=s, method="fedavg") for s, a in enumerate(second)]
    found = study(runs)
    assert [group.line for group in found.best] == (["gcfl"] if clear else [])
    (said,) = verdicts(found)
    assert said.startswith("gcfl is ahead of fedavg" if clear else ("gcfl has", "fedavg has"))


def test_the_lead_is_that_of_the_same_seeds_or_of_all():
    found = lead({0: 0.9, 1: 0.5, 2: 0.7}, {0: 0.8, 1: 0.3, 2: 0.7})
    apart = np.array([0.1, 0.2, 0.0])
    assert (found.by, found.sd, found.seeds) == (
        pytest.approx(apart.mean()),
        pytest.approx(apart.std(ddof=1)),
        3,
    )
    others = lead({0: 0.9, 1: 0.5}, {2: 0.6, 3: 0.4})
    assert others.by == pytest.approx(0.2)
    assert others.sd == pytest.approx(np.sqrt(np.var([0.9, 0.5], ddof=1) + 0.02))
    assert lead({0: 0.9}, {0: 0.8}).sd is None
    assert not lead({0: 0.9}, {0: 0.8}).clear


def test_a_verdict_names_its_doubts(made):
    found = study([made(0.9), made(0.8, method="fedavg"), made(0.99, method="skyline")])
    assert verdicts(found) == [
        "gcfl is 10.0 points above fedavg, but one seed proves nothing: play three or "
        "more (--seeds 3)."
    ]
    clear = [made(0.9 + s / 100, seed=s) for s in (0, 1)]
    clear += [made(0.8, seed=s, method="fedavg") for s in (0, 1)]
    open_ = [made(0.3 + s, seed=s, method="random") for s in (0, 1)]
    (said,) = verdicts(study([*clear, *open_]))
    assert "2 seeds cannot tell it from random (10.5 ± 70.0 points behind)" in said
    assert verdicts(study([made(0.9)])) == []


def test_two_seeds_prove_little(made):
    """Of two the lead is told, with a word of caution and without a star; of three with one."""
    two = [made(0.9 + s / 100, seed=s) for s in (0, 1)]
    two += [made(0.8, seed=s, method="fedavg") for s in (0, 1)]
    assert study(two).best == []
    (said,) = verdicts(study(two))
    assert said == (
        "gcfl is ahead of fedavg by 10.5 ± 0.7 points, which is more than the spread, at 1 times "
        "its CPU-seconds; but two seeds prove little: play three or more (--seeds 3)."
    )
    assert "★" not in "".join(str(line) for line in cells(study(two))[1])
    three = [*two, made(0.92, seed=2), made(0.8, seed=2, method="fedavg")]
    assert [group.line for group in study(three).best] == ["gcfl"]
    found = {line[0]: line[1] for line in cells(study(three))[1]}
    assert [name for name, text in found.items() if text.endswith(" ★")] == ["gcfl"]
    (said,) = verdicts(study(three))
    assert "more than the spread over 3 seeds, at" in said
    assert "play three" not in said


def test_a_run_that_failed_casts_no_doubt_on_the_others(made):
    """One seed of a third method proves nothing about that one alone."""
    runs = [made(0.9 + s / 100, seed=s) for s in (0, 1, 2)]
    runs += [made(0.8, seed=s, method="fedavg") for s in (0, 1, 2)]
    (said,) = verdicts(study([*runs, made(0.7, method="random")]))
    assert said.startswith("gcfl is ahead of fedavg by 11.0 ± 1.0 points")
    assert said.endswith("One seed of random proves nothing.")
    (said,) = verdicts(study([*runs, made(0.85, method="random")]))  # also where it is the nearest
    assert said.startswith("gcfl is ahead of fedavg by 11.0 ± 1.0 points")
    (said,) = verdicts(study([*runs[:3], made(0.7, method="random")]))
    assert said == (
        "gcfl is 21.0 points above random, but one seed of random proves nothing: play three or "
        "more (--seeds 3)."
    )


def test_one_sentence_for_the_whole_study(made):
    two = [made(0.9), made(0.8, method="fedavg")]
    assert headline(study(two)) == verdicts(study(two))[0]
    assert headline(study(two[:1])) == (
        "gcfl ends at 90.0% with one seed, which proves nothing about another."
    )
    seeds = [made(0.9, seed=0), made(0.92, seed=1)]
    assert headline(study(seeds)).startswith("gcfl ends at 91.0 ± 1.4%, mean ± sd of 2 seeds")
    scenes = []
    for noise, rival in ((0.0, 0.95), (0.2, 0.7), (0.4, 0.6)):
        for seed in (0, 1, 2):
            moved = rival + (0.05 * seed if noise == 0.0 else 0.01 * seed)
            scenes.append(made(0.9, seed=seed, data__noise=noise))
            scenes.append(made(moved, seed=seed, method="fedavg", data__noise=noise))
    found = study(scenes)
    # fedavg, 0.95 to 1.05: ahead by 10 ± 5 points; gcfl by 19 ± 1 and 29 ± 1
    assert headline(found) == (
        "Of 3 problems: in 2 gcfl is ahead by more than the seeds' spread (19.0 ± 1.0 points to "
        "29.0 ± 1.0 points); in 1 fedavg is ahead by more than the seeds' spread "
        "(10.0 ± 5.0 points)."
    )
    assert len(found.best) == 3
    first = study([one for one in scenes if one.seed == 0])
    assert headline(first) == "Of 3 problems: in 3 one seed proves nothing."
    assert first.best == []
    two = study([one for one in scenes if one.seed < 2])
    assert headline(two) == "Of 3 problems: in 3 two seeds prove little."


def test_a_name_tells_of_the_loss(made):
    gce = [made(method=m, train__loss="gce") for m in ("fedavg", "gcfl")]
    assert [group.line for group in study(gce).groups] == ["fedavg (gce)", "gcfl (gce)"]
    assert [row[0] for row in cells(study(gce))[1]] == ["fedavg (gce)", "gcfl (gce)"]
    assert made(method="robust", train__loss="corrected").label == "robust"
    assert made(method="robust", train__loss="cross-entropy").label == "robust (cross-entropy)"
    assert made(train__mixup=1.0, train__loss="sce").label == "gcfl (sce, mixup 1)"
    both = study([gce[0], made(method="fedavg", train__loss="cross-entropy")])
    assert {group.line for group in both.groups} == {"loss gce", "loss cross-entropy"}


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"coreset__score": "cosine", "coreset__weighted": False}, "gcfl"),
        ({"coreset__score": "distance"}, "gcfl (score distance)"),
        ({"coreset__variant": "whole", "coreset__weighted": True}, "gcfl (whole, weighted)"),
        ({"method": "crust", "coreset__crust": "released"}, "crust (released)"),
        ({"model__freeze": "body", "train__augment": "crop"}, "gcfl (crop, frozen body)"),
        ({"model__freeze": ["0"], "server__clip": "median"}, "gcfl (frozen layers, clip median)"),
        ({"clean__warm_start": 20}, "gcfl (warm start 20)"),
        ({"method": "fedavg+warmstart", "clean__warm_start": 10}, "fedavg+warmstart"),
        ({"method": "robust", "clean__takes_part": True, "train__augment": "auto"}, "robust"),
        ({"method": "robust", "clean__takes_part": False}, "robust (server takes no part)"),
        # with a budget the server takes no part by default
        (
            {"method": "robust", "clean__takes_part": False, "privacy__clean_epsilon": 8.0},
            "robust (clean ε 8)",
        ),
        ({"method": "mine", "train__loss": "gce"}, "mine (gce)"),
    ],
)
def test_a_name_tells_what_makes_another_method_of_one(made, settings, label):
    assert made(**settings).label == label


def test_what_a_column_tells_is_not_told_twice(made):
    scores = [made(coreset__score=one, train__loss="gce") for one in ("distance", "cosine")]
    heads, lines = cells(study([*scores, made(method="fedavg")]))
    assert heads[:2] == ["method", "score"]
    assert [line[0] for line in lines] == ["fedavg", "gcfl (gce)", "gcfl (gce)"]


def test_a_single_run_is_a_study_too(made):
    found = study([made()])
    assert found.columns == []
    assert found.groups[0].label == "gcfl"
    assert found.best == []
    assert found.groups[0].accuracy.sd is None


def test_a_share_and_a_count_are_told_apart(made):
    found = study([made(cohort=1.0), made(cohort=1)])
    assert {group.scene for group in found.groups} == {"cohort 100%", "cohort 1"}


def test_what_a_data_set_has_one_value_of_is_not_in_its_name(made):
    runs = [made(data__source="blobs", data__alpha=a) for a in (0.1, 1.0)] + [
        made(data__source="digits", data__alpha=0.4)
    ]
    assert [group.scene for group in study(runs).groups] == [
        "blobs, alpha 0.1",
        "blobs, alpha 1",
        "digits",
    ]


def test_a_method_that_is_told_the_truth_and_one_without_any_device_are_known_by_their_parts(made):
    groups = {
        method: study([made(method=method)]).groups[0]
        for method in (
            "fedavg",
            "random+skyline",
            "centralised+skyline",
            "gcfl",
            "fedavg+warmstart",
        )
    }
    assert [name for name, group in groups.items() if group.knows_truth] == [
        "random+skyline",
        "centralised+skyline",
    ]
    assert [name for name, group in groups.items() if group.is_plain] == ["fedavg"]
    unknown = study([made(method="mine+skyline")]).groups[0]  # a part that is not registered here
    assert unknown.knows_truth
    assert not unknown.is_plain
