"""Keys at the ends of their types: a bound past the end leaves nothing, or everything, never one.

The tables hold a type's least and largest values and their neighbours; the oracle computes with
Python's integers, which have no end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import Condition, all_ids, ids, naive_ids
from thetajoin.batch.keys import INT64_MAX, INT64_MIN
from thetajoin.engine.parts import Distance
from thetajoin.index.interval import interval_of
from thetajoin.papers.catalog import NAMES
from thetajoin.planner.zones import Bound

INEQUALITIES = ("<", "<=", ">", ">=", "=")
STEPS = [0, 1, 2, 5, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64, 2**66]


@dataclass(frozen=True)
class Kind:
    """A type by its integers: how it is written in Arrow, and how a difference is in SQL."""

    type: pa.DataType
    least: int
    most: int
    stored: pa.DataType | None = None
    unit: str = ""

    def array(self, values: list[int | None]) -> pa.Array:
        if pa.types.is_decimal(self.type):
            return pa.array(values, pa.decimal128(19, 0)).cast(self.type)
        made = pa.array(values, self.stored or self.type)
        return made if self.stored is None else made.view(self.type)

    def literal(self, value: int) -> str:
        return f"INTERVAL '{value}' {self.unit}" if self.unit else str(value)

    @property
    def steps(self) -> list[int]:
        return [s for s in STEPS if s < 2**62 // 10**9] if self.unit else STEPS

    def scale(self, value: int) -> int:
        return value * {"": 1, "MICROSECOND": 1, "SECOND": 10**6}[self.unit]


LONG = pa.int64()
KINDS = {
    "long": Kind(LONG, INT64_MIN, INT64_MAX),
    "int": Kind(pa.int32(), -(2**31), 2**31 - 1),
    "byte": Kind(pa.int8(), -128, 127),
    "unsigned": Kind(pa.uint64(), 0, 2**64 - 1),
    "decimal": Kind(pa.decimal128(18, 0), -(10**18) + 1, 10**18 - 1),
    "timestamp": Kind(pa.timestamp("us"), INT64_MIN, INT64_MAX, LONG, "SECOND"),
    "zoned": Kind(pa.timestamp("us", "UTC"), INT64_MIN, INT64_MAX, LONG, "MICROSECOND"),
    "duration": Kind(pa.duration("us"), INT64_MIN, INT64_MAX, LONG, "SECOND"),
}


def values(kind: Kind) -> st.SearchStrategy[int | None]:
    near = st.sampled_from([0, 1, 2, 5, 6])
    ends = near.map(lambda n: kind.least + n) | near.map(lambda n: kind.most - n)
    return st.none() | ends | st.sampled_from([0 if kind.least < 0 else 7, kind.most // 2])


def rows(kind: Kind, name: str) -> st.SearchStrategy[list[naive.Row]]:
    return own.rows(name, {"v": values(kind)}, 8)


@st.composite
def differences(draw: st.DrawFn, kind: Kind) -> Condition:
    """``l.v - r.v`` against a constant, either way round, with the constant on either side."""
    op, step = draw(st.sampled_from(INEQUALITIES)), draw(st.sampled_from(kind.steps))
    step = -step if draw(st.booleans()) else step
    swapped = draw(st.booleans())
    subtraction = "r.v - l.v" if swapped else "l.v - r.v"

    def holds(l: naive.Row, r: naive.Row) -> bool | None:
        first, second = (r["v"], l["v"]) if swapped else (l["v"], r["v"])
        return naive.compare(naive.arithmetic("-", first, second), op, kind.scale(step))

    if draw(st.booleans()):
        return Condition(f"{subtraction} {op} {kind.literal(step)}", holds)
    return Condition(f"{kind.literal(step)} {own.MIRROR[op]} {subtraction}", holds)


@st.composite
def conditions(draw: st.DrawFn, kind: Kind) -> Condition:
    """A comparison, a difference, a band, or two of them."""
    drawn = []
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            drawn.append(draw(own.comparisons(("v",), ("v",))))
        else:
            drawn.append(draw(differences(kind)))
    sql = " AND ".join(f"({part.sql})" for part in drawn)
    return Condition(sql, naive.all_of(*(part.pred for part in drawn)))


def table(kind: Kind, drawn: list[naive.Row], name: str) -> pa.Table:
    numbers = pa.array([row[name] for row in drawn], pa.int64())
    return pa.table({name: numbers, "v": kind.array([row["v"] for row in drawn])})


@pytest.mark.parametrize("kind", KINDS)
@own.examples(60)
@given(data=st.data())
def test_tables(kind, data):
    of = KINDS[kind]
    left, right = data.draw(rows(of, "lid")), data.draw(rows(of, "rid"))
    condition, how = data.draw(conditions(of)), data.draw(st.sampled_from(own.HOWS))
    got = tj.join(table(of, left, "lid"), table(of, right, "rid"), condition.sql, how=how)
    assert ids(got) == naive_ids(naive.naive_join(left, right, condition.pred, how=how))


@pytest.mark.parametrize("index", ["auto", *NAMES])
@own.examples(25)
@given(data=st.data())
def test_streams_under_every_index(index, data):
    of = KINDS["long"]
    condition = data.draw(conditions(of))
    batches = data.draw(st.lists(st.tuples(rows(of, "lid"), rows(of, "rid")), max_size=3))
    numbers = {"lid": 0, "rid": 0}
    steps = []
    for pair in batches:
        sides = []
        for name, drawn in zip(numbers, pair, strict=True):
            sides.append([row | {name: numbers[name] + i} for i, row in enumerate(drawn)])
            numbers[name] += len(drawn)
        steps.append(naive.Push(*sides))
    schemas = {
        "left_schema": pa.schema({"lid": pa.int64(), "v": pa.int64()}),
        "right_schema": pa.schema({"rid": pa.int64(), "v": pa.int64()}),
    }
    join = tj.StreamJoin(
        condition.sql,
        window=tj.CountWindow(9),
        index=index,
        head_rows=data.draw(st.sampled_from([0, 8])),
        **schemas,
    )
    got = [join.push(table(of, s.left, "lid"), table(of, s.right, "rid")) for s in steps]
    expected = naive.naive_stream(steps, condition.pred, window=naive.Count(9))
    assert all_ids(got) == naive_ids(expected.rows)


@own.examples(60)
@given(st.data(), st.sampled_from(["long", "timestamp"]))
def test_totals(data, kind):
    of = KINDS[kind]
    left, right = data.draw(rows(of, "lid")), data.draw(rows(of, "rid"))
    condition = data.draw(conditions(of))
    got = tj.join_agg(
        table(of, left, "lid"),
        table(of, right, "rid"),
        condition.sql,
        group_by="l.lid",
        aggs={"n": "count(*)", "most": "max(r.rid)", "sum": "sum(r.rid)"},
    )
    expected: dict[int, list[int]] = {}
    for l, r in naive.naive_join(left, right, condition.pred):
        expected.setdefault(l["lid"], []).append(r["rid"])
    found = {row["lid"]: (row["n"], row["most"], row["sum"]) for row in got.to_pylist()}
    assert found == {lid: (len(r), max(r), sum(r)) for lid, r in expected.items()}


@own.examples(60)
@given(st.data(), st.sampled_from(own.HOWS))
def test_time_windows(data, how):
    """A window that reaches beyond the last time is open there."""
    of = KINDS["long"]
    left, right = data.draw(rows(of, "lid")), data.draw(rows(of, "rid"))
    ends = st.sampled_from([0, 1, 5, 2**62, 2**63 - 1])
    before, after = data.draw(st.tuples(ends, ends).filter(any))
    got = tj.join(
        table(of, left, "lid"),
        table(of, right, "rid"),
        "l.v <= r.v",
        how=how,
        window=tj.TimeWindow(before=before, after=after, time="v"),
    )
    pred = naive.conj(("v", "<=", "v"))
    near = naive.Time(before, after, "v", "v")
    assert ids(got) == naive_ids(naive.naive_join(left, right, pred, how=how, window=near))


@own.examples(60)
@given(st.data())
def test_streams_under_a_time_window(data):
    """Watermarks at the ends of the type expire what they should, and nothing else."""
    of = KINDS["long"]
    left, right = data.draw(rows(of, "lid")), data.draw(rows(of, "rid"))
    length = data.draw(st.sampled_from([1, 5, 2**62, 2**63 - 1]))
    mark = data.draw(st.sampled_from([INT64_MIN, INT64_MIN + 5, 0, INT64_MAX - 5, INT64_MAX]))
    steps = [naive.Push(left), naive.Advance(mark), naive.Push((), right)]
    join = tj.StreamJoin("l.v <= r.v", how="full", window=tj.TimeWindow(length, time="v"))
    first = join.push(left=table(of, left, "lid"))
    join.advance(mark)
    got = [first, join.push(right=table(of, right, "rid")), join.finish()]
    expected = naive.naive_stream(
        steps,
        naive.conj(("v", "<=", "v")),
        how="full",
        window=naive.Time(length, length, "v", "v"),
    )
    assert all_ids(t for t in got if t.num_columns) == naive_ids(expected.rows)
    assert join.stats.late_rows == expected.late_rows


@pytest.mark.parametrize(("low", "high"), [(5, None), (None, -5), (2**64, None), (None, -(2**64))])
def test_an_end_past_the_last_key_leaves_nothing(low: int | None, high: int | None) -> None:
    at = np.array([INT64_MAX if low is not None else INT64_MIN])
    asked: Any = Distance(low, high).interval(at)
    assert asked.low[0] > asked.high[0]


@own.examples(100)
@given(
    st.lists(st.sampled_from([INT64_MIN, INT64_MIN + 3, -1, 0, 4, INT64_MAX]), min_size=1),
    st.sampled_from(["<", "<=", ">", ">=", "="])
    | st.builds(Distance, st.sampled_from(STEPS), st.none() | st.sampled_from(STEPS)),
)
def test_what_a_box_asks_for_holds_what_its_rows_ask_for(keys, bound):
    """A row at an end, which asks for nothing, does not empty what its neighbours ask for."""
    rows = np.array(keys)
    box = Bound(0, bound).around(np.array([rows.min()]), np.array([rows.max()]))
    asked = interval_of(bound, rows) if isinstance(bound, str) else bound.interval(rows)
    low, high = own_ends(asked, rows.size)
    around = own_ends(box, 1)
    some = low <= high
    assert (around[0] <= low[some]).all()
    assert (around[1] >= high[some]).all()


def own_ends(asked: Any, size: int) -> tuple[Any, Any]:
    low = np.full(size, INT64_MIN) if asked.low is None else asked.low
    return low, np.full(size, INT64_MAX) if asked.high is None else asked.high
