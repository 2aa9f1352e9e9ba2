"""Parquet files that the Python workers read themselves.

Rows that a join's tasks need go from Spark's reader through rows to Arrow and a socket to Python:
about half the time of a join of tables, and for nothing where Python can read the files as well.
That is so if the table is only columns of Parquet files under `file:` paths, which Spark itself
requires all machines to see, and each column is stored as the type that Spark gives it. Anything
else is left to Spark: a filter, a computed or a partition column, a cached table, another format,
types that would be converted, dates in an old calendar.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from thetajoin.batch.keys import mixed
from thetajoin.errors import DataError
from thetajoin.spark.batch.worker import CHUNK_BYTES, row_bytes

# The types whose values Parquet, Spark and Arrow hold alike.
ALIKE: tuple[type[T.DataType], ...] = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "BROTLI"}
# Ours, to leave all reading to Spark.
READ_FILES = "spark.thetajoin.readFiles"
# Settings under which Spark reads files in its own way, with the values that mean it does not.
SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
# Options of a reader that say which files to read and not how.
LISTING = {"path", "paths", "mergeschema", "pathglobfilter", "recursivefilelookup"}
# The footers are read when the join is called, in one process.
MOST_FILES = 1000
# What Spark, too, reads in one task at most, and what is too little for one.
TASK_BYTES = 128 << 20
LEAST_TASK_BYTES = 4 << 20
# Rows read at once, and where a few of them may be long.
ROWS = 1 << 20
LONG_ROWS = 1 << 16

_CATALYST = "org.apache.spark.sql.catalyst"
_SOURCES = "org.apache.spark.sql.execution.datasources"
_PROJECT = f"{_CATALYST}.plans.logical.Project"
_RELATION = f"{_SOURCES}.LogicalRelation"
_ATTRIBUTE = f"{_CATALYST}.expressions.AttributeReference"
_ALIAS = f"{_CATALYST}.expressions.Alias"
_PLAIN = {
    "relation": f"{_SOURCES}.HadoopFsRelation",
    "fileFormat": f"{_SOURCES}.parquet.ParquetFileFormat",
    "location": f"{_SOURCES}.InMemoryFileIndex",
}


@dataclass(frozen=True)
class Piece:
    """Row groups of one file that follow each other.

    stamp: of the file when the join was planned. first: the number of the first row in the table.
    """

    path: str
    stamp: tuple[int, int]
    groups: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class Files:
    """A table's files.

    columns: the file's name of each of the table's columns. tasks: the pieces each task reads.
    bytes: of the columns, uncompressed. most: rows to read at once.
    """

    columns: tuple[str, ...]
    tasks: tuple[tuple[Piece, ...], ...]
    rows: int
    bytes: int
    most: int

    def read(
        self, tasks: Sequence[int], columns: Sequence[int] | None = None, hashed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some tasks: the columns at some positions, then a hash of the row's number.

        The number tells apart rows that are equal in every column.
        """
        names = list(self.columns) if columns is None else [self.columns[at] for at in columns]
        for piece in (piece for task in tasks for piece in self.tasks[task]):
            row = piece.first
            with _opened(piece) as file:
                groups, wanted = list(piece.groups), sorted(set(names))
                for batch in file.iter_batches(self.most, groups, wanted, use_threads=False):
                    chosen = batch.select(names)
                    if hashed:
                        numbers = np.arange(row, row + batch.num_rows, dtype=np.int64)
                        column = pa.array(mixed([numbers]))
                        chosen = pa.RecordBatch.from_arrays([*chosen.columns, column], [*names, ""])
                    row += batch.num_rows
                    yield chosen


def _opened(piece: Piece) -> pq.ParquetFile:
    """The file, if it is still the one that was planned for."""
    if not os.path.exists(piece.path) or _stamp(piece.path) != piece.stamp:
        raise DataError(
            f"{piece.path} is no longer the file it was when the join was called: call it again, "
            "or write the table elsewhere first"
        )
    return pq.ParquetFile(piece.path)


def _stamp(path: str) -> tuple[int, int]:
    """A file's size and a checksum of its footer, which tells the extremes of each row group.

    Not its time: machines may have copies of their own.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        footer = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - 8 - footer))
        return size, zlib.crc32(file.read(footer))


def files_of(df: Any, schema: pa.Schema) -> Files | None:
    """The files that a table consists of, or None where its rows must come from Spark.

    schema: the table's Arrow types.
    """
    if not hasattr(df, "_jdf") or not len(schema):
        return None  # Spark Connect shows no plans
    if not all(_is_alike(field.dataType) for field in df.schema.fields):
        return None
    session = df.sparkSession
    conf = session.conf
    if conf.get(READ_FILES, "true").lower() != "true":
        return None
    if not session._jsparkSession.sharedState().cacheManager().isEmpty():
        df = df.select("*")  # its own plan may be older than what is cached now
    found = _scan(df._jdf.queryExecution().optimizedPlan())
    if found is None:
        return None
    columns, uris = found
    if any(conf.get(key).lower() != value.lower() for key, value in SETTINGS.items()):
        return None
    places = [urlsplit(uri) for uri in uris]
    if not 0 < len(places) <= MOST_FILES or any(p.scheme != "file" or p.netloc for p in places):
        return None
    tasks = session.sparkContext.defaultParallelism
    try:
        return _examined([unquote(place.path) for place in places], columns, schema, tasks)
    except (OSError, pa.ArrowException):
        return None  # Spark says what is wrong with it


def _is_alike(type_: T.DataType) -> bool:
    return type_ == T.StringType() or isinstance(type_, ALIKE)


def _scan(plan: Any) -> tuple[list[str], list[str]] | None:
    """The columns and files that an optimised plan reads, if it does nothing else."""
    name = plan.getClass().getName()
    leaf = plan.child() if name == _PROJECT else plan
    if leaf.getClass().getName() != _RELATION or leaf.isStreaming():
        return None
    relation = leaf.relation()
    if relation.getClass().getName() != _PLAIN["relation"]:
        return None
    for part in ("fileFormat", "location"):
        if getattr(relation, part)().getClass().getName() != _PLAIN[part]:
            return None
    options = relation.options().keySet().mkString("\n").lower().split("\n")
    if not {option for option in options if option} <= LISTING:
        return None
    top = json.loads(plan.toJSON())[0]
    columns = [_column(nodes) for nodes in top["projectList" if name == _PROJECT else "output"]]
    # A partition's columns are in its folder's name, and count even where its files have them too.
    if {None, *relation.partitionSchema().fieldNames()} & set(columns):
        return None
    return [column for column in columns if column], list(relation.location().inputFiles())


def _column(nodes: list[dict[str, Any]]) -> str | None:
    """The column that an expression is, under whatever name."""
    if nodes[0]["class"] == _ALIAS:
        nodes = nodes[1:]
    name: str | None = nodes[0]["name"] if nodes[0]["class"] == _ATTRIBUTE else None
    return name


def _examined(paths: list[str], columns: list[str], schema: pa.Schema, tasks: int) -> Files | None:
    """The files by their footers; None if one does not hold the columns as Spark gives them."""
    pieces, weights = [], []
    rows = 0
    for path in sorted(paths):
        with pq.ParquetFile(path) as file:
            places = _places(file, columns, schema)
            if places is None:
                return None
            stamp = _stamp(path)
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                chunks = [group.column(at) for at in places]
                if any(chunk.compression not in CODECS for chunk in chunks):
                    return None
                pieces.append(Piece(path, stamp, (number,), rows))
                weights.append(sum(chunk.total_uncompressed_size for chunk in chunks))
                rows += group.num_rows
    dealt = _dealt(pieces, weights, tasks)
    return Files(tuple(columns), dealt, rows, sum(weights), _at_once(schema))


def _at_once(schema: pa.Schema) -> int:
    """How many rows fit in a chunk; some may be long."""
    width, at_least = row_bytes(schema)
    return min(LONG_ROWS if at_least else ROWS, max(1, CHUNK_BYTES // width))


def _places(file: pq.ParquetFile, columns: list[str], schema: pa.Schema) -> list[int] | None:
    """Where a file has the columns; None if not all as the table's types."""
    stored, leaves = file.schema_arrow, file.metadata.schema
    flat = len(leaves.names) == len(stored)
    known = {leaves.column(at).path: at for at in range(len(leaves.names))}
    kept = file.metadata.metadata or {}
    old = b"org.apache.spark.legacyDateTime" in kept
    old = old or kept.get(b"org.apache.spark.version", b"3").startswith((b"1", b"2"))
    for name, field in zip(columns, schema, strict=True):
        if stored.names.count(name) != 1 or name not in known or ("." in name and not flat):
            return None
        if not _same(stored.field(name).type, field.type):
            return None
        if old and pa.types.is_temporal(field.type):
            return None
    if len({name.lower() for name in stored.names}) != len(stored):
        return None  # which of two names is meant is Spark's to say
    return [known[name] for name in columns]


def _same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """If values stored as one type are those of the other."""
    types = pa.types
    if types.is_timestamp(stored) and types.is_timestamp(wanted):
        # In Parquet, a time zone is only whether there is one.
        return stored.unit == wanted.unit and (stored.tz is None) == (wanted.tz is None)
    if types.is_large_string(stored) or types.is_large_binary(stored):
        return bool(wanted == (pa.string() if types.is_large_string(stored) else pa.binary()))
    return bool(stored == wanted)


def _dealt(pieces: list[Piece], weights: list[int], tasks: int) -> tuple[tuple[Piece, ...], ...]:
    """Row groups in order, about as many bytes for each task; those of one file in one piece."""
    each = max(1, min(max(sum(weights) / tasks, LEAST_TASK_BYTES), TASK_BYTES))
    ends = np.cumsum(weights)
    number = ((ends - np.array(weights) / 2) // each).astype(np.int64)
    dealt: dict[int, list[Piece]] = {}
    for task, piece in zip(number.tolist(), pieces, strict=True):
        mine = dealt.setdefault(task, [])
        if mine and mine[-1].path == piece.path:
            last = mine.pop()
            piece = Piece(last.path, last.stamp, last.groups + piece.groups, last.first)
        mine.append(piece)
    return tuple(tuple(mine) for mine in dealt.values())
