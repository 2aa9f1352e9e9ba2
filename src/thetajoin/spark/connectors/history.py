"""A table's history as a stream reads it: versions, the data files they add, and where one stands.

A version is a number of Delta's, or the id of a snapshot of Iceberg's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from thetajoin.batch.stores import store_failure
from thetajoin.errors import DataError, SchemaError, ThetaJoinError
from thetajoin.spark.connectors.specs import TableStream

ALL = -1  # files of a version
NONE = -1  # the version of a table that has none yet
ROWS = 16_384  # of a record batch


@dataclass(frozen=True)
class DataFile:
    """A file of rows; `what` is for the history that listed it."""

    what: Any
    bytes: int


@dataclass(frozen=True)
class Step:
    """A version, and the files that it adds. refused: why a stream cannot go past it, if so."""

    version: int
    files: tuple[DataFile, ...] = ()
    refused: str = ""


class History(Protocol):
    """What a stream has to know about a table."""

    def table(self) -> str:
        """What tells this table from one that is made in its place."""

    def columns(self) -> StructType:
        """The table's columns as they are now."""

    def newest(self) -> int:
        """The newest version, looked up now; `NONE` if there is none."""

    def before(self, version: int) -> int:
        """The version before another one, which has to be there."""

    def whole(self, version: int) -> Step:
        """All files of the table at a version, in the order in which they were added."""

    def one(self, version: int) -> Step:
        """The files that a version added."""

    def after(self, version: int, last: int) -> Iterator[Step]:
        """What was added after a version, up to and with another, one by one."""

    def context(self) -> Any:
        """What `rows` needs on a worker beside the files."""

    def rows(self, context: Any, files: list[DataFile]) -> Iterator[pa.RecordBatch]:
        """The rows of files, with the stream's columns in any order and of any similar type."""


@dataclass(frozen=True)
class Position:
    """How far a stream has come: all of `files` files of `version`, and everything before it.

    table: the table's own id. begin: the version that the stream began with; whole: whether that
    was the table with all its rows, or only what came after.
    """

    table: str
    begin: int
    whole: bool
    version: int
    files: int

    @staticmethod
    def start(table: str, version: int, *, whole: bool) -> Position:
        """Before anything is taken."""
        return Position(table, version, whole, version, 0 if whole else ALL)

    @staticmethod
    def of(source: TableStream, offset: dict[str, Any]) -> Position:
        """A position that Spark has kept."""
        if set(offset) != {field.name for field in fields(Position)}:
            raise SchemaError(
                f"this checkpoint was not made by a stream of {source}: start again with a new one"
            )
        return Position(**offset)

    def offset(self) -> dict[str, Any]:
        """As Spark keeps it in a checkpoint."""
        return asdict(self)

    def at(self, version: int, files: int = ALL) -> Position:
        """The same stream, further on."""
        return replace(self, version=version, files=files)

    @property
    def nothing(self) -> bool:
        """Whether the stream has taken nothing yet."""
        return self == Position.start(self.table, self.begin, whole=self.whole)

    def steps(self, history: History, last: int) -> Iterator[tuple[Step, int]]:
        """What comes next, and how many files of it were taken before."""
        if self.files != ALL:
            first = self.whole and self.version == self.begin
            step = history.whole(self.version) if first else history.one(self.version)
            yield step, self.files
        for step in history.after(self.version, last):
            yield step, 0


def advanced(start: Position, history: History, last: int, most: int | None) -> Position:
    """How far a micro-batch goes: to `last`, or `most` files, or what cannot be passed.

    What comes before a version that is refused is delivered first, so that a stream ends at the
    same row wherever its micro-batches end.
    """
    end, left = start, most
    for step, taken in start.steps(history, last):
        if step.refused:
            if end == start:
                raise DataError(step.refused)
            break
        new = len(step.files) - taken
        if left is not None and new > left:
            return end if left == 0 else start.at(step.version, taken + left)
        left = None if left is None else left - new
        end = start.at(step.version)
    return end


def files_between(start: Position, end: Position, history: History) -> list[DataFile]:
    """The files that a micro-batch reads."""
    if start.nothing:
        # Asked again, a stream would begin with a newer version: what counts is what it began with.
        start = Position.start(end.table, end.begin, whole=end.whole)
    found: list[DataFile] = []
    if start == end:
        return found
    for step, taken in start.steps(history, end.version):
        if step.refused:
            raise DataError(step.refused)
        files = step.files if step.version != end.version or end.files == ALL else None
        found += step.files[taken : end.files] if files is None else files[taken:]
        if step.version == end.version:
            break
    return found


def change_refused(source: TableStream, version: str, how: str) -> str:
    """Why a version that takes rows back ends a stream, and what would be right."""
    return (
        f"{version} of {source} removes or rewrites rows ({how}), and a stream cannot take back "
        "what it has given out: start again with a new checkpoint, or write on_change = 'skip' to "
        "leave out such versions, with the rows they add"
    )


def gone(source: TableStream, version: str, why: str) -> DataError:
    """The error for a version that is not there any more."""
    return DataError(
        f"{version} of {source} is not there any more ({why}), and the stream has not read all of "
        "it: start again with a new checkpoint, and keep versions for longer than a job stands "
        "still"
    )


def changed_columns(wanted: StructType, found: StructType) -> str:
    """How columns that a stream reads have changed; columns that are new do not matter."""
    there = {field.name: nullable(field.dataType) for field in found.fields}
    for field in wanted.fields:
        if field.name not in there:
            return f"has no column {field.name!r} any more"
        now = there[field.name].simpleString()
        if now != field.dataType.simpleString():
            return f"has column {field.name!r} as {now}, which was {field.dataType.simpleString()}"
    return ""


def columns_refused(source: TableStream, version: str, how: str) -> str:
    """Why a version with other columns ends a stream, and what would be right."""
    return (
        f"{version} of {source} {how}: a stream goes on with the columns it began with; start "
        "again with a new checkpoint"
    )


def nullable(type_: DataType) -> Any:
    """A type in which anything may be NULL: files from before a column was added lack it."""
    if isinstance(type_, StructType):
        return StructType([StructField(f.name, nullable(f.dataType)) for f in type_.fields])
    if isinstance(type_, ArrayType):
        return ArrayType(nullable(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(nullable(type_.keyType), nullable(type_.valueType))
    return type_


@contextmanager
def told_of(source: TableStream) -> Iterator[None]:
    """Errors of the packages as one line of ours; each package has a tree of its own."""
    try:
        yield
    except ThetaJoinError:
        raise
    except Exception as error:
        said = store_failure(str(error)) or type(error).__name__
        raise DataError(f"cannot read {source}: {said}") from error


def check_same(source: TableStream, position: Position, history: History) -> None:
    """Refuse a table that was made in the place of the one that a checkpoint has read."""
    if position.table != history.table():
        raise SchemaError(
            f"{source} is not the table that this checkpoint has read: somebody has made it anew; "
            "start again with a new checkpoint"
        )
