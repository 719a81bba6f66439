"""Many runs from one file: expand, run what is missing, sum up."""

from gcfl.sweep.plan import Cell, Plan, read_plan
from gcfl.sweep.runner import run_cells
from gcfl.sweep.summary import grouped, write_summary

__all__ = ["Cell", "Plan", "grouped", "read_plan", "run_cells", "write_summary"]
