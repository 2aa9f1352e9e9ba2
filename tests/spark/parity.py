"""Spark's own stream-stream join and ours over the same files, a file a micro-batch."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

import thetajoin as tj
from naive import Row
from spark.harness import TIME, Streams, at

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
# What Spark's own join runs with: the state store that it has by default, and few tasks.
SPARKS_OWN = {
    PARTITIONS: "1",
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
HOWS = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "semi": "left_semi",
}
LEFT = pa.schema([("lid", pa.int64()), ("k", pa.int32()), ("v", pa.int64()), ("t", TIME)])
RIGHT = pa.schema([("rid", pa.int64()), ("rk", pa.int64()), ("w", pa.int64()), ("rt", TIME)])
PLAIN = pa.schema([("v", pa.int64()), ("t", TIME)])

Joins = dict[str, Any]


class Given(NamedTuple):
    """A row that a join gave out, as JSON, and the micro-batch it came with."""

    batch: int
    join: str
    row: str


@dataclass
class Both:
    """Spark's own joins and ours over the same streams; a call of `run` goes on from the last."""

    streams: Streams
    sparks: Callable[[], Joins]
    ours: Callable[[], Joins]
    settings: dict[str, str] = field(default_factory=dict)
    given: dict[str, list[Given]] = field(default_factory=lambda: {"sparks": [], "ours": []})
    late: int = 0

    def run(self) -> None:
        """Take all files that are new, in two queries side by side."""
        runs = []
        for name, make, own in (("sparks", self.sparks, SPARKS_OWN), ("ours", self.ours, {})):
            with settings(self.streams.spark, own | self.settings):
                runs.append(self._start(name, make()))
        for query in runs:
            query.awaitTermination()
        metrics = [p.observedMetrics for p in runs[1].recentProgress]
        self.late += sum(numbers["late_rows"] or 0 for by in metrics for numbers in by.values())

    def _start(self, name: str, joins: Joins) -> Any:
        """All joins are one query: each query would cost seconds to start."""
        from pyspark.sql import functions as F

        parts = []
        for join, df in joins.items():
            row = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            parts.append(df.select(F.lit(join).alias("join"), row.alias("row")))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.union(part)
        kept = self.given[name]
        writer = whole.writeStream.foreachBatch(
            lambda rows, batch: kept.extend(Given(batch, *row) for row in rows.collect())
        )
        place = str(self.streams.folder / f"checkpoint-{name}")
        return writer.option("checkpointLocation", place).trigger(availableNow=True).start()

    def rows(self, whose: str) -> Counter[tuple[str, str]]:
        return Counter((given.join, given.row) for given in self.given[whose])

    def take_out(self, join: str) -> tuple[Counter[str], Counter[str]]:
        """A join's rows, ours and Spark's, which `check` does not see any more."""
        taken = []
        for whose in ("ours", "sparks"):
            taken.append(Counter(given.row for given in self.given[whose] if given.join == join))
            self.given[whose] = [given for given in self.given[whose] if given.join != join]
        return taken[0], taken[1]

    def check(self) -> None:
        """The same rows, and every pair in the same micro-batch; unmatched rows never later."""
        assert self.rows("ours") == self.rows("sparks")
        assert set(self.given["ours"]), "nothing came out"
        assert batches(self.given["ours"], paired) == batches(self.given["sparks"], paired)
        alone = batches(self.given["ours"], unmatched), batches(self.given["sparks"], unmatched)
        for row, when in alone[0].items():
            assert all(mine <= theirs for mine, theirs in zip(when, alone[1][row], strict=True))


def paired(row: Row) -> bool:
    return not unmatched(row)


def unmatched(row: Row) -> bool:
    """A row of an outer join: both sides have as many columns, and those of one are all NULL."""
    values = list(row.values())
    half = len(values) // 2
    return {None} in (set(values[:half]), set(values[half:]))


def batches(
    given: Sequence[Given], which: Callable[[Row], bool]
) -> dict[tuple[str, str], list[int]]:
    """In which micro-batches each row came, of those asked for."""
    found: dict[tuple[str, str], list[int]] = {}
    for batch, join, row in sorted(given):
        if which(json.loads(row)):
            found.setdefault((join, row), []).append(batch)
    return found


@contextmanager
def settings(spark: Any, values: dict[str, str]) -> Iterator[None]:
    """A session's settings for a query that is started meanwhile."""
    before = {key: spark.conf.get(key) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


RANGE = "rt BETWEEN t - INTERVAL 5 SECONDS AND t + INTERVAL 10 SECONDS"
WINDOW = tj.TimeWindow(before="5 seconds", after="10 seconds", time=("t", "rt"))


def sides(streams: Streams, delays: Sequence[str]) -> tuple[Any, Any]:
    """Both streams; the watermark that counts is the smaller of theirs."""
    return streams.read("l", ("t", delays[0])), streams.read("r", ("rt", delays[1]))


def random_rows(seed: int, count: int = 5) -> list[tuple[list[Row], list[Row]]]:
    """Micro-batches with late rows, duplicates, NULLs, and a side that is empty twice.

    In each, rows that match nothing and pass all filters move the watermark on: Spark filters
    before it looks at the times. NULL keys of the two sides are too far apart to meet in a window
    (see `test_stream_differences`).
    """
    rng = random.Random(seed)
    made: list[tuple[list[Row], list[Row]]] = []
    for n in range(count):
        base = 15 * n
        both: list[list[Row]] = []
        for side, nulls in enumerate((n == 0, n >= 4)):
            names = (LEFT, RIGHT)[side].names
            rows: list[Row] = []
            for i in range(12):
                key = None if nulls and i % 5 == 0 else rng.randint(0, 3)
                value = None if rng.random() < 0.1 else rng.randint(0, 9)
                time = at(base + rng.randint(-35, 10))
                rows.append(dict(zip(names, (100 * n + i, key, value, time), strict=True)))
            clock = dict(zip(names, (1000 + n, 50 + side, 0, at(base + 12)), strict=True))
            both.append([] if n == side + 1 else [*rows, rows[1], rows[1], clock])
        made.append((both[0], both[1]))
    return made


def last_rows() -> tuple[list[Row], list[Row]]:
    """Rows that match nothing, after which no earlier row is in any window."""
    left: Row = {"lid": 9999, "k": 50, "v": 0, "t": at(10**6)}
    right: Row = {"rid": 9999, "rk": 51, "w": 0, "rt": at(10**6)}
    return [left], [right]


def write(streams: Streams, *given: tuple[list[Row], list[Row]]) -> None:
    for left, right in given:
        streams.write("l", left, LEFT)
        streams.write("r", right, RIGHT)


def plain(streams: Streams, *given: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Micro-batches of streams of a value and a time each."""
    for batch in given:
        for name, rows in batch.items():
            streams.write(name, [{"v": v, "t": at(t)} for v, t in rows], PLAIN)
