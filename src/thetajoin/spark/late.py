"""Late rows as an output of their own: Parquet files that units write beside the join's output.

A file has the late rows of one side, unit and micro-batch. Its name says which, and it is there
whole or not at all. A task that runs again finds the same rows late, and the file already there: so
each row is written once, even when a query is restarted in the middle of a micro-batch.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext

from thetajoin.batch.files import store_failure
from thetajoin.engine.parts import Side
from thetajoin.errors import DataError, OptionError, SnapshotError
from thetajoin.secrets import hide_passwords
from thetajoin.spark.unit_spec import UnitSpec
from thetajoin.window.windows import TimeWindow

FOLDERS: dict[Side, str] = {"l": "left", "r": "right"}
# What stands behind the late row's own columns.
SIDE, WATERMARK, BATCH = "late_side", "late_watermark", "late_batch"


def filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Where a path or a URI leads to; Hadoop's name for S3 is taken as S3's."""
    try:
        if path.startswith("file:/") and not path.startswith("file://"):  # as Hadoop writes it
            path = path.removeprefix("file:")
        if "://" in path:
            found = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
            return found[0], found[1]
        return fs.LocalFileSystem(), os.path.abspath(path)
    except (pa.ArrowInvalid, OSError, NotImplementedError) as error:
        raise SnapshotError(f"cannot read {hide_passwords(path)}: {error}") from error


def check_place(late: Any) -> str:
    """The folder for late rows, if it is one."""
    if not isinstance(late, str | os.PathLike) or not os.fspath(late):
        raise OptionError(f"late={late!r}: give a folder or its URI, such as 's3://bucket/late'")
    place = os.fspath(late)
    if not isinstance(place, str):
        raise OptionError(f"late={late!r}: give a folder or its URI as text")
    filesystem(place)
    return place if "://" in place or place.startswith("file:") else os.path.abspath(place)


def check_late(spec: UnitSpec) -> None:
    """Refuse a join that has no late rows, or whose columns are named like ours."""
    if not isinstance(spec.join.window, TimeWindow):
        raise OptionError("late= needs a TimeWindow: without one, no row is ever late")
    for name in (SIDE, WATERMARK, BATCH):
        for side in ("left", "right"):
            if name in spec.schema(side).names:
                raise OptionError(
                    f"late= adds a column {name!r} to the late rows, and the {side} input has one "
                    "already: rename it"
                )


def check_bucket(place: str) -> None:
    """Refuse a store that has no such bucket or does not answer, before a row is late."""
    files, root = filesystem(place)
    if not isinstance(files, fs.S3FileSystem):
        return
    bucket = root.partition("/")[0]
    try:
        there = files.get_file_info(bucket).type != fs.FileType.NotFound
    except OSError as error:
        raise _unwritable(place, str(error)) from error
    if not there:
        raise _unwritable(place, f"Bucket {bucket!r} not found")


def _unwritable(place: str, said: str) -> DataError:
    shown = hide_passwords(place)
    return DataError(f"late rows cannot be written to {shown}: {store_failure(said)}")


def write_late(
    place: str, label: str, unit: int, dropped: dict[Side, pa.RecordBatch], marks: dict[Side, int]
) -> None:
    """Write the rows that a unit has dropped in this micro-batch; marks: the watermarks."""
    task = TaskContext.get()
    query = (task and task.getLocalProperty("sql.streaming.queryId")) or label
    batch = int((task and task.getLocalProperty("streaming.sql.batchId")) or 0)
    files, root = filesystem(place)
    for side, rows in dropped.items():
        if not rows.num_rows:
            continue
        name = f"{root}/{FOLDERS[side]}/late-{query}-{batch:08d}-{unit:04d}.parquet"
        try:
            _write(files, name, _add_origin(rows, side, marks[side], batch))
        except OSError as error:
            raise _unwritable(place, str(error)) from error


def _add_origin(rows: pa.RecordBatch, side: Side, mark: int, batch: int) -> pa.Table:
    """Late rows with their side, the watermark they were behind, and the micro-batch."""
    table = pa.Table.from_batches([rows])
    count, time = table.num_rows, pa.timestamp("us", "UTC")
    return (
        table.append_column(SIDE, pa.array([FOLDERS[side]] * count, pa.string()))
        .append_column(WATERMARK, pa.array([mark] * count, pa.int64()).cast(time))
        .append_column(BATCH, pa.array([batch] * count, pa.int64()))
    )


def _write(files: fs.FileSystem, name: str, table: pa.Table) -> None:
    """Write a file that is there whole or not at all; one that is there has the same rows."""
    if files.get_file_info(name).type == fs.FileType.File:
        return
    folder, _, last = name.rpartition("/")
    files.create_dir(folder, recursive=True)
    # Object stores show a file when it is complete; others when it gets its name.
    renames = isinstance(files, fs.LocalFileSystem | fs.HadoopFileSystem)
    partial = f"{folder}/.{last}.{uuid.uuid4().hex}" if renames else name
    with files.open_output_stream(partial) as sink:
        pq.write_table(table, sink)
    if not renames:
        return
    try:
        files.move(partial, name)
    except OSError:
        # Another try of the same task may have been first, and not every system replaces files.
        if files.get_file_info(name).type != fs.FileType.File:
            raise
        files.delete_file(partial)
