"""`gcfl run --method a,b,c --seeds 3`: methods, seeds or both side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from gcfl.base.errors import ConfigError
from gcfl.cli.playing import at_least_one, complain, play
from gcfl.cli.settings import overrides, wanted_of


def compared(options: argparse.Namespace, rest: list[str]) -> bool:
    """Whether the command asks for more than one run; if so, they are played and told."""
    _, explicit = overrides(rest)
    names = str(explicit.get("method", ("", ""))[1])
    if options.seeds is None and "," not in names:
        if options.jobs is not None:
            raise ConfigError("--jobs is for several runs: name methods (a,b,c) or --seeds")
        return False
    if options.fresh:
        raise ConfigError("--fresh is for one run; a comparison plays what is not finished")
    at_least_one(options, "seeds", "jobs")
    methods = [name.strip() for name in names.split(",")] if names else []
    if not all(methods):
        raise ConfigError(f"--method names nothing between two commas: {names!r}")
    _compare(options, rest, methods)
    return True


def _compare(options: argparse.Namespace, rest: list[str], methods: list[str]) -> None:
    import logging

    from gcfl.base.options import flat
    from gcfl.experiment import compose, read_settings
    from gcfl.report.progress import Progress
    from gcfl.report.tables import best_note
    from gcfl.report.terminal import hint, print_table, wide
    from gcfl.results.verdict import verdicts
    from gcfl.sweep.comparison import comparison_plan, conclude

    wanted = wanted_of(rest)
    chosen: list[dict[str, str]] = [{"method": name} for name in methods] or [{}]
    built = [compose(wanted.file, {**wanted.explicit, **one}, wanted.flags) for one in chosen]
    shared = flat(read_settings(wanted.file)) if wanted.file else {}
    with Progress(options.quiet):
        unused = set.intersection(*(set(names) for _, names in built))
        for name in sorted(unused):
            logging.getLogger("gcfl").warning("%s has no effect with any of these methods", name)
    settings = {**shared, **wanted.explicit}
    plan = comparison_plan([one.method for one, _ in built], settings, options.seeds)
    out = Path(options.out)
    outcomes = play(plan, out, options.jobs, options.quiet)
    found = conclude(plan, outcomes, out)
    console = wide()
    print_table(found.study, found.title, console)
    for line in (*verdicts(found.study), best_note(found.study)):
        if line:
            console.print(line, soft_wrap=True, markup=False)
    for group in found.study.groups:
        hints = [hint(run) if run.rounds else None for run in group.runs]
        if all(hints):
            console.print(f"hint: {group.line}: {hints[0]}", soft_wrap=True, markup=False)
    print(f"report: {found.report}")
    complain(outcomes)
