"""What type checkers are told of tables: which come back as they went in, and which as Arrow.

The libraries are described, not imported, so that all of this holds whichever are installed.
"""

from __future__ import annotations

import os
from typing import Any, Protocol, TypeVar


class PandasFrame(Protocol):
    """A DataFrame of pandas."""

    @property
    def iloc(self) -> Any:
        """Rows by position."""


class PolarsFrame(Protocol):
    """A DataFrame or LazyFrame of Polars."""

    def sql(self, query: str, *, table_name: str = ...) -> Any:
        """A query over the table."""

    def with_columns(self, *exprs: Any, **named_exprs: Any) -> Any:
        """The table with further columns."""


class SparkFrame(Protocol):
    """A DataFrame of Spark, classic or Connect."""

    @property
    def sparkSession(self) -> Any:
        """The session it belongs to."""


class ArrowTable(Protocol):
    """A Table of pyarrow."""

    def combine_chunks(self, memory_pool: Any = ...) -> Any:
        """The table in one piece."""

    def to_batches(self, max_chunksize: Any = ...) -> Any:
        """The table in pieces."""


class ArrowStream(Protocol):
    """Anything that hands out an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = ..., /) -> object: ...


# A table of a library whose kind the result is of.
Frame = TypeVar("Frame", bound=PandasFrame | PolarsFrame | SparkFrame | ArrowTable)
# What has no kind of its own, so that the result is an Arrow table.
ArrowInput = str | os.PathLike[str] | ArrowStream
