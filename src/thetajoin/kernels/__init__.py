"""Compiled loops on plain arrays and integers (numba); nothing here knows a column or a window."""
