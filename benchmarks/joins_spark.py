"""The joins people write on Spark: tables and streams, against Spark's own ways to write them.

Each workload runs in a process of its own, because a Spark session's cores are fixed at its start.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import thetajoin as tj
from benchmarks import join_data
from benchmarks.harness import alternate, medians, run_workload
from benchmarks.join_cases import ATTRIBUTION, SCD2
from benchmarks.join_data import Tables
from benchmarks.same_rows import check_same_rows
from benchmarks.spark_batch import tables, through
from benchmarks.spark_stream import SPARKS_DEFAULT_STORE, checkpoints, rows_per_s, spark_on
from thetajoin.spark.session import PROVIDER, ROCKSDB

ROUNDS = 3
# Runs before those that count: Spark's compiler takes some to settle.
WARM_UP = 2
# Micro-batches, of which the first do not count, and the rows of both sides in each.
BATCHES, SETTLING, BATCH_ROWS = 12, 4, 400_000
MINUTE = 60_000_000
STREAM_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
OPERATOR = re.compile(r"\b(?:\w*Join|Window|\w+In(?:Arrow|Pandas)\w*|\w*ArrowPython|\w+Exec)\b")
Queries = Mapping[str, Callable[[], Any]]


def _compare(name: str, queries: Queries, columns: str, rows: Tables) -> dict[str, Any]:
    """Seconds of each query into nothing, after all were found to give the same rows."""
    number, peers = check_on_spark(name, queries, columns)
    runs = {who: (lambda query=query: through(query())) for who, query in queries.items()}
    alternate(runs, WARM_UP, warm_up=False)
    seconds = alternate(runs, ROUNDS, warm_up=False)
    middle = medians(seconds)
    best = min((who for who in middle if who != "thetajoin"), key=lambda who: middle[who])
    return {
        "figures": {},
        "vs_spark": middle[best] / middle["thetajoin"],
        "best_peer": best,
        "rows": {"left": rows.left.num_rows, "right": rows.right.num_rows},
        "result_rows": number,
        "median": middle,
        "spread": {who: [min(taken), max(taken)] for who, taken in seconds.items()},
        "seconds": seconds,
        "peers": peers,
    }


def check_on_spark(
    name: str, queries: Queries, columns: str
) -> tuple[int, dict[str, dict[str, str]]]:
    """How many rows all queries gave, and what ran; an error where some gave other rows."""
    hashed = f"sum(CAST(xxhash64({columns.replace(' ', ', ')}) AS DECIMAL(38, 0)))"
    sums, peers = {}, {}
    for who, query in queries.items():
        added = query().selectExpr("count(*)", hashed)
        sums[who] = tuple(added.collect()[0])
        peers[who] = _read_plan(added)
    if len(set(sums.values())) != 1:
        raise RuntimeError(f"{name}: the engines disagree on the rows: {sums}")
    return int(next(iter(sums.values()))[0]), peers


def _read_plan(df: Any) -> dict[str, str]:
    """Spark's version, and the operators of a plan; of the plan that ran where it has run."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        df.explain()
    found = dict.fromkeys(OPERATOR.findall(printed.getvalue()))
    return {"version": f"Spark {df.sparkSession.version}", "operator": ", ".join(found)}


@contextlib.contextmanager
def views(session: Any, made: Tables) -> Iterator[tuple[Any, Any]]:
    """Both sides, which Spark's queries know as `l` and `r`."""
    with tables(session, left=made.left, right=made.right) as frames:
        # Behind a filter, as tables in a query are: their sizes are not those of the files.
        left, right = (frame.where(f"{frame.columns[-1]} >= 0") for frame in frames)
        left.createOrReplaceTempView("l")
        right.createOrReplaceTempView("r")
        yield left, right


def _on_tables(
    name: str,
    cores: int,
    made: Tables,
    ours: Callable[[Any, Any], Any],
    own: Mapping[str, str],
    columns: str,
) -> dict[str, Any]:
    """Our join and Spark's queries over the views `l` and `r`."""
    session = spark_on(cores)
    with views(session, made) as (left, right):
        queries: dict[str, Callable[[], Any]] = {"thetajoin": lambda: ours(left, right)}
        for who, query in own.items():
            queries[who] = partial(session.sql, query)
        return _compare(name, queries, columns, made)


def _scd2(cores: int, scale: float) -> dict[str, Any]:
    return _on_tables(
        "spark_scd2",
        cores,
        join_data.scd2(scale),
        lambda left, right: tj.join(left, right, SCD2),
        {"Spark": f"SELECT l.*, valid_from, valid_to, price FROM l JOIN r ON {SCD2}"},
        "id k ts amount valid_from valid_to price",
    )


def _attribution(cores: int, scale: float) -> dict[str, Any]:
    return _on_tables(
        "spark_attribution",
        cores,
        join_data.attribution(scale),
        lambda left, right: tj.join(left, right, ATTRIBUTION),
        {"Spark": f"SELECT l.*, click, click_ts, cost FROM l JOIN r ON {ATTRIBUTION}"},
        "purchase user purchase_ts amount click click_ts cost",
    )


def _last_quotes(left: Any, right: Any) -> Any:
    return tj.nearest(left, right, key="ts", by="symbol", order_by="quote")


# Both sides in one order, each trade after the quotes of its instant.
UNION = """
SELECT id, symbol, ts, most, last.quote, last.price FROM (
  SELECT *, last(q, true) OVER (PARTITION BY symbol ORDER BY ts, side
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last
  FROM (SELECT symbol, ts, 1 AS side, id, most, NULL AS q FROM l
    UNION ALL SELECT symbol, ts, 0, NULL, NULL, struct(quote, price) FROM r)
) WHERE side = 1
"""
MAX_BY = """
SELECT id, symbol, ts, most, last.quote, last.price FROM (
  SELECT l.id, l.symbol, l.ts, l.most, max_by(struct(quote, price), r.ts) AS last
  FROM l LEFT JOIN r ON l.symbol = r.symbol AND r.ts <= l.ts GROUP BY ALL)
"""
QUOTED = "id symbol ts most quote price"


def _asof(cores: int, scale: float) -> dict[str, Any]:
    """Against the window over a union of both sides, the fastest way in Spark's own SQL."""
    made = join_data.trades(scale)
    return _on_tables("spark_asof", cores, made, _last_quotes, {"Spark": UNION}, QUOTED)


def _asof_join(cores: int, scale: float) -> dict[str, Any]:
    """Against an equality join and max_by, which makes 125 million pairs of this many rows."""
    made = join_data.trades(scale, rows=500_000)
    return _on_tables("spark_asof_join", cores, made, _last_quotes, {"Spark": MAX_BY}, QUOTED)


class _Files:
    """Two streams in files, one of each side a micro-batch, which all queries read anew."""

    def __init__(self, session: Any, scale: float) -> None:
        self.session, self._places = session, checkpoints()
        # What keeps the state in each query, as its last micro-batch tells.
        self.operators: dict[str, str] = {}
        self._folder = next(self._places)
        self.rows = max(100, int(BATCH_ROWS * scale) // 2)
        self._keys = max(2, self.rows // 10)
        for side in ("l", "r"):
            (self._folder / side).mkdir(parents=True)
            for number in range(BATCHES):
                path = self._folder / side / f"{number:03d}.parquet"
                pq.write_table(self.batch(side, number), path)
                # The source takes files by their time.
                os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))

    def batch(self, side: str, number: int) -> pa.Table:
        """Rows of five minutes, in no order."""
        random = np.random.default_rng([71, number, side == "r"])
        first, length = number * self.rows, 5 * MINUTE
        # An instant of its own for each row of a side, so that the last of several is one row.
        times = random.choice(length, self.rows, replace=False) + number * length
        return pa.table(
            {
                f"{side}_id": np.arange(first, first + self.rows),
                "k": random.integers(0, self._keys, self.rows),
                f"{side}_ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                f"{side}_value": random.random(self.rows),
            }
        )

    def whole(self, side: str) -> pa.Table:
        """All rows of a side."""
        return pa.concat_tables(self.batch(side, number) for number in range(BATCHES))

    def stream(self, side: str) -> Any:
        """A side, with a watermark."""
        folder = self._folder / side
        source = self.session.readStream.schema(self.session.read.parquet(str(folder)).schema)
        read = source.option("maxFilesPerTrigger", 1).parquet(str(folder))
        return read.withWatermark(f"{side}_ts", "1 minute")

    def run(self, df: Any, sink: Path | None = None) -> list[Any]:
        """The progress of all micro-batches of a query over all files."""
        writer = df.writeStream.format("noop" if sink is None else "parquet")
        if sink is not None:
            writer = writer.option("path", str(sink))
        place = str(next(self._places))
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress.numInputRows]


def _observe_rows(df: Any, columns: str) -> Any:
    """The rows as they are, with their number and a sum of their hashes in the progress.

    Half of each hash is added up, which fits a long. Sums of decimals took over a quarter of all
    processor time here, the same of every engine, so that they all looked more alike.
    """
    from pyspark.sql.functions import expr

    hashed = f"sum(xxhash64({columns.replace(' ', ', ')}) & 4294967295L) AS hashes"
    return df.observe("rows", expr("count(*) AS number"), expr(hashed))


def _sum_batches(batches: list[Any]) -> tuple[int, int]:
    """Rows and hashes of a query, over all its micro-batches."""
    seen = [progress.observedMetrics["rows"] for progress in batches]
    return sum(row.number for row in seen), sum(int(row.hashes or 0) for row in seen)


def _rates(
    files: _Files,
    queries: Mapping[str, tuple[Mapping[str, str], Callable[[], Any]]],
    once: tuple[str, ...] = (),
) -> tuple[dict[str, list[float]], dict[str, tuple[int, int]]]:
    """Rows a second of each query in turns, and what it found; those of `once` take one turn."""
    rates: dict[str, list[float]] = {who: [] for who in queries}
    found: dict[str, tuple[int, int]] = {}
    for turn in range(ROUNDS):
        for who, (settings, query) in queries.items():
            if turn and who in once:
                continue
            for setting, value in settings.items():
                files.session.conf.set(setting, value)
            batches = files.run(query())
            rates[who].append(rows_per_s(batches[SETTLING:BATCHES]))
            found[who] = _sum_batches(batches)
            files.operators[who] = ", ".join(op.operatorName for op in batches[-1].stateOperators)
    return rates, found


STORES = {
    "thetajoin": {PROVIDER: ROCKSDB},
    "Spark": {PROVIDER: SPARKS_DEFAULT_STORE, STREAM_JOIN_FORMAT: "2"},
    "Spark, RocksDB": {PROVIDER: ROCKSDB, STREAM_JOIN_FORMAT: "2"},
    "Spark, RocksDB, format 4": {PROVIDER: ROCKSDB, STREAM_JOIN_FORMAT: "4"},
}
FIGURES = {
    "spark_stream_equality_vs_spark": "Spark",
    "spark_stream_equality_vs_spark_rocksdb": "Spark, RocksDB",
    "spark_stream_equality_vs_spark_v4": "Spark, RocksDB, format 4",
}


def _stream_equality(cores: int, scale: float, figures: Iterable[str] = FIGURES) -> dict[str, Any]:
    """Equality and a band of five minutes, against Spark's own join in each of its stores."""
    files = _Files(spark_on(cores), scale)
    columns = "l_id l_ts l_value r_id r_ts r_value"

    def ours() -> Any:
        window = tj.TimeWindow("5 minutes", time=("l_ts", "r_ts"))
        found = tj.join(
            files.stream("l"), files.stream("r"), "l.k = r.k", window=window, units=cores
        )
        return _observe_rows(found, columns)

    def own() -> Any:
        left, right = files.stream("l").alias("l"), files.stream("r").alias("r")
        from pyspark.sql.functions import expr

        near = "l_ts >= r_ts - INTERVAL 5 MINUTES AND l_ts <= r_ts + INTERVAL 5 MINUTES"
        return _observe_rows(left.join(right, expr(f"l.k = r.k AND {near}")), columns)

    # Format 4 came with Spark 4.3.
    known = {key: FIGURES[key] for key in figures if "v4" not in key or _has_format_4(files)}
    queries = {
        who: (STORES[who], ours if who == "thetajoin" else own)
        for who in ("thetajoin", *known.values())
    }
    rates, found = _rates(files, queries, once=("Spark, RocksDB",))
    if len(set(found.values())) != 1:
        raise RuntimeError(f"spark_stream_equality: the engines disagree on the rows: {found}")
    middle = medians(rates)
    version = f"Spark {files.session.version}"
    return {
        "figures": {key: middle["thetajoin"] / middle[who] for key, who in known.items()},
        "result_rows": found["thetajoin"][0],
        "peers": {
            who: {"version": version, "operator": files.operators[who], "settings": STORES[who]}
            for who in queries
        },
        **_as_seconds(rates),
    }


def _has_format_4(files: _Files) -> bool:
    """Whether this Spark lets its stream join keep its state in format 4."""
    try:
        files.session.conf.set(STREAM_JOIN_FORMAT, "4")
    except Exception:
        return False
    files.session.conf.unset(STREAM_JOIN_FORMAT)
    return True


def _as_seconds(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Rows a second, and the seconds that a million rows take."""
    seconds = {who: [1e6 / rate for rate in taken] for who, taken in rates.items()}
    return {
        "rows_per_s": medians(rates),
        "median": medians(seconds),
        "spread": {who: [min(taken), max(taken)] for who, taken in seconds.items()},
        "rates": rates,
    }


def _asof_stream(cores: int, scale: float) -> dict[str, Any]:
    """The nearest row of five minutes, over the join with the same condition.

    Rows whose watermark has passed have come out at the end; these are compared with the same
    as-of join of tables.
    """
    files = _Files(spark_on(cores), scale)
    window = tj.TimeWindow(before="5 minutes", after="0 seconds", time=("l_ts", "r_ts"))

    def nearest() -> Any:
        return tj.nearest(
            files.stream("l"),
            files.stream("r"),
            key=("l_ts", "r_ts"),
            by="k",
            order_by="r_id",
            window=window,
            units=cores,
        )

    def joined() -> Any:
        sides = files.stream("l"), files.stream("r")
        return tj.join(*sides, "l.k = r.k AND r.r_ts <= l.l_ts", window=window, units=cores)

    rows = _check_nearest(files, nearest())
    columns = "l_id l_ts r_id"
    queries = {
        "nearest": ({PROVIDER: ROCKSDB}, lambda: _observe_rows(nearest(), columns)),
        "join": ({PROVIDER: ROCKSDB}, lambda: _observe_rows(joined(), columns)),
    }
    rates, found = _rates(files, queries)
    middle = medians(rates)
    return {
        "figures": {"spark_asof_stream_rows_vs_join": middle["nearest"] / middle["join"]},
        "result_rows": {who: number for who, (number, _) in found.items()},
        "compared_rows": rows,
        **_as_seconds(rates),
    }


def _check_nearest(files: _Files, df: Any) -> int:
    """Compare what a stream gave with what pyarrow's as-of join gives; the rows compared."""
    with tempfile.TemporaryDirectory(prefix="thetajoin-bench-") as folder:
        sink = Path(folder) / "sink"
        files.run(df, sink)
        given = pq.read_table(sink)
    left, right = files.whole("l"), files.whole("r")
    last = left.sort_by("l_ts").join_asof(
        right.sort_by("r_ts"), on="l_ts", by="k", right_on="r_ts", tolerance=-5 * MINUTE
    )

    def settled(table: pa.Table) -> pa.Table:
        # Rows of the last two micro-batches may still wait for their watermark.
        return table.filter(pc.less(table["l_id"], (BATCHES - 2) * files.rows))

    results = {"stream": lambda: settled(given), "pyarrow": lambda: settled(last)}
    return check_same_rows(
        "spark_asof_stream", results, ["l_id", "k", "l_value", "r_id", "r_value"]
    )


BATCH: dict[str, Callable[[int, float], dict[str, Any]]] = {
    "spark_scd2": _scd2,
    "spark_attribution": _attribution,
    "spark_asof": _asof,
    "spark_asof_join": _asof_join,
}
STREAM_FORMAT_4 = "spark_stream_equality_v4"
STREAMS: dict[str, Callable[[int, float], dict[str, Any]]] = {
    "spark_stream_equality": _stream_equality,
    "spark_asof_stream": _asof_stream,
}


if __name__ == "__main__":
    run_workload(
        BATCH
        | STREAMS
        | {
            STREAM_FORMAT_4: lambda cores, scale: _stream_equality(
                cores, scale, ["spark_stream_equality_vs_spark_v4"]
            )
        }
    )
