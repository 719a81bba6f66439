"""Tables in a terminal that is too narrow for all of their columns."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gcfl.report.fitting import print_fitting
from gcfl.report.terminal import print_table
from gcfl.results.groups import study

LONG = ["robust+fedprox+trimmed-mean", "random+moon+geometric-median+warmstart", "fedavg"]


def terminal(width):
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def printed(console):
    return console.file.getvalue()


@pytest.fixture
def compared(made):
    return study(
        [
            made(0.5 + seed / 7 + place / 90, method=method, seed=seed, train__loss="gce")
            for place, method in enumerate(LONG)
            for seed in (0, 1, 2)
        ]
    )


@pytest.mark.parametrize("width", [80, 100])
def test_method_and_accuracy_are_whole_and_what_is_left_out_is_named(compared, width):
    console = terminal(width)
    print_table(compared, "three methods", console)
    text = printed(console)
    table = [line for line in text.splitlines() if line[:1] in "┏┃┡│└"]
    assert "…" not in text
    assert max(map(len, table)) <= width
    for group in compared.groups:
        (row,) = [line for line in table if f" {group.line} " in line]
        assert re.search(r" \d\d\.\d ± \d+\.\d ", row)
    note = " ".join(text.split("no room for: ")[1].split())
    gone = note.split(". A terminal")[0].split("; ")
    assert "CPU-seconds" not in gone
    assert gone[0] == "CPU of FedAvg's"
    assert "| cat" in note


def test_in_a_pipe_and_in_the_width_that_the_note_says_nothing_is_left_out(compared):
    console = Console(file=io.StringIO(), width=60)
    print_table(compared, "three methods", console)
    whole = printed(console)
    assert "no room" not in whole
    assert "trained on" in whole
    narrow = terminal(70)
    print_table(compared, "three methods", narrow)
    needed = int(re.search(r"of (\d+) columns", printed(narrow))[1])
    for width in (needed, needed - 1):
        console = terminal(width)
        print_table(compared, "three methods", console)
        assert ("no room" in printed(console)) == (width < needed)
        assert printed(console).count("…") == 0


def test_a_name_that_has_no_room_at_all_goes_on_in_the_next_line():
    console = terminal(30)
    lines = [["a-method-with-a-long-name", "26.71 ± 0.52 ★", "1 GB"]]
    assert print_fitting(console, "t", ["method", "accuracy, %", "sent"], lines, ["sent"]) == [
        "sent"
    ]
    text = printed(console)
    assert "26.71 ± 0.52 ★" in text
    column = "".join(line.split("│")[1].strip() for line in text.splitlines() if "│" in line)
    assert column == "a-method-with-a-long-name"
