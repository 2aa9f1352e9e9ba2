"""DuckDB as the engine that runs what is around a join, in this process."""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.batch.dtypes import mark_of
from thetajoin.engine.machine import available_cores, check_room
from thetajoin.errors import (
    ConditionError,
    DataError,
    ResourceError,
    SchemaError,
    ThetaJoinError,
    one_line,
)
from thetajoin.predicate.parse import Source
from thetajoin.query.join import SMALLER, Batches, Join

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect

INSTALL = "pip install 'thetajoin[sql]'"
_UNSORTED = "add a LIMIT, or leave ORDER BY out"
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


def check_installed(source: Source) -> None:
    """Refuse a query of tables in this process where there is nothing to run it."""
    if importlib.util.find_spec("duckdb") is None:
        raise ConditionError(
            f"{source.label}SQL over tables in this process needs DuckDB, which is not installed",
            hint=INSTALL,
        )


# Connecting takes longer than a small query, so the queries of a process share an empty database.
# What one adds, no other sees. A process that was forked makes its own.
_databases: dict[tuple[int, int], Any] = {}


def connect(threads: int) -> Any:
    """A connection to a database that reads nothing but what it is given."""
    import duckdb

    key = os.getpid(), threads
    if key not in _databases:
        database = duckdb.connect(":memory:", config={**_CLOSED, "threads": str(threads)})
        database.execute("SET GLOBAL TimeZone = 'UTC'")
        database.execute(_MACRO)
        database.execute("SET lock_configuration = true")
        _databases.setdefault(key, database)
    return _databases[key].cursor()


class DuckDB:
    """A connection for one query, to which tables and joins are added by name.

    few: whether not all rows are taken, so that threads would only run ahead.
    """

    def __init__(self, source: Source, stem: str, *, few: bool = False) -> None:
        self._source, self._stem = source, stem
        self._streams: list[Stream] = []
        self._rows: dict[str, Any] = {}
        self._handed: dict[str, bool] = {}  # by name, whether DuckDB has numbers for some columns
        self._threads = 1 if few else available_cores()
        self._con: Any = None

    def add(self, name: str, rows: Any) -> None:
        """Let queries name a table, or the rows of a `Join`."""
        self._rows[name] = rows

    def _register(self, text: str, start: str, foreign: dict[str, Carried]) -> None:
        """Hand over what a query names, as far as that has not been done.

        start: the table that the `foreign` columns are of.
        """
        for name in [name for name in self._rows if re.search(rf"\b{name}\b", text)]:
            rows, carried = self._rows[name], foreign if name == start else {}
            if not carried and self._handed.get(name) is False:
                continue
            self._handed[name] = bool(carried)
            if isinstance(rows, Join) and not rows.totals:
                rows = Stream(rows, carried)
                self._streams.append(rows)
            else:
                rows = rows.table() if isinstance(rows, Join) else rows
                # In pieces, so that threads can share them.
                pieces, schema = rows.to_batches(_BATCH_ROWS), _taken(rows.schema, carried)
                rows = pa.Table.from_batches(_in_types(schema, pieces, carried), schema)
            with self._plain_errors():
                self._con.register(name, rows)

    def table(self, tree: exp.Query, copies: int = 1, /) -> Any:
        """A query's whole result, as Arrow; an error if memory has no room for so many copies."""
        schema, batches = self.open(tree)
        sorted_ = isinstance(tree, exp.Select) and tree.args.get("order") is not None
        advice = _UNSORTED if sorted_ else SMALLER
        return pa.Table.from_batches(check_room(batches, advice, copies=copies), schema=schema)

    def open(self, tree: exp.Query, most: int | None = None) -> tuple[pa.Schema, Batches]:
        """A query's columns, and its rows as they are found, `most` of them."""
        if self._con is None:
            self._con = connect(self._threads)
        text = to_duckdb(tree)
        start, carried = self._carried(tree)
        self._register(text, start, carried)
        with self._plain_errors():
            found = self._con.sql(text)
            found = found if most is None else found.limit(most)
            types = list(map(str, found.types))
            reader = found.to_arrow_reader(_BATCH_ROWS)
        schema, back = reader.schema, {}
        for at, item in enumerate(tree.selects if carried else ()):
            if item.unalias().name in carried:
                back[at] = carried[item.unalias().name]
                schema = schema.set(at, back[at].field.with_name(schema.field(at).name))
        for at, type_ in enumerate(types):
            if type_ == "HUGEINT":  # sums of integers, which Spark has in 64 bits
                schema = schema.set(at, schema.field(at).with_type(pa.int64()))

        def batches() -> Batches:
            with self._plain_errors():
                for batch in reader:
                    arrays = [
                        back[at].values(array) if at in back else array.cast(field.type)
                        for at, (array, field) in enumerate(zip(batch.columns, schema, strict=True))
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return schema, batches()

    def _carried(self, tree: exp.Query) -> tuple[str, dict[str, Carried]]:
        """Columns that a query does nothing with but give out, of types that DuckDB has not.

        And the table that they are of.
        """
        said = {key for key, value in tree.args.items() if value}
        plain = {"expressions", "from_", "where", "order", "limit", "offset", "qualify"}
        start = tree.args["from_"].this.name if "from_" in said else ""
        if said - plain or start not in self._rows:
            return "", {}
        foreign = {field.name: field for field in self._rows[start].schema if is_foreign(field)}
        named = Counter(column.name for column in tree.find_all(exp.Column))
        outputs = [item.unalias() for item in tree.selects]
        shown = Counter(
            one.name for one in outputs if isinstance(one, exp.Column) and len(one.parts) < 3
        )
        kept = [name for name, times in shown.items() if times == named[name] and name in foreign]
        return start, {name: Carried(foreign[name]) for name in kept}

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors of DuckDB's as one line of ours, and ours as they were before it had them."""
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if isinstance(error, duckdb.InternalException | duckdb.FatalException):
                # Such an error closes its database: the next query opens another.
                _databases.pop((os.getpid(), self._threads), None)
            for stream in self._streams:
                if stream.failure is not None:
                    raise stream.failure from None
            raise self._worded(error) from error

    def _worded(self, error: Exception) -> ThetaJoinError:
        text = str(error)
        told = re.sub(r"^(?:\w+ )*Error: ", "", text).splitlines()[0].rstrip("!. ")
        told = re.sub(rf"\"?{self._stem}_\w+\"?\.", "", told)
        told = re.sub(rf"\"?{self._stem}_\w+\"?", "the joined rows", told)
        if "expression depth" in told:
            return ConditionError("in the query: an expression is nested too deeply")
        import duckdb

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
        told = re.sub(
            r"^column (\S+) must appear in the GROUP BY.*",
            r"a column outside of an aggregate must be in GROUP BY: \1",
            told,
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


class Carried:
    """A column whose values stay here, while DuckDB is given their numbers."""

    def __init__(self, field: pa.Field) -> None:
        self.field = field
        self._chunks: list[pa.Array] = []
        self._size = 0

    def add(self, values: pa.Array) -> pa.Array:
        """Keep more values, and give their numbers."""
        self._chunks.append(values)
        start, self._size = self._size, self._size + len(values)
        return pa.array(range(start, self._size), pa.int64())

    def values(self, numbers: pa.Array) -> pa.Array:
        """The values of some numbers."""
        found = pa.chunked_array(self._chunks, self.field.type).take(numbers)
        return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)


def is_foreign(field: pa.Field) -> bool:
    """Whether DuckDB would give a column back as another type."""
    type_ = field.type
    if isinstance(type_, pa.DictionaryType):
        return not pa.types.is_string(type_.value_type)
    odd = pa.types.is_float16(type_) or pa.types.is_duration(type_) or pa.types.is_decimal256(type_)
    return bool(odd) or mark_of(field) is not None


class Stream:
    """A join's rows as Arrow's stream, begun anew whenever an engine asks for them.

    So an engine that reads them twice gets them twice, and one that stops early stops the join.
    """

    def __init__(self, join: Join, carried: dict[str, Carried]) -> None:
        self._join, self._carried = join, carried
        self._schema = _taken(join.schema, carried)
        self.failure: BaseException | None = None

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from _in_types(self._schema, self._join.open()[1], self._carried)
        except GeneratorExit:  # no more rows are wanted
            raise
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
    from sqlglot.errors import SqlglotError

    try:
        text = tree.sql(dialect=written())
        parsed = sqlglot.parse_one(text, dialect=_read())
        return parsed.transform(_guarded).sql(dialect="duckdb")
    except SqlglotError as error:
        told = one_line(str(error).partition(". Line")[0])
        raise ConditionError(
            f"in the query: this cannot be written as SQL for DuckDB: {told}"
        ) from None


def _guarded(node: exp.Expr) -> exp.Expr:
    """What sqlglot does not say as DuckDB would: a division by zero is an error, for one."""
    exploded = isinstance(node, exp.Lateral) and isinstance(node.this, exp.Explode)
    if exploded and isinstance(node.parent, exp.Join):
        return exp.Unnest(expressions=[node.this.this], alias=node.args.get("alias"))
    if not isinstance(node, exp.Div | exp.Mod | exp.IntDiv):
        return node
    divisor = node.expression
    if not isinstance(divisor, exp.Literal) or not float(divisor.name or 0):
        node.set("expression", exp.Anonymous(this=_NONZERO, expressions=[divisor]))
    return node


@cache
def written(*, qualify: bool = True) -> type[Dialect]:
    """Spark's dialect without the detours it takes around what DuckDB has.

    qualify: whether the engine knows that clause; else a query around it filters.
    """
    from sqlglot import transforms
    from sqlglot.dialects.spark import Spark

    kept: dict[Any, Callable[..., Any]] = dict(Spark.Generator.TRANSFORMS)
    kept.pop(exp.Select, None)
    if not qualify:
        kept[exp.Select] = transforms.preprocess([transforms.eliminate_qualify])
    # A query in WITH may name what is around it, so it stays where it is.
    parts = {"TRANSFORMS": kept, "EXPRESSIONS_WITHOUT_NESTED_CTES": set()}
    generator = type("Generator", (Spark.Generator,), parts)
    return type("ThetaJoinWritten", (Spark,), {"Generator": generator})


@cache
def _read() -> type[Dialect]:
    """Spark's dialect as its ANSI mode means it: a cast that fails is an error."""
    from sqlglot.dialects.spark import Spark

    parser = type("Parser", (Spark.Parser,), {"STRICT_CAST": True})
    parts = {"Parser": parser, "SAFE_DIVISION": False}
    return type("ThetaJoinRead", (Spark,), parts)


def _taken(schema: pa.Schema, carried: Mapping[str, Carried]) -> pa.Schema:
    """The schema in types that DuckDB takes; columns that stay here are numbers there."""
    fields = []
    for field in schema:
        type_ = field.type
        if field.name in carried:
            type_ = pa.int64()
        elif pa.types.is_float16(type_):
            type_ = pa.float32()
        elif pa.types.is_duration(type_) or pa.types.is_decimal256(type_):
            raise SchemaError(
                f"column {field.name!r} is {type_}, which DuckDB has no type for: "
                "cast it, or leave it out of the table"
            )
        fields.append(pa.field(field.name, type_))
    return pa.schema(fields)


def _in_types(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], carried: Mapping[str, Carried]
) -> Iterator[pa.RecordBatch]:
    """Rows as DuckDB takes them."""
    for batch in batches:
        arrays = [
            carried[field.name].add(array) if field.name in carried else array.cast(field.type)
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
