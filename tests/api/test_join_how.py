"""Every `how`, under every spelling, with what is hard about outer joins."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import HOWS, ids, left_rows, left_table, naive_ids, right_rows, right_table

SPELLINGS = {
    "inner": ["inner", "INNER"],
    "left": ["left", "leftouter", "left_outer", "LEFT_OUTER", "LeftOuter"],
    "right": ["right", "rightouter", "right_outer"],
    "full": ["full", "outer", "fullouter", "full_outer"],
    "semi": ["semi", "leftsemi", "left_semi"],
    "anti": ["anti", "leftanti", "left_anti"],
}

LEFT = [
    {"lid": 0, "a": 1, "c": 1, "x": None},
    {"lid": 1, "a": 2, "c": None, "x": None},
    {"lid": 2, "a": None, "c": 2, "x": None},
    {"lid": 3, "a": 9, "c": 9, "x": None},
]
RIGHT = [
    {"rid": 0, "b": 2, "d": 0, "y": None},
    {"rid": 1, "b": 3, "d": None, "y": None},
    {"rid": 2, "b": None, "d": 0, "y": None},
    {"rid": 3, "b": 0, "d": 9, "y": None},
]
ON = "l.a < r.b AND l.c > r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">", "d"))


def check(left, right, on, pred, how, **options):
    got = tj.join(left_table(left), right_table(right), on, how=how, **options)
    assert ids(got) == naive_ids(naive.naive_join(left, right, pred, how=how))
    return got


@pytest.mark.parametrize(
    ("how", "spelling"), [(how, s) for how, spellings in SPELLINGS.items() for s in spellings]
)
def test_spellings(how, spelling):
    got = tj.join(left_table(LEFT), right_table(RIGHT), ON, how=spelling)
    assert ids(got) == naive_ids(naive.naive_join(LEFT, RIGHT, PRED, how=how))


@pytest.mark.parametrize("how", ["", "sideways", "right_semi", "asof", None, 3])
def test_unknown_how(how):
    with pytest.raises(tj.ThetaJoinError, match="how") as caught:
        tj.join(left_table(LEFT), right_table(RIGHT), ON, how=how)
    assert "\n" not in str(caught.value)


def test_each_how_by_hand():
    expected = {
        "inner": [(0, 0)],
        "left": [(0, 0), (1, None), (2, None), (3, None)],
        "right": [(0, 0), (None, 1), (None, 2), (None, 3)],
        "full": [(0, 0), (1, None), (2, None), (3, None), (None, 1), (None, 2), (None, 3)],
        "semi": [(0, None)],
        "anti": [(1, None), (2, None), (3, None)],
    }
    for how, pairs in expected.items():
        got = tj.join(left_table(LEFT), right_table(RIGHT), ON, how=how)
        assert sorted(ids(got).elements(), key=str) == sorted(pairs, key=str), how


@pytest.mark.parametrize("how", HOWS)
def test_schema(how):
    got = tj.join(left_table(LEFT), right_table(RIGHT), ON, how=how)
    names = list(own.SCHEMA_L) if how in ("semi", "anti") else [*own.SCHEMA_L, *own.SCHEMA_R]
    assert got.column_names == names
    types = own.SCHEMA_L | own.SCHEMA_R
    assert got.schema.types == [types[name] for name in names]


@pytest.mark.parametrize("how", HOWS)
@own.examples(30)
@given(left=left_rows(), right=right_rows(), ops=st.tuples(own.operators, own.operators))
def test_two_predicates(how, left, right, ops):
    check(
        left,
        right,
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d")),
        how,
    )


@pytest.mark.parametrize("how", HOWS)
@own.examples(30)
@given(
    left=left_rows(), right=right_rows(), condition=own.conditions(), options=own.engine_options()
)
def test_any_condition(how, left, right, condition, options):
    check(left, right, condition.sql, condition.pred, how, **options)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "on", ["l.a < r.b", ON, "ABS(l.a - r.b) <= 1", "l.a BETWEEN r.b AND r.d", "l.a = r.b"]
)
@pytest.mark.parametrize("empty", ["left", "right", "both"])
def test_empty_sides(how, on, empty):
    left = [] if empty in ("left", "both") else LEFT
    right = [] if empty in ("right", "both") else RIGHT
    got = check(left, right, on, naive.conj(), how)
    assert got.schema.types[:4] == list(own.SCHEMA_L.values())


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ["l.a < r.b", ON, "l.a BETWEEN r.b AND r.d", "l.a != r.b"])
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_keys_that_are_all_null(how, on, side):
    left = [row | {"a": None, "c": None} for row in LEFT] if side in ("left", "both") else LEFT
    right = [row | {"b": None, "d": None} for row in RIGHT] if side in ("right", "both") else RIGHT
    check(left, right, on, lambda l, r: False, how)


@pytest.mark.parametrize("how", HOWS)
def test_columns_of_the_null_type(how):
    left = pa.table({"lid": [0, 1], "a": pa.nulls(2)})
    right = pa.table({"rid": [0, 1], "b": [1, 2]})
    got = tj.join(left, right, "l.a < r.b", how=how)
    rows = [left.to_pylist(), right.to_pylist()]
    assert ids(got) == naive_ids(naive.naive_join(*rows, naive.conj(("a", "<", "b")), how=how))


@pytest.mark.parametrize("how", HOWS)
def test_one_sided_filters_do_not_drop_unmatched_rows(how):
    """A filter in ON decides what matches; the rows it refuses are still owed by outer joins."""
    check(
        LEFT,
        RIGHT,
        "l.a < r.b AND l.c > 0 AND r.d >= 0",
        naive.all_of(
            naive.conj(("a", "<", "b")),
            lambda l, r: naive.compare(l["c"], ">", 0),
            lambda l, r: naive.compare(r["d"], ">=", 0),
        ),
        how,
    )


@pytest.mark.parametrize("how", HOWS)
def test_a_residual_that_refuses_every_candidate(how):
    check(
        LEFT,
        RIGHT,
        "l.a < r.b AND l.c * r.d > 1000",
        lambda l, r: False,
        how,
    )


def test_anti_join_over_a_range():
    left = [{"lid": i, "a": i, "c": 0, "x": None} for i in range(100)]
    right = [{"rid": i, "b": 10 * i, "d": 10 * i + 4, "y": None} for i in range(8)]
    pred = naive.conj(("a", ">=", "b"), ("a", "<=", "d"))
    got = check(left, right, "l.a BETWEEN r.b AND r.d", pred, "anti")
    assert got.num_rows == 100 - 8 * 5


def test_semi_join_gives_a_row_once():
    left = [{"lid": i, "a": 0, "c": 0, "x": None} for i in range(3)]
    right = [{"rid": i, "b": 1, "d": 0, "y": None} for i in range(200)]
    got = check(left, right, "l.a < r.b", naive.conj(("a", "<", "b")), "semi")
    assert got.num_rows == 3


def test_duplicate_rows_are_kept():
    left = pa.table({"lid": [0, 0, 0], "a": [1, 1, None]})
    right = pa.table({"rid": [7, 7], "b": [2, 2]})
    got = tj.join(left, right, "l.a < r.b", how="left")
    assert ids(got) == {(0, 7): 4, (0, None): 1}
