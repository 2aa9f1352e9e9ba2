"""The joins people write, by this engine and by each peer that is installed.

Peers are called as their users would call them; where one has two ways, both are there. Each gets
its tables beforehand in the form it likes best, and gives the whole result as a table of its own.
Sorting that a way needs is part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj
from benchmarks import join_data
from benchmarks.case import Case
from benchmarks.join_data import HOUR, Tables

SCD2 = "l.k = r.k AND l.ts >= r.valid_from AND l.ts < r.valid_to"
ATTRIBUTION = (
    f"l.user = r.user AND r.click_ts <= l.purchase_ts AND r.click_ts >= l.purchase_ts - {HOUR}"
)
OVERLAP = "l.start < r.r_stop AND r.r_start < l.stop"
OVERLAP_KEYED = f"l.chrom = r.chrom AND {OVERLAP}"
IN_RANGE = "l.x >= r.low AND l.x < r.high"
# Rows a side of which Pathway's joins end in a minute or two.
SMALL = 100_000
AFFORDABLE = "r.price <= l.most"


def _select_pairs(on: str) -> str:
    return f"SELECT * FROM l JOIN r ON {on}"


def scd2(threads: int, scale: float) -> Case:
    """Facts with the version of their key that was valid at the time."""
    left, right = tables = join_data.scd2(scale)
    case = Case(tables, threads, "id k ts amount valid_from valid_to price")
    case.runs["thetajoin"] = lambda: tj.join(left, right, SCD2, threads=threads)
    # Versions of a key do not overlap, so the last that began is the only one to look at.
    asof = "SELECT * FROM l ASOF JOIN r ON l.k = r.k AND l.ts >= r.valid_from WHERE ts < valid_to"
    case.duckdb(**{"DuckDB": _select_pairs(SCD2), "DuckDB ASOF": asof})
    case.chdb(_select_pairs(SCD2))
    case.datafusion(_select_pairs(SCD2))

    def last_began(pl: Any, facts: Any, versions: Any) -> Any:
        found = facts.sort("ts").join_asof(
            versions.sort("valid_from"),
            left_on="ts",
            right_on="valid_from",
            by="k",
            coalesce=False,
        )
        return found.filter(pl.col("ts") < pl.col("valid_to"))

    def valid(pl: Any, facts: Any, versions: Any) -> Any:
        both = facts.join(versions, on="k")
        ts = pl.col("ts")
        return both.filter(ts >= pl.col("valid_from"), ts < pl.col("valid_to"))

    case.polars(**{"Polars": valid, "Polars join_asof": last_began})
    return case


def overlap_keyed(threads: int, scale: float) -> Case:
    """Overlaps of intervals on the same chromosome."""
    left, right = tables = join_data.genome(scale)
    case = Case(tables, threads, "id chrom start stop rid r_start r_stop")
    case.runs["thetajoin"] = lambda: tj.join(left, right, OVERLAP_KEYED, threads=threads)
    case.polars_bio("overlap", tables, "chrom start stop", "chrom r_start r_stop")
    # DuckDB, Polars and chDB join by the chromosome and filter: 10**11 pairs at full size, minutes.
    if scale <= 0.05:
        case.duckdb(DuckDB=_select_pairs(OVERLAP_KEYED))
        case.datafusion(_select_pairs(OVERLAP_KEYED))
    return case


def point_in_ranges(threads: int, scale: float) -> Case:
    """Points with the range they lie in; the ranges are disjoint."""
    left, right = tables = join_data.ranges(scale)
    case = Case(tables, threads, "id x rid low high")
    case.runs["thetajoin"] = lambda: tj.join(left, right, IN_RANGE, threads=threads)
    asof = "SELECT * FROM l ASOF JOIN r ON l.x >= r.low WHERE x < high"
    case.duckdb(**{"DuckDB": _select_pairs(IN_RANGE), "DuckDB ASOF": asof})
    case.chdb(_select_pairs(IN_RANGE))
    case.datafusion(_select_pairs(IN_RANGE))

    def last_began(pl: Any, points: Any, ranges: Any) -> Any:
        found = points.sort("x").join_asof(
            ranges.sort("low"), left_on="x", right_on="low", coalesce=False
        )
        return found.filter(pl.col("x") < pl.col("high"))

    def within(pl: Any, points: Any, ranges: Any) -> Any:
        x = pl.col("x")
        return points.join_where(ranges, x >= pl.col("low"), x < pl.col("high"))

    case.polars(**{"Polars": within, "Polars join_asof": last_began})

    def merged(pd: Any, points: Any, ranges: Any) -> Any:
        found = pd.merge_asof(
            points.sort_values("x"), ranges.sort_values("low"), left_on="x", right_on="low"
        )
        return found[found["x"] < found["high"]]

    case.pandas(merged, "rid low high")
    ends = pa.array(left["x"].to_numpy() + 1)
    points = _on_one_chromosome(left).append_column("x_end", ends)
    made = Tables(points, _on_one_chromosome(right))
    case.polars_bio("overlap", made, "chrom x x_end", "chrom low high")
    return case


def attribution(threads: int, scale: float) -> Case:
    """Purchases with the same user's clicks of the hour before."""
    return _attribution(join_data.attribution(scale), threads, listed=scale <= 0.05)


def attribution_small(threads: int, scale: float) -> Case:
    """The same of no more rows than Pathway has the memory for."""
    tables = join_data.attribution(scale, rows=SMALL)
    case = _attribution(tables, threads, listed=scale <= 0.5)
    names = case.columns
    case.pathway("interval_join", "purchase_ts user", "click_ts user", names, interval=(-HOUR, 0))
    return case


def _attribution(tables: Tables, threads: int, listed: bool) -> Case:
    left, right = tables
    case = Case(tables, threads, "purchase user purchase_ts amount click click_ts cost")
    case.runs["thetajoin"] = lambda: tj.join(left, right, ATTRIBUTION, threads=threads)
    case.duckdb(DuckDB=_select_pairs(ATTRIBUTION))
    # Polars, chDB and DataFusion list all pairs of a user, 10**9 at full size and skewed: minutes.
    if not listed:
        return case
    case.chdb(_select_pairs(ATTRIBUTION))
    case.datafusion(_select_pairs(ATTRIBUTION))

    def before(pl: Any, purchases: Any, clicks: Any) -> Any:
        ago = pl.col("purchase_ts") - pl.col("click_ts")
        both = purchases.join(clicks, on="user")
        return both.filter(ago >= 0, ago <= HOUR)

    case.polars_streaming(Polars=before)
    return case


def overlap(threads: int, scale: float) -> Case:
    """Overlaps of intervals without a key."""
    left, right = tables = join_data.overlapping(scale)
    case = Case(tables, threads, "id start stop rid r_start r_stop")
    case.runs["thetajoin"] = lambda: tj.join(left, right, OVERLAP, threads=threads)
    case.duckdb(DuckDB=_select_pairs(OVERLAP))
    case.chdb(_select_pairs(OVERLAP))
    case.datafusion(_select_pairs(OVERLAP))
    case.polars(Polars=partial(_overlap_polars, "inner"))
    made = Tables(_on_one_chromosome(left), _on_one_chromosome(right))
    case.polars_bio("overlap", made, "chrom start stop", "chrom r_start r_stop")
    return case


def overlap_left(threads: int, scale: float) -> Case:
    """Overlaps of intervals without a key, with those that overlap none."""
    left, right = tables = join_data.overlapping(scale)
    case = Case(tables, threads, "id start stop rid r_start r_stop")
    case.runs["thetajoin"] = lambda: tj.join(left, right, OVERLAP, how="left", threads=threads)
    query = f"SELECT * FROM l LEFT JOIN r ON {OVERLAP}"
    case.duckdb(DuckDB=query)
    case.chdb(query)
    case.datafusion(query)
    case.polars(Polars=partial(_overlap_polars, "left"))
    return case


def _overlap_polars(how: str, pl: Any, one: Any, other: Any) -> Any:
    before = pl.col("start") < pl.col("r_stop")
    return one.join_where(other, before, pl.col("stop") > pl.col("r_start"), how=how)


def asof(threads: int, scale: float) -> Case:
    """Trades with the last quote of their symbol."""
    return _asof(join_data.trades(scale), threads)


def asof_small(threads: int, scale: float) -> Case:
    """The same of no more rows than Pathway has the memory for."""
    case = _asof(join_data.trades(scale, rows=SMALL), threads)
    case.pathway("asof_join", "ts symbol", "ts symbol", case.columns)
    return case


def _asof(tables: Tables, threads: int) -> Case:
    left, right = tables
    case = Case(tables, threads, "id symbol ts most quote price")
    case.runs["thetajoin"] = lambda: tj.nearest(left, right, key="ts", by="symbol", threads=threads)
    last = "SELECT * FROM l ASOF LEFT JOIN r ON l.symbol = r.symbol AND l.ts >= r.ts"
    case.duckdb(DuckDB=last)
    case.chdb(last)
    case.polars(
        Polars=lambda pl, trades, quotes: trades.sort("ts").join_asof(
            quotes.sort("ts"), on="ts", by="symbol", coalesce=False
        )
    )
    case.pandas(
        lambda pd, trades, quotes: pd.merge_asof(
            trades.sort_values("ts"), quotes.sort_values("ts"), on="ts", by="symbol"
        ),
        "quote",
    )
    return case


def asof_filtered(threads: int, scale: float) -> Case:
    """Trades with the last quote of their symbol that was not too dear."""
    left, right = tables = join_data.trades(scale, rows=300_000)
    case = Case(tables, threads, "id symbol ts most quote price")
    case.runs["thetajoin"] = lambda: tj.nearest(
        left, right, key="ts", by="symbol", on=AFFORDABLE, threads=threads
    )
    on = f"l.symbol = r.symbol AND l.ts >= r.ts AND {AFFORDABLE}"
    case.duckdb(
        **{
            "DuckDB": f"SELECT l.*, r.quote, r.price FROM l LEFT JOIN r ON {on} QUALIFY "
            "row_number() OVER (PARTITION BY l.id ORDER BY r.ts DESC) = 1",
            "DuckDB lateral": "SELECT l.*, q.quote, q.price FROM l LEFT JOIN LATERAL "
            f"(SELECT * FROM r WHERE {on} ORDER BY r.ts DESC LIMIT 1) q ON true",
            "DuckDB arg_max": "SELECT l.*, q.quote, q.price FROM l LEFT JOIN (SELECT l.id, "
            "arg_max(r.quote, r.ts) AS quote, arg_max(r.price, r.ts) AS price FROM l JOIN r ON "
            f"{on} GROUP BY l.id) q ON l.id = q.id",
        }
    )

    def last(pl: Any, trades: Any, quotes: Any) -> Any:
        ts = pl.col("ts_right")
        good = (pl.col("price") <= pl.col("most")) & (ts <= pl.col("ts"))
        both = trades.join(quotes, on="symbol").filter(good)
        best = both.group_by("id").agg(pl.col("quote", "price").get(ts.arg_max()))
        return trades.join(best, on="id", how="left")

    case.polars_streaming(Polars=last)
    return case


def count_overlaps(threads: int, scale: float) -> Case:
    """How many intervals each interval overlaps, zero among them."""
    left, right = tables = join_data.genome(scale)
    case = Case(tables, threads, "id n")
    case.runs["thetajoin"] = lambda: tj.join_agg(
        left,
        right,
        OVERLAP_KEYED,
        how="left",
        group_by="l.id",
        aggs={"n": "count(*)"},
        threads=threads,
    )
    renamed = Tables(left, right.rename_columns(["rid", "chrom", "start", "stop"]))
    case.polars_bio("count_overlaps", renamed, "chrom start stop", "chrom start stop")
    # A join and a group would take minutes (see overlap_keyed). Those who know better count what
    # begins before the end, less what ends before the start.
    case.duckdb(
        **{
            "DuckDB ASOF": "SELECT l.id, coalesce(b.n, 0) - coalesce(e.n, 0) AS n FROM l "
            "ASOF LEFT JOIN (SELECT chrom, r_start, count(*) OVER (PARTITION BY chrom "
            "ORDER BY r_start) AS n FROM r) b ON l.chrom = b.chrom AND l.stop > b.r_start "
            "ASOF LEFT JOIN (SELECT chrom, r_stop, count(*) OVER (PARTITION BY chrom "
            "ORDER BY r_stop) AS n FROM r) e ON l.chrom = e.chrom AND l.start >= e.r_stop"
        }
    )
    if scale <= 0.05:
        grouped = f"SELECT l.id, count(r.rid) AS n FROM l LEFT JOIN r ON {OVERLAP_KEYED} GROUP BY 1"
        case.duckdb(DuckDB=grouped)
    case.polars(**{"Polars join_asof": _count_polars})
    return case


def _count_polars(pl: Any, left: Any, right: Any) -> Any:
    """Begun before the end, less ended by the start, each by an as-of join."""

    def numbered(column: str, name: str) -> Any:
        ordered = right.select("chrom", column).sort(column)
        return ordered.with_columns(pl.int_range(1, pl.len() + 1).over("chrom").alias(name))

    found = (
        left.sort("stop")
        .join_asof(
            numbered("r_start", "begun"),
            left_on="stop",
            right_on="r_start",
            by="chrom",
            allow_exact_matches=False,
        )
        .sort("start")
        .join_asof(numbered("r_stop", "ended"), left_on="start", right_on="r_stop", by="chrom")
    )
    n = pl.col("begun").fill_null(0) - pl.col("ended").fill_null(0)
    return found.select("id", n.alias("n"))


def _on_one_chromosome(table: pa.Table) -> pa.Table:
    """With the column that polars-bio joins by."""
    names = pa.array(["all"]).take(pa.array(np.zeros(table.num_rows, np.int8)))
    return table.append_column("chrom", names)


CASES: dict[str, Callable[[int, float], Case]] = {
    case.__name__: case
    for case in (
        scd2,
        overlap_keyed,
        point_in_ranges,
        attribution,
        attribution_small,
        overlap,
        overlap_left,
        asof,
        asof_small,
        asof_filtered,
        count_overlaps,
    )
}
