"""Many runs from one file: expand, run what is missing, sum up.

`gcfl.sweep(file)` plays one: the module itself can be called.
"""

import sys
from types import ModuleType
from typing import Any

from gcfl.sweep.comparison import Comparison, compare
from gcfl.sweep.plan import Cell, Plan, read_plan
from gcfl.sweep.runner import run_cells
from gcfl.sweep.summary import grouped, write_summary

__all__ = [
    "Cell",
    "Comparison",
    "Plan",
    "compare",
    "grouped",
    "read_plan",
    "run_cells",
    "write_summary",
]


class _Callable(ModuleType):
    """Since a package's rooms are its attributes, `gcfl.sweep` cannot be a mere function."""

    def __call__(self, *arguments: Any, **options: Any) -> Comparison:
        from gcfl.sweep.comparison import sweep

        return sweep(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
