"""`self_join_agg` against grouping the oracle's pairs: every window, batching and unit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import naive_groups
from strategies import asked, assert_same_groups, chosen, table
from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.state import merge, result
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share

SCHEMA = {"id": pa.int64(), "a": pa.int64(), "c": pa.int64(), "x": pa.float64(), "t": pa.int64()}
ROWS = own.rows(
    "id",
    {
        "a": own.nullable_ints,
        "c": own.nullable_ints,
        "x": st.none() | st.sampled_from([0.5, -1.0, 2.25]),
        "t": st.none() | st.integers(0, 30),
    },
    30,
)
GROUPS = {
    "l.a": lambda l, r: l["a"],
    "r.c": lambda l, r: r["c"],
    "l.x": lambda l, r: l["x"],
    "l.a + r.c": lambda l, r: naive.arithmetic("+", l["a"], r["c"]),
}
AGGS = {
    "count(*)": ("count", None),
    "count(r.c)": ("count", lambda l, r: r["c"]),
    "sum(l.a)": ("sum", lambda l, r: l["a"]),
    "sum(r.x)": ("sum", lambda l, r: r["x"]),
    "avg(r.a)": ("avg", lambda l, r: r["a"]),
    "min(l.x)": ("min", lambda l, r: l["x"]),
    "max(r.id)": ("max", lambda l, r: r["id"]),
    "min(r.a)": ("min", lambda l, r: r["a"]),
    "sum(l.a * r.c)": ("sum", lambda l, r: naive.arithmetic("*", l["a"], r["c"])),
}


def expected(pairs, groups, aggs):
    return naive_groups(pairs, [GROUPS[g] for g in groups], [AGGS[a] for a in aggs])


# Columns of both sides, so that rows may satisfy the condition with themselves.
COMPARED = st.tuples(st.sampled_from("ac"), own.operators, st.sampled_from("ac"))
CONDITIONS = st.lists(COMPARED, min_size=1, max_size=3)


def text(condition):
    return " AND ".join(f"l.{l} {op} r.{r}" for l, op, r in condition)


@own.examples(80)
@given(ROWS, CONDITIONS, own.windows(), chosen(GROUPS, 2), chosen(AGGS, 3, 1), own.engine_options())
def test_tables(rows, condition, windowed, groups, aggs, options):
    got = tj.self_join_agg(
        table(rows, SCHEMA),
        text(condition),
        window=windowed.window,
        order_by=windowed.order_by,
        **asked(groups, aggs),
        **options,
    )
    pairs = naive.naive_self_join(
        rows, naive.conj(*condition), window=windowed.naive, order_by=windowed.order_by
    )
    assert_same_groups(got, expected(pairs, groups, aggs), len(groups))


@own.examples(80)
@given(
    ROWS,
    st.lists(st.integers(0, 30), max_size=4),
    CONDITIONS,
    own.windows(),
    chosen(GROUPS, 2),
    chosen(AGGS, 3, 1),
    st.integers(1, 3),
)
def test_micro_batches_and_units(rows, cuts, condition, windowed, groups, aggs, units):
    """What units add up to, each being given every row and storing its share."""
    query = asked(groups, aggs)
    order_by = None if windowed.order_by is None else ("t", "t")
    schema = pa.schema(list(SCHEMA.items()))
    spec = JoinSpec(
        text(condition),
        group_by=query["group_by"],
        aggs=query["aggs"],
        window=windowed.window,
        order_by=order_by,
        self_join=True,
        options={"threads": 1, "head_rows": 0, "merge": "inline"},
    )
    config = TotalsJoin.of(spec, schema, schema)
    assert config.left_schema == config.right_schema
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    batches = [rows[a:b] for a, b in pairwise(ends)]
    states = []
    for unit in range(units):
        state = JoinState(config.join, Share.of("inner", unit, units))
        for batch in batches:
            new = table(batch, SCHEMA).select(config.left_schema.names)
            one = pa.RecordBatch.from_arrays(
                [c.combine_chunks() for c in new.columns], schema=config.left_schema
            )
            step = state.begin(one, one)
            states.append(Aggregator(state.join, config.aggregates).totals(step))
            state.commit(step)
    ordered = [row for batch in batches for _, row in naive.arrivals(batch, [], windowed.order_by)]
    pairs = naive.naive_self_join(ordered, naive.conj(*condition), window=windowed.naive)
    assert_same_groups(result(merge(states)), expected(pairs, groups, aggs), len(groups))


def test_is_self_join_and_grouping():
    """The SPO-Join paper's Q2 as a count: more pairs than a join of the table with itself has."""
    rng = np.random.default_rng(5)
    rows = pa.table({"km": rng.integers(0, 50, 600), "fare": rng.integers(0, 50, 600)})
    on, window = "l.km > r.km AND l.fare < r.fare", tj.CountWindow(200, 20)
    pairs = tj.self_join(rows, on, window=window)
    got = tj.self_join_agg(rows, on, window=window, group_by="l.km", aggs={"n": "count(*)"})
    counts = pairs.group_by("km").aggregate([([], "count_all")])
    want = dict(zip(*(counts[name].to_pylist() for name in ("km", "count_all")), strict=True))
    assert dict(zip(*(got[name].to_pylist() for name in ("km", "n")), strict=True)) == want
    assert sum(want.values()) == pairs.num_rows


@pytest.mark.parametrize("ops", [("<", ">"), ("<=", ">=")])
def test_pairs_are_not_listed(ops):
    """Under two inequalities and a time window a fourth order would be one too many."""
    rng = np.random.default_rng(1)
    rows = {name: rng.integers(0, 1000, 3000) for name in ("a", "b", "t")}
    batch = pa.RecordBatch.from_pydict(rows)
    for window in (tj.FullHistory(), tj.TimeWindow(100, time="t"), tj.CountWindow(5000)):
        aggs = {"n": "count(*)", "m": "max(r.b)"}
        on = f"l.a {ops[0]} r.a AND l.b {ops[1]} r.b"
        spec = JoinSpec(on, window=window, self_join=True, group_by="l.a", aggs=aggs)
        config = TotalsJoin.of(spec, batch.schema, batch.schema)
        aggregator = config.aggregator()
        needed = batch.select(config.left_schema.names)
        aggregator.run(needed, needed)
        assert aggregator.asked
        assert not aggregator.listed


@own.examples(40)
@given(
    st.integers(1, 90), st.integers(2, 24), st.integers(1, 12), st.randoms(use_true_random=False)
)
def test_a_table_that_does_not_fit_into_its_window(number, size, slide, draw):
    """It comes in pieces of a few slides, in the order of a column."""
    rows = [
        {
            "id": i,
            "a": draw.randint(0, 4),
            "c": draw.randint(0, 4),
            "x": 0.5,
            "t": draw.randint(0, 9),
        }
        for i in range(number)
    ]
    got = tj.self_join_agg(
        table(rows, SCHEMA), "l.a <= r.a AND l.c >= r.c", window=tj.CountWindow(size, slide),
        order_by="t", **asked(["l.a"], ["count(*)", "max(r.id)"]),
    )  # fmt: skip
    pred = naive.conj(("a", "<=", "a"), ("c", ">=", "c"))
    pairs = naive.naive_self_join(rows, pred, window=naive.Count(size, slide), order_by="t")
    assert_same_groups(got, expected(pairs, ["l.a"], ["count(*)", "max(r.id)"]), 1)


def test_equal_rows_meet_each_other_and_not_themselves():
    same = pa.table({"k": [1, 1, 1, None]})
    got = tj.self_join_agg(same, "l.k = r.k", group_by="l.k", aggs={"n": "count(*)"})
    assert got.to_pydict() == {"k": [1], "n": [6]}
    assert tj.self_join_agg(same, "l.k < r.k", aggs={"n": "count(*)"}).to_pydict() == {"n": [0]}


def test_a_row_that_fails_with_itself():
    """`1 / (r.a - l.a)` has no value for a row with itself, which is no pair."""
    rows = pa.table({"a": [1, 2, 4]})
    on = "l.a < r.a AND 12 / (r.a - l.a) > 5"
    assert tj.self_join(rows, on).num_rows == 2
    assert tj.self_join_agg(rows, on, aggs={"n": "count(*)"}).to_pydict() == {"n": [2]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "l.z < r.z"}, "unknown column 'z'"),
        ({"order_by": ("a", "b"), "window": tj.CountWindow(5)}, "have one order"),
        ({"order_by": 5, "window": tj.CountWindow(5)}, "order_by=5"),
        ({"aggs": {}}, "agg"),
        ({"group_by": "a"}, "ambiguous"),
        ({"window": 5}, "is not a window"),
        ({"df": 5}, "is a int"),
        ({"unit": 5}, "unknown option 'unit'"),
    ],
)
def test_mistakes(arguments, message):
    rows = pa.table({"a": [1], "b": [2]})
    given = {"df": rows, "on": "l.a < r.a", "aggs": {"n": "count(*)"}} | arguments
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        tj.self_join_agg(given.pop("df"), given.pop("on"), **given)
    assert "\n" not in str(caught.value)
    if "order_by" in arguments:
        with pytest.raises(tj.ThetaJoinError, match=message):
            tj.self_join(rows, "l.a < r.a", **arguments)


def test_views_of_text_in_a_count_window():
    """Arrow cannot pick rows of its view types, in which order they come."""
    rows = pa.table({"s": pa.array(["b", "a", "c"], pa.string_view()), "t": [2, 1, 3]})
    got = tj.self_join_agg(
        rows,
        "l.s < r.s",
        aggs={"n": "count(*)", "least": "min(LOWER(r.s))"},
        window=tj.CountWindow(2),
        order_by="t",
    )
    assert got.to_pylist() == [{"n": 3, "least": "b"}]
