"""The kinds of joins by which DuckDB's developers watch its own range and as-of joins.

The tables here are made anew, of about the size and selectivity that those have; where theirs have
a hundred million rows there are twenty million, so that several engines find room in 16 GB. As
theirs do, some of the queries only count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj
from benchmarks.case import Case
from benchmarks.join_data import Tables

MINUTE = 60
YEAR = 365 * 24 * 60 * MINUTE
# Seconds between two rows of a series with a row a minute, and how far its probes are behind.
BEHIND = 30


def _number(rows: int, scale: float) -> int:
    return max(10, int(rows * scale))


def _rename(table: pa.Table) -> pa.Table:
    """The same table as the other side of a join with itself."""
    return table.rename_columns([f"r_{name}" for name in table.column_names])


def _count(on: str) -> str:
    return f"SELECT count(*) AS n FROM l JOIN r ON {on}"


def _count_case(tables: Tables, threads: int, on: str) -> Case:
    """How many pairs there are."""
    case = Case(tables, threads, "n")
    case.runs["thetajoin"] = lambda: tj.join_agg(
        *tables, on, aggs={"n": "count(*)"}, threads=threads
    )
    case.duckdb(DuckDB=_count(on))
    case.chdb(_count(on))
    case.datafusion(_count(on))
    return case


def iejoin_employees(threads: int, scale: float) -> Case:
    """Pairs of which one earns more and pays less; a hundredth pays a little too little."""
    random = np.random.default_rng(81)
    rows = _number(1_000_000, scale)
    salary = 100 * np.arange(1, rows + 1)
    tax = salary // 10 - np.where(random.random(rows) < 0.01, 11, 0)
    left = pa.table({"id": np.arange(rows), "salary": salary, "tax": tax})
    on = "l.salary < r.r_salary AND l.tax > r.r_tax"
    case = _list_case(Tables(left, _rename(left)), threads, on)

    def anomalies(pl: Any, one: Any, other: Any) -> Any:
        more = pl.col("salary") < pl.col("r_salary")
        return one.join_where(other, more, pl.col("tax") > pl.col("r_tax"))

    case.polars(Polars=anomalies)
    return case


def iejoin_events(threads: int, scale: float) -> Case:
    """Pairs of events that overlap, over forty years; a tenth of them are long."""
    random = np.random.default_rng(82)
    rows = _number(30_000, scale)
    start = 3600 * random.integers(0, max(2, int(40 * 365 * 24 * scale)), rows)
    length = np.where(random.random(rows) < 0.1, 120, random.integers(5, 56, rows))
    left = pa.table({"id": np.arange(rows), "start": start, "stop": start + MINUTE * length})
    on = "l.start <= r.r_stop AND l.stop >= r.r_start AND l.id <> r.r_id"
    case = _list_case(Tables(left, _rename(left)), threads, on)

    def overlapping(pl: Any, one: Any, other: Any) -> Any:
        begun, ended = pl.col("start") <= pl.col("r_stop"), pl.col("stop") >= pl.col("r_start")
        return one.join_where(other, begun, ended, pl.col("id") != pl.col("r_id"))

    case.polars(Polars=overlapping)
    return case


def iejoin_selectivity(threads: int, scale: float) -> Case:
    """Two equal keys and a range that a few of a hundred pairs meet, added up in groups."""
    random = np.random.default_rng(83)
    rows = _number(5_000_000, scale)
    left = pa.table(
        {
            "k": random.integers(0, max(2, int(1000 * scale)), rows),
            "k2": random.integers(0, 10, rows),
            "x": random.integers(0, 500, rows),
            "value": random.integers(0, 1000, rows),
        }
    )
    tables = Tables(left, _rename(left))
    on = "l.k = r.r_k AND l.k2 = r.r_k2 AND l.x > r.r_x AND l.x < r.r_x + 30"
    case = Case(tables, threads, "k2 x n total")
    case.runs["thetajoin"] = lambda: tj.join_agg(
        *tables,
        on,
        group_by=("l.k2", "l.x"),
        aggs={"n": "count(*)", "total": "sum(r.r_value)"},
        threads=threads,
    )
    total = "CAST(sum(r.r_value) AS BIGINT) AS total"
    query = f"SELECT l.k2, l.x, count(*) AS n, {total} FROM l JOIN r ON {on} GROUP BY l.k2, l.x"
    case.duckdb(DuckDB=query)
    # 2 * 10**9 pairs have equal keys, of which only DuckDB looks at fewer.
    if scale <= 0.05:
        case.datafusion(query)
    return case


def iejoin_one_each(threads: int, scale: float) -> Case:
    """Intervals that follow each other without a gap: each overlaps only itself."""
    start = np.arange(_number(10_000_000, scale))
    left = pa.table({"id": start, "start": start, "stop": start + 1})
    case = _list_case(
        Tables(left, _rename(left)), threads, "l.start < r.r_stop AND r.r_start < l.stop"
    )

    def overlapping(pl: Any, one: Any, other: Any) -> Any:
        begun = pl.col("start") < pl.col("r_stop")
        return one.join_where(other, begun, pl.col("stop") > pl.col("r_start"))

    case.polars(Polars=overlapping)
    return case


def range_join_few(threads: int, scale: float) -> Case:
    """One inequality that hardly any pair meets.

    In DuckDB's own none does, which it now sees from the columns' least and greatest values, so
    that there is no join to be measured.
    """
    return _one_inequality(_number(100_000, scale), threads, "l.low > r.high")


def range_join_big(threads: int, scale: float) -> Case:
    """One inequality that nearly all pairs meet: 2.5 * 10**9 of them."""
    return _one_inequality(_number(50_000, scale), threads, "l.low < r.high")


def _one_inequality(rows: int, threads: int, on: str) -> Case:
    random = np.random.default_rng(84)
    low = np.zeros(rows, np.int64)
    low[:: max(1, rows // 10)] = 2
    right = pa.table({"high": random.integers(1, 101, rows)})
    return _count_case(Tables(pa.table({"low": low}), right), threads, on)


def range_join_small(threads: int, scale: float) -> Case:
    """Many rows within the limits that one row has."""
    random = np.random.default_rng(85)
    rows = _number(20_000_000, scale)
    fare, distance = 100 * random.random(rows), 1000 * random.random(rows)
    limits = {
        f"most_{name}": [x.mean() + 1.5 * x.std()] for name, x in (("f", fare), ("d", distance))
    }
    tables = Tables(pa.table({"fare": fare, "distance": distance}), pa.table(limits))
    within = "l.fare < r.most_f AND l.distance < r.most_d AND l.fare > 0 AND l.distance > 0"
    case = _count_case(tables, threads, within)

    def within_limits(pl: Any, trips: Any, most: Any) -> Any:
        fares = [pl.col("fare") < pl.col("most_f"), pl.col("fare") > 0]
        distances = [pl.col("distance") < pl.col("most_d"), pl.col("distance") > 0]
        return trips.join_where(most, *fares, *distances).select(pl.len().alias("n"))

    case.polars(Polars=within_limits)
    return case


def asof_keyed(threads: int, scale: float) -> Case:
    """Fifty series with a row a minute; half of the probes' keys are among them."""
    keys, each = 50, _number(100_000, scale)
    k, v = np.repeat(np.arange(keys), each), np.tile(np.arange(each), keys)
    right = pa.table({"k": k, "ts": MINUTE * v, "v": v})
    left = pa.table({"id": np.arange(len(k)), "k": 2 * k, "ts": MINUTE * v - BEHIND})
    return _asof(Tables(left, right), threads, by="k")


def asof_small_probe(threads: int, scale: float) -> Case:
    """One probe for each of many keys, which have ten rows."""
    random = np.random.default_rng(86)
    rows = _number(100_000, scale)
    left = {"id": np.arange(rows), "k": np.arange(rows), "ts": random.integers(0, YEAR, rows)}
    places = np.arange(10 * rows)
    # No two rows are of one instant: which of them were the last, engines would not agree on.
    ts = random.permutation(10 * rows) * (YEAR // (10 * rows))
    right = {"k": places % rows, "ts": ts, "v": random.integers(0, 100_000, 10 * rows)}
    return _asof(Tables(pa.table(left), pa.table(right)), threads, by="k")


def asof_no_key(threads: int, scale: float) -> Case:
    """A million probes of one long series."""
    random = np.random.default_rng(87)
    rows, length = _number(1_000_000, scale), _number(20_000_000, scale)
    left = {"id": np.arange(rows), "ts": random.integers(0, 2 * length, rows)}
    right = {"ts": 2 * random.permutation(length), "v": np.arange(length)}
    return _asof(Tables(pa.table(left), pa.table(right)), threads)


def _list_case(tables: Tables, threads: int, on: str) -> Case:
    """All pairs, with the columns of both."""
    names = " ".join((*tables.left.column_names, *tables.right.column_names))
    case = Case(tables, threads, names)
    case.runs["thetajoin"] = lambda: tj.join(*tables, on, threads=threads)
    query = f"SELECT * FROM l JOIN r ON {on}"
    case.duckdb(DuckDB=query)
    case.chdb(query)
    case.datafusion(query)
    return case


def _asof(tables: Tables, threads: int, by: str = "") -> Case:
    """Each left row that has one with the last right row up to its time."""
    case = Case(tables, threads, f"id {by} v")
    case.runs["thetajoin"] = lambda: tj.nearest(
        *tables, key="ts", by=by or (), how="inner", threads=threads
    )
    equal = f"l.{by} = r.{by} AND " if by else ""
    case.duckdb(DuckDB=f"SELECT l.*, r.v FROM l ASOF JOIN r ON {equal}l.ts >= r.ts")
    if by:
        case.chdb(f"SELECT l.id, l.{by} AS {by}, r.v FROM l ASOF JOIN r ON {equal}l.ts >= r.ts")

    def last(pl: Any, probes: Any, series: Any) -> Any:
        given = {"on": "ts", "by": by} if by else {"on": "ts"}
        found = probes.sort("ts").join_asof(series.sort("ts"), **given, coalesce=False)
        return found.filter(pl.col("v").is_not_null())

    case.polars(Polars=last)
    return case


MICRO: dict[str, Callable[[int, float], Case]] = {
    f"micro_{case.__name__}": case
    for case in (
        iejoin_employees,
        iejoin_events,
        iejoin_selectivity,
        iejoin_one_each,
        range_join_few,
        range_join_big,
        range_join_small,
        asof_keyed,
        asof_small_probe,
        asof_no_key,
    )
}
