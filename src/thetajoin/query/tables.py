"""The tables that a query may name: each read once, however often it is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from thetajoin.api import is_spark
from thetajoin.batch.files import format_of
from thetajoin.batch.tables import kind_of, to_batch
from thetajoin.engine.rows import cast_for_storage, storage_schema, take_in
from thetajoin.errors import OptionError, SchemaError, suggest
from thetajoin.predicate.render import backquoted


class Tables:
    """Tables by name, as they were given or as a part of the query has made them."""

    def __init__(self, given: dict[str, Any], *, files: bool = True, settings: Any = None) -> None:
        """`files`: whether a query may name some. settings: of the joins of streams among them."""
        self._known, self._files, self.settings = dict(given), files, settings
        self._read: dict[int, pa.Table] = {}

    def of(self, name: str) -> tuple[Any, Any]:
        """A table, in Arrow unless it is Spark's, and the kind that it was given as."""
        known = self.name(name)
        table = self._known[known]
        if is_spark(table):
            return table, None
        # The same reader may be given under two names, and can be read once.
        if id(table) not in self._read:
            self._read[id(table)] = _read(table, known)
        return self._read[id(table)], kind_of(table) or "arrow"

    def name(self, name: str) -> str:
        """The name that a table was given under: exactly, or but for case if that is clear.

        What looks like a path, and is no table's name, is one: ``FROM 'trades/*.parquet'``.
        """
        if name in self._known:
            return name
        close = [known for known in self._known if known.lower() == name.lower()]
        if len(close) == 1:
            return close[0]
        if not is_path(name):
            known = suggest(name, self._known)
            raise OptionError(f"the query names the table {name!r}, which was not given: {known}")
        if not self._files:
            raise OptionError(
                f"the query names the file {name!r}, and files are switched off: it may name only "
                f"the tables that are given ({', '.join(self._known) or 'none'})"
            )
        self._known[name] = name
        return name

    def is_spark(self, name: str) -> bool:
        """Whether a table is Spark's; it is not read for that."""
        return is_spark(self._known[self.name(name)])

    def add(self, name: str, table: Any) -> None:
        """Let a query name what a part of it has made."""
        self._known[name] = table


def is_path(name: str) -> bool:
    """Whether a name in FROM can only be a file's: table names have no such characters.

    >>> is_path("trades.parquet"), is_path("s3://bucket/*.csv"), is_path("trades")
    (True, True, False)
    """
    return any(character in name for character in "/\\*") or format_of(name) is not None


def is_streaming(table: Any) -> bool:
    """Whether a table grows."""
    return is_spark(table) and bool(table.isStreaming)


def schema_of(table: Any) -> pa.Schema:
    """A table's columns as Arrow has them."""
    if is_spark(table):
        from thetajoin.spark.stream import arrow_schema

        return arrow_schema(table)
    return take_in(table, "query's").schema


def select_columns(table: Any, names: Mapping[str, str]) -> Any:
    """The columns of a table by new names, each with the name that it has."""
    if is_spark(table):
        if list(names) == list(names.values()) == table.columns:
            return table
        return table.selectExpr(
            *[f"{backquoted(old)} AS {backquoted(new)}" for new, old in names.items()]
        )
    return table.select(list(names.values())).rename_columns(list(names))


def stream_options(settings: Any, *tables: Any) -> dict[str, Any]:
    """The options of a join by which a job's settings reach it, if it is one of streams."""
    given = settings is not None and any(map(is_streaming, tables))
    return {"settings": settings} if given else {}


def _read(table: Any, name: str) -> pa.Table:
    what = "query's" if table is name else repr(name)  # a path says itself what it is
    batch = to_batch(table, what, as_kind=kind_of(table))
    twins = [column for column, n in Counter(batch.schema.names).items() if n > 1]
    if twins:
        raise SchemaError(f"the table {name!r} has two columns {twins[0]!r}: rename one")
    # WHERE, ORDER BY and DISTINCT pick rows, which Arrow cannot do in its view types.
    return pa.table(cast_for_storage(batch, storage_schema(batch.schema)))
