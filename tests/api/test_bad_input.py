"""What a user of the Python API gets wrong: each call, and the one line that answers it.

A row is what was typed, read as Python among the names below, and parts of the message. What is
wrong about garbage of every kind, and about a join that goes on, is below the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import all_ids, ids, refused
from thetajoin.errors import ConditionError

SCHEMA = pa.schema(
    {
        "rp": pa.float64(),
        "cp": pa.float64(),
        "n": pa.int32(),
        "d": pa.date32(),
        "flag": pa.bool_(),
        "s": pa.string(),
        "list": pa.list_(pa.int8()),
        "mixed": pa.int8(),
        "Mixed": pa.int8(),
        "st": pa.struct({"x": pa.int32()}),
        "only_left": pa.int32(),
        "dur": pa.duration("us"),
    }
)
L = SCHEMA.empty_table()
R = L.drop_columns("only_left").append_column("only_right", pa.nulls(0, pa.int32()))


# --- conditions ----------------------------------------------------------------------------------

CONDITIONS: list[tuple[str, list[str]]] = [
    # names
    (
        "l.rp < r.rpp",
        ["unknown column 'rpp' of the right side", "position 8", "`r.rpp`", "'rp'?"],
    ),
    ("l.zzz < r.rp", ["unknown column 'zzz'", "position 1", "`l.zzz`", "there are: rp, cp"]),
    (
        "x.rp < r.rp",
        ["unknown alias 'x'", "position 1", "`x.rp`", "only l (left) and r (right)"],
    ),
    ("rp < r.rp", ["'rp' is ambiguous", "position 1", "write l.rp or r.rp"]),
    ("only_lef < r.n", ["unknown column 'only_lef'", "'only_left'?"]),
    ("l.MIXED < r.n", ["'MIXED' of the left side is ambiguous", "mixed, Mixed"]),
    ("l.st.y < r.n", ["unknown column 'y' in struct 'st'", "`l.st.y`", "there are: x"]),
    ("l.n.x < r.n", ["n is INT, so has no field 'x'"]),
    ("l.* < r.n", ["is not supported", "position"]),
    # types
    (
        "l.n < r.d",
        ["cannot compare INT with DATE", "position 1", "`l.n < r.d`", "cast one side"],
    ),
    ("l.rp < r.rp AND l.flag = r.n", ["BOOLEAN with INT", "position 17", "`l.flag = r.n`"]),
    ("l.d - r.d <= 5", ["INTERVAL DAY TO SECOND with INT", "DATEDIFF(a, b) <= 5"]),
    ("l.list = r.list", ["cannot compare"]),
    ("l.st = r.st", ["cannot compare"]),
    ("l.s < r.dur", ["cannot compare STRING with INTERVAL"]),
    ("l.n IN (r.d)", ["IN mixes INT and DATE"]),
    ("l.n AND l.rp < r.rp", ["AND takes conditions, not INT", "l.n > 0"]),
    ("l.d * 2 < r.n", ["* does not take DATE and INT"]),
    ("l.d + l.rp < r.d", ["+ does not take"]),
    ("l.flag & r.flag", ["& takes integers, not BOOLEAN", "AND"]),
    ("CAST(l.d AS INT) < r.n", ["cannot cast DATE to INT", "position 6"]),
    ("l.n LIKE r.s", ["LIKE takes STRING, not INT"]),
    ("l.n + r.n", ["must be true or false, not INT", "`l.n + r.n`"]),
    ("lower(l.flag) < r.s AND year(l.n) = r.n", ["year takes DATE, not INT", "`year(l.n)`"]),
    (
        "l.d < DATE '2024-13-01' AND l.n < r.n",
        ["'2024-13-01' is not a valid DATE", "position 12"],
    ),
    # constants and one side
    ("1 < 2", ["condition is constant (always true)", "`1 < 2`", "l with one over r"]),
    ("NULL", ["condition is constant (never true)"]),
    ("l.n < r.n AND 1 > 2", ["condition is constant (never true)"]),
    ("l.n < r.n OR TRUE", ["condition is constant (always true)"]),
    ("NOT (l.n < r.n OR TRUE)", ["condition is constant (never true)"]),
    ("l.n > 3", ["names only the left side (l)", "`l.n > 3`", "over r"]),
    ("r.n > 3 AND r.rp < 2", ["names only the right side (r)", "over l"]),
    # syntax
    ("l.n <", ["operand is missing", "position 5", "`<`"]),
    ("l.n < AND r.n", ["operand is missing", "position 7", "`AND`"]),
    ("l.n < (r.n", [") is missing", "position 10"]),
    ("l.n < r.n)", ["unexpected text", "position 10", "`)`"]),
    ("l.n < r.n limit 3", ["unexpected text", "position 11", "`limit`"]),
    ("l.s < 'abc", ["' is never closed", "position 7", "`'abc`"]),
    ("l.`rp < 3", ["` is never closed", "position 3"]),
    ("l.n\n  < AND", ["operand is missing", "position 9"]),
    ("", ["condition is empty"]),
    ("  ", ["condition is empty"]),
    ("l.n < r.n; l.rp < r.rp", ["one condition is expected", "AND"]),
    ("CAST(l.n AS foo) < r.n", ["expected TYPE", "position 13", "`foo`"]),
    ("l.n BETWEEN 1", ["operand is missing"]),
    ("l.n IN ()", ["IN needs a list"]),
    # clauses that do not belong
    ("l.n < (SELECT MAX(x) FROM t)", ["a subquery", "position 7", "`(SELECT MAX(x) FROM t)`"]),
    ("l.n IN (SELECT x FROM t)", ["a subquery", "position 8", "`(SELECT x FROM t)`"]),
    ("EXISTS (SELECT 1)", ["a subquery", "(SELECT 1)"]),
    ("SUM(l.n) < r.n", ["an aggregate (sum)", "position 1", "`SUM(l.n)`"]),
    ("l.n < COUNT(*)", ["an aggregate (count)", "position 7", "`COUNT(*)`"]),
    ("ROW_NUMBER() OVER (ORDER BY l.n) < r.n", ["a window function", "`ROW_NUMBER() OVER"]),
    ("sqr(l.n) < r.n", ["unsupported function 'sqr'", "`sqr(l.n)`", "did you mean 'sqrt'?"]),
    ("zzzzzz(l.n) < r.n", ["unsupported function 'zzzzzz'", "there are: abs"]),
    ("pow(l.n) < r.n", ["pow takes 2 arguments, not 1", "`pow(l.n)`"]),
    ("round(l.rp, l.n) < r.n", ["round takes a constant number of digits"]),
    ("l.n BETWEEN SYMMETRIC 3 AND r.n", ["BETWEEN SYMMETRIC is not supported"]),
    ("trim('x' FROM l.s) < r.s", ["TRIM of other characters"]),
    ("l.s RLIKE r.s", ["regexplike is not supported", "position 1", "`l.s RLIKE r.s`"]),
    ("l.n < ?", ["placeholder is not supported"]),
    (
        "l.d + INTERVAL 1 MONTH < r.d",
        ["MONTH has no fixed length", "position 7", "INTERVAL 1 MONTH"],
    ),
    ("l.d + INTERVAL 1 EON < r.d", ["unknown interval unit EON", "day"]),
    ("date_trunc('eon', l.d) < r.d", ["date_trunc takes a constant unit", "hour"]),
    ("r.only_left < l.n", ["unknown column 'only_left' of the right side"]),
    ("frobnicate(l.rp) < r.rp", ["frobnicate"]),
    ("l.flag < r.rp", ["l.flag"]),
    ("l.rp < r.d", ["r.d"]),
    ("l.s - 1 < r.d", ["`l.s"]),
    ("l.rp < l.n", ["names only the left side"]),
    ("TRUE", ["condition is constant (always true)"]),
    ("SELECT 1", []),
    ("l.rp <<>> r.rp !!", []),
    ("l.rp < (SELECT MAX(rp) FROM r)", ["a subquery"]),
    ("l.rp < r.rp; DROP TABLE x", ["one condition is expected"]),
]
LISTS: list[tuple[Any, list[str]]] = [
    (["l.n < r.n", "l.x < r.n"], ["in condition 2: unknown column 'x'", "position 1"]),
    ([], ["empty list"]),
    (5, ["text or built from l and r, not int"]),
    (None, ["text or built from l and r, not NoneType"]),
    ([3], []),
    ({"l.rp": "r.rp"}, []),
    (b"l.rp < r.rp", []),
    (True, []),
]


@pytest.mark.parametrize(("on", "parts"), [*CONDITIONS, *LISTS])
def test_conditions(on: Any, parts: list[str]) -> None:
    refused(lambda: tj.join(L, R, on), *parts, kind=ConditionError)
    refused(lambda: tj.explain(L, R, on), *parts, kind=ConditionError)
    schemas = {"left_schema": L.schema, "right_schema": R.schema}
    refused(
        lambda: tj.StreamJoin(on, window=tj.FullHistory(), **schemas), *parts, kind=ConditionError
    )


DEEP = 3000
PAST_ALL_MEASURE = {
    "a whole number": f"l.n < r.n + {'9' * 100_000}",
    "a decimal number": f"l.n < r.n + 1.{'9' * 100_000}",
    "39 digits": f"l.n < r.n AND l.n < {'9' * 39}",
    "a precision": f"CAST(l.n AS DECIMAL({'9' * 5000}, 0)) < r.n",
    "an interval": "l.n < r.n AND INTERVAL '99999999999999999999' DAY > INTERVAL '1' DAY",
    "parentheses": "(" * DEEP + "l.n < r.n" + ")" * DEEP,
    "sums": "l.n" + " + 1" * DEEP + " < r.n",
    "sums that parse": "l.n" + " + 1" * 250 + " < r.n",
    "negations": "NOT " * DEEP + "(l.n < r.n)",
    "calls": "ABS(" * DEEP + "l.n" + ")" * DEEP + " < r.n",
    "cases": "CASE WHEN l.n < r.n THEN " * DEEP + "TRUE" + " END" * DEEP,
    "nested ands": "(l.n < r.n AND (l.n > r.n OR " * 800 + "l.n = r.n" + "))" * 800,
    "a half character": "l.n < r.\ud800",
}


@pytest.mark.parametrize("name", PAST_ALL_MEASURE)
def test_conditions_past_all_measure(name: str) -> None:
    on = PAST_ALL_MEASURE[name]
    refused(lambda: tj.join(L, R, on))
    refused(lambda: tj.join_many({"l": L, "r": R}, on))
    group = on.replace("r.", "l.")
    refused(lambda: tj.join_agg(L, R, "l.n < r.n", group_by=group, aggs={"n": "count(*)"}))


def test_long_conditions_that_are_not_deep() -> None:
    table = pa.table({"a": [1, 2]})
    assert tj.join(table, table, " AND ".join(["l.a < r.a"] * 500)).num_rows == 1
    assert tj.join(table, table, ["l.a < r.a"] * 500).num_rows == 1
    assert tj.join(table, table, "l.a" + " + 1" * 150 + " < r.a + 150").num_rows == 1


def test_built_conditions_have_no_truth_value() -> None:
    """`and` and chained comparisons would silently drop half of the condition."""
    for use in (
        lambda: (tj.l.n < tj.r.n) and (tj.l.rp < tj.r.rp),
        lambda: 1 < tj.l.n < tj.r.n,
        lambda: tj.l.n < tj.l.only_left < tj.r.n,
        lambda: not (tj.l.n < tj.r.n),
    ):
        with pytest.raises(tj.ThetaJoinError, match=r"use & \| ~ .* instead of and.*between"):
            use()


# --- calls ---------------------------------------------------------------------------------------

T = pa.table({"k": [1, 2], "name": ["a", "b"], "tags": [["x"], []]})
N = pa.table({"t": [1], "s": ["a"]})
X = pa.table({"x": [1]})
A = pa.table({"a": [1], "b": [3], "t": [1]})
LEFT = pa.table({"lid": [0, 1], "rp": [1, 5], "name": ["x", "y"], "t": [0, 1]})
RIGHT = pa.table(
    {"rid": [0, 1], "rp": [3, 9], "cp": [1.5, 2.5], "when": pa.array([0, 1], pa.date32())}
)
TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["rp", "rp"])
ZEROS = pa.table({"a": [1], "t": [datetime(2024, 1, 1)]})
DAYS = pa.table({"b": [2], "t": [date(2024, 1, 1)]})
NAIVE = pa.table({"t": [datetime(2024, 7, 1, 12, 30)], "s": ["a"]})
ZONED = pa.table({"t": pa.array([datetime(2024, 7, 1, 11)], pa.timestamp("us", "Europe/Berlin"))})
MIXED_ZONES = [
    "l.t < r.t",
    "r.t = l.t",
    "r.t BETWEEN l.t AND l.t + INTERVAL 1 HOUR",
    "ABS(l.t - r.t) < INTERVAL 1 HOUR",
    "l.t IN (r.t)",
    "COALESCE(l.t, r.t) < r.t",
    "CAST(l.s AS TIMESTAMP) > l.t AND l.t < CAST(r.t AS TIMESTAMP_NTZ)",
]
SPAN, VECTOR = timedelta(1), np.zeros(3)
ON = "l.rp < r.rp"


def join(**more: Any) -> Any:
    return tj.join(LEFT, RIGHT, ON, **more)


def stream(on: str = ON, **more: Any) -> Any:
    return tj.StreamJoin(on, **{"window": tj.FullHistory()} | more)


def agg(aggs: Any = None, group_by: Any = (), on: str = "l.k < r.k", **more: Any) -> Any:
    aggs = {"n": "count(*)"} if aggs is None else aggs
    return tj.join_agg(T, T, on, group_by=group_by, aggs=aggs, **more)


def near(**more: Any) -> Any:
    return tj.nearest(N, N, **{"key": "t"} | more)


def many(on: str = "r.x <= s.x AND s.x <= t.x", inputs: Any = None, **more: Any) -> Any:
    return tj.join_many(dict.fromkeys("rst", X) if inputs is None else inputs, on, **more)


def three(on: str) -> Any:
    return many(on, dict.fromkeys("rst", pa.table({"a": [1]})))


def tagged(**more: Any) -> list[Callable[[], Any]]:
    """A column that says where a row comes from, in every call that has one."""
    both = pa.table({"lid": [0], "x": [1]}), pa.table({"rid": [0], "x": [2]})
    schemas = {"left_schema": both[0].schema, "right_schema": both[1].schema}
    window = tj.TimeWindow(1, time="x")
    return [
        *(lambda call=call: call(*both, "l.x < r.x", **more)
          for call in (tj.join, tj.join_batches, tj.explain)),
        lambda: tj.StreamJoin("l.x < r.x", window=window, **more, **schemas),
    ]  # fmt: skip


NO_TABLES = ("None", "3", "[1, 2]", "{'rp': [1]}", "'table'", "VECTOR")
CALLS: list[tuple[str, list[str]]] = [
    # every join
    ("tj.join_batches(LEFT, RIGHT, 'l.rq < r.rp')", ["rq"]),
    ("tj.join_batches(LEFT, RIGHT, ON, how='sideways')", ["sideways"]),
    ("tj.join(A, A, (tj.l.a < tj.r.a) & (tj.l.a < 10**6000))", ["38 digits"]),
    ("join(thread=2)", ["thread"]),
    ("join(threads=-1)", ["threads"]),
    ("join(threads=1.5)", ["threads"]),
    ("join(threads=True)", ["threads"]),
    ("join(chunk_rows=0)", ["chunk_rows"]),
    ("join(chunk_rows='many')", ["chunk_rows"]),
    ("join(shards=3)", ["shards"]),
    ("join(suffix=None)", ["suffix", "_right"]),
    ("join(suffix=3)", ["suffix", "_right"]),
    ("join(suffix=b'_r')", ["suffix", "_right"]),
    ("join(suffix=['_r'])", ["suffix", "_right"]),
    ("join(late='folder')", ["late= goes with a join of two Spark streams"]),
    ("tj.join(TWICE, RIGHT, ON)", ["rp"]),
    ("tj.join(pa.table({'rp': [1], 'rp_right': [2]}), RIGHT, ON)", ["rp_right", "suffix"]),
    *((f"tj.join({bad}, RIGHT, ON)", ["left"]) for bad in NO_TABLES),
    *((f"tj.join(LEFT, {bad}, ON)", ["right"]) for bad in NO_TABLES),
    # windows and orders
    ("tj.TimeWindow(0, time='t')", []),
    ("tj.TimeWindow('-1 s', time='t')", []),
    ("tj.CountWindow(0)", []),
    ("tj.CountWindow(-5)", []),
    ("tj.CountWindow(5, slide=0)", []),
    *((f"{call}(window={bad})", ["TimeWindow"])
      for call in ("join", "stream")
      for bad in ("'10 minutes'", "10", "SPAN", "object()")),
    ("stream(window=None)", ["TimeWindow", "CountWindow", "FullHistory"]),
    ("stream(how='left')", ["left"]),
    ("stream(how='right')", ["right"]),
    ("stream(how='full')", ["full"]),
    ("stream(how='anti')", ["anti"]),
    ("join(window=tj.TimeWindow(3, time='when'))", ["when"]),
    ("join(window=tj.TimeWindow(3, time=('t', 'nope')))", ["nope"]),
    ("join(window=tj.TimeWindow('3 s', time=('t', 'rid')))", []),
    ("join(window=tj.TimeWindow(3, time=('name', 'rp')))", []),
    ("join(window=tj.TimeWindow(3, time=('t', 'cp')))", []),
    ("join(window=tj.TimeWindow('1 day', time=('t', 'when')))", []),
    ("tj.join(ZEROS, DAYS, 'l.a < r.b', window=tj.TimeWindow(5, time='t'))", ["unit"]),
    ("join(window=tj.CountWindow(3), order_by='nope')", []),
    ("join(window=tj.CountWindow(3), order_by=('t', 'nope'))", []),
    ("join(window=tj.CountWindow(3), order_by=('nope', 'rid'))", []),
    ("join(window=tj.CountWindow(3), order_by=('t', 'when'))", []),
    ("join(window=tj.CountWindow(3), order_by=3)", []),
    ("join(window=tj.CountWindow(3), order_by=('t',))", []),
    # streams
    ("stream(thread=2)", ["thread"]),
    ("stream(threads=-1)", ["threads"]),
    ("stream(threads=1.5)", ["threads"]),
    ("stream(threads=True)", ["threads"]),
    ("stream(chunk_rows=0)", ["chunk_rows"]),
    ("stream(chunk_rows='many')", ["chunk_rows"]),
    ("stream(shards=3)", ["shards"]),
    ("stream(suffix=None)", ["suffix"]),
    ("stream(suffix=3)", ["suffix"]),
    ("stream(suffix=b'_r')", ["suffix"]),
    ("stream(suffix=['_r'])", ["suffix"]),
    ("stream(window=tj.CountWindow(5)).advance(3)", ["TimeWindow"]),
    ("stream(window=tj.TimeWindow(5, time='t')).take_late()", ["keep_late=True"]),
    ("stream(window=tj.CountWindow(5), keep_late=True)", ["needs a TimeWindow"]),
    ("stream(window=tj.TimeWindow(5, time='t'), keep_late='yes')", ["True or False"]),
    # times with a zone beside times without
    *((f"tj.join(NAIVE, ZONED, {on!r})", ["l.t has no time zone and", "CAST(l.t AS TIMESTAMP)"])
      for on in MIXED_ZONES),
    ("tj.join(ZONED, NAIVE, 'l.t < r.t')", ["r.t has no time zone and l.t has one", "`l.t < r.t`"]),
    ("tj.join_batches(NAIVE, ZONED, 'l.t < r.t')", ["l.t has no time zone"]),
    ("tj.explain(NAIVE, ZONED, 'l.t < r.t')", ["l.t has no time zone"]),
    ("tj.join_agg(NAIVE, ZONED, 'l.t < r.t', aggs={'n': 'count(*)'})", ["l.t has no time zone"]),
    ("tj.nearest(NAIVE, ZONED, key='t')", ["key: l.t has no time zone and r.t has one", "CAST"]),
    ("tj.nearest(NAIVE, ZONED, key='t', on='l.t < r.t')", ["has no time zone"]),
    ("tj.join(NAIVE, ZONED, 'l.s < CAST(r.t AS STRING)', window=tj.TimeWindow('1 h', time='t'))",
     ["the window's time: l.t has no time zone", "tz_localize"]),
    ("tj.join(NAIVE, ZONED, 'l.s < CAST(r.t AS STRING)', window=tj.CountWindow(5), order_by='t')",
     ["order_by: l.t has no time zone"]),
    ("stream('l.t < r.t', left_schema=NAIVE.schema, right_schema=ZONED.schema)",
     ["l.t has no time zone"]),
    ("stream('l.t < r.t').push(NAIVE, ZONED)", ["l.t has no time zone"]),
    ("tj.StreamJoin.nearest(key='t', window=tj.TimeWindow('1 h', time='t')).push(NAIVE, ZONED)",
     ["l.t has no time zone"]),
    ("many('r.t < s.t', {'r': NAIVE, 's': ZONED})", ["r.t has no time zone and s.t has one"]),
    ("tj.sql('SELECT * FROM a JOIN b ON a.t < b.t', a=NAIVE, b=ZONED)", ["a.t has no time zone"]),
    # aggregates
    ("agg({'s': 'sum(l.kk)'})", ["in aggregate 's': unknown column 'kk' of the left side", "'k'"]),
    ("agg({'s': 'sum(k)'})", ["ambiguous"]),
    ("agg({'s': 'sum(max(l.k))'})", ["in aggregate 's': an aggregate (max) inside an aggregate"]),
    ("agg({'s': 'count(DISTINCT l.k)'})", ["DISTINCT inside an aggregate is not supported"]),
    ("agg({'s': 'sum(DISTINCT l.k)'})", ["DISTINCT inside an aggregate is not supported"]),
    ("agg({'s': 'median(l.k)'})", ["unsupported aggregate 'median'"]),
    ("agg({'s': 'summ(l.k)'})", ["did you mean 'sum'"]),
    ("agg({'s': 'l.k'})", ["this is not an aggregate"]),
    ("agg({'s': 'sum(l.k) + 1'})", ["this is not an aggregate"]),
    ("agg({'s': 'sum(*)'})", ["sum(*) is not an aggregate"]),
    ("agg({'s': 'sum(l.k, r.k)'})", ["sum takes one argument, not 2"]),
    ("agg({'s': 'sum(l.name)'})", ["sum takes numbers, not STRING ", "; cast it"]),
    ("agg({'s': 'max(l.tags)'})", ["max takes values with an order"]),
    ("agg({'s': 'sum(l.k'})", ["in aggregate 's'"]),
    ("agg({'s': 'sum(l.k) OVER ()'})", ["this is not an aggregate"]),
    ("agg({'s': 'sum(l.k) FILTER (WHERE l.k > 1)'})", ["this is not an aggregate"]),
    ("agg({})", ["aggregates are written like"]),
    ("agg(['count(*)'])", ["aggregates are written like"]),
    ("agg({'s': 5})", ["aggregates are written like"]),
    ("agg(group_by='l.kk')", ["in group_by: unknown column 'kk'"]),
    ("agg(group_by=['l.tags'])", ["cannot be grouped by"]),
    ("agg(group_by=[5])", ["each is text"]),
    ("agg(group_by=7)", ["give a column"]),
    ("agg(group_by=['l.k', 'r.k', 'l.k'])", ["two columns of the result are called 'k_right'"]),
    ("agg(group_by={'n': 'l.k'})", ["two columns of the result are called 'n'"]),
    ("agg(on='l.q < r.k')", ["unknown column"]),
    ("agg(thread=1)", ["did you mean 'threads'"]),
    ("agg(window=5)", ["not a window"]),
    # nearest matches
    ("near(key='nope')", ["key column 'nope' is not in the left input; it has t, s"]),
    ("near(key=('t', 'nope'))", ["is not in the right input"]),
    ("tj.nearest(A, ZEROS, key=('b', 't'))", ["cannot compare BIGINT with", "`l.b, r.t`"]),
    ("near(key=3)", ["give a column name, or a pair"]),
    ("near(by='nope')", ["unknown column 'nope'"]),
    ("near(by=7)", ["by=7: give a column name or a list of names"]),
    ("near(direction='back')", ["did you mean 'backward'"]),
    ("near(ties='some')", ["it is one of first, last, all"]),
    ("near(k=0)", ["at least 1"]),
    ("near(k=True)", ["at least 1"]),
    ("near(k=1.5)", ["at least 1"]),
    ("near(how='full')", ["one of left, inner, semi, anti"]),
    ("near(tolerance=-1)", ["negative"]),
    ("near(tolerance='1 minute')", ["so give a number"]),
    ("near(tolerance=float('inf'))", ["leave it out"]),
    ("near(order_by='nope')", ["order_by column 'nope' is not in the right input"]),
    ("near(order_by=['t'])", ["order_by"]),
    ("near(window=tj.CountWindow(3))", ["use a TimeWindow"]),
    ("near(on='l.t <')", ["position"]),
    ("near(thread=1)", ["did you mean 'threads'"]),
    # several tables
    ("three('r.a < a')", ["'a' is ambiguous", "r, s, t have it", "position 7"]),
    ("three('r.a < q.a')", ["unknown input 'q'", "r, s, t"]),
    ("three('r.a < s.z AND s.a < t.a')", ["unknown column 'z' of input 's'"]),
    ("three('1 < 2')", ["constant"]),
    ("three('r.a < s.a AND s.a')", ["condition"]),
    ("three('r.a < s.a')", ["nothing connects t with r, s"]),
    ("three('')", ["empty"]),
    ("many(inputs=[X, X])", ["dictionary"]),
    ("many(inputs={'r': X})", ["dictionary"]),
    ("many(inputs={'r r': X, 's': X})", ["plain word"]),
    ("many(inputs={'r': X, 'R': X})", ["case only"]),
    ("many(inputs={'r': X, 's': [1]})", ["list"]),
    ("many(window=tj.CountWindow(5), order_by='y')", ["'y' is not in input 'r'"]),
    ("many(window=tj.CountWindow(5), order_by=('x', 'x'))", ["2 names for 3 inputs"]),
    ("many(window=tj.CountWindow(5), order_by=3)", ["one for each input"]),
    ("many(window=tj.TimeWindow(5, time=('x', 'y')))", ["one column"]),
    ("many(order_by='x')", ["order_by"]),
    ("many(thread=1)", ["threads"]),
    # a column that says where a row comes from
    ("tagged(indicator='x')", ["indicator='x': the output has a column of that name"]),
    ("tagged(indicator='x_right')", ["the output has a column of that name"]),
    ("tagged(indicator='')", ["indicator='': give the name of a column"]),
    ("tagged(indicator=True)", ["indicator=True: give the name of a column"]),
    ("tagged(indicator='m', how='semi')", ["indicator='m': a row of a join with how='semi'"]),
    ("tagged(indicator='m', how='left_anti')", ["with how='anti' has one side"]),
    ("near(aggs={'n': 'count(*)'}, indicator='found')", ["leave it out beside aggs"]),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "parts"), CALLS)
def test_calls(typed: str, parts: list[str]) -> None:
    if typed.startswith("tagged("):
        for call in eval(typed):
            refused(call, *parts)
    else:
        refused(lambda: eval(typed), *parts)


@pytest.mark.parametrize(
    "on",
    [
        "CAST(l.t AS TIMESTAMP) > r.t",
        "l.t > CAST(r.t AS TIMESTAMP_NTZ)",
        "l.t > TIMESTAMP '2024-07-01 00:00:00' AND r.t > DATE '2024-07-01'"
        " AND l.s > CAST(r.t AS STRING)",
        "CAST('2024-07-01' AS DATE) + INTERVAL 2 HOURS < l.t AND l.s <> CAST(r.t AS STRING)",
    ],
)
def test_a_cast_says_what_a_time_without_a_zone_means(on):
    assert tj.join(NAIVE, ZONED, on).num_rows == 1


def test_empty_tables_are_no_mistake():
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        got = tj.join(LEFT.slice(0, 0), RIGHT.slice(0, 0), "l.rp < r.rp", how=how)
        assert got.num_rows == 0
        assert "rp" in got.column_names


def test_keys_that_are_all_null_are_no_mistake():
    nulls = pa.table({"lid": [0, 1], "rp": pa.nulls(2, pa.int64())})
    assert tj.join(nulls, RIGHT, "l.rp < r.rp").num_rows == 0
    assert ids(tj.join(nulls, RIGHT, "l.rp < r.rp", how="left")) == {(0, None): 1, (1, None): 1}


# --- an operator survives ------------------------------------------------------------------------


def lefts(*values, first=0):
    return pa.table({"lid": range(first, first + len(values)), "a": values, "t": [0] * len(values)})


def rights(*values, first=0):
    return pa.table({"rid": range(first, first + len(values)), "b": values, "t": [0] * len(values)})


BAD_PUSHES = {
    "another type": {"left": lefts(1).set_column(1, "a", pa.array(["1"]))},
    "a wider type": {"left": lefts(1).set_column(1, "a", pa.array([1.0]))},
    "a missing column": {"left": lefts(1).drop_columns("a")},
    "one column more": {"left": lefts(1).append_column("more", pa.array([1]))},
    "another name": {"left": lefts(1).rename_columns(["lid", "A", "t"])},
    "no table": {"left": [1, 2, 3]},
    "bad right, good left": {"left": lefts(2, first=7), "right": rights(1).drop_columns("b")},
    "good right, bad left": {"left": 7, "right": rights(1, first=7)},
}


@pytest.mark.parametrize(
    "window", [tj.FullHistory(), tj.CountWindow(100), tj.TimeWindow(5, time="t")], ids=repr
)
@pytest.mark.parametrize("name", BAD_PUSHES)
def test_a_bad_push_changes_nothing(name, window):
    join = tj.StreamJoin("l.a < r.b", window=window)
    results = [join.push(lefts(1, 5), rights(3))]
    stats = join.stats
    refused(lambda: join.push(**BAD_PUSHES[name]))
    assert join.stats == stats
    results.append(join.push(lefts(2, first=2), rights(9, first=1)))
    assert all_ids(results) == {(0, 0): 1, (0, 1): 1, (1, 1): 1, (2, 0): 1, (2, 1): 1}


def test_a_bad_first_push_changes_nothing():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    refused(lambda: join.push(left=lefts(1).drop_columns("a"), right=rights(3)), "a")
    got = join.push(lefts(1), rights(3))
    assert ids(got) == {(0, 0): 1}


def test_the_same_columns_in_another_order_are_the_same():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    join.push(lefts(1))
    got = [join.push(lefts(2, first=1).select(["t", "a", "lid"])), join.push(right=rights(9))]
    assert all_ids(got) == {(0, 0): 1, (1, 0): 1}


@pytest.mark.parametrize(
    ("on", "bad"),
    [
        ("10 / l.a < r.b", {"left": lefts(0, first=9)}),
        ("CAST(l.a AS TINYINT) < r.b", {"left": lefts(1000, first=9)}),
        ("l.a * 4611686018427387904 < r.b", {"left": lefts(8, first=9)}),
    ],
)
def test_a_value_the_condition_cannot_take(on, bad):
    """Spark in ANSI mode stops on these; the rows pushed with them are not taken in."""
    join = tj.StreamJoin(on, window=tj.FullHistory())
    join.push(lefts(1), rights(100))
    stats = join.stats
    refused(lambda: join.push(**bad))
    assert join.stats == stats
    got = join.push(right=rights(2**62, first=1))
    assert {lid for lid, _ in ids(got)} <= {0}


WATERMARKS = ["soon", datetime(2024, 1, 1), date(2024, 1, 1), None, 1.5, object()]


@pytest.mark.parametrize("watermark", WATERMARKS, ids=lambda w: type(w).__name__)
def test_a_watermark_of_the_wrong_kind(watermark):
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(1), rights(3))
    refused(lambda: join.advance(watermark), "watermark")
    join.advance(0)
    assert join.push(lefts(1, first=1)).num_rows == 1


@pytest.mark.parametrize("watermark", WATERMARKS, ids=lambda w: type(w).__name__)
def test_a_watermark_of_the_wrong_kind_before_any_row(watermark):
    """Whether it is refused at once or when the schemas are known, the join can go on."""
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(1))
    try:
        join.advance(watermark)
    except tj.ThetaJoinError:
        pass
    else:
        refused(lambda: join.push(right=rights(3)), "watermark")
    assert ids(join.push(right=rights(3))) == {(0, 0): 1}


def test_a_finished_join_takes_nothing_more():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    join.push(lefts(1), rights(3))
    join.finish()
    refused(lambda: join.push(lefts(1)), "finish")
    refused(join.finish, "finish")


# --- snapshots -----------------------------------------------------------------------------------


def saved():
    join = tj.StreamJoin("l.a < r.b", how="full", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(1, 5), rights(3))
    return join.snapshot()


@pytest.mark.parametrize(
    "data",
    [b"", b"thetajoin", b"\x80\x04N.", b"x" * 1000, b"PK\x03\x04" + bytes(100), "text", None],
)
def test_foreign_snapshots(data):
    refused(lambda: tj.StreamJoin.restore(data), "snapshot")


def test_damaged_snapshots():
    data = saved()
    assert ids(tj.StreamJoin.restore(data).push(right=rights(9, first=1))) == {(0, 1): 1, (1, 1): 1}
    for cut in (1, len(data) // 2, len(data) - 1):
        refused(lambda cut=cut: tj.StreamJoin.restore(data[:cut]), "snapshot")
    refused(lambda: tj.StreamJoin.restore(data + b"\x00"), "snapshot")
    for place in range(0, len(data), max(1, len(data) // 200)):
        damaged = bytearray(data)
        damaged[place] ^= 0x40
        refused(lambda damaged=damaged: tj.StreamJoin.restore(bytes(damaged)), "snapshot")
