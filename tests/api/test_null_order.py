"""NULL in a count window's `order_by`: before every value, ties left first, then as they came."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import all_ids, ids, naive_ids

ORDERS: dict[str, tuple[pa.DataType, Any]] = {
    "integers": (pa.int64(), st.integers(-1, 1)),
    "floats": (pa.float64(), own.floats),
    "text": (pa.string(), own.strings),
    "booleans": (pa.bool_(), st.booleans()),
}
WINDOWS = st.tuples(st.integers(1, 4), st.integers(1, 3))
ON, HOLDS = "l.a <= r.a", naive.conj(("a", "<=", "a"))


def rows(kind: str, name: str) -> st.SearchStrategy[list[naive.Row]]:
    return own.rows(name, {"a": own.ints, "o": st.none() | ORDERS[kind][1]}, 8)


def table(kind: str, drawn: list[naive.Row], name: str) -> pa.Table:
    return own.table(drawn, {name: pa.int64(), "a": pa.int64(), "o": ORDERS[kind][0]})


@pytest.mark.parametrize("kind", ORDERS)
@own.examples(30)
@given(data=st.data(), window=WINDOWS, how=st.sampled_from(own.HOWS))
def test_tables(kind: str, data: Any, window: tuple[int, int], how: str) -> None:
    left, right = data.draw(rows(kind, "lid")), data.draw(rows(kind, "rid"))
    tables = table(kind, left, "lid"), table(kind, right, "rid")
    got = tj.join(*tables, ON, how=how, window=tj.CountWindow(*window), order_by="o")
    expected = naive.naive_join(
        left, right, HOLDS, how=how, window=naive.Count(*window), order_by="o"
    )
    assert ids(got) == naive_ids(expected)


@own.examples(30)
@given(st.data(), WINDOWS, st.sampled_from(sorted(ORDERS)))
def test_streams(data: Any, window: tuple[int, int], kind: str) -> None:
    steps = []
    for step in range(data.draw(st.integers(1, 3))):
        pair = data.draw(rows(kind, "lid")), data.draw(rows(kind, "rid"))
        numbered = [
            [row | {name: 100 * step + i} for i, row in enumerate(drawn)]
            for name, drawn in zip(("lid", "rid"), pair, strict=True)
        ]
        steps.append(naive.Push(*numbered))
    join = tj.StreamJoin(ON, window=tj.CountWindow(*window), order_by="o")
    got = [join.push(table(kind, s.left, "lid"), table(kind, s.right, "rid")) for s in steps]
    expected = naive.naive_stream(steps, HOLDS, window=naive.Count(*window), order_by="o")
    assert all_ids(got) == naive_ids(expected.rows)


@own.examples(30)
@given(st.data(), WINDOWS, st.sampled_from(sorted(ORDERS)))
def test_self_joins_and_totals(data: Any, window: tuple[int, int], kind: str) -> None:
    drawn = data.draw(rows(kind, "lid"))
    only = table(kind, drawn, "lid")
    settings = {"window": tj.CountWindow(*window), "order_by": "o"}
    got = tj.self_join(only, ON, **settings)
    expected = naive.naive_self_join(drawn, HOLDS, window=naive.Count(*window), order_by="o")
    found = zip(got["lid"].to_pylist(), got["lid_right"].to_pylist(), strict=True)
    assert Counter(found) == Counter((l["lid"], r["lid"]) for l, r in expected)
    pairs = naive.naive_join(drawn, drawn, HOLDS, window=naive.Count(*window), order_by="o")
    totals = tj.join_agg(only, only, ON, aggs={"n": "count(*)"}, **settings)
    assert totals["n"].to_pylist() == [len(pairs)]
