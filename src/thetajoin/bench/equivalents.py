"""Mutants that change no result, so that no test could notice them.

Each is a file, a function, a line before and after; those of one reason stand together under it.
"""

from __future__ import annotations

from typing import NamedTuple


class _Same(NamedTuple):
    path: str
    function: str
    before: str
    after: str


_CHAIN, _MANY = "src/thetajoin/window/chain.py", "src/thetajoin/window/many.py"
_FIRST = "before, after = ends if names.index(left) < names.index(right) else ends[::-1]"
_NOT_AFTER = "before, after = ends if (names.index(left) <= names.index(right)) else ends[::-1]"

EQUIVALENTS = frozenset(
    {
        # No run of none or of one segment is merged.
        _Same(_CHAIN, "next_merge", "while end > 0:", "while (end >= 0):"),
        _Same(_CHAIN, "next_merge", "while end > 0:", "while end > 1:"),
        # Only the order of size classes counts.
        _Same(_CHAIN, "_size_class", "result = 0", "result = 1"),
        _Same(_CHAIN, "_size_class", "result += 1", "result += 2"),
        # Two inputs never have the same place.
        _Same(_MANY, "pair_window", _FIRST, _NOT_AFTER),
        _Same(_MANY, "between", _FIRST, _NOT_AFTER),
    }
)
