"""Tables of Delta and Iceberg, by the connectors that these projects make for Spark.

Both write a micro-batch in one commit that says which micro-batch it is, so that one that is run
again is not written again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from thetajoin.errors import OptionError, SchemaError
from thetajoin.jobs.systems import LATEST, Table, TableSink, TableSource, TableStream
from thetajoin.predicate.render import backquote
from thetajoin.spark.failures import plain_errors

CATALOG, S3 = "spark.sql.catalog.", "spark.hadoop.fs.s3a."
# Of an Iceberg snapshot: which query wrote it, and its micro-batch.
_APP, _BATCH = "thetajoin.query", "thetajoin.batch"
# What the connectors say of a version or snapshot that takes rows back, and which it is.
_CHANGES = (
    re.compile(r"Detected (?:a data update|deleted data) \(for example (\w+).*? at version (\d+)"),
    re.compile(r"Cannot process (overwrite|delete) snapshot: (\d+)"),
)
INSTEAD = (
    "and a stream cannot take back what it has given out: start again with a new checkpoint, or "
    "write on_change = 'skip' to leave out such versions, with the rows they add"
)


def table_settings(tables: Iterable[Table]) -> dict[str, str]:
    """The settings of a session that reaches these tables: Iceberg's catalogs, Hadoop's stores."""
    found: dict[str, str] = {}
    for table in tables:
        catalog = f"{CATALOG}{table.place.partition('.')[0]}"
        if table.kind == "iceberg":
            found[catalog] = "org.apache.iceberg.spark.SparkCatalog"
            settings = {f"{catalog}.{option}": value for option, value in table.options}
        else:
            # Not all that the connector does looks at the options of a reader or writer.
            stores = ((option, value) for option, value in table.options if option[:3] == "fs.")
            settings = {f"spark.hadoop.{option}": value for option, value in stores}
        for setting, value in settings.items():
            if found.setdefault(setting, value) != value:
                told = setting.removeprefix(f"{catalog}.").removeprefix("spark.hadoop.")
                raise OptionError(f"{table} has another value of the option {told!r} than before")
    for catalog in [name for name in found if name.startswith(CATALOG) and name.count(".") == 3]:
        if not any(setting.startswith(f"{catalog}.") for setting in found):
            raise OptionError(
                f"catalog {catalog.removeprefix(CATALOG)!r} has no options: write what it is, such "
                "as type = 'rest' and uri = 'https://...'"
            )
    return found


def store_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session for the S3 that the environment names, as Amazon's own tools do.

    Hadoop itself reads the credentials there, but neither the address nor the region.
    """
    found = {}
    if environment.get("AWS_REGION"):
        found[f"{S3}endpoint.region"] = environment["AWS_REGION"]
    if environment.get("AWS_ENDPOINT_URL"):
        found[f"{S3}endpoint"] = environment["AWS_ENDPOINT_URL"]
        found[f"{S3}path.style.access"] = "true"
    return found


def read_table_now(session: Any, source: TableSource) -> tuple[Any, str]:
    """A table as it is now, as a DataFrame that stays so, and which version of it that is."""
    with plain_errors(f"cannot read {source}"):
        if source.kind == "delta":
            version = _find_newest_version(session, source.place)
            reader = _reader(session.read, source).option("versionAsOf", version)
            return reader.load(_locate(source)), f"version {version}"
        snapshot = _find_current_snapshot(session, source.place)
        if snapshot is None:
            columns = session.table(_quote(source.place)).schema
            return session.createDataFrame([], columns), "no snapshot"
        reader = session.read.format("iceberg").option("versionAsOf", snapshot["snapshot_id"])
        return reader.load(source.place), f"snapshot {snapshot['snapshot_id']}"


def read_columns(session: Any, source: TableStream) -> StructType:
    """The columns of a table as it is now."""
    with plain_errors(f"cannot read {source}"):
        found: StructType = _reader(session.read, source).load(_locate(source)).schema
    return found


def check_columns(source: TableStream, began: StructType, now: StructType) -> list[str]:
    """The columns that a table has now and had not when a job began; refuses changed ones."""
    for field in began.fields:
        if field.name not in now.names:
            told = f"has no column {field.name!r} any more"
        elif now[field.name].dataType != field.dataType:
            types = now[field.name].dataType.simpleString(), field.dataType.simpleString()
            told = f"has column {field.name!r} as {types[0]}, which was {types[1]}"
        else:
            continue
        raise SchemaError(f"{source} {told}: start with a new checkpoint")
    return [name for name in now.names if name not in began.names]


def parse_columns(text: str) -> StructType:
    """Columns from the SQL types that `StructType.toDDL` has made of them."""
    found: StructType = StructType.fromDDL(text)
    return found


def find_start(session: Any, source: TableStream) -> str | None:
    """Where a new stream begins; None for all rows of the table.

    Of Delta the first version to be read, of Iceberg, whose connector knows times only, a time.
    A job keeps it: until a stream has read something, a connector asks again at each start.
    """
    if source.starting is None:
        return None
    with plain_errors(f"cannot read {source}"):
        if source.kind == "delta":
            newest_version = _find_newest_version(session, source.place)
            if source.starting == LATEST:
                return str(newest_version + 1)
            if int(source.starting) <= newest_version:
                return str(source.starting)
            raise OptionError(
                f"{source} has no version {source.starting}: the newest is {newest_version}"
            )
        if source.starting == LATEST:
            newest = _find_current_snapshot(session, source.place)
            return "0" if newest is None else str(newest["millis"] + 1)
        for snapshot in _read_snapshots(session, source.place):
            if snapshot["snapshot_id"] == source.starting:
                return str(snapshot["millis"])
    raise OptionError(f"{source} has no snapshot {source.starting}")


def read_table_stream(session: Any, source: TableStream, start: str | None = None) -> Any:
    """A table as a streaming DataFrame; `start` is what `find_start` gave."""
    options: dict[str, str] = {}
    if source.kind == "delta":
        if source.most is not None:
            options["maxFilesPerTrigger"] = str(source.most)
        if source.skip_changes:
            options["skipChangeCommits"] = "true"
        if start is not None:
            # Delta refuses a version that is not there yet, which "latest" stands for until then.
            there = int(start) <= _find_newest_version(session, source.place)
            options["startingVersion"] = start if there else LATEST
    else:
        if source.most is not None:
            options["streaming-max-files-per-micro-batch"] = str(source.most)
        if source.skip_changes:
            options["streaming-skip-overwrite-snapshots"] = "true"
            options["streaming-skip-delete-snapshots"] = "true"
        if start is not None:
            options["stream-from-timestamp"] = start
    with plain_errors(f"cannot read {source}"):
        return _reader(session.readStream, source).options(**options).load(_locate(source))


def check_table(session: Any, sink: TableSink) -> None:
    """Refuse a sink that cannot be reached, before anything runs."""
    with plain_errors(f"cannot open {sink}"):
        if sink.kind == "iceberg":
            session.catalog.tableExists(_quote(sink.place))
        else:
            _exists(session, sink)


def append_batch(rows: Any, sink: TableSink, app: str, number: int) -> None:
    """Append a micro-batch's rows, unless this query has done so before."""
    append = _append_delta if sink.kind == "delta" else _append_iceberg
    with plain_errors(f"cannot write micro-batch {number} to {sink}"):
        append(rows, sink, app, number)


def _append_delta(rows: Any, sink: TableSink, app: str, number: int) -> None:
    writer = rows.write.format("delta").mode("append").options(**dict(sink.options))
    writer.option("txnAppId", app).option("txnVersion", number).save(_locate(sink))


def _append_iceberg(rows: Any, sink: TableSink, app: str, number: int) -> None:
    session, name = rows.sparkSession, _quote(sink.place)
    writer = rows.writeTo(name)
    for key, value in ((_APP, app), (_BATCH, str(number))):
        writer = writer.option(f"snapshot-property.{key}", value)
    if session.catalog.tableExists(name):
        done = (
            int(snapshot["summary"][_BATCH])
            for snapshot in _read_snapshots(session, sink.place)
            if snapshot["summary"].get(_APP) == app
        )
        if max(done, default=-1) < number:
            writer.append()
        return
    namespace = _quote(sink.place.rpartition(".")[0])
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    writer.using("iceberg").create()


def explain_change(failure: BaseException, streams: Iterable[TableStream]) -> str | None:
    """Why a stream of a table has ended, in one line, if that is what this says."""
    text = str(failure)
    for pattern in _CHANGES:
        found = pattern.search(text)
        if found is None:
            continue
        kind = "delta" if pattern is _CHANGES[0] else "iceberg"
        mine = [stream for stream in streams if stream.kind == kind]
        place = re.search(r"at path (?:file:)?(\S+)\.\s", text)
        named = [stream for stream in mine if place and place[1] == _locate(stream)] or mine
        table = str(named[0]) if len(named) == 1 else f"one of the {kind.title()} tables"
        operation, version = found.groups()
        what = "version" if kind == "delta" else "snapshot"
        return f"{what} {version} of {table} removes or rewrites rows ({operation}), {INSTEAD}"
    return None


def _reader(reader: Any, table: Table) -> Any:
    """A reader of a table; an Iceberg table's options are those of its catalog."""
    options = dict(table.options) if table.kind == "delta" else {}
    return reader.format(table.kind).options(**options)


def _locate(table: Table) -> str:
    """Where a table is, wherever the processes that read it are at work."""
    if table.kind == "delta" and "://" not in table.place:
        return os.path.abspath(table.place)
    return table.place


def _quote(place: str) -> str:
    """A table's name in a catalog, as SQL has it."""
    return ".".join(map(backquote, place.split(".")))


def _find_newest_version(session: Any, place: str) -> int:
    at = place if "://" in place else os.path.abspath(place)
    history = session.sql(f"DESCRIBE HISTORY delta.{backquote(at)} LIMIT 1")
    return int(history.first()["version"])


def _exists(session: Any, sink: TableSink) -> bool:
    """Whether there is a table already; fails where the place cannot be reached."""
    try:
        _reader(session.read, sink).load(_locate(sink))
    except PySparkException as error:
        missing = ("DELTA_SCHEMA_NOT_SET", "DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND")
        if any(word in str(error) for word in (*missing, "DELTA_PATH_DOES_NOT_EXIST")):
            return False
        raise
    return True


def _read_snapshots(session: Any, place: str) -> list[Any]:
    columns = "snapshot_id, unix_millis(committed_at) AS millis, summary"
    rows: list[Any] = session.sql(f"SELECT {columns} FROM {_quote(place)}.snapshots").collect()
    return rows


def _find_current_snapshot(session: Any, place: str) -> Any:
    """The snapshot that a table is at; None for a table that has none."""
    refs = f"SELECT snapshot_id FROM {_quote(place)}.refs WHERE name = 'main'"
    main = session.sql(refs).first()
    found = {s["snapshot_id"]: s for s in _read_snapshots(session, place)}
    return None if main is None else found[main["snapshot_id"]]
