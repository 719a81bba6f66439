"""Accuracy at equal cost: by hand, and by a search over every evaluation."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from gcfl.base.record import Samples
from gcfl.results.equal import accuracy_at, at_equal_cost
from gcfl.results.measures import measure
from gcfl.sweep import grouped, read_plan
from gcfl.sweep.summary import more_columns, there
from helpers import ROOT


def run_of(rounds):
    """(samples trained on, accuracy or None) of each round."""
    return SimpleNamespace(
        rounds=[
            SimpleNamespace(
                samples=Samples(forward=10 * n, backward=n), accuracy=accuracy, cohort=1
            )
            for n, accuracy in rounds
        ]
    )


def test_the_last_evaluation_that_could_be_paid():
    run = run_of([(10, None), (10, 0.2), (10, None), (10, 0.4), (10, 0.3)])
    samples, passes = measure("samples").of_round, measure("passes").of_round
    assert [accuracy_at(run, samples, most) for most in (19, 20, 39, 40, 50, 1e9)] == [
        None, 0.2, 0.2, 0.4, 0.3, 0.3,
    ]  # fmt: skip
    assert accuracy_at(run, passes, 40 * 12) == 0.4  # ten forward, and one backward as two
    assert accuracy_at(run, passes, 40 * 12 - 1) == 0.2


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(0, 1)), max_size=12),
    st.integers(0, 100),
)
def test_it_is_the_definition(rounds, most):
    found = None
    for k in range(1, len(rounds) + 1):
        if sum(n for n, _ in rounds[:k]) <= most and rounds[k - 1][1] is not None:
            found = rounds[k - 1][1]
    assert accuracy_at(run_of(rounds), measure("samples").of_round, most) == found


def test_kept_runs_have_the_columns_and_the_mark_its_own_accuracy():
    plan = read_plan("robust", seeds=2)
    study = grouped(there(plan, ROOT / "docs" / "results" / "robust"))
    found = more_columns(plan, study)
    lines = [group.line for group in study.groups]
    accuracies = [f"{100 * group.accuracy.mean:.1f}" for group in study.groups]
    assert set(found) >= {"best", "mean of the last ten", "at equal samples", "at equal passes"}
    # Random draws take fewer passes than robust: they are compared as they ended.
    place = lines.index("FedAvg, equal samples")
    assert found["at equal passes"][place].startswith(accuracies[place])
    assert found["best"][lines.index("robust")].startswith(accuracies[lines.index("robust")])


def group_of(line, runs, processor="a processor", linear="torch"):
    """Runs of (samples, accuracy) rounds, each of a second."""
    made = []
    for rounds in runs:
        run = run_of(rounds)
        for record in run.rounds:
            record.time = SimpleNamespace(cpu=1.0)
        run.environment = {"processor": processor} if processor else {}
        run.settings = {"engine.linear": linear}
        made.append(run)
    return SimpleNamespace(line=line, scene="", used=made)


def equal_to(mark, *others):
    study = SimpleNamespace(groups=[mark, *others], scenes={"": [mark, *others]})
    return at_equal_cost(study, mark.line)


def test_rounds_are_the_shortest_run_and_seconds_those_of_one_processor():
    mark = group_of("ours", [[(10, 0.1), (10, 0.2), (10, 0.3)]])
    longer = group_of("all", [[(10, 0.4), (10, 0.5), (10, 0.6), (10, 0.7)]])
    found = equal_to(mark, longer)
    assert [one.mean for one in found["rounds"]] == [0.3, 0.6]
    assert [one.mean for one in found["cpu_seconds"]] == [0.3, 0.6]
    assert [one.mean for one in found["samples"]] == [0.3, 0.6]
    short = group_of("short", [[(10, 0.8), (10, 0.9)]])
    assert [one.mean for one in equal_to(mark, short)["rounds"]] == [0.2, 0.9]
    for other in (
        group_of("all", [[(10, 0.4)]], processor="another"),
        group_of("all", [[(10, 0.4)]], processor=None),
        group_of("all", [[(10, 0.4)]], linear="onednn"),
    ):
        assert equal_to(mark, other)["cpu_seconds"][1] is None
