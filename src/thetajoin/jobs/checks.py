"""What is wrong with a streaming job, as far as that can be told before Spark starts.

Spark needs half a minute to say it, and says it in words of Python or of its own.
"""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import csv, parquet
from sqlglot import exp

from thetajoin.batch.files import Files, find_files
from thetajoin.engine.compiled import compile_call
from thetajoin.engine.condition_window import infer_window
from thetajoin.engine.rows import storage_schema
from thetajoin.errors import SchemaError, ThetaJoinError, WindowError, suggest
from thetajoin.jobs.job_file import Job, SourceSpec
from thetajoin.jobs.systems import TopicSink, TopicSource
from thetajoin.planner.routing import DEFAULT_UNITS, choose_route
from thetajoin.predicate import compile_condition
from thetajoin.predicate.literals import sql_type
from thetajoin.predicate.signatures import MismatchError
from thetajoin.query.join import Join, Relation, users_words
from thetajoin.query.run import compile_query, refuse_on_stream
from thetajoin.query.text import parse_query
from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow

# Errors about names, which are sure where types are not known as Spark reads them.
_ABOUT_NAMES = re.compile(r"unknown column|has no column|which was not given|is not in ")
BROKER_S = 8.0  # in which some broker of a topic must take a connection


@dataclass(frozen=True)
class Columns:
    """A source's columns; sure: with the types that Spark will give them."""

    schema: pa.Schema
    sure: bool


def check_streams(job: Job) -> None:
    """Refuse a job over streams whose watermarks, window or query cannot be right."""
    known = {name: _read_columns(source) for name, source in job.sources.items()}
    for name, columns in known.items():
        if columns is not None:
            _check_watermark(job, name, columns)
    _check_query(job, {name: columns for name, columns in known.items() if columns is not None})
    _check_brokers(job)


def _read_columns(source: SourceSpec) -> Columns | None:
    """A source's columns, without Spark; None where only the source's own system knows them."""
    topic = source.outside
    with suppress(ThetaJoinError, pa.ArrowException, OSError, MismatchError):
        if isinstance(topic, TopicSource) and topic.schema is not None:
            return _parse_columns(topic.schema, [f"kafka_{name}" for name in topic.metadata])
        if topic is None and "://" not in source.path:  # Spark has the keys to what is far away
            return _read_first(find_files(source.path, repr(source.path), source.format))
    return None


def _read_first(found: Files) -> Columns | None:
    """The columns of the first file; None of formats whose later rows may have others."""
    path = found.paths[0]
    folders = PurePosixPath(path).relative_to(found.base).parts[:-1]
    named = [(part.partition("=")[0], pa.string()) for part in folders if "=" in part]
    if found.form == "parquet":
        with found.filesystem.open_input_file(path) as file:
            schema = parquet.read_schema(file).remove_metadata()
    elif found.form in ("csv", "tsv"):
        with found.filesystem.open_input_stream(path) as file:  # packed or not, by its name
            schema = csv.open_csv(file).schema
    else:
        return None
    fields = {field.name: field.type for field in schema} | dict(named)
    return Columns(pa.schema(fields), found.form == "parquet" and not named)


def _parse_columns(text: str, more: list[str]) -> Columns:
    """Columns written as in CREATE TABLE."""
    import sqlglot

    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise SchemaError(f"schema = {text!r} cannot be read") from error
    types = {node.name: sql_type(node.args["kind"]) for node in tree.find_all(exp.ColumnDef)}
    sure = not more and None not in types.values()
    fields = {name: type_ or pa.string() for name, type_ in types.items()}
    return Columns(pa.schema(fields | dict.fromkeys(more, pa.string())), sure)


def _check_watermark(job: Job, name: str, columns: Columns) -> None:
    source = job.sources[name]
    if source.watermark is None:
        return
    column, _ = source.watermark
    where = f"{_file(job)}, source {name!r}: watermark = {' '.join(source.watermark)!r}"
    field = _find(columns.schema, column)
    if field is None:
        raise SchemaError(f"{where}: there is no column {column!r}; {_hint(column, columns)}")
    if columns.sure and not (pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)):
        raise SchemaError(f"{where}: column {column!r} is {field.type}, not a time")


def _check_query(job: Job, known: dict[str, Columns]) -> None:
    """Refuse what the query, its window and the sources' columns do not allow."""
    # Tables in this process stand for the streams, and those are DuckDB's to run.
    if len(known) < len(job.sources) or importlib.util.find_spec("duckdb") is None:
        return
    sure = all(columns.sure for columns in known.values())
    try:
        tables = {name: columns.schema.empty_table() for name, columns in known.items()}
        parsed = parse_query(job.query)
        refuse_on_stream(parsed.source, parsed.tree)
        joins = compile_query(job.query, tables, job.window).joins
    except ThetaJoinError as error:
        if _is_duckdbs(error):  # of words that Spark knows, and DuckDB does not
            return
        if not sure and not _ABOUT_NAMES.search(str(error)):
            return
        raise type(error)(f"{_file(job)}: {error}") from None
    for join in joins.values():
        try:
            _check_join(job, join, sure=sure)
        except ThetaJoinError as error:
            raise type(error)(f"{_file(job)}: {error}") from None


def _is_duckdbs(error: BaseException | None) -> bool:
    while error is not None:
        if "duckdb" in type(error).__module__:
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_join(job: Job, join: Join, *, sure: bool) -> None:
    sides = [_sources_of(job, relation) for relation in (join.left, join.right)]
    streams = [any(job.sources[name].stream for name in names) for names in sides]
    if not any(streams):
        return
    spec, window = join.spec, join.spec.window
    if window is None and not _bounds_times(job, join, sides):
        raise WindowError(
            'a join of streams needs a window: add [window] with time = "10 minutes" and '
            'on = "ts", or with count = 1000000 and on = "ts", or with all = true'
        )
    if isinstance(window, CountWindow) and spec.order_by is None:
        raise WindowError('a window by count needs the column that orders the rows: on = "ts"')
    waits = spec.aggs is None and spec.how in ("left", "right", "full", "anti")
    if isinstance(window, FullHistory) and all(streams) and waits:
        raise WindowError(
            f"a {spec.how} join with all = true would never give a row without a match, as one "
            'may always come: give [window] a time = "10 minutes" or a count'
        )
    if isinstance(window, TimeWindow):
        times = window.left_time, window.right_time
        for relation, names, time in zip((join.left, join.right), sides, times, strict=True):
            if len(names) == 1:
                if sure:
                    _need_time(names[0], relation, time)
                _need_watermark(job, names[0], _own_name(relation, time))
    if not sure:
        return
    with users_words(join.left, join.right):
        call = compile_call(spec, join.left.schema, join.right.schema)
        if all(streams):
            choose_route(call.join, DEFAULT_UNITS, job.routing)


def _bounds_times(job: Job, join: Join, sides: list[list[str]]) -> bool:
    """Whether the condition says the window itself, over event times."""
    if join.spec.on is None:
        return False
    relations = join.left, join.right
    schemas = [storage_schema(relation.schema) for relation in relations]
    times = [
        [new for (_, name), new in relation.names.items() if _is_marked(job, names, name)]
        for relation, names in zip(relations, sides, strict=True)
    ]
    return infer_window(compile_condition(join.spec.on, *schemas), *times) is not None


def _is_marked(job: Job, names: list[str], column: str) -> bool:
    """Whether a column has a watermark in one of the sources, or is one of a table."""
    for source in (job.sources[name] for name in names):
        marked = source.watermark is not None and source.watermark[0].lower() == column.lower()
        if marked or not source.stream:
            return True
    return False


def _need_time(name: str, relation: Relation, column: str) -> None:
    type_ = relation.schema.field(column).type
    if not (pa.types.is_temporal(type_) or pa.types.is_integer(type_)):
        raise WindowError(
            f"the window's time {_own_name(relation, column)!r} of {name!r} is {type_}: it must be "
            "a timestamp, a date or an integer"
        )


def _need_watermark(job: Job, name: str, column: str) -> None:
    source = job.sources[name]
    if not source.stream:
        return
    marked = None if source.watermark is None else source.watermark[0]
    if marked is None or marked.lower() != column.lower():
        delay = "10 minutes" if source.watermark is None else source.watermark[1]
        what = "add" if marked is None else f"it is on {marked!r}: write"
        raise WindowError(
            f"the window's time {column!r} of {name!r} has no watermark, which says how late rows "
            f'may come: {what} watermark = "{column} {delay}" to [sources.{name}]'
        )


def _sources_of(job: Job, relation: Relation) -> list[str]:
    """The sources whose rows a relation has."""
    words = {relation.words[place].lower() for place, _ in relation.names}
    named = {
        table.alias_or_name.lower(): table.name.lower()
        for table in parse_query(job.query).tree.find_all(exp.Table)
    }
    meant = {named.get(word, word) for word in words}
    return [name for name in job.sources if name.lower() in meant]


def _own_name(relation: Relation, column: str) -> str:
    """What a source calls a relation's column."""
    return next((name for (_, name), new in relation.names.items() if new == column), column)


def _check_brokers(job: Job) -> None:
    """Refuse a topic none of whose brokers takes a connection; Kafka's client waits a minute."""
    places = [*((name, s.outside) for name, s in job.sources.items()), ("sink", job.into)]
    for name, place in places:
        if isinstance(place, TopicSource | TopicSink):
            addresses = list(_addresses(place.servers))
            failures = [_try(address, BROKER_S / len(addresses)) for address in addresses]
            if failures and None not in failures:
                what = "sink" if isinstance(place, TopicSink) else f"source {name!r}"
                raise ThetaJoinError(
                    f"{what}: no Kafka broker answers at {place.servers}: {failures[0]}"
                )


def _addresses(servers: str) -> Iterator[tuple[str, int]]:
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if host and port.isdecimal():
            yield host.strip("[]"), int(port)


def _try(address: tuple[str, int], seconds: float) -> str | None:
    """Why nothing takes a connection there; None if something does."""
    try:
        socket.create_connection(address, timeout=seconds).close()
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return str(error.strerror or error).lower()
    return None


def _find(schema: pa.Schema, name: str) -> pa.Field | None:
    return next((field for field in schema if field.name.lower() == name.lower()), None)


def _hint(name: str, columns: Columns) -> str:
    return suggest(name, columns.schema.names)


def _file(job: Job) -> str:
    return "the job" if job.file is None else job.file.name
