"""Many runs from one file: expand, run what is missing, sum up."""

from gcfl.sweep.plan import Cell, Plan, read_plan
from gcfl.sweep.runner import run_cells
from gcfl.sweep.table import Row, rows_of, write_summary

__all__ = ["Cell", "Plan", "Row", "read_plan", "rows_of", "run_cells", "write_summary"]
