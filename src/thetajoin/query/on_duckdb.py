"""DuckDB as the engine that runs what is around a join, in this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.engine.machine import available_cores, fitting
from thetajoin.errors import (
    ConditionError,
    DataError,
    ResourceError,
    SchemaError,
    ThetaJoinError,
    one_line,
)
from thetajoin.predicate.parse import Source
from thetajoin.query.beyond import BeyondError
from thetajoin.query.call import SMALLER, LastCall

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect

_NONZERO = "thetajoin_nonzero"
# Spark's division by zero is an error, and so is ours; DuckDB's is infinity, or NULL.
_MACRO = (
    f"CREATE MACRO {_NONZERO}(y) AS CASE WHEN y = 0 THEN "
    "error('division by zero; guard it with NULLIF(divisor, 0)') ELSE y END"
)
_BATCH_ROWS = 1 << 16
# A query reads the tables that it is given, and nothing else of this machine or of the network.
_CLOSED = {
    "python_enable_replacements": "false",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
}


class DuckDB:
    """A database in memory for one query."""

    def __init__(self, source: Source, missing: BeyondError) -> None:
        try:
            import duckdb
        except ImportError:
            raise missing from None
        self._duckdb: Any = duckdb
        self._source = source
        self._streams: list[Stream] = []
        self._con = duckdb.connect(
            ":memory:", config={**_CLOSED, "threads": str(available_cores())}
        )
        self._con.execute("SET TimeZone = 'UTC'")
        self._con.execute(_MACRO)
        self._con.execute("SET lock_configuration = true")

    def add(self, name: str, rows: Any) -> None:
        """Let queries name a table, or the rows of a `LastCall`."""
        if isinstance(rows, LastCall) and not rows.aggregated:
            rows = Stream(rows)
            self._streams.append(rows)
        else:
            rows = rows.table() if isinstance(rows, LastCall) else rows
            # In pieces, so that threads can share them.
            rows = rows.cast(_taken(rows.schema))
            rows = pa.Table.from_batches(rows.to_batches(_BATCH_ROWS), rows.schema)
        with self._plain_errors():
            self._con.register(name, rows)

    def columns(self, tree: exp.Query) -> list[str]:
        """The names of a query's columns; nothing runs."""
        with self._plain_errors():
            return list(self._con.sql(to_duckdb(tree)).columns)

    def table(self, tree: exp.Query, copies: int = 1, /) -> Any:
        """A query's whole result, as Arrow; an error if memory has no room for so many copies."""
        schema, batches = self.open(tree)
        return pa.Table.from_batches(fitting(batches, SMALLER, copies=copies), schema=schema)

    def open(
        self, tree: exp.Query, most: int | None = None
    ) -> tuple[pa.Schema, Generator[pa.RecordBatch, None, None]]:
        """A query's columns, and its rows as they are found, `most` of them."""
        with self._plain_errors():
            found = self._con.sql(to_duckdb(tree))
            found = found if most is None else found.limit(most)
            wide = _wide(found)
            reader = found.to_arrow_reader(_BATCH_ROWS)
        schema = _narrow(reader.schema, wide)

        def batches() -> Generator[pa.RecordBatch, None, None]:
            with self._plain_errors():
                for batch in reader:
                    yield batch.cast(schema) if wide else batch

        return schema, batches()

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors of DuckDB's as one line of ours, and ours as they were before it had them."""
        try:
            yield
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            for stream in self._streams:
                if stream.failure is not None:
                    raise stream.failure from None
            raise self._worded(error) from error

    def _worded(self, error: Exception) -> ThetaJoinError:
        text = str(error)
        told = re.sub(r"^(?:\w+ )*Error: ", "", text).splitlines()[0].rstrip("!. ")
        duckdb = self._duckdb
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError):
            return ResourceError(f"there is not enough memory for this query: {told}")
        if isinstance(
            error, duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException
        ):
            return self._mistake(told, text)
        if isinstance(error, pa.ArrowInvalid):
            return DataError(f"in the query: a sum does not fit BIGINT: {one_line(told)}")
        return DataError(f"in the query: {told}")

    def _mistake(self, told: str, text: str) -> ConditionError:
        """A mistake in the query, with the place of the first name in it that the user wrote."""
        told = re.sub(
            r"^\w+ Function with name (\w+) does not exist$", r"unknown function '\1'", told
        )
        hint = re.search(r"Did you mean \"?([^\"?\n]+)", text)
        meant = f"did you mean {hint[1]!r}?" if hint else ""
        for name in re.findall(r"[\"']([^\"']+)[\"']", told):
            found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self._source.text, re.I)
            if found:
                return ConditionError(
                    f"in the query: {told}",
                    position=found.start() + 1,
                    fragment=found[0],
                    hint=meant,
                )
        return ConditionError(f"in the query: {told}", hint=meant)


class Stream:
    """A join's rows as Arrow's stream, begun anew whenever an engine asks for them.

    So an engine that reads them twice gets them twice, and one that stops early stops the join.
    """

    def __init__(self, call: LastCall) -> None:
        self._call = call
        self._schema = _taken(call.open()[0])
        self.failure: BaseException | None = None

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._call.open()[1]:
                yield batch.cast(self._schema)
        except BaseException as error:
            self.failure = error
            raise


def to_duckdb(tree: exp.Query) -> str:
    """A query of Spark's dialect in DuckDB's.

    >>> from thetajoin.predicate.parse import Source, parse
    >>> to_duckdb(parse(Source("SELECT collect_list(x) FROM t ORDER BY y")))
    'SELECT ARRAY_AGG(x) FILTER(WHERE x IS NOT NULL) FROM t ORDER BY y NULLS FIRST'
    """
    import sqlglot

    text = tree.sql(dialect=_written())
    parsed = sqlglot.parse_one(text, dialect=_read())
    return parsed.transform(_guarded).sql(dialect="duckdb")


def _guarded(node: exp.Expr) -> exp.Expr:
    """A division whose divisor may not be zero."""
    if not isinstance(node, exp.Div | exp.Mod | exp.IntDiv):
        return node
    divisor = node.expression
    if not isinstance(divisor, exp.Literal) or not float(divisor.name or 0):
        node.set("expression", exp.Anonymous(this=_NONZERO, expressions=[divisor]))
    return node


@cache
def _written() -> type[Dialect]:
    """Spark's dialect without the detours it takes around what DuckDB has."""
    from sqlglot.dialects.spark import Spark

    kept: dict[Any, Callable[..., Any]] = dict(Spark.Generator.TRANSFORMS)
    kept.pop(exp.Select, None)
    generator = type("Generator", (Spark.Generator,), {"TRANSFORMS": kept})
    return type("ThetaJoinWritten", (Spark,), {"Generator": generator})


@cache
def _read() -> type[Dialect]:
    """Spark's dialect as its ANSI mode means it: a cast that fails is an error."""
    from sqlglot.dialects.spark import Spark

    parser = type("Parser", (Spark.Parser,), {"STRICT_CAST": True})
    parts = {"Parser": parser, "SAFE_DIVISION": False}
    return type("ThetaJoinRead", (Spark,), parts)


def _taken(schema: pa.Schema) -> pa.Schema:
    """The schema in types that DuckDB takes."""
    fields = []
    for field in schema:
        type_ = field.type
        if pa.types.is_float16(type_):
            type_ = pa.float32()
        elif pa.types.is_duration(type_) or pa.types.is_decimal256(type_):
            raise SchemaError(
                f"column {field.name!r} is {type_}, which DuckDB has no type for: "
                "cast it, or leave it out of the table"
            )
        fields.append(field.with_type(type_).remove_metadata())
    return pa.schema(fields)


def _wide(found: Any) -> list[int]:
    """Which columns are integers of 128 bits, as DuckDB's sums are."""
    return [at for at, type_ in enumerate(found.types) if str(type_) == "HUGEINT"]


def _narrow(schema: pa.Schema, wide: list[int]) -> pa.Schema:
    """The schema with sums of integers as Spark has them."""
    for at in wide:
        schema = schema.set(at, schema.field(at).with_type(pa.int64()))
    return schema
