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


_CHAIN, _MANY = "src/thetajoin/engine/store.py", "src/thetajoin/window/many_inputs.py"
_ARRIVALS, _INTERVAL = "src/thetajoin/index/probe.py", "src/thetajoin/index/interval.py"
_STARTS = "starts = np.flatnonzero(np.diff(numbers, prepend={}) != 1)"
_SMALL, _TABLE = "if {}:", "table = np.empty(high - low + {}, np.int64)"
_PAST = "past[:] = {} if {} else {}"
_FIRST = "before, after = ends if names.index(left) < names.index(right) else ends[::-1]"
_NOT_AFTER = "before, after = ends if (names.index(left) <= names.index(right)) else ends[::-1]"

_STATE = "src/thetajoin/engine/state.py"
_BEFORES = "befores: dict[Side, Int64] = {{side: np.zeros({}, np.int64) for side in SIDES}}"

EQUIVALENTS = frozenset(
    {
        # No run of none or of one segment is merged.
        _Same(_CHAIN, "next_merge", "while end > 0:", "while (end >= 0):"),
        _Same(_CHAIN, "next_merge", "while end > 0:", "while end > 1:"),
        # Only the order of size classes counts.
        _Same(_CHAIN, "_size_class", "result = 0", "result = 1"),
        _Same(_CHAIN, "_size_class", "result += 1", "result += 2"),
        # Any number but the one before the first begins a piece there.
        *(
            _Same(
                _ARRIVALS, "Arrivals.of", _STARTS.format("numbers[:1] - 2"), _STARTS.format(other)
            )
            for other in ("(numbers[:1] + 2)", "numbers[:1] - 3")
        ),
        # Two ways to the same numbers, of which one is sooner there.
        *(
            _Same(
                _ARRIVALS,
                "Arrivals.rows_before",
                _SMALL.format("high - low < TABLE_SHARE * len(numbers)"),
                _SMALL.format(other),
            )
            for other in (
                "(high - low <= TABLE_SHARE * len(numbers))",
                "(high + low) < TABLE_SHARE * len(numbers)",
                "high - low < (TABLE_SHARE // len(numbers))",
            )
        ),
        _Same(_ARRIVALS, "Arrivals.rows_before", _TABLE.format(1), _TABLE.format(2)),
        _Same(
            _ARRIVALS,
            "Arrivals.concat",
            "a.first + a.rows == b.first for a, b in pairwise(parts)",
            "(a.first - a.rows) == b.first for a, b in pairwise(parts)",
        ),
        # Only the sign counts, and the step is past all of 64 bits.
        *(
            _Same(_INTERVAL, "_shift_keys", _PAST.format(1, "step > 0", -1), _PAST.format(*other))
            for other in (
                (2, "step > 0", -1),
                (1, "step > 0", -2),
                (1, "step > 1", -1),
                (1, "(step >= 0)", -1),
            )
        ),
        # Both roles of a self-join have the same late rows.
        _Same(
            _STATE,
            "JoinState.commit",
            'if side == "l" or not self.join.spec.self_join:',
            "if (side != 'l') or not self.join.spec.self_join:",
        ),
        # Blocks are in order of arrival: those after the first that stays have nothing to give.
        _Same(_STATE, "JoinState._expire_by_count", "break", "pass"),
        # A semi join's output has the left columns only, whichever side it is told.
        *(
            _Same(
                _STATE,
                "JoinState._give_first_matches",
                f'yield from self.join.give_alone("l", {rows})',
                f"yield from self.join.give_alone('r', {rows})",
            )
            for rows in (
                "block.table, np.flatnonzero(fresh)",
                "new.table, np.flatnonzero(new.settled)",
            )
        ),
        # Never read unless rows are taken in an order, and then replaced.
        _Same(_STATE, "JoinState.begin", _BEFORES.format(0), _BEFORES.format(1)),
        # Two inputs never have the same place.
        _Same(_MANY, "pair_window", _FIRST, _NOT_AFTER),
        _Same(_MANY, "between", _FIRST, _NOT_AFTER),
    }
)
