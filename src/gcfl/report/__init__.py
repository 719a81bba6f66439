"""Reads run folders only: tables, curves, figures."""
