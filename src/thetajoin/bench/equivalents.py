"""Mutants that change no result, so that no test could notice them.

Each is a file, a function, a line before and after, and why the two mean the same.
"""

from __future__ import annotations

_WHY: dict[tuple[str, str, str, str], str] = {}

EQUIVALENTS = frozenset(_WHY)
