from __future__ import annotations

from pathlib import Path

from gcfl.report.collect import Run
from gcfl.report.study import spread, study


def made(accuracy=0.5, finished=True, **settings):
    """A run of one round with these settings; __ stands for a dot."""
    flat = {
        "method": "gcfl",
        "seed": 0,
        "rounds": 1,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    record = {
        "round": 0,
        "accuracy": accuracy,
        "validation_loss": None,
        "samples": {"backward": 1},
        "steps": 1,
        "bytes": {"down": {"model": 4}, "up": {"model": 4}},
        "coreset": {"clean_share": None},
        "time": {kind: {"cpu": 0.1} for kind in ("select", "train", "aggregate", "evaluate")}
        | {"round": {"wall": 1.0}},
        "left_out": {},
    }
    return Run("name", Path("name"), flat, {}, [record], finished, False, None, None)


def test_groups_differ_in_the_seed_alone():
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


def test_what_a_method_brings_along_is_no_column():
    runs = [
        made(method="fedavg", train__lr=0.1),
        made(method="gcfl", train__lr=0.2, coreset__budget=0.1),
    ]
    found = study(runs)
    assert found.columns == ["method"]
    assert set(found.implied) == {"train.lr", "coreset.budget"}
    assert [group.line for group in found.groups] == ["fedavg", "gcfl"]


def test_what_varies_within_a_method_is_a_column_and_names_it_alone():
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


def test_digests_follow_the_seed_unless_seeds_collide():
    seeds = [made(seed=s, given__model=f"weights {s}") for s in (0, 1)]
    assert len(study(seeds).groups) == 1
    models = [made(seed=0, given__model=f"weights {s}") for s in (0, 1)]
    assert len(study(models).groups) == 2


def test_finished_runs_count_and_skyline_is_no_competitor():
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
    assert by_line["fedavg"].state == "unfinished: 1 of 1 rounds"
    assert [group.line for group in found.best] == ["gcfl"]


def test_a_single_run_is_a_study_too():
    found = study([made()])
    assert found.columns == []
    assert found.groups[0].label == "gcfl"
    assert found.best == []
    assert found.groups[0].accuracy.sd is None


def test_a_share_and_a_count_are_told_apart():
    found = study([made(cohort=1.0), made(cohort=1)])
    assert {group.scene for group in found.groups} == {"cohort 100%", "cohort 1"}


def test_what_a_data_set_has_one_value_of_is_not_in_its_name():
    runs = [made(data__source="blobs", data__alpha=a) for a in (0.1, 1.0)] + [
        made(data__source="digits", data__alpha=0.4)
    ]
    assert [group.scene for group in study(runs).groups] == [
        "blobs, alpha 0.1",
        "blobs, alpha 1",
        "digits",
    ]
