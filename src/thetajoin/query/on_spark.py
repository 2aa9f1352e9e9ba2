"""Spark as the engine that runs what is around a join."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.errors import SchemaError
from thetajoin.query.join import Join
from thetajoin.query.on_duckdb import written
from thetajoin.spark.failures import plain_errors
from thetajoin.spark.versions import minor


class Spark:
    """A Spark session; what is added to it is named in one query at a time, and nowhere else."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._frames: dict[str, Any] = {}

    def add(self, name: str, rows: Any) -> None:
        """Let queries name a table, or the rows of a `Join`."""
        table = rows.table() if isinstance(rows, Join) else rows
        if not is_spark(table):
            raise SchemaError(
                "the query has tables of Spark and others: give all of them as Spark DataFrames"
            )
        self._frames[name] = table

    def table(self, tree: exp.Query, _copies: int = 1, /) -> Any:
        """A query's result, which is computed once it is asked for."""
        # Spark has QUALIFY from 4.2 on.
        known = minor(self._session.version) >= (4, 2)
        text = tree.sql(dialect=written(qualify=known), normalize_functions=False)
        used = {name: df for name, df in self._frames.items() if re.search(rf"\b{name}\b", text)}
        if used:  # without any, Spark takes braces as they are
            text = text.replace("{", "{{").replace("}", "}}")
        for name in used:
            text = re.sub(rf"\b{name}\b", f"{{{name}}}", text)
        with plain_errors("in the query"):
            found = self._session.sql(text, **used)
            _ = found.schema  # Spark Connect looks at a query only when it is asked
        return found

    def open(
        self, tree: exp.Query, most: int | None = None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Not for Spark, whose rows stay where they are."""
        raise SchemaError("rows as they are found are for tables in this process, not on Spark")
