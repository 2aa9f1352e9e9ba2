"""Conditions and types go through Spark and the units and come back as they were."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import Push, compare
from spark.harness import TIME, Streams, at, distinct_times, expected, random_batches, seconds

pytestmark = [pytest.mark.spark]

CONDITIONS: dict[str, naive.Predicate] = {
    "l.a < r.b OR l.c > r.d + 2": naive.any_of(
        naive.conj(("a", "<", "b")),
        lambda l, r: compare(l["c"], ">", naive.arithmetic("+", r["d"], 2)),
    ),
    "ABS(l.a - r.b) <= 1 AND l.c <> r.d": naive.all_of(
        naive.band("a", "b", "<=", 1), naive.conj(("c", "!=", "d"))
    ),
    "l.a = r.b AND l.c < r.d AND l.c * r.b < 3": naive.all_of(
        naive.conj(("a", "=", "b"), ("c", "<", "d")),
        lambda l, r: compare(naive.arithmetic("*", l["c"], r["b"]), "<", 3),
    ),
    "l.a BETWEEN r.b AND r.d AND CAST(l.c AS double) * 2 > CAST(r.b AS double)": naive.all_of(
        naive.conj(("a", ">=", "b"), ("a", "<=", "d")),
        lambda l, r: compare(naive.arithmetic("*", l["c"], 2), ">", r["b"]),
    ),
}


def test_conditions(streams: Streams) -> None:
    batches = random_batches(3, batches=2, rows=16)
    streams.push(*batches)
    queries = {
        on: streams.start(tj.join(*streams.both(), on, window=tj.FullHistory(), units=2))
        for on in CONDITIONS
    }
    built = (tj.l.a < tj.r.b) & (tj.l.c >= tj.r.d)
    last = streams.start(tj.join(*streams.both(), built, window=tj.FullHistory()))
    for on, query in queries.items():
        assert streams.wait(query).ids == expected(batches, CONDITIONS[on])[0], on
    both = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
    assert streams.wait(last).ids == expected(batches, both)[0]


def test_self_join(streams: Streams) -> None:
    """Each row with the earlier ones of its own stream, in both roles, never with itself."""
    batches = distinct_times(random_batches(5, batches=3, rows=10), 5)
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("c", pa.int64()), ("t", TIME)])
    rows = [
        [{"id": r["lid"], "a": r["a"], "c": r["c"], "t": r["t"]} for r in batch.left]
        for batch in batches
    ]
    for batch in rows:
        streams.write("s", batch, schema)
    on = "l.a < r.a AND l.c >= r.c"
    pred = naive.conj(("a", "<", "a"), ("c", ">=", "c"))
    windows: list[tuple[Any, naive.Window, str | None]] = [
        (tj.FullHistory(), naive.Full(), None),
        (tj.CountWindow(6, slide=2), naive.Count(6, 2), "t"),
        (tj.TimeWindow("4 seconds", time="t"), naive.Time(seconds(4), seconds(4)), None),
    ]
    queries = []
    for units, (window, _, order) in enumerate(windows, 1):
        df = streams.read("s", ("t", "1 hour"))
        joined = tj.self_join(df, on, window=window, order_by=order, units=units)
        queries.append(streams.start(joined))
    # All rows of a micro-batch come after those of the one before.
    ordered = [row | {"n": (n, row["t"])} for n, batch in enumerate(rows) for row in batch]
    ordered.sort(key=lambda row: row["n"])
    for query, (window, oracle, _) in zip(queries, windows, strict=True):
        result = streams.wait(query).rows
        got = Counter(zip(result["id"].to_pylist(), result["id_right"].to_pylist(), strict=True))
        pairs = naive.naive_self_join(ordered, pred, window=oracle)
        assert got == Counter((l["id"], r["id"]) for l, r in pairs), window
        assert got


STRUCT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string())), ("z", TIME)])
OLD = datetime(1500, 1, 1, tzinfo=UTC)
PAYLOAD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [1.5, float("-inf")]),
    "double": (pa.float64(), [1e300, -0.1]),
    "small": (pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal("0.01")]),
    "large": (pa.decimal128(38, 10), [Decimal("9" * 28), Decimal("-1.0000000001")]),
    "string": (pa.string(), ["", "grün \U0001f600 a\x00b"]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "ntz": (pa.timestamp("us"), [datetime(1500, 1, 1, 1, 2, 3, 4), datetime(2024, 2, 29)]),
    "stamp": (TIME, [at(0.000001), datetime(1500, 1, 1, tzinfo=UTC)]),
    "interval": (pa.duration("us"), [timedelta(days=-3, microseconds=1), timedelta(hours=30)]),
    "array": (pa.list_(pa.int64()), [[], [1, None, 3]]),
    "nested": (pa.list_(pa.list_(pa.string())), [[["a"], None, []], [[None]]]),
    "struct": (STRUCT, [{"x": 1, "y": ["a", None], "z": OLD}, {"x": None, "y": None, "z": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], []]),
}


def test_every_type_comes_back_as_it_was(streams: Streams) -> None:
    """As payload, with NULLs, over two micro-batches and a count window that keeps state."""
    schema = pa.schema([("id", pa.int64()), *((n, t) for n, (t, _) in PAYLOAD.items())])
    rows = [
        {"id": i} | {name: values[i] if i < 2 else None for name, (_, values) in PAYLOAD.items()}
        for i in range(3)
    ]
    for name in ("l", "r"):
        streams.write(name, rows[:2], schema)
        streams.write(name, rows[2:], schema)
    options = {"window": tj.CountWindow(100), "order_by": "id", "units": 2}
    sides = [with_interval(df) for df in streams.both()]
    assert sides[0].schema["interval"].dataType.simpleString() == "interval day to second"
    run = streams.run(tj.join(*sides, "l.id <= r.id", **options))
    got = {(row["id"], row["id_right"]): row for row in run.rows.to_pylist(maps_as_pydicts=None)}
    assert set(got) == {(i, j) for i in range(3) for j in range(i, 3)}
    want = pa.Table.from_pylist(rows, schema).to_pylist()
    for (i, j), row in got.items():
        assert {name: row[name] for name in schema.names} == want[i]
        assert {name: row[f"{name}_right"] for name in schema.names} == want[j]


def with_interval(df: Any) -> Any:
    """Parquet has no intervals: Spark makes the column from microseconds."""
    from pyspark.sql import functions as F

    text = "make_dt_interval(0, 0, 0, CAST(`interval` AS decimal(20, 0)) / 1000000)"
    return df.withColumn("interval", F.expr(text))


KEYS = [n for n in PAYLOAD if n not in ("array", "nested", "struct", "map")]


def test_keys_of_every_type(streams: Streams) -> None:
    """Seven types a query, all of which must compare as they should."""
    schema = pa.schema([("lid", pa.int64()), *((n, PAYLOAD[n][0]) for n in KEYS)])
    values = {n: [*sorted(PAYLOAD[n][1]), None, PAYLOAD[n][1][0]] for n in KEYS}
    left = [{"lid": i} | {n: values[n][i] for n in KEYS} for i in range(4)]
    right = [{"rid": row["lid"], **{k: v for k, v in row.items() if k != "lid"}} for row in left]
    right_schema = pa.schema([("rid", pa.int64()), *list(schema)[1:]])
    streams.push(
        Push(left[:1], right[2:]), Push(left[1:], right[:2]), left=schema, right=right_schema
    )
    queries = {}
    for op in ("<", ">="):
        for half in (KEYS[:7], KEYS[7:]):
            on = " AND ".join(f"l.`{name}` {op} r.`{name}`" for name in half)
            sides = [with_interval(df) for df in streams.both()]
            df = tj.join(*sides, on, window=tj.FullHistory(), units=2)
            queries[op, tuple(half)] = streams.start(df)
    batches = [Push(left[:1], right[2:]), Push(left[1:], right[:2])]
    for (op, half), query in queries.items():
        pred = naive.conj(*((name, op, name) for name in half))
        assert streams.wait(query).ids == expected(batches, pred)[0], (op, half)


EQUAL = {
    "k": (pa.int64(), [1, 2, None, 2]),
    "s": (pa.string(), ["ä", "", "ä", "b"]),
    "d": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("0.00"), None, Decimal("1.50")]),
    "x": (pa.float64(), [0.0, -0.0, float("nan"), 1.5]),
    "n": (pa.int32(), [1, 2, None, 2]),
}


@pytest.mark.parametrize(
    ("on", "how", "left_out"),
    [
        ("l.k = r.k AND l.s = r.s", "inner", {"k", "s"}),
        ("l.d = r.d AND l.x < r.x", "inner", {"d"}),
        ("l.x = r.x AND l.k <> r.k", "inner", set()),
        ("l.k = r.n AND l.n + 1 = r.k + 1", "inner", set()),
        ("(l.k = r.k AND l.x < r.x) OR (l.k = r.k AND l.s = r.s)", "inner", {"k"}),
        ("l.k = r.k AND l.x = r.x", "left", set()),
    ],
)
def test_columns_that_are_equal_are_sent_once(
    streams: Streams, on: str, how: str, left_out: set[str]
) -> None:
    """And come out as they went in, of either side: equal doubles may differ in their sign."""
    from thetajoin.spark.stream import find_repeated

    rows = pa.table({"id": range(4), "t": [at(i) for i in range(4)]} | {
        name: pa.array(values, type_) for name, (type_, values) in EQUAL.items()
    })  # fmt: skip
    streams.write("l", rows, rows.schema)
    streams.write("r", rows, rows.schema)
    window = tj.TimeWindow("1 hour", time="t")
    mark = ("t", "1 second")
    joined = tj.join(streams.read("l", mark), streams.read("r", mark), on, how=how, window=window)
    found = streams.run(joined).rows
    whole = tj.join(rows, rows, on, how="inner")
    assert whole.num_rows
    names = [name for name in whole.column_names if name not in ("t", "t_right")]
    assert found.column_names == whole.column_names

    def shown(table: pa.Table) -> Counter[str]:
        matched = table.filter(table["id_right"].is_valid()).select(names)
        return Counter(str(row) for row in matched.to_pylist())

    assert shown(found) == shown(whole)

    table = streams.spark.read.parquet(str(streams.folder / "l"))

    from thetajoin.engine.spec import JoinSpec
    from thetajoin.spark.stream import compile_join, output_schema

    compiled = compile_join(JoinSpec.of(on, how), table, table)
    output = output_schema(compiled, table, table)
    positions = {output.fields[at].name: output.fields[of].name
                 for at, of in find_repeated(compiled, output)}  # fmt: skip
    assert positions == {f"{name}_right": name for name in left_out}


def test_names_with_odd_characters(streams: Streams) -> None:
    streams.push(
        naive.Push(
            [{"lid": 0, "a": 0, "c": 0, "t": at(0)}],
            [{"rid": 0, "b": 1, "d": 0, "t": at(0)}],
        )
    )
    left, right = streams.both()
    left = left.withColumnRenamed("a", "an `odd` na.me").withColumnRenamed("c", "rid")
    df = tj.join(left, right, "l.`an ``odd`` na.me` < r.b", window=tj.FullHistory())
    assert df.columns == ["lid", "an `odd` na.me", "rid", "t", "rid_right", "b", "d", "t_right"]
    assert streams.run(df).rows.num_rows == 1
