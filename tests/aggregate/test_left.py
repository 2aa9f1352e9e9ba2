"""`join_agg(how="left")`: every group of the left side is there, with what its matches give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from aggregate.test_join_agg import AGGS, FLOATS, GROUPS, LEFT, OPS, PLAIN, RIGHT
from naive import naive_groups
from strategies import (
    STREAM_L,
    STREAM_R,
    asked,
    assert_same_groups,
    chosen,
    left_rows,
    left_table,
    right_rows,
    right_table,
    table,
)

LEFT_GROUPS = ["l.a", "l.c"]


def expected(pairs, groups, aggs, left):
    known = AGGS | FLOATS
    return naive_groups(pairs, [GROUPS[g] for g in groups], [known[a] for a in aggs], left)


@own.examples(120)
@given(
    left_rows(),
    right_rows(),
    own.conditions(),
    chosen(LEFT_GROUPS, 2),
    chosen(AGGS | FLOATS, 4).filter(bool),
)
def test_any_condition(left, right, condition, groups, aggs):
    """Conditions with filters of the left side are among these: they only stop a match."""
    got = tj.join_agg(
        left_table(left),
        right_table(right),
        condition.sql,
        how="left",
        **asked(groups, aggs),
        threads=1,
    )
    pairs = naive.naive_join(left, right, condition.pred)
    assert_same_groups(got, expected(pairs, groups, aggs, left), len(groups))


@own.examples(100)
@given(LEFT, RIGHT, OPS, own.windows(), chosen(LEFT_GROUPS, 2), chosen(PLAIN, 3).filter(bool))
def test_windows(left, right, ops, windowed, groups, aggs):
    got = tj.join_agg(
        table(left, STREAM_L),
        table(right, STREAM_R),
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        how="left_outer",
        window=windowed.window,
        order_by=windowed.order_by,
        **asked(groups, aggs),
    )
    pairs = naive.naive_join(
        left,
        right,
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d")),
        window=windowed.naive,
        order_by=windowed.order_by,
    )
    assert_same_groups(got, expected(pairs, groups, aggs, left), len(groups))


@own.examples(100)
@given(
    own.streams(watermarks=True),
    OPS,
    own.windows(),
    chosen(LEFT_GROUPS, 2),
    chosen(PLAIN, 3).filter(bool),
    own.engine_options(),
    st.integers(0, 4),
)
def test_streams(steps, ops, windowed, groups, aggs, options, restart):
    """A group is there from its first row that is not late, and what matched later is added."""
    stream = tj.StreamJoin(
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        how="left",
        window=windowed.window,
        order_by=windowed.order_by,
        left_schema=pa.schema(STREAM_L),
        right_schema=pa.schema(STREAM_R),
        **asked(groups, aggs),
        **options,
    )
    timed = isinstance(windowed.window, tj.TimeWindow)
    pred = naive.conj(("a", ops[0], "b"), ("c", ops[1], "d"))
    latest, known, watermark, taken = {}, [], None, []
    for number, step in enumerate(steps):
        if isinstance(step, naive.Advance):
            if timed:
                stream.advance(step.watermark)
                known.append(step)
                watermark = max(step.watermark, watermark or step.watermark)
            continue
        known.append(step)
        for row in step.left:
            late = timed and watermark is not None and row["t"] is not None
            if not (late and row["t"] < watermark):
                taken.append(row)
        changed = stream.push(table(step.left, STREAM_L), table(step.right, STREAM_R))
        for row in changed.to_pylist():
            latest[tuple(row.values())[: len(groups)]] = row
        if number == restart:
            stream = tj.StreamJoin.restore(stream.snapshot())
    pairs = naive.naive_stream(known, pred, window=windowed.naive, order_by=windowed.order_by).rows
    want = expected(pairs, groups, aggs, taken)
    assert_same_groups(stream.finish(), want, len(groups))
    if groups:
        updates = pa.Table.from_pylist(list(latest.values()), schema=stream.schema)
        assert_same_groups(updates, want, len(groups))


HERE = pa.table({"k": ["a", "b", None, "a"], "x": [1, 9, None, 2]})
THERE = pa.table({"x": [3, 4, None], "y": [0.5, 2.5, 1.0]})
ASKED = {
    "group_by": "l.k",
    "aggs": {"n": "count(*)", "c": "count(r.y)", "s": "sum(r.x)", "lo": "min(r.y)"},
}
HERE_TOTALS = pa.schema(
    {"k": pa.string(), "n": pa.int64(), "c": pa.int64(), "s": pa.int64(), "lo": pa.float64()}
)
WANT = {("a",): [4, 4, 14, 0.5], ("b",): [0, 0, None, None], (None,): [0, 0, None, None]}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (pa.Table.to_pandas, pd.DataFrame),
        (pl.from_arrow, pl.DataFrame),
        (lambda table: table.to_reader(), pa.Table),
    ],
)
def test_kinds_of_tables(make, kind):
    got = tj.join_agg(make(HERE), make(THERE), "l.x < r.x", how="left", **ASKED)
    assert isinstance(got, kind)
    if isinstance(got, pd.DataFrame):
        got = pa.Table.from_pandas(got, preserve_index=False)
    elif not isinstance(got, pa.Table):
        got = got.to_arrow()
    assert_same_groups(got.cast(HERE_TOTALS), WANT, 1)


def test_a_filter_of_the_left_side_only_stops_matches():
    got = tj.join_agg(HERE, THERE, "l.x > 1 AND l.x < r.x", how="left", **ASKED)
    assert_same_groups(got, WANT | {("a",): [2, 2, 7, 0.5]}, 1)
    nothing = tj.join_agg(HERE, THERE, "l.x > 99 AND l.x < r.x", how="left", **ASKED)
    assert_same_groups(nothing, {key: [0, 0, None, None] for key in WANT}, 1)
    assert tj.join_agg(HERE, THERE.slice(0, 0), "l.x < r.x", how="left", **ASKED).num_rows == 3
    assert tj.join_agg(HERE.slice(0, 0), THERE, "l.x < r.x", how="left", **ASKED).num_rows == 0


def test_without_groups_there_is_one_row():
    for left in (HERE, HERE.slice(0, 0)):
        aggs = {"n": "count(*)", "s": "sum(r.x)"}
        got = tj.join_agg(left, THERE, "l.x > 99 AND l.x < r.x", how="left", aggs=aggs)
        assert got.to_pylist() == [{"n": 0, "s": None}]


@pytest.mark.parametrize("how", ["right", "full", "semi", "anti", "outer", "lft", None])
def test_other_kinds_of_join(how):
    for call in (tj.join_agg, tj.explain):
        with pytest.raises(tj.ThetaJoinError, match="take how='inner' or how='left'") as caught:
            call(HERE, THERE, "l.x < r.x", how=how, aggs={"n": "count(*)"})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("group", ["r.x", ["l.k", "r.x"], {"g": "l.x + r.x"}])
def test_groups_of_the_right_side(group):
    with pytest.raises(tj.ThetaJoinError, match="group by columns of the left side") as caught:
        tj.join_agg(HERE, THERE, "l.x < r.x", how="left", group_by=group, aggs={"n": "count(*)"})
    assert "\n" not in str(caught.value)


def test_explain_says_that_groups_stay():
    asked = {"group_by": "l.k", "aggs": {"n": "count(*)"}}
    kept = tj.explain(HERE, THERE, "l.x < r.x", how="left", **asked)
    assert "group by: l.k, also without a match" in str(kept)
    assert "also without a match" not in str(tj.explain(HERE, THERE, "l.x < r.x", **asked))


def test_a_push_gives_new_groups_and_changed_ones():
    stream = tj.StreamJoin(
        "l.x < r.x",
        how="left",
        group_by="l.k",
        aggs={"n": "count(*)"},
        window=tj.FullHistory(),
        left_schema=HERE.schema,
        right_schema=THERE.schema,
    )
    assert stream.push(left=HERE).to_pydict() == {"k": ["a", "b", None], "n": [0, 0, 0]}
    assert stream.push(left=HERE.slice(1, 2)).num_rows == 0
    assert stream.push(right=THERE).to_pydict() == {"k": ["a"], "n": [4]}
    again = tj.StreamJoin.restore(stream.snapshot())
    assert again.push(left=pa.table({"k": ["c", "b"], "x": [7, 9]})).to_pydict() == {
        "k": ["c"],
        "n": [0],
    }
    assert again.finish().sort_by("k").to_pydict() == {
        "k": ["a", "b", "c", None],
        "n": [4, 0, 0, 0],
    }


INTERVALS = st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 20), st.integers(-3, 6)))


@pytest.mark.parametrize("chrom", ["string", "int"])
@own.examples(60)
@given(INTERVALS, INTERVALS, st.booleans())
def test_overlaps(chrom, left, right, proper):
    """Which overlap which, of intervals that end before they begin among others, or of none."""

    def made(rows):
        names, starts, sizes = zip(*rows, strict=True) if rows else ((), (), ())
        ends = [s + (abs(n) if proper else n) for s, n in zip(starts, sizes, strict=True)]
        keys = list(names) if chrom == "string" else [ord(name) for name in names]
        types = pa.string() if chrom == "string" else pa.int64()
        columns = [pa.array(range(len(rows)), pa.int64()), pa.array(keys, types)]
        columns += [pa.array(values, pa.int64()) for values in (starts, ends)]
        return pa.table(columns, names=["id", "chrom", "start", "end"])

    sides = made(left), made(right)
    on = "l.chrom = r.chrom AND l.start <= r.end AND l.end >= r.start"
    pred = naive.conj(("chrom", "=", "chrom"), ("start", "<=", "end"), ("end", ">=", "start"))
    aggs = {"n": "count(*)", "s": "sum(r.end)", "hi": "max(r.start)"}
    got = tj.join_agg(*sides, on, how="left", group_by="l.id", aggs=aggs)
    rows = [side.to_pylist() for side in sides]
    oracle = [
        ("count", None),
        ("sum", lambda l, r: r["end"]),
        ("max", lambda l, r: r["start"]),
    ]
    want = naive_groups(naive.naive_join(*rows, pred), [lambda l, r: l["id"]], oracle, rows[0])
    assert_same_groups(got, want, 1)


@pytest.mark.parametrize("keys", [3, 500, 200_000])
def test_many_overlaps_in_runs_of_equal_keys(keys):
    """Few keys are looked up and many are searched; either way each probe gets its own run."""
    random = np.random.default_rng(keys)
    n = 20_000

    def made():
        start = random.integers(0, 10_000, n)
        length = random.integers(-2, 50, n)
        key = random.integers(-keys, keys, n)
        columns = {"id": np.arange(n), "k": key, "start": start, "end": start + length}
        return pa.table({name: pa.array(column) for name, column in columns.items()})

    left, right = made(), made()
    on = "l.k = r.k AND l.start <= r.end AND l.end >= r.start"
    got = tj.join_agg(left, right, on, how="left", group_by="l.id", aggs={"n": "count(*)"})
    assert got["id"].to_numpy().tolist() == list(range(n))
    (k, start, end), (rk, rstart, rend) = (
        [side[name].to_numpy() for name in ("k", "start", "end")] for side in (left, right)
    )
    for row in random.integers(0, n, 300):
        want = (rk == k[row]) & (start[row] <= rend) & (end[row] >= rstart)
        assert got["n"][int(row)].as_py() == want.sum()
