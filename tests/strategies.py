"""Hypothesis strategies for tables, conditions and streams, and the way results are compared.

Left rows carry `lid`, right rows `rid`: their place in the input. A result is compared as the
multiset of `(lid, rid)` with None for a side that is missing, so nothing depends on the order of
the output. Value ranges are narrow, so that ties abound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import naive
from naive import Advance, Pair, Predicate, Push, Row
from thetajoin import CountWindow, FullHistory, ThetaJoinError, TimeWindow

Ids = Counter[tuple[int | None, int | None]]

HOWS = ("inner", "left", "right", "full", "semi", "anti")
INEQUALITIES = ("<", "<=", ">", ">=")
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def examples(n: int) -> settings:
    """`n` examples in the default profile, and accordingly more or fewer in the others."""
    return settings(max_examples=max(1, n * settings().max_examples // 40))


# --- values --------------------------------------------------------------------------------------

ints = st.integers(-2, 3)
nullable_ints = st.none() | ints
floats = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, 1.5, -1.0, 2.0, 1e300])
nullable_floats = st.none() | floats
strings = st.sampled_from(["", "a", "A", "aa", "ab", "b", "é", "\uffff", "\U00010000", "a\x00"])
operators = st.sampled_from(naive.OPERATORS)

# --- rows and tables -----------------------------------------------------------------------------

SCHEMA_L = {"lid": pa.int64(), "a": pa.int64(), "c": pa.int64(), "x": pa.float64()}
SCHEMA_R = {"rid": pa.int64(), "b": pa.int64(), "d": pa.int64(), "y": pa.float64()}


def rows(
    id_column: str, columns: dict[str, st.SearchStrategy[Any]], max_size: int = 12
) -> st.SearchStrategy[list[Row]]:
    """Lists of rows with these columns, numbered in `id_column`."""
    return st.lists(st.fixed_dictionaries(columns), max_size=max_size).map(
        lambda drawn: [{id_column: i} | row for i, row in enumerate(drawn)]
    )


def left_rows(max_size: int = 12) -> st.SearchStrategy[list[Row]]:
    """Rows of `SCHEMA_L`: two integer columns and a float column, all with NULLs."""
    columns = {"a": nullable_ints, "c": nullable_ints, "x": nullable_floats}
    return rows("lid", columns, max_size)


def right_rows(max_size: int = 12) -> st.SearchStrategy[list[Row]]:
    """Rows of `SCHEMA_R`."""
    columns = {"b": nullable_ints, "d": nullable_ints, "y": nullable_floats}
    return rows("rid", columns, max_size)


def table(rows: Sequence[Row], schema: dict[str, pa.DataType]) -> pa.Table:
    """Rows as an Arrow table."""
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(schema.items())))


def left_table(rows: Sequence[Row]) -> pa.Table:
    """Rows of `SCHEMA_L` as a table."""
    return table(rows, SCHEMA_L)


def right_table(rows: Sequence[Row]) -> pa.Table:
    """Rows of `SCHEMA_R` as a table."""
    return table(rows, SCHEMA_R)


# --- results -------------------------------------------------------------------------------------


def ids(result: pa.Table) -> Ids:
    """A join's result as a multiset of ids."""
    lids = result["lid"].to_pylist() if "lid" in result.column_names else [None] * len(result)
    rids = result["rid"].to_pylist() if "rid" in result.column_names else [None] * len(result)
    return Counter(zip(lids, rids, strict=True))


def all_ids(results: Iterable[pa.Table]) -> Ids:
    """Several results as one multiset of ids."""
    total: Ids = Counter()
    for result in results:
        total += ids(result)
    return total


def naive_ids(pairs: Iterable[Pair]) -> Ids:
    """The oracle's result as a multiset of ids."""
    return Counter(
        (None if l is None else l["lid"], None if r is None else r["rid"]) for l, r in pairs
    )


def rows_by_group(table: pa.Table, groups: int) -> dict[tuple[Any, ...], list[Any]]:
    """A result by group."""
    rows = [list(row.values()) for row in table.to_pylist()]
    found = {tuple(naive.group_key(v) for v in row[:groups]): row[groups:] for row in rows}
    assert len(found) == len(rows), "a group came twice"
    return found


def assert_same_groups(got: pa.Table, want: dict[tuple[Any, ...], list[Any]], groups: int) -> None:
    """Equal up to the rounding of float sums."""
    rows = rows_by_group(got, groups)
    assert rows.keys() == want.keys()
    for key, values in want.items():
        for mine, expected in zip(rows[key], values, strict=True):
            assert _close(mine, expected), (key, rows[key], values)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and bool(a == b)


# --- conditions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A condition as text, and what it means."""

    sql: str
    pred: Predicate


@st.composite
def comparisons(
    draw: st.DrawFn,
    left: Sequence[str] = ("a", "c"),
    right: Sequence[str] = ("b", "d"),
    ops: Sequence[str] = naive.OPERATORS,
) -> Condition:
    """One comparison of a left with a right column, written either way round."""
    l, op, r = draw(st.tuples(*(st.sampled_from(tuple(x)) for x in (left, ops, right))))
    forward = draw(st.booleans())
    sql = f"l.{l} {op} r.{r}" if forward else f"r.{r} {MIRROR[op]} l.{l}"
    return Condition(sql, naive.conj((l, op, r)))


@st.composite
def _bands(draw: st.DrawFn) -> Condition:
    l, r = draw(st.sampled_from(["a", "c"])), draw(st.sampled_from(["b", "d"]))
    op = draw(st.sampled_from(["<", "<=", ">", ">="]))
    width = draw(st.integers(0, 3))
    return Condition(f"ABS(l.{l} - r.{r}) {op} {width}", naive.band(l, r, op, width))


@st.composite
def _betweens(draw: st.DrawFn) -> Condition:
    if draw(st.booleans()):
        sql = "l.a BETWEEN r.b AND r.d"
        return Condition(sql, naive.conj(("a", ">=", "b"), ("a", "<=", "d")))
    low, high = draw(st.integers(-2, 0)), draw(st.integers(0, 2))

    def near(l: Row, r: Row) -> bool | None:
        low_end = naive.arithmetic("+", l["a"], low)
        high_end = naive.arithmetic("+", l["a"], high)
        return naive.all_of(
            lambda l, r: naive.compare(r["b"], ">=", low_end),
            lambda l, r: naive.compare(r["b"], "<=", high_end),
        )(l, r)

    return Condition(f"r.b BETWEEN l.a + {low} AND l.a + {high}", near)


@st.composite
def _filters(draw: st.DrawFn) -> Condition:
    side, column = draw(st.sampled_from([("l", "a"), ("l", "c"), ("r", "b"), ("r", "d")]))
    op, value = draw(operators), draw(ints)

    def one_sided(l: Row, r: Row) -> bool | None:
        return naive.compare((l if side == "l" else r)[column], op, value)

    return Condition(f"{side}.{column} {op} {value}", one_sided)


@st.composite
def _residuals(draw: st.DrawFn) -> Condition:
    sign, op, value = draw(st.sampled_from(["+", "*"])), draw(operators), draw(ints)

    def over_both(l: Row, r: Row) -> bool | None:
        return naive.compare(naive.arithmetic(sign, l["c"], r["b"]), op, value)

    return Condition(f"l.c {sign} r.b {op} {value}", over_both)


def atoms() -> st.SearchStrategy[Condition]:
    """One condition without AND or OR."""
    floating = comparisons(("x",), ("y",))
    mixed = comparisons(("a",), ("y",)) | comparisons(("x",), ("d",))
    return st.one_of(
        comparisons(), floating, mixed, _bands(), _betweens(), _filters(), _residuals()
    )


def _joined(word: str, parts: list[Condition]) -> Condition:
    combine = naive.all_of if word == "AND" else naive.any_of
    sql = f" {word} ".join(f"({part.sql})" for part in parts)
    return Condition(sql, combine(*(part.pred for part in parts)))


def conditions() -> st.SearchStrategy[Condition]:
    """Any condition over `SCHEMA_L` and `SCHEMA_R` that names both sides."""
    # The comparison keeps the condition from naming one side only, which is an error.
    both = st.tuples(comparisons(), st.lists(atoms(), max_size=3))
    conjunctions = both.map(lambda drawn: _joined("AND", [drawn[0], *drawn[1]]))
    disjunctions = st.lists(conjunctions, min_size=2, max_size=3).map(lambda p: _joined("OR", p))
    return conjunctions | disjunctions


def refused(call: Callable[[], Any], *parts: str, kind: type[Exception] = ThetaJoinError) -> None:
    """A call ends in an error of ours, of one line that says these parts."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 2000
    message.encode()
    for part in parts:
        assert part in message, message


# --- groups and aggregates -----------------------------------------------------------------------


def chosen(texts: Iterable[str], most: int, least: int = 0) -> st.SearchStrategy[list[str]]:
    """Some of the groups or aggregates."""
    return st.lists(st.sampled_from(sorted(texts)), min_size=least, max_size=most, unique=True)


def asked(groups: Sequence[str], aggs: Sequence[str]) -> dict[str, Any]:
    """Groups and aggregates as arguments of `join_agg`."""
    named = {f"a{i}": text for i, text in enumerate(aggs)}
    return {"group_by": {f"g{i}": text for i, text in enumerate(groups)}, "aggs": named}


# --- windows and streams -------------------------------------------------------------------------

STREAM_L = {"lid": pa.int64(), "a": pa.int64(), "c": pa.int64(), "t": pa.int64()}
STREAM_R = {"rid": pa.int64(), "b": pa.int64(), "d": pa.int64(), "t": pa.int64()}


@dataclass(frozen=True)
class Windowed:
    """A window for the package and the same for the oracle."""

    window: TimeWindow | CountWindow | FullHistory
    naive: naive.Window
    order_by: str | None = None

    def __repr__(self) -> str:
        return f"{self.window!r}" + (f", order_by={self.order_by!r}" if self.order_by else "")


def full_windows() -> st.SearchStrategy[Windowed]:
    """No window at all."""
    return st.just(Windowed(FullHistory(), naive.Full()))


def time_windows() -> st.SearchStrategy[Windowed]:
    """Windows over the integer time `t`, symmetric and not."""
    symmetric = st.integers(1, 6).map(lambda n: Windowed(TimeWindow(n, time="t"), naive.Time(n, n)))
    asymmetric = (
        st.tuples(st.integers(0, 5), st.integers(0, 5))
        .filter(any)
        .map(
            lambda n: Windowed(
                TimeWindow(before=n[0], after=n[1], time=("t", "t")), naive.Time(n[0], n[1])
            )
        )
    )
    return symmetric | asymmetric


def count_windows() -> st.SearchStrategy[Windowed]:
    """Windows of a few rows, with slides below, at and above the size, ordered by `t` or not."""
    return st.builds(
        lambda size, slide, order_by: Windowed(
            CountWindow(size, slide), naive.Count(size, slide), order_by
        ),
        st.integers(1, 6),
        st.integers(1, 8),
        st.sampled_from(["t", None]),
    )


def windows() -> st.SearchStrategy[Windowed]:
    """Any window."""
    return full_windows() | time_windows() | count_windows()


Step = Push | Advance


@st.composite
def streams(
    draw: st.DrawFn, *, watermarks: bool = False, max_steps: int = 6, max_rows: int = 6
) -> list[Step]:
    """Micro-batches of `STREAM_L` and `STREAM_R` rows; either side of a batch may be missing.

    Times wander upwards with the steps, out of order inside a batch and across batches. With
    `watermarks` the event time is advanced now and then, so that some rows come too late.
    """
    steps: list[Step] = []
    lid = rid = 0
    for n in range(draw(st.integers(1, max_steps))):
        base = 2 * n
        time = (
            st.one_of(st.integers(base - 4, base + 4), st.none())
            if draw(st.booleans())
            else st.integers(base - 4, base + 4)
        )
        value = st.fixed_dictionaries({"k": nullable_ints, "m": nullable_ints, "t": time})
        new_left, new_right = (
            draw(st.lists(value, max_size=draw(st.sampled_from([0, 2, max_rows])))) for _ in "lr"
        )
        left = [
            {"lid": lid + i, "a": v["k"], "c": v["m"], "t": v["t"]} for i, v in enumerate(new_left)
        ]
        right = [
            {"rid": rid + i, "b": v["k"], "d": v["m"], "t": v["t"]} for i, v in enumerate(new_right)
        ]
        lid, rid = lid + len(left), rid + len(right)
        steps.append(Push(left, right))
        if watermarks and draw(st.booleans()):
            steps.append(Advance(draw(st.integers(base - 3, base + 3))))
    return steps


def stream_rows(steps: Iterable[Step]) -> tuple[list[Row], list[Row]]:
    """All rows of a stream, by side, in the order they come."""
    pushes = [step for step in steps if isinstance(step, Push)]
    return (
        [row for push in pushes for row in push.left],
        [row for push in pushes for row in push.right],
    )


def engine_options() -> st.SearchStrategy[dict[str, int | str]]:
    """Options that must not change a result: they force merges, threads and small chunks."""
    return st.fixed_dictionaries(
        {},
        optional={
            "threads": st.sampled_from([1, 2]),
            "chunk_rows": st.just(64),
            "head_rows": st.sampled_from([0, 1, 2, 5]),
            "merge": st.sampled_from(["inline", "background"]),
        },
    )
