"""Tables joined on Spark: every way there is, against the oracle and Spark's own join."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import Row
from spark.harness import plan_of
from strategies import HOWS, SCHEMA_L, SCHEMA_R, ids, naive_ids, table
from thetajoin import ThetaJoinError

pytestmark = [pytest.mark.spark]

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
LEFT = SCHEMA_L | {"t": pa.int64()}
RIGHT = SCHEMA_R | {"t": pa.int64()}
FLOATS = (None, float("nan"), float("inf"), -1.0, 0.0, 1.5)


def rows(id_: str, names: str, n: int, seed: int) -> list[Row]:
    rng = random.Random(seed)

    def value(low: int, high: int) -> int | None:
        return None if rng.random() < 0.1 else rng.randint(low, high)

    times = rng.sample(range(2 * n), n)
    one, two, x = names
    return [
        {id_: i, one: value(-3, 4), two: value(-3, 4), x: rng.choice(FLOATS), "t": times[i]}
        for i in range(n)
    ]


L, R = rows("lid", "acx", 50, 1), rows("rid", "bdy", 45, 2)


@pytest.fixture(scope="module")
def frames(spark: Any) -> tuple[Any, Any]:
    return spark.createDataFrame(table(L, LEFT)), spark.createDataFrame(table(R, RIGHT))


@pytest.mark.parametrize("how", HOWS)
def test_every_kind_in_cells(frames: tuple[Any, Any], how: str) -> None:
    got = tj.join(*frames, ON, how=how, broadcast_rows=0, held_rows=20).toArrow()
    assert ids(got) == naive_ids(naive.naive_join(L, R, PRED, how=how))


@pytest.mark.parametrize("how", ["inner", "left", "right", "anti"])
def test_a_small_side_is_sent_whole(frames: tuple[Any, Any], how: str) -> None:
    joined = tj.join(*frames, ON, how=how)
    assert ids(joined.toArrow()) == naive_ids(naive.naive_join(L, R, PRED, how=how))
    assert "Exchange" not in plan_of(joined)
    assert "Exchange" in plan_of(tj.join(*frames, ON, how=how, broadcast_rows=0))


@pytest.mark.parametrize(
    ("options", "times"),
    [({}, 1), ({"broadcast_rows": 0}, 1), ({"window": tj.CountWindow(9), "order_by": "t"}, 2)],
)
def test_a_call_compiles_its_join_once(
    frames: tuple[Any, Any], options: dict[str, Any], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a count window is a condition of its own, on columns that the user has not."""
    from thetajoin.engine import compiled

    compile_condition, conditions = compiled.compile_condition, []

    def counted(on: Any, *schemas: Any) -> Any:
        conditions.append(on)
        return compile_condition(on, *schemas)

    monkeypatch.setattr(compiled, "compile_condition", counted)
    tj.join(*frames, ON, **options)
    assert len(conditions) == times


def test_it_is_what_spark_gives(frames: tuple[Any, Any]) -> None:
    left, right = frames
    on = "ABS(l.x - r.y) <= 1.5D AND (l.a <= r.b OR l.c > r.d)"
    got = tj.join(left, right, on, broadcast_rows=0)
    condition = "ABS(l.x - r.y) <= 1.5D AND (l.a <= r.b OR l.c > r.d)"
    from pyspark.sql import functions as F

    expected = left.alias("l").join(right.alias("r"), F.expr(condition))
    assert got.columns == [*left.columns, "rid", "b", "d", "y", "t_right"]
    assert ids(got.toArrow()) == ids(expected.select("lid", "rid").toArrow())


@pytest.mark.parametrize(
    ("window", "oracle", "how"),
    [
        (tj.TimeWindow(9, time="t"), naive.Time(9, 9), "inner"),
        (tj.TimeWindow(before=9, after=3, time="t"), naive.Time(9, 3), "full"),
        (tj.CountWindow(7, slide=3), naive.Count(7, 3), "inner"),
        (tj.CountWindow(7), naive.Count(7), "left"),
    ],
    ids=repr,
)
def test_windows(frames: tuple[Any, Any], window: Any, oracle: Any, how: str) -> None:
    order = "t" if isinstance(window, tj.CountWindow) else None
    got = tj.join(*frames, ON, how=how, window=window, order_by=order, broadcast_rows=0)
    expected = naive.naive_join(L, R, PRED, how=how, window=oracle, order_by=order)
    assert ids(got.toArrow()) == naive_ids(expected)
    assert got.columns == [*LEFT, "rid", "b", "d", "y", "t_right"]


@pytest.mark.parametrize(
    ("window", "oracle"),
    [
        (None, None),
        (tj.TimeWindow(9, time="t"), naive.Time(9, 9)),
        (tj.CountWindow(7, slide=2), naive.Count(7, 2)),
    ],
    ids=repr,
)
def test_self_joins(spark: Any, window: Any, oracle: Any) -> None:
    # Each row twice, but for the time: a row may be paired with its twin, never with itself.
    doubled = [row | {"lid": 0, "t": row["t"] + 200 * k} for row in L[:25] for k in (0, 1)]
    if oracle is None:
        doubled = [row | {"t": 0} for row in doubled]
    frame = spark.createDataFrame(table(doubled, LEFT))
    order = "t" if isinstance(window, tj.CountWindow) else None
    got = tj.self_join(
        frame, "l.a <= r.a AND l.c >= r.c", window=window, order_by=order, held_rows=20
    )
    pred = naive.conj(("a", "<=", "a"), ("c", ">=", "c"))
    expected = naive.naive_self_join(doubled, pred, window=oracle, order_by=order)

    def key(l: Row, r: Row) -> tuple[Any, ...]:
        return tuple(row[name] for row in (l, r) for name in ("a", "c", "t"))

    found = got.toArrow().select(["a", "c", "t", "a_right", "c_right", "t_right"]).to_pylist()
    assert Counter(tuple(row.values()) for row in found) == Counter(key(l, r) for l, r in expected)
    assert got.columns == [*LEFT, *(f"{name}_right" for name in LEFT)]


def test_sides_with_nothing_to_match(spark: Any, frames: tuple[Any, Any]) -> None:
    left, _ = frames
    empty = spark.createDataFrame(table([], RIGHT))
    nulls = [row | {"b": None} for row in R]
    null = spark.createDataFrame(table(nulls, RIGHT))
    same = [row | {"b": 1} for row in R]
    repeated = spark.createDataFrame(table(same, RIGHT))
    for right, own in ((empty, []), (null, nulls), (repeated, same)):
        for how in ("inner", "full"):
            got = tj.join(left, right, "l.a < r.b", how=how, broadcast_rows=0).toArrow()
            expected = naive.naive_join(L, own, naive.conj(("a", "<", "b")), how=how)
            assert ids(got) == naive_ids(expected), how
    assert tj.join(empty, empty, "l.b < r.b").count() == 0


@pytest.mark.slow
def test_a_result_larger_than_memory_streams_through(spark: Any) -> None:
    wide = spark.range(1500, numPartitions=3).selectExpr("id", "repeat('x', 1500) AS text")
    joined = tj.join(wide, wide, "l.id <= r.id", broadcast_rows=0)  # 3.4 GB if held
    assert joined.selectExpr("sum(length(text))", "count(*)").first()[1] == 1500 * 1501 // 2


def test_odd_column_names_and_types(spark: Any) -> None:
    left = spark.createDataFrame(
        [(1, {"k": 1}, "a")], "`a.b` int, m map<string,int>, `x``y` string"
    )
    right = spark.createDataFrame([(2, "b"), (0, "a")], "`a.b` int, z string")
    joined = tj.join(left, right, "l.`a.b` < r.`a.b` AND l.`x``y` <= r.z", broadcast_rows=0)
    assert [tuple(row) for row in joined.collect()] == [(1, {"k": 1}, "a", 2, "b")]


def test_a_plan_names_what_is_ordered(frames: tuple[Any, Any]) -> None:
    left, right = frames
    plan = tj.explain(left, right, ON, units=2, broadcast_rows=0)
    assert plan.parts[0].ordered == ("l.a < r.b", "l.c >= r.d")
    assert "rows:   not counted" in str(plan)
    assert "pairs" not in str(plan).replace("pairs of", "")


def test_a_warning_where_spark_would_send_too_much_at_once(
    spark: Any, frames: tuple[Any, Any], set_limits: Any
) -> None:
    from thetajoin.spark.session import BATCH_BYTES, NO_LIMIT

    set_limits(large_cell_bytes=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        tj.join(*frames, ON, broadcast_rows=0)
        spark.conf.set(BATCH_BYTES, NO_LIMIT)
        try:
            with pytest.warns(UserWarning, match="67108864") as caught:
                tj.join(*frames, ON, broadcast_rows=0)
        finally:
            spark.conf.unset(BATCH_BYTES)
    ours = [warning for warning in caught if warning.category is UserWarning]  # 4.0 leaves sockets
    assert ours[0].filename == __file__


def test_the_paper_s_partitionings(frames: tuple[Any, Any]) -> None:
    from pyspark.sql import Observation

    pred = naive.conj(("x", "<=", "y"))
    expected = naive_ids(naive.naive_join(L, R, pred))
    products = {}
    for name in ("obt", "prefap", "default"):
        seen = Observation()
        settings = {} if name == "default" else {"p": 3}
        joined = tj.join(*frames, "l.x <= r.y", partitioning=name, observe=seen, **settings)
        assert ids(joined.toArrow()) == expected, name
        assert joined.columns == [*LEFT, "rid", "b", "d", "y", "t_right"]
        measures = seen.get
        assert measures["results"] == expected.total()
        assert min(measures["balance_in"], measures["balance_out"]) >= 1
        products[name] = measures["cartesian_products"]
    assert expected.total() <= products["prefap"] < products["obt"]


def test_three_tables(frames: tuple[Any, Any]) -> None:
    left, right = frames
    on = "l.a < r.b AND r.d >= m.c AND m.a = l.c"
    got = tj.join_many({"l": left, "r": right, "m": left}, on).toArrow()
    inputs = {"l": table(L, LEFT), "r": table(R, RIGHT), "m": table(L, LEFT)}
    expected = tj.join_many(inputs, on)
    key = ["lid", "rid", "lid_m"]
    rows = [Counter(zip(*(t[c].to_pylist() for c in key), strict=True)) for t in (got, expected)]
    assert rows[0] == rows[1]
    assert got.column_names == expected.column_names
    assert expected.num_rows > 0


def test_a_cross_join_of_three(frames: tuple[Any, Any]) -> None:
    left, right = frames
    on = "l.a > 3 AND r.b > 3 AND m.a = 1 AND l.lid < m.lid"
    got = tj.join_many({"l": left, "r": right, "m": left}, on, cross=True).toArrow()
    inputs = {"l": table(L, LEFT), "r": table(R, RIGHT), "m": table(L, LEFT)}
    expected = tj.join_many(inputs, on, cross=True)
    assert got.column_names == expected.column_names
    key = [(name, "ascending") for name in ("lid", "rid", "lid_m")]
    assert got.select(["lid", "rid", "lid_m"]).sort_by(key) == (
        expected.select(["lid", "rid", "lid_m"]).sort_by(key)
    )
    assert expected.num_rows > 0


@pytest.mark.parametrize("window", [tj.CountWindow(7), tj.CountWindow(6, 4), tj.CountWindow(2, 5)])
def test_three_tables_in_a_count_window(frames: tuple[Any, Any], window: tj.CountWindow) -> None:
    left, right = frames
    on, order = "l.a <= r.b AND r.d >= m.c", ("t", "t", "lid")
    got = tj.join_many({"l": left, "r": right, "m": left}, on, window=window, order_by=order)
    # Rows of one table that tie are ordered by a hash on Spark, so these do not tie.
    inputs = {"l": table(L, LEFT), "r": table(R, RIGHT), "m": table(L, LEFT)}
    expected = tj.join_many(inputs, on, window=window, order_by=order)
    key = ["lid", "rid", "lid_m"]
    rows = [
        Counter(zip(*(t[c].to_pylist() for c in key), strict=True))
        for t in (got.toArrow(), expected)
    ]
    assert rows[0] == rows[1]
    assert expected.num_rows > 0
    with pytest.raises(ThetaJoinError, match="needs order_by"):
        tj.join_many({"l": left, "r": right, "m": left}, on, window=window)
