"""Random rows and random conditions, dense in NULL, NaN, ties and extremes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema({"a": pa.int32(), "b": pa.int64(), "f": pa.float64(), "g": pa.float64()})
SMALL = {
    "a": [None, -1, 0, 1, 2],
    "b": [None, -1, 0, 1, 3],
    "f": [None, float("nan"), -0.0, 0.0, 1.0, 1.5, float("inf"), float("-inf")],
    "g": [None, float("nan"), -1.0, 0.5, 1.0, float("inf")],
}
EXTREME = {
    "a": [*SMALL["a"], -(2**31), 2**31 - 1],
    "b": [*SMALL["b"], -(2**63), 2**63 - 1, 2**53 + 1, 2**53],
    "f": [*SMALL["f"], 2.0**53, 2.0**63, -(2.0**63), 5e-324, 1.7e308],
    "g": [*SMALL["g"], 2.0**53 + 2],
}


def rows(values: dict[str, list[Any]], size: int) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({name: st.sampled_from(known) for name, known in values.items()})
    many = st.lists(row, min_size=size, max_size=size)
    return many.map(lambda found: pa.Table.from_pylist(found, SCHEMA))


def pairs_of(left: pa.Table, right: pa.Table) -> list[dict[str, dict[str, Any]]]:
    return [{"l": a, "r": b} for a in left.to_pylist() for b in right.to_pylist()]


def _columns(sides: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{side}.{name}" for side in sides for name in SCHEMA.names])


CONSTANTS = st.sampled_from(["0", "1", "-1", "2L", "1.5D", "0.5D", "NULL", "CAST('NaN' AS DOUBLE)"])
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "=", "!=", "<>"])


def numbers(sides: str) -> st.SearchStrategy[str]:
    """Arithmetic over the columns of some sides; may overflow and divide by zero."""

    def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        infix = st.tuples(inner, st.sampled_from("+-*/%"), inner)
        return st.one_of(
            infix.map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda part: f"ABS({part})"),
            inner.map(lambda part: f"-({part})"),
            st.tuples(inner, inner).map(lambda two: f"COALESCE({two[0]}, {two[1]})"),
            st.tuples(inner, inner, inner).map(
                lambda three: f"CASE WHEN {three[0]} > 0 THEN {three[1]} ELSE {three[2]} END"
            ),
        )

    return st.recursive(_columns(sides) | CONSTANTS, wider, max_leaves=4)


def _tests(operand: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    three = st.tuples(operand, operand, operand)
    return st.one_of(
        st.tuples(operand, OPERATORS, operand).map(" ".join),
        st.tuples(operand, operand).map(" <=> ".join),
        three.map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}"),
        three.map(lambda p: f"{p[0]} NOT IN ({p[1]}, {p[2]})"),
        operand.map(lambda part: f"{part} IS NULL"),
    )


def _booleans(leaves: st.SearchStrategy[str], most: int) -> st.SearchStrategy[str]:
    def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        many = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            many.map(lambda parts: "(" + " AND ".join(parts) + ")"),
            many.map(lambda parts: "(" + " OR ".join(parts) + ")"),
            inner.map(lambda part: f"(NOT ({part}))"),
            inner.map(lambda part: f"(({part}) IS TRUE)"),
        )

    return st.recursive(leaves, wider, max_leaves=most)


def conditions(most: int = 5) -> st.SearchStrategy[str]:
    """Any condition over both sides, failing arithmetic included."""
    return _booleans(_tests(numbers("lr")), most)


def _bands() -> st.SearchStrategy[str]:
    name = st.sampled_from(["a", "b", "f", "g"])
    minus = st.tuples(name, name, st.booleans()).map(
        lambda p: f"l.{p[0]} - r.{p[1]}" if p[2] else f"r.{p[0]} - l.{p[1]}"
    )
    odd = ["CAST('NaN' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "NULL", "-0.0D"]
    bound = st.sampled_from(["0", "1", "2", "-1", "0.5", "1.5D", "-0.5", "1e0", *odd])
    operator = st.sampled_from(["<", "<=", ">", ">=", "=", "!="])
    return st.one_of(
        st.tuples(minus, operator, bound).map(lambda p: f"ABS({p[0]}) {p[1]} {p[2]}"),
        st.tuples(bound, operator, minus).map(lambda p: f"{p[0]} {p[1]} {p[2]}"),
        st.tuples(minus, bound, bound).map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}"),
    )


def join_conditions(most: int = 6) -> st.SearchStrategy[str]:
    """Conditions like those users write: comparisons of one side with the other, bands, filters."""
    left, right = _columns("l"), _columns("r")
    crossed = st.tuples(left, OPERATORS, right) | st.tuples(right, OPERATORS, left)
    between = st.tuples(left, right, right).map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}")
    inside = st.tuples(left, right, right).map(lambda p: f"{p[0]} IN ({p[1]}, {p[2]}, 1)")
    same = st.tuples(left, right).map(" <=> ".join)
    one_sided = st.tuples(left | right, OPERATORS, st.sampled_from(["0", "1", "NULL"]))
    leaves = st.one_of(
        crossed.map(" ".join),
        crossed.map(" ".join),
        between,
        inside,
        same,
        _bands(),
        one_sided.map(" ".join),
    )
    return _booleans(leaves, most)
