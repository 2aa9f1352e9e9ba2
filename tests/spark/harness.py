"""Streams made of files, queries over them, and what the oracle says about the same rows.

A micro-batch is one file a side: `maxFilesPerTrigger` is 1, and files are taken in the order of
their modification times. A side that has nothing in a micro-batch has an empty file there.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import naive
from naive import Advance, Push, Row
from strategies import Ids, naive_ids
from thetajoin.jobs.progress import unit_numbers

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema([("lid", pa.int64()), ("a", pa.int64()), ("c", pa.int64()), ("t", TIME)])
RIGHT = pa.schema([("rid", pa.int64()), ("b", pa.int64()), ("d", pa.int64()), ("t", TIME)])
# Rows from this number on only serve to move the window past all others.
CLOSING = 1_000_000
# Spark gives a query's first Python process ten seconds, which a busy machine may exceed.
NOT_STARTED = "Python worker failed to connect back"

_names = itertools.count()
# What Spark makes of a file's schema: asking it takes a job each time.
_schemas: dict[bytes, Any] = {}


def plan_of(df: Any) -> str:
    """Spark's physical plan of a DataFrame, before it has run."""
    told = df.sparkSession.sql("EXPLAIN SELECT * FROM {df}", df=df)
    return str(told.collect()[0][0])


def at(seconds: float | None) -> datetime | None:
    """A point in event time."""
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


@dataclass
class Run:
    """What a query gave, and what Spark said about each micro-batch."""

    rows: pa.Table
    progress: list[Any]

    @property
    def ids(self) -> Ids:
        """The rows as a multiset of ids, those that only close the stream left out."""
        from collections import Counter

        none = [None] * self.rows.num_rows
        names = self.rows.column_names
        left = self.rows["lid"].to_pylist() if "lid" in names else none
        right = self.rows["rid"].to_pylist() if "rid" in names else none
        return Counter(
            (l, r) for l, r in zip(left, right, strict=True) if max(l or 0, r or 0) < CLOSING
        )

    @property
    def units(self) -> list[list[dict[str, Any]]]:
        """The units' numbers by micro-batch; a unit that had nothing to do is left out."""
        found = []
        for progress in self.progress:
            numbers = unit_numbers(progress)
            joins = {name: [n for of, n in numbers if of == name] for name, _ in numbers}
            found.extend(joins.values())
        return found

    def total(self, name: str) -> int:
        """The sum of one of the units' numbers over all micro-batches."""
        return sum(unit[name] for batch in self.units for unit in batch)


@dataclass
class Streams:
    """Streams below a folder, as files, and queries over them."""

    spark: Any
    folder: Path
    written: dict[str, int] = field(default_factory=dict)
    schemas: dict[str, bytes] = field(default_factory=dict)
    starting: Any = None
    frames: dict[str, Any] = field(default_factory=dict)

    def write(self, name: str, rows: Sequence[Row] | pa.Table, schema: pa.Schema) -> None:
        """Add a micro-batch to a stream."""
        at = self.written.get(name, 0)
        self.written[name] = at + 1
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema)
        self.schemas.setdefault(name, table.schema.serialize().to_pybytes())
        file = self.folder / f"{name}.{at}.tmp"
        pq.write_table(table, file)
        os.utime(file, (1e9 + at, 1e9 + at))
        file.rename(folder / f"{at:04d}.parquet")

    def push(self, *batches: Push, left: pa.Schema = LEFT, right: pa.Schema = RIGHT) -> None:
        """Add micro-batches to the streams `l` and `r`."""
        for batch in batches:
            self.write("l", batch.left, left)
            self.write("r", batch.right, right)

    def read(self, name: str, watermark: tuple[str, str] | None = None) -> Any:
        """A stream as a DataFrame, a file a micro-batch."""
        written = self.schemas[name]
        if written not in _schemas:
            _schemas[written] = self.spark.read.parquet(str(self.folder / name)).schema
        source = self.spark.readStream.schema(_schemas[written]).option("maxFilesPerTrigger", 1)
        df = source.parquet(str(self.folder / name))
        return df if watermark is None else df.withWatermark(*watermark)

    def both(self, delay: str | None = None) -> tuple[Any, Any]:
        """The streams `l` and `r`, with a watermark on `t` if a delay is given."""
        mark = None if delay is None else ("t", delay)
        return self.read("l", mark), self.read("r", mark)

    def start(self, df: Any, checkpoint: str | None = None, **options: Any) -> Any:
        """Start a query that takes what there is into a table in memory, and stops.

        Queries run side by side, but their first micro-batches one after the other: each starts a
        Python process, and on a busy machine many at once miss Spark's limit of ten seconds.
        """
        while self.starting and self.starting.isActive and not self.starting.recentProgress:
            time.sleep(0.05)
        writer = df.writeStream.format("memory").queryName(f"q{next(_names)}")
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        self.starting = writer.trigger(availableNow=True).start(**options)
        self.frames[self.starting.name] = df
        return self.starting

    def wait(self, query: Any) -> Run:
        """The whole result of a query that was started."""
        try:
            query.awaitTermination()
        except Exception as error:
            if NOT_STARTED not in str(error):
                raise
            query = self.start(self.frames[query.name])
            query.awaitTermination()
        table = self.spark.table(query.name).toArrow()
        progress = query.recentProgress
        self.spark.sql(f"DROP VIEW {query.name}")
        return Run(table, progress)

    def run(self, df: Any, checkpoint: str | None = None) -> Run:
        """The whole result of a query."""
        if checkpoint is None:
            return self.wait(self.start(df))
        return self.resume(df, checkpoint)

    def resume(self, df: Any, checkpoint: str) -> Run:
        """What a query adds to its output when it goes on from a checkpoint."""
        batches: list[pa.Table] = []
        writer = df.writeStream.foreachBatch(lambda part, _: batches.append(part.toArrow()))
        location = str(self.folder / checkpoint)
        query = writer.option("checkpointLocation", location).trigger(availableNow=True).start()
        query.awaitTermination()
        return Run(pa.concat_tables(batches), query.recentProgress)


def random_batches(
    seed: int, *, batches: int = 4, rows: int = 12, nulls: bool = True, step: int = 10
) -> list[Push]:
    """Micro-batches whose times wander upwards, out of order inside and across batches."""
    rng = random.Random(seed)
    made: list[Push] = []
    counts = {"lid": 0, "rid": 0}

    def value() -> int | None:
        return None if nulls and rng.random() < 0.1 else rng.randint(-3, 4)

    def side(id_: str, one: str, two: str, base: int, n: int) -> list[Row]:
        new = []
        for _ in range(n):
            time = None if nulls and rng.random() < 0.05 else base + rng.randint(-25, 15)
            new.append({id_: counts[id_], one: value(), two: value(), "t": at(time)})
            counts[id_] += 1
        return new

    for number in range(batches):
        sizes = rng.choice([(rows, rows), (0, rows), (rows, 0), (rows // 2, rows), (1, rows)])
        base = number * step
        made.append(
            Push(side("lid", "a", "c", base, sizes[0]), side("rid", "b", "d", base, sizes[1]))
        )
    return made


def distinct_times(batches: Iterable[Push], seed: int) -> list[Push]:
    """The same rows with times that differ within a side and a batch, and tie across sides."""
    rng = random.Random(seed)
    result = []
    for batch in batches:
        sides = []
        for rows in (batch.left, batch.right):
            order = rng.sample(range(len(rows) + 3), len(rows))
            sides.append([row | {"t": at(n)} for row, n in zip(rows, order, strict=True)])
        result.append(Push(*sides))
    return result


def closing(rows: int = 1) -> Push:
    """A last micro-batch that no row matches and after which no earlier row is in any window."""
    far = at(10**7)
    return Push(
        [{"lid": CLOSING + i, "a": None, "c": None, "t": far} for i in range(rows)],
        [{"rid": CLOSING + i, "b": None, "d": None, "t": far} for i in range(rows)],
    )


def with_watermarks(
    batches: Iterable[Push], delay: timedelta, restart_at: int = -1
) -> Iterator[Push | Advance]:
    """The steps with Spark's bound for late rows between them.

    The watermark follows the largest time of each side, less the delay; the smaller of the two
    counts, and a side that has had no time yet holds it back, also after a restart. A row is late
    by the watermark of the micro-batch before; a query that ends has one more, without rows.
    """
    newest: dict[int, datetime] = {}
    moved: datetime | None = None
    for number, batch in enumerate(batches):
        if number == restart_at:
            newest = {}
            if moved is not None:
                yield Advance(moved)
        yield batch
        if moved is not None:
            yield Advance(moved)
        for side, rows in enumerate((batch.left, batch.right)):
            times = [row["t"] for row in rows if row["t"] is not None]
            if times:
                newest[side] = max([*times, *([newest[side]] if side in newest else [])])
        if len(newest) == 2:
            reached = min(newest.values()) - delay
            moved = reached if moved is None else max(moved, reached)


def expected(
    steps: Iterable[Push | Advance],
    pred: naive.Predicate,
    *,
    how: str = "inner",
    window: naive.Window | None = None,
    order_by: Any = None,
) -> tuple[Ids, naive.Result]:
    """What the oracle gives, without the rows that only close the stream."""
    result = naive.naive_stream(steps, pred, how=how, window=window, order_by=order_by)
    rows = [(l, r) for l, r in result.rows if not _closes(l, "lid") and not _closes(r, "rid")]
    return naive_ids(rows), result


def _closes(row: Row | None, id_: str) -> bool:
    return row is not None and row[id_] >= CLOSING
