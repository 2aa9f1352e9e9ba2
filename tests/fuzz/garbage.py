"""Calls with an argument that makes no sense: they end in a ThetaJoinError, or in a result."""

from __future__ import annotations

import traceback
from typing import Any

from fuzz.check import Outcome
from fuzz.draw import Draw

SETUP = """\
import datetime as dt, math
from decimal import Decimal
import numpy as np, pandas as pd, polars as pl, pyarrow as pa
import thetajoin as tj
l = pa.table({"a": [1, 2, None], "b": [0.5, math.nan, 1.0], "s": ["x", "", None], "t": [1, 2, 3]})
r = pa.table({"a": [2, 3], "c": [b"x", b"y"], "t": [2, 9]})
m = pa.table({"a": [5], "d": [dt.date(2024, 1, 1)], "t": [4]})
join = tj.StreamJoin("l.a < r.a", window=tj.TimeWindow(3, time="t"), how="left")
join.push(left=l)
saved = join.snapshot()
"""
JOIN = {"on": "'l.a < r.a'", "how": "'left'", "window": "None", "order_by": "None"}
JOIN |= {"suffix": "'_right'", "threads": "1", "chunk_rows": "64", "head_rows": "2"}
JOIN |= {"merge": "'inline'", "index": "'auto'", "index_options": "{}"}
SELF = {"df": "l", **{k: v for k, v in JOIN.items() if k != "how"}}
AGG = {"left": "l", "right": "r", "on": JOIN["on"], "group_by": "['l.s']"}
AGG |= {"aggs": "{'n': 'count(*)', 'm': 'max(r.a)'}", "window": "None", "order_by": "None"}
STREAM = {
    "window": "tj.TimeWindow(3, time='t')",
    "left_schema": "l.schema",
    "right_schema": "r.schema",
}
# Each call's arguments with values that are right; a name in front of a dot is made beforehand.
CALLS: dict[str, dict[str, str]] = {
    "tj.join": {"left": "l", "right": "r", **JOIN},
    "list(tj.join_batches": {"left": "l", "right": "r", **JOIN},
    "tj.explain": {"left": "l", "right": "r", **JOIN, "group_by": "()", "aggs": "None"},
    "tj.self_join": SELF,
    "tj.join_many": {
        "inputs": "{'r': l, 's': r, 't': m}",
        "on": "'r.a < s.a AND s.a < t.a'",
        "window": "None",
        "order_by": "None",
        "cross": "False",
    },
    "tj.join_agg": AGG,
    "tj.StreamJoin": {**JOIN, **STREAM},
    "join.push": {"left": "l", "right": "r"},
    "join.advance": {"watermark": "5"},
    "tj.StreamJoin.restore": {"data": "saved"},
    "tj.TimeWindow": {"length": "3", "time": "'t'"},
    "tj.TimeWindow ": {"before": "3", "after": "1", "time": "('t', 't')"},
    "tj.CountWindow": {"size": "3", "slide": "1"},
    "tj.sql": {"query": "'SELECT x.a FROM x, y WHERE x.a < y.a'", "x": "l", "y": "r"},
}
VALUES = (
    *("None", "0", "-1", "1.5", "True", "float('nan')", "10**30", "-10**30", "2**63", "''", "'x'"),
    *("b''", "b'x'", "[]", "{}", "()", "set()", "object()", "int", "len", "[None]", "['a', 'b']"),
    *("('a', 'b', 'c')", "{'n': 1}", "{1: 'count(*)'}", "{'n': 'count(*)'}", "[[]]", "...", "1j"),
    *(
        "Decimal('1.5')",
        "dt.date(2024, 1, 1)",
        "dt.timedelta(-1)",
        "np.int64(3)",
        "np.array([1, 2])",
    ),
    *(
        "np.timedelta64('NaT')",
        "pa.scalar(1)",
        "pa.array([1])",
        "'\\x00'",
        "'\\ud800'",
        "'x' * 5000",
    ),
    *("(x for x in [1])", "lambda: 1", "range(3)", "memoryview(b'x')", "NotImplemented", "tj.l.a"),
    *("tj.l", "tj.FullHistory()", "tj.CountWindow(2)", "tj.TimeWindow('1 minute', time='t')"),
    *("tj.TimeWindow(2, time='s')", "tj.TimeWindow(2, time='zz')", "'10 minutes'", "'interval'"),
)
TABLES = (
    *(
        "l",
        "r",
        "pa.table({})",
        "pa.table({'a': pa.nulls(2)})",
        "l.to_batches()[0]",
        "l.to_reader()",
    ),
    *("pd.DataFrame({'a': [1, 'x']})", "pd.DataFrame({1: [1]})", "pd.DataFrame({'a': [1, None]})"),
    *("pd.DataFrame([[1, 2]], columns=['a', 'a'])", "pl.DataFrame({'a': [1]})", "pd.Series([1])"),
    *("pl.DataFrame({'a': [object()]})", "pl.LazyFrame({'a': [1]})", "pl.Series('a', [1])"),
    *(
        "pa.table([[1], [2]], names=['a', 'a'])",
        "pa.table({'a': [[1]]})",
        "pa.table({'a': [{'b': 1}]})",
    ),
    *("pa.table({'a': pa.array([1, 2]).dictionary_encode()})", "pa.table({'A': [1], 'a': [2]})"),
    *("pa.table({'a': pa.RunEndEncodedArray.from_arrays([2], [7])})", "pa.table({'': [1]})"),
    *("pd.DataFrame({'a': pd.Categorical(['x', 'y'], ordered=True)})", "{'a': [1]}", "[l]"),
    *(
        "pd.DataFrame({'a': pd.period_range('2024', periods=2)})",
        "pd.DataFrame({'a': [1]}, index=[3])",
    ),
    *("pa.table({'a': pa.array([1], pa.month_day_nano_interval()) if 0 else [2]})", "l.schema"),
    *(
        "pa.table({'a': pa.array([None, 1.0], pa.float16())})",
        "pa.array([1])",
        "'/no/such/file.parquet'",
    ),
)
CONDITIONS = (
    *(
        "'l.a <'",
        "'l.a < r.zz'",
        "'l.a'",
        "'TRUE'",
        "'l.a < 1'",
        "'l.a < l.t'",
        "'1 < 2'",
        "'l.s < r.a'",
    ),
    *(
        "'l.a < r.c'",
        "'l.a < r.a; DROP TABLE x'",
        "'l.a < (SELECT 1)'",
        "'l.a < r.a)'",
        "'((l.a < r.a'",
    ),
    *(
        "'count(l.a) < r.a'",
        "'l.a < r.a AND'",
        "'l.a BETWEEN r.a'",
        "'l.a IN ()'",
        "'nope(l.a) < r.a'",
    ),
    *(
        "'l.a = ' + '9' * 5000",
        "'l.a < ' + '(' * 3000 + 'r.a' + ')' * 3000",
        "'l.a < r.a' + ' OR l.a > r.a' * 300",
    ),
    *(
        "'CAST(l.a AS NOTHING) < r.a'",
        "'l.a / 0 < r.a'",
        "'CAST(l.s AS INT) < r.a'",
        "'l.a.b < r.a'",
    ),
    *(
        "'l.a < r.a -- x'",
        "'l.a < /* r.a'",
        "'l.a < \\'x'",
        "'INTERVAL 1 YEAR + l.a < r.a'",
        "'l.* < r.a'",
    ),
    *(
        "['l.a < r.a', 3]",
        "[tj.l.a < tj.r.a, 'l.t > r.t']",
        "tj.l.a < tj.r.zz",
        "tj.l.a + tj.r.a",
        "tj.l['']",
    ),
    *(
        "'l.a < 1e999'",
        "'l.a - r.a < 1e400BD'",
        "'l.a < 1' + '0' * 400 + '.5'",
        "'l.a << r.a'",
        "'l.a LIKE r.a'",
    ),
    *(
        "'l.a < r.a ESCAPE 1'",
        "'CASE WHEN l.a < r.a END'",
        "'l.a < r.a::int'",
        "'l.a <=> NULL'",
        "'? < r.a'",
    ),
    *(
        "'l.a < :x'",
        "'l.a < @x AND r.a > 1'",
        "'DATE \\'2024-13-01\\' < r.a AND l.a < 1'",
        "'l.a < r.a COLLATE x'",
    ),
)
QUERIES = (
    *(
        "'SELECT'",
        "'SELECT 1'",
        "'SELECT * FROM x'",
        "'SELECT * FROM x, y'",
        "'SELECT x.a FROM x JOIN y'",
    ),
    *(
        "'SELECT x.zz FROM x JOIN y ON x.a < y.a'",
        "'SELECT x.a FROM x JOIN z ON x.a < z.a'",
        "'DELETE FROM x'",
    ),
    *(
        "'SELECT x.a FROM x JOIN y ON x.a < y.a LIMIT -1'",
        "'SELECT x.a FROM x, y WHERE x.a < y.a ORDER BY 9'",
    ),
    *(
        "'SELECT sum(x.s) FROM x, y WHERE x.a < y.a'",
        "'SELECT x.a, count(*) FROM x, y WHERE x.a < y.a'",
    ),
    *(
        "'SELECT x.a FROM x, y WHERE x.a < y.a WITHIN 3 minutes ON s'",
        "'SELECT x.a FROM x, y WHERE x.a < y.a WITHIN 0'",
    ),
    *(
        "'SELECT x.a FROM x, y WHERE x.a < y.a WINDOW AS (SLIDE INTERVAL 0 ON COUNT 0)'",
        "'SELECT ' + 'x.a,' * 500",
    ),
    *(
        "'SELECT x.a FROM (SELECT * FROM x) JOIN y ON x.a < y.a'",
        "'SELECT x.a FROM x x, y x WHERE x.a < 1'",
    ),
    *(
        "'SELECT * FROM x FULL JOIN y ON x.a < y.a WHERE x.a > 1'",
        "'SELECT x.a FROM x, y WHERE x.a < y.a GROUP BY 7'",
    ),
)
AGGREGATES = (
    *(
        "{'n': 'median(l.a)'}",
        "{'n': 'sum(l.s)'}",
        "{'n': 'max(*)'}",
        "{'n': 'count('}",
        "{'n': ''}",
    ),
    *(
        "{'n': 'sum(l.zz)'}",
        "{'': 'count(*)'}",
        "{'s': 'count(*)'}",
        "{'n': 'l.a'}",
        "{'n': 'max(max(l.a))'}",
    ),
    *(
        "{'n': 'count(DISTINCT l.a)'}",
        "{'n': 'count(*) + 1'}",
        "{'n': 'sum(l.a, r.a)'}",
        "[('n', 'count(*)')]",
    ),
)
GROUPS = (
    "'l.zz'",
    "['l.s', 'l.s']",
    "[1]",
    "'l.a <'",
    "{'g': 'l.s'}",
    "{'g': 1}",
    "['count(*)']",
    "'1'",
)
INDEXES = ("'hash'", "'bitset'", "'nope'", "'b_plus_tree'", "'wib_tree'")
PARAMETERS = ("{'f_b': 0}", "{'m': 2}", "{'W': 1.5}", "{'nope': 1}", "{1: 2}", "{'f_b': None}")
BYTES = (
    "saved[:-1]",
    "saved[1:]",
    "saved + b'x'",
    "saved[:50] + b'?' + saved[51:]",
    "bytearray(saved)",
    "saved[::-1]",
)
POOLS = {
    **dict.fromkeys(("left", "right", "df", "x", "y"), (*TABLES, *VALUES)),
    "inputs": (
        *(f"{{'r': l, 's': r, 't': {t}}}" for t in TABLES),
        "{'r': l}",
        "{'a b': l, 's': r}",
        *VALUES,
    ),
    "on": (*CONDITIONS, *CONDITIONS, *VALUES),
    "query": (*QUERIES, *QUERIES, *VALUES),
    "aggs": (*AGGREGATES, *VALUES),
    "group_by": (*GROUPS, *VALUES),
    "index": (*INDEXES, *VALUES),
    "index_options": (*PARAMETERS, *VALUES),
    "data": (*BYTES, *VALUES),
}


def call(seed: int, number: int) -> str:
    """A call with one or two senseless arguments, as Python."""
    draw = Draw(f"{seed}:{number}")
    name = draw.pick(list(CALLS))
    arguments = dict(CALLS[name])
    for key in draw.sample(list(arguments), min(len(arguments), draw.pick((1, 1, 1, 2)))):
        arguments[key] = draw.pick(POOLS.get(key, VALUES))
    first = name.startswith(("tj.sql", "tj.TimeWindow"))
    listed = [
        v if first and i == 0 and k in ("query", "length") else f"{k}={v}"
        for i, (k, v) in enumerate(arguments.items())
    ]
    return f"{name.strip()}({', '.join(listed)}){')' if name.startswith('list') else ''}"


def check(code: str) -> Outcome:
    """Run a senseless call."""
    import thetajoin as tj

    space = _space()
    try:
        exec(f"result = {code}", space)
    except tj.ThetaJoinError as error:
        if "\n" in str(error):
            return Outcome("wrong", "message of several lines", script(code, str(error)))
        return Outcome("refused")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        why = f"raw {type(error).__name__} in {where}"
        return Outcome("wrong", why, script(code, f"{type(error).__name__}: {str(error)[:200]}"))
    return Outcome("right")


def _space() -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(SETUP, space)
    return space


def script(code: str, told: str) -> str:
    """A script of its own that repeats the call."""
    first = told.splitlines()[0] if told else ""
    return f"{SETUP}{code}\n# {first}"
