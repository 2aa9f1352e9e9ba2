"""`join` over every operator and every form of condition equals the naive join."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import ids, left_rows, left_table, naive_ids, right_rows, right_table

OPERATORS = naive.OPERATORS


def check(left, right, on, pred, **options):
    got = tj.join(left_table(left), right_table(right), on, **options)
    assert ids(got) == naive_ids(naive.naive_join(left, right, pred))
    return got


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    ("l", "r"), [("a", "b"), ("x", "y"), ("a", "y"), ("x", "b")], ids=lambda c: c
)
@own.examples(15)
@given(left=left_rows(), right=right_rows())
def test_one_comparison(op, l, r, left, right):
    check(left, right, f"l.{l} {op} r.{r}", naive.conj((l, op, r)))


@pytest.mark.parametrize(("op1", "op2"), list(itertools.product(OPERATORS, OPERATORS)))
@own.examples(10)
@given(left=left_rows(), right=right_rows())
def test_every_pair_of_operators(op1, op2, left, right):
    check(
        left,
        right,
        f"l.a {op1} r.b AND l.c {op2} r.d",
        naive.conj(("a", op1, "b"), ("c", op2, "d")),
    )


@given(own.operators, own.operators, left_rows(), right_rows())
def test_pairs_of_operators_over_floats(op1, op2, left, right):
    check(
        left,
        right,
        f"l.x {op1} r.y AND l.a {op2} r.y",
        naive.conj(("x", op1, "y"), ("a", op2, "y")),
    )


@given(st.tuples(own.operators, own.operators, own.operators), left_rows(16), right_rows(16))
def test_three_comparisons(ops, left, right):
    check(
        left,
        right,
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d AND l.x {ops[2]} r.y",
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d"), ("x", ops[2], "y")),
    )


@given(
    st.lists(own.comparisons(("a", "c", "x"), ("b", "d", "y")), min_size=4, max_size=7),
    left_rows(16),
    right_rows(16),
)
def test_many_comparisons(conditions, left, right):
    check(
        left,
        right,
        [condition.sql for condition in conditions],
        naive.all_of(*(condition.pred for condition in conditions)),
    )


@given(
    st.lists(own.comparisons(ops=("=",)), min_size=1, max_size=2),
    st.lists(own.comparisons(), max_size=2),
    left_rows(16),
    right_rows(16),
)
def test_equality_mixed_in(equalities, others, left, right):
    conditions = [*equalities, *others]
    check(
        left,
        right,
        " AND ".join(condition.sql for condition in conditions),
        naive.all_of(*(condition.pred for condition in conditions)),
    )


@own.examples(150)
@given(own.conditions(), left_rows(), right_rows(), own.engine_options())
def test_any_condition(condition, left, right, options):
    check(left, right, condition.sql, condition.pred, **options)


@given(
    st.lists(own.comparisons(("a", "c", "x"), ("b", "d", "y")), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
    left_rows(),
    right_rows(),
)
def test_the_order_of_the_predicates_does_not_matter(conditions, random, left, right):
    pred = naive.all_of(*(condition.pred for condition in conditions))
    check(left, right, " AND ".join(c.sql for c in conditions), pred)
    random.shuffle(conditions)
    check(left, right, " AND ".join(c.sql for c in conditions), pred)


@pytest.mark.parametrize("width", [0, 1, 2])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "=", "!="])
@own.examples(10)
@given(left=left_rows(), right=right_rows())
def test_bands(op, width, left, right):
    check(left, right, f"ABS(l.a - r.b) {op} {width}", naive.band("a", "b", op, width))
    check(left, right, f"ABS(r.b - l.a) {op} {width}", naive.band("a", "b", op, width))


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@given(left=left_rows(), right=right_rows())
def test_bands_over_floats(op, left, right):
    # NaN less anything is NaN, which is above every number; so is infinity less infinity.
    check(left, right, f"ABS(l.x - r.y) {op} 1.0", naive.band("x", "y", op, 1.0))


@given(left_rows(), right_rows())
def test_several_bands(left, right):
    check(
        left,
        right,
        "ABS(l.a - r.b) <= 0 OR ABS(l.a - r.b - 3) <= 1",
        naive.any_of(
            naive.band("a", "b", "<=", 0),
            lambda l, r: (
                None
                if (d := naive.arithmetic("-", l["a"], r["b"])) is None
                else naive.compare(abs(d - 3), "<=", 1)
            ),
        ),
    )


@given(left_rows(), right_rows())
def test_between(left, right):
    check(
        left,
        right,
        "l.a BETWEEN r.b AND r.d",
        naive.conj(("a", ">=", "b"), ("a", "<=", "d")),
    )
    check(
        left,
        right,
        "r.b BETWEEN l.a AND l.c",
        naive.conj(("a", "<=", "b"), ("c", ">=", "b")),
    )
    check(
        left,
        right,
        "l.a NOT BETWEEN r.b AND r.d",
        naive.any_of(naive.conj(("a", "<", "b")), naive.conj(("a", ">", "d"))),
    )


@given(left_rows(), right_rows())
def test_overlapping_disjuncts_give_a_pair_once(left, right):
    check(
        left,
        right,
        "l.a < r.b OR l.a <= r.b OR l.a != r.b OR l.c > r.d",
        naive.any_of(
            naive.conj(("a", "<=", "b")), naive.conj(("a", "!=", "b")), naive.conj(("c", ">", "d"))
        ),
    )


@given(left_rows(), right_rows())
def test_a_disjunct_over_one_side(left, right):
    check(
        left,
        right,
        "l.a > 1 OR l.c < r.d",
        naive.any_of(lambda l, r: naive.compare(l["a"], ">", 1), naive.conj(("c", "<", "d"))),
    )


@given(left_rows(), right_rows())
def test_expressions_over_one_side(left, right):
    def value(a, c):
        return naive.arithmetic("-", naive.arithmetic("*", a, 2), c)

    check(
        left,
        right,
        "2 * l.a - l.c < r.b + r.d AND CAST(l.a AS DOUBLE) >= r.y",
        naive.all_of(
            lambda l, r: naive.compare(
                value(l["a"], l["c"]), "<", naive.arithmetic("+", r["b"], r["d"])
            ),
            naive.conj(("a", ">=", "y")),
        ),
    )


@given(left_rows(), right_rows())
def test_functions_of_null(left, right):
    check(
        left,
        right,
        "COALESCE(l.a, 0) < r.b AND l.c IS NOT NULL",
        lambda l, r: (
            l["c"] is not None and naive.compare(0 if l["a"] is None else l["a"], "<", r["b"])
        ),
    )


@given(left_rows(), right_rows())
def test_not(left, right):
    check(
        left,
        right,
        "NOT (l.a < r.b OR l.c > r.d)",
        naive.conj(("a", ">=", "b"), ("c", "<=", "d")),
    )


@pytest.mark.parametrize(
    "on",
    [
        "l.a < r.b AND l.c >= r.d",
        "r.b > l.a and R.d <= L.c",
        ["l.a < r.b", "l.c >= r.d"],
        (tj.l.a < tj.r.b) & (tj.l.c >= tj.r.d),
        [tj.l.a < tj.r.b, tj.l.c >= tj.r.d],
        ["l.a < r.b", tj.l.c >= tj.r.d],
        (tj.l["a"] < tj.r["b"]) & ~(tj.l["c"] < tj.r["d"]),
    ],
    ids=str,
)
@own.examples(10)
@given(left=left_rows(), right=right_rows())
def test_ways_to_write_the_same_condition(on, left, right):
    check(left, right, on, naive.conj(("a", "<", "b"), ("c", ">=", "d")))


@own.examples(10)
@given(left=left_rows(), right=right_rows())
def test_built_expressions(left, right):
    check(
        left,
        right,
        ((tj.l.a + 1) * 2 <= tj.r.b) | (tj.l.c != tj.r.d),
        naive.any_of(
            lambda l, r: naive.compare(None if l["a"] is None else (l["a"] + 1) * 2, "<=", r["b"]),
            naive.conj(("c", "!=", "d")),
        ),
    )


def brute_force(left, right, condition):
    """Pairs of row numbers over whole numpy columns, in order."""
    grid = condition(
        {
            name: column.to_numpy()[:, None]
            for name, column in zip(left.column_names, left.columns, strict=True)
        },
        {
            name: column.to_numpy()[None, :]
            for name, column in zip(right.column_names, right.columns, strict=True)
        },
    )
    return np.argwhere(grid)


LARGE = {
    "two": ("l.a < r.b AND l.c >= r.d", lambda l, r: (l["a"] < r["b"]) & (l["c"] >= r["d"])),
    "dense": ("l.a <= r.b AND l.c <= r.d", lambda l, r: (l["a"] <= r["b"]) & (l["c"] <= r["d"])),
    "three": (
        "l.a < r.b AND l.c > r.d AND l.x <= r.y",
        lambda l, r: (l["a"] < r["b"]) & (l["c"] > r["d"]) & (l["x"] <= r["y"]),
    ),
    "band": ("ABS(l.a - r.b) <= 2", lambda l, r: abs(l["a"] - r["b"]) <= 2),
    "equal": (
        "l.a = r.b AND l.c < r.d",
        lambda l, r: (l["a"] == r["b"]) & (l["c"] < r["d"]),
    ),
    "unequal": (
        "l.a != r.b AND l.c < r.d",
        lambda l, r: (l["a"] != r["b"]) & (l["c"] < r["d"]),
    ),
    "or": (
        "l.a = r.b OR l.c = r.d",
        lambda l, r: (l["a"] == r["b"]) | (l["c"] == r["d"]),
    ),
    "residual": (
        "l.a < r.b AND (l.c + r.d) % 7 = 0",
        lambda l, r: (l["a"] < r["b"]) & ((l["c"] + r["d"]) % 7 == 0),
    ),
}


@pytest.mark.parametrize("spread", [10, 100_000], ids=["ties", "distinct"])
@pytest.mark.parametrize("name", LARGE)
def test_larger_tables(name, spread):
    """Enough rows for many words of a bitmap, several chunks and a partly filled last word."""
    rng = np.random.default_rng(7)
    n, m = 700, 577
    left = pa.table({c: rng.integers(0, spread, n) for c in "ac"} | {"x": rng.random(n)})
    right = pa.table({c: rng.integers(0, spread, m) for c in "bd"} | {"y": rng.random(m)})
    on, condition = LARGE[name]
    expected = brute_force(left, right, condition)
    numbered = (
        left.append_column("lid", pa.array(range(n))),
        right.append_column("rid", pa.array(range(m))),
    )
    for options in ({}, {"chunk_rows": 1000, "threads": 2}):
        got = tj.join(*numbered, on, **options)
        pairs = np.column_stack([got["lid"], got["rid"]])
        assert np.array_equal(pairs[np.lexsort(pairs.T[::-1])], expected)
