"""Job files: sources, query, window, sink, checkpoint and trigger, checked before anything starts.

A job is TOML:

```toml
query = "SELECT dc1.rack, count(*) AS n FROM dc1, dc2 WHERE dc1.rp < dc2.rp GROUP BY dc1.rack"
checkpoint = "ck"          # streams only
trigger = "10 seconds"     # or "available-now"; streams only
late = "late"              # a folder for late rows; streams only
routing = "broadcast"      # as `join` has it; streams only

[sources.dc1]
path = "dc1"               # a file, a folder, a pattern of files or a URI
stream = true              # read as it grows, on Spark
watermark = "ts 10 seconds"

[sources.dc2]
path = "dc2.parquet"

[window]                   # where the query has none
time = "5 minutes"         # with on = "ts"; or count = 1000000 with slide = 100000; or all = true
on = "ts"

[sink]
path = "out"
format = "parquet"         # or csv, json, arrow; with streams parquet, csv, json, console
overwrite = false          # or true, to replace a file that is there; not with streams
mode = "append"            # or update, with format = "console"; streams only

[spark]                    # streams only
jars = "jars"              # a folder of jars to use; nothing is fetched
packages = ["group:artifact:version"]   # what Spark is to fetch itself
```

`jobs.systems` reads what a job says about Kafka, Delta, Iceberg and databases.
"""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from thetajoin.batch.files import FORMATS, format_of
from thetajoin.errors import OptionError, SchemaError, ThetaJoinError, WindowError, suggest
from thetajoin.jobs.files import (
    WRITTEN,
    check_apart,
    check_new,
    check_stream_sink,
    folder,
    guess_format,
    input_format,
    place,
    read_stdin,
)
from thetajoin.jobs.systems import (
    KAFKA,
    SINK_KEYS,
    SINKS,
    SOURCE_KEYS,
    SOURCES,
    Sink,
    TableSource,
    TableStream,
    TopicSource,
    check_choice,
    find_kind,
    read_outside_sink,
    read_table_source,
    read_topic_source,
)
from thetajoin.query.text import parse_query
from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow, Window, length_in

_KEYS: dict[str, dict[str, type]] = {
    "job": {
        "query": str,
        "sources": dict,
        "window": dict,
        "sink": dict,
        **dict.fromkeys(("checkpoint", "trigger", "late", "routing"), str),
        "spark": dict,
    },
    "source": {"path": str, "format": str, "stream": bool, "watermark": str},
    "window": {"time": str, "count": int, "slide": int, "on": object, "all": bool},
    "sink": {
        "path": str,
        "format": str,
        "mode": str,
        "overwrite": bool,
        "id": str,
        "key": list,
    },
    "spark": {"jars": str, "packages": list},
}
_SPARK_FORMATS = ("parquet", "csv", "json")
CONSOLE = "console"
TABLE = "table"
NOW = "available-now"


@dataclass(frozen=True)
class SourceSpec:
    """A table that the query names; without a format its files' names say it.

    path: a file, a folder, a pattern, a URI of any of these, or ``-``. outside: what it is if
    it is not a file; `path` is then its description.
    """

    path: str
    format: str | None = None
    stream: bool = False
    watermark: tuple[str, str] | None = None
    outside: TopicSource | TableSource | TableStream | None = None


@dataclass(frozen=True)
class Job:
    """A checked job.

    sink: the file or folder to write; without one, rows are shown, in the format of `shown`.
    limit: how many rows are wanted; None for all, or for a screenful where they are shown.
    into: the system to write to where the sink is no folder of files. id: the column for an id of
    each match, made from the columns `key`, or from whole rows. jars, packages: for Spark.
    late: the folder for rows that come behind the watermark. routing: how rows are sent to units.
    named_files: whether the query may name files.
    """

    query: str
    sources: dict[str, SourceSpec]
    window: tuple[Window, Any] | None = None
    sink: Path | None = None
    sink_format: str = "parquet"
    mode: str = "append"
    overwrite: bool = False
    checkpoint: Path | None = None
    trigger: str = NOW
    file: Path | None = None
    shown: str = TABLE
    limit: int | None = None
    late: str | None = None
    routing: str | None = None
    named_files: bool = True
    into: Sink | None = None
    id: str | None = None
    key: tuple[str, ...] = ()
    jars: Path | None = None
    packages: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """The sources that are files."""
        return [source.path for source in self.sources.values() if source.outside is None]

    @property
    def streaming(self) -> bool:
        """Whether any source grows while the job runs."""
        return any(source.stream for source in self.sources.values())

    @property
    def spark_trigger(self) -> dict[str, Any]:
        """The trigger as Spark takes it."""
        if self.trigger == NOW:
            return {"availableNow": True}
        return {"processingTime": spark_length(self.trigger)}


def spark_length(text: str) -> str:
    """A length of time as Spark reads it, who has fewer words for units.

    >>> spark_length("10 s"), spark_length("1 hour 30 mins")
    ('10000 milliseconds', '5400000 milliseconds')
    """
    return f"{length_in(text, 'ms', 'the length')} milliseconds"


class CheckedQuery(Protocol):
    """A query that was checked against its tables, and has not run yet."""

    def run(self) -> Any:
        """The whole result; of streams, a DataFrame."""

    def open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The result's columns, and its rows as they are found."""

    def first(self, rows: int) -> pa.Table:
        """The first rows; what comes after them is not computed."""

    def explain(self) -> Any:
        """Its plan."""


def read_job(path: Path) -> Job:
    """Read and check a job file; paths in it are relative to it."""
    try:
        data = tomllib.loads(read_text(path, "job"))
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path} is not a job file (TOML): {error}") from error
    return check_job(data, path)


def read_text(path: Path, what: str) -> str:
    """A file's text, or one line that says why there is none; ``-`` is what is piped in."""
    try:
        if str(path) == "-":
            return read_stdin(f"the {what}").decode()
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot read the {what} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"cannot read the {what} {path}: it is not text in UTF-8") from error


def check_job(data: dict[str, Any], path: Path) -> Job:
    """Everything about a job that can be known before it starts."""
    where = path.name
    _check_keys(data, "job", where)
    if "query" not in data:
        raise OptionError(f"{where} has no 'query'")
    sources = {
        name: _read_source(value, f"{where}, source {name!r}", path.parent)
        for name, value in data.get("sources", {}).items()
    }
    sources = add_named_files(data["query"], sources, path.parent)
    if not sources:
        raise OptionError(
            f"{where} has no sources: write [sources.NAME] for each table, or FROM 'FILE'"
        )
    job = Job(
        query=data["query"],
        sources=sources,
        window=_read_window(data["window"], where) if "window" in data else None,
        checkpoint=folder(data, "checkpoint", where, path.parent),
        trigger=data.get("trigger", NOW),
        late=place(data["late"], path.parent) if "late" in data else None,
        routing=data.get("routing"),
        file=path,
        **_read_sink(data.get("sink"), where, path.parent),
        **_read_spark(data.get("spark"), where, path.parent),
    )
    return _check_whole(job, data, where)


def _check_keys(data: Any, kind: str, where: str, known: dict[str, type] | None = None) -> None:
    if not isinstance(data, dict):
        raise OptionError(f"{where}: {kind} must be a table of keys")
    known = _KEYS[kind] if known is None else known
    for key, value in data.items():
        if key not in known:
            raise OptionError(f"{where}: unknown key {key!r}: {suggest(key, known)}")
        wanted = known[key]
        wrong = not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))
        if wrong:
            raise OptionError(f"{where}: {key} = {value!r} must be a {wanted.__name__}")
        if wanted is list and not all(isinstance(item, str) for item in value):
            raise OptionError(f"{where}: {key} = {value!r} must be a list of strings")


def add_named_files(
    query: str, sources: dict[str, SourceSpec], base: Path
) -> dict[str, SourceSpec]:
    """The tables that were given, and the files that the query names itself."""
    files = {n: p for n, p in find_named_files(query, base).items() if n not in sources}
    return {**sources, **{name: make_file_source(path) for name, path in files.items()}}


def make_file_source(path: str) -> SourceSpec:
    """A table in files whose names say their format."""
    input_format(path)
    return SourceSpec(path)


def _read_source(data: Any, where: str, base: Path) -> SourceSpec:
    kind = find_kind(data, SOURCES)
    if kind is not None:
        _check_keys(data, "source", where, SOURCE_KEYS[kind])
        if kind == KAFKA:
            topic = read_topic_source(data, where, base)
            name = f"topic {topic.topic} at {topic.servers}"
            return SourceSpec(name, None, True, _read_watermark(data, where), topic)
        table = read_table_source(data, kind, where, base)
        stream = isinstance(table, TableStream)
        name = f"{kind} table {table.place}"
        return SourceSpec(name, None, stream, _read_watermark(data, where), table)
    _check_keys(data, "source", where)
    if "path" not in data:
        raise OptionError(f"{where} has no 'path', and none of {', '.join(SOURCES)}")
    path = place(data["path"], base)
    stream, form = data.get("stream", False), data.get("format")
    if form is not None:
        check_choice(form, _SPARK_FORMATS if stream else FORMATS, "format", where)
    try:
        input_format(path, form)
    except SchemaError as error:
        hint = ": a stream's columns are those of its first file" if stream else ""
        raise OptionError(f"{where}: {error}{hint}") from error
    return SourceSpec(path, form, stream, _read_watermark(data, where))


def _read_watermark(data: dict[str, Any], where: str) -> tuple[str, str] | None:
    if "watermark" not in data:
        return None
    column, _, delay = data["watermark"].strip().partition(" ")
    try:
        length_in(delay, "ms", "the delay")
    except WindowError as error:
        text = delay if delay and not column.isdigit() else data["watermark"]
        why = f" ({error})" if text == delay else ""
        raise OptionError(
            f"{where}: watermark = {data['watermark']!r}: write 'ts 10 seconds', a column and how "
            f"late its rows may come{why}"
        ) from None
    return column, delay.strip()


def _read_window(data: Any, where: str) -> tuple[Window, Any]:
    where = f"{where}, window"
    _check_keys(data, "window", where)
    on = data.get("on")
    if on is not None and not isinstance(on, str):
        if not isinstance(on, list) or len(on) != 2 or not all(isinstance(n, str) for n in on):
            raise OptionError(f"{where}: on = {on!r}: a column, or two, one for each table")
        on = (on[0], on[1])
    if data.get("all"):
        if len(data) > 1:
            raise OptionError(f"{where}: all = true is every pair: leave the other keys out")
        return FullHistory(), None
    if ("time" in data) == ("count" in data):
        raise OptionError(f"{where}: give either time or count, or all = true for every pair")
    if "time" in data:
        if "slide" in data:
            raise OptionError(f"{where}: slide belongs to a window by count")
        return TimeWindow(data["time"], time=on), None
    return CountWindow(data["count"], data.get("slide", 1)), on


def _read_sink(data: Any, where: str, base: Path) -> dict[str, Any]:
    if data is None:
        return {}
    where = f"{where}, sink"
    kind = find_kind(data, SINKS)
    _check_keys(data, "sink", where, None if kind is None else SINK_KEYS[kind])
    mode = data.get("mode", "append")
    check_choice(mode, ("append", "update"), "mode", where)
    if "key" in data and "id" not in data:
        raise OptionError(f"{where}: key is what an id is made from: add id = 'match_id'")
    ids = {"id": data.get("id"), "key": tuple(data.get("key", ()))}
    if kind is not None:
        into = read_outside_sink(data, kind, where, base)
        return {"into": into, "sink_format": kind, "mode": mode, **ids}
    path = folder(data, "path", where, base)
    form = data.get("format") or ("parquet" if path is None else guess_format(path))
    overwrite = data.get("overwrite", False)
    return {"sink": path, "sink_format": form, "mode": mode, "overwrite": overwrite, **ids}


def _read_spark(data: Any, where: str, base: Path) -> dict[str, Any]:
    if data is None:
        return {}
    where = f"{where}, spark"
    _check_keys(data, "spark", where)
    for text in data.get("packages", ()):
        if text.count(":") != 2:
            raise OptionError(f"{where}: packages: {text!r}: write 'group:artifact:version'")
    jars = base / data["jars"] if "jars" in data else None
    return {"jars": jars, "packages": tuple(data.get("packages", ()))}


def _check_whole(job: Job, data: dict[str, Any], where: str) -> Job:
    if "sink" in data and job.into is None:
        formats = (*_SPARK_FORMATS, CONSOLE) if job.streaming else WRITTEN
        check_choice(job.sink_format, formats, "format", f"{where}, sink")
    if job.streaming:
        _check_stream(job, where)
    else:
        _check_tables(job, data, where)
    return job


def _check_trigger(trigger: str, where: str) -> None:
    if trigger == NOW:
        return
    try:
        length_in(trigger, "ms", "the trigger")
    except WindowError as error:
        raise OptionError(f"{where}: {error}, or {NOW!r}") from None


def _check_tables(job: Job, data: dict[str, Any], where: str) -> None:
    sink = data.get("sink", {})
    for key in ("checkpoint", "trigger", "late", "routing", "spark", "mode", "id", "key"):
        if key in data or key in sink:
            raise OptionError(f"{where}: {key} is for streams, and no source has stream = true")
    if job.into is not None:
        raise OptionError(
            f"{where}, sink: {job.sink_format} is for streams, and no source has stream = true"
        )
    if "sink" in data and "path" not in sink:
        raise OptionError(f"{where}, sink has no 'path': without a [sink] the result is shown")


def spark_format(source: SourceSpec) -> str:
    """The format of a source's files, which Spark must be given."""
    form = input_format(source.path, source.format)
    if form is None:
        raise OptionError(f"{source.path!r} is a pipe, which a streaming job cannot read")
    return form


def _check_stream(job: Job, where: str) -> None:
    for name, source in job.sources.items():
        if source.outside is not None:
            continue
        check_choice(spark_format(source), _SPARK_FORMATS, "format", f"{where}, source {name!r}")
    if job.overwrite:
        raise OptionError(f"{where}, sink: a stream adds to what is there: leave overwrite out")
    _check_trigger(job.trigger, where)
    _check_checkpoint(job, where)
    if job.into is not None:
        if job.mode == "update" and job.sink_format != "kafka":
            raise OptionError(f"{where}, sink: {job.sink_format} takes mode 'append' only")
        return
    if job.id is not None and not job.key:
        raise OptionError(f"{where}, sink: an id in files needs key = [...], columns of the result")
    if job.sink_format == CONSOLE:
        if job.sink is not None:
            raise OptionError(f"{where}, sink: format 'console' writes no files: leave path out")
        return
    if job.sink is None:
        raise OptionError(
            f"{where}: a streaming job needs a [sink] with a path, or with format = 'console'"
        )
    if job.mode == "update":
        raise OptionError(f"{where}, sink: files take mode 'append' only; use format 'console'")


def _check_checkpoint(job: Job, where: str) -> None:
    """Refuse a job that needs a checkpoint and has none."""
    if job.checkpoint is not None or (job.sink_format == CONSOLE and not poison_folders(job)):
        return
    if job.sink is not None or job.into is not None:
        raise OptionError(f"{where}: a streaming job needs a checkpoint")
    if poison_folders(job):
        raise OptionError(f"{where}: keeping messages aside (poison) needs a checkpoint")


def poison_folders(job: Job) -> dict[str, Path]:
    """Where unreadable messages are kept aside, by the name of their source."""
    found = {}
    for name, source in job.sources.items():
        if isinstance(source.outside, TopicSource) and source.outside.poison is not None:
            found[name] = source.outside.poison
    return found


def poison_checkpoint(checkpoint: Path, name: str) -> Path:
    """Where the query that keeps a source's messages aside remembers how far it is."""
    return checkpoint.with_name(f"{checkpoint.name}.poison") / name


def check_places(job: Job) -> None:
    """Refuse a sink that would harm what is there, before anything is read."""
    inputs = job.files
    inputs += [] if job.file is None else [str(job.file)]
    if job.checkpoint is not None:
        check_apart(job.checkpoint, inputs, "the checkpoint")
    for name, aside in poison_folders(job).items():
        check_apart(aside, inputs, "what cannot be read")
        assert job.checkpoint is not None
        check_stream_sink(aside, poison_checkpoint(job.checkpoint, name))
    if job.sink is None:
        return
    check_apart(job.sink, inputs)
    if not job.streaming:
        check_new(job.sink, overwrite=job.overwrite)
    elif job.checkpoint is not None:
        check_stream_sink(job.sink, job.checkpoint)


def find_named_files(query: str, base: Path) -> dict[str, str]:
    """The files in a query's text by the names they have there; relative to `base`.

    A query that cannot be parsed has none; its errors are reported when it is compiled.
    """
    try:
        tree = parse_query(query).tree
    except ThetaJoinError:
        return {}
    names = [_read_file_name(table) for table in tree.find_all(exp.Table)]
    return {name: place(name, base) for name in names if name}


def _read_file_name(table: exp.Table) -> str:
    """A file's name, or nothing; without quotes a name may end like a file's, and no more."""
    name = ".".join(part.name for part in table.parts)
    quoted = isinstance(table.this, exp.Identifier) and bool(table.this.quoted)
    if quoted and not table.db:
        is_file = name == "-" or "/" in name or "." in name or glob.has_magic(name)
    else:
        is_file = bool(table.db) and format_of(name) is not None
    return name if is_file else ""
