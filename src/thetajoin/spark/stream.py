"""Joins of streaming DataFrames.

```
left, right -> pack: a partition's rows and their fingerprints as Arrow blobs,
               a row for each blob and unit                                      (mapInArrow)
            -> groupBy(unit).transformWithState: the unit joins and stores its share
            -> observe the units' numbers, drop the rows that carry them         (Spark SQL)
```
"""

from __future__ import annotations

import itertools
import json
import os
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import functions as F
from pyspark.sql.types import (
    StringType,
    StructField,
    StructType,
)

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.compiled import compile_join as compile_schemas
from thetajoin.engine.condition_window import infer_window
from thetajoin.engine.rows import storage_schema
from thetajoin.engine.spec import JoinSpec, check_window
from thetajoin.errors import OptionError, SchemaError, SnapshotError, WindowError, warn_user
from thetajoin.planner.routing import DEFAULT_UNITS, Routing, check_units, choose_route
from thetajoin.predicate import compile_condition
from thetajoin.spark.exchange import BLOBS, route_to_units
from thetajoin.spark.late import check_bucket, check_late, check_place, filesystem
from thetajoin.spark.processor import UnitProcessor
from thetajoin.spark.session import PROVIDER, ROCKSDB
from thetajoin.spark.tasks import map_batches, name_by_position
from thetajoin.spark.unit import METRICS, JoinUnit, output_names
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import StreamSettings, UnitSpec
from thetajoin.spark.versions import arrow_schema_of
from thetajoin.spark.whole import join_stream
from thetajoin.window.windows import CountWindow, TimeWindow, Window

WATERMARK = "spark.watermarkDelayMs"
# On an event time that comes from a join: microseconds by which it may be behind the watermark.
LAG = "thetajoin.lagMicros"
# In a migrated checkpoint: the identities of joins that its state is of.
RECORD = "thetajoin-migrated.json"
# The column that gives a change feed away, whose feed it is, and how to keep its new rows only.
FEEDS = (
    ("_change_type", "Delta's or Iceberg's", ".where(\"_change_type = 'insert'\")"),
    ("__op", "Debezium's", ".where(\"__op IN ('c', 'r')\")"),
    ("__deleted", "Debezium's", ".where(\"__deleted = 'false'\")"),
)
ENVELOPE = {"op", "before", "after"}
_numbers = itertools.count()


def stream_join(left: Any, right: Any, spec: JoinSpec) -> Any:
    """The join of two DataFrames of which at least one streams, as a streaming DataFrame."""
    options = dict(spec.options)
    settings = options.pop("settings", None) or StreamSettings()
    asked = options.pop("units", None), options.pop("routing", settings.routing)
    around = beside_state(options, settings)
    both = left.isStreaming and right.isStreaming
    spec = with_own_window(replace(spec, options=options), left, right)
    spec = replace(spec, window=check_window(spec.window))
    if both:
        spec = spec.for_stream()
    compiled = compile_join(spec, left, right)
    check_watermarks(left, right, compiled.window)
    refuse_change_feeds(left, right, compiled)
    spread = spread_over_units(left, compiled, *asked)
    output = output_schema(compiled, left, right)
    repeated = find_repeated(compiled, output) if both else ()
    lags = time_lags(left, right, compiled.window)
    if not both and around["late"] is not None:
        raise OptionError(
            "late= is for a join of two streams: rows of a stream that meet a table are never late"
        )
    schemas = compiled.given["l"], compiled.given["r"]
    units = UnitSpec.of(spec, *schemas, lags=lags, repeated=repeated, **spread, **around)
    if not both:
        stream, table = (left, right) if left.isStreaming else (right, left)
        return join_stream(stream, table, units, "l" if left.isStreaming else "r", output)
    settings.planned.append(units)
    joined = in_units(left, right, units, output)
    return _finish(joined, output, units, left, compiled)


def with_own_window(spec: JoinSpec, left: Any, right: Any) -> JoinSpec:
    """The call of streams with the window that its condition says, if no other was given."""
    if spec.window is not None or spec.on is None or spec.nearest is not None:
        return spec
    schemas = [storage_schema(arrow_schema(df)) for df in (left, right)]
    condition = compile_condition(spec.on, *schemas)
    return replace(spec, window=infer_window(condition, _event_times(left), _event_times(right)))


def _event_times(df: Any) -> list[str]:
    """The columns of a stream that have a watermark; of a table, all."""
    fields = df.schema.fields
    return [f.name for f in fields if not df.isStreaming or WATERMARK in (f.metadata or {})]


def beside_state(options: dict[str, Any], settings: StreamSettings) -> dict[str, Any]:
    """Take the options about late rows and migrated state, as fields of a `UnitSpec`."""
    migrated, late = options.pop("migrated", None), options.pop("late", settings.late)
    accepts = settings.accepts
    if migrated is not None:
        accepts = read_accepted(os.fspath(migrated))
        if not accepts:
            raise OptionError(
                f"migrated={migrated!r}: no join was changed there by `thetajoin checkpoint "
                "migrate`: leave it out"
            )
    return {"late": None if late is None else check_place(late), "accepts": accepts}


def read_accepted(path: str) -> tuple[dict[str, Any], ...]:
    """The identities of joins that a migrated checkpoint's state is of; none if it is not one."""
    files, root = filesystem(path)
    place = f"{root}/{RECORD}"
    if files.get_file_info(place).type != fs.FileType.File:
        return ()
    try:
        with files.open_input_stream(place) as file:
            record = json.loads(file.read())
        return tuple(dict(identity) for identity in record["accepts"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SnapshotError(f"{place} is damaged: {error}") from error


def refuse_change_feeds(left: Any, right: Any, join: CompiledJoin) -> None:
    """Refuse streams of updates and deletes, unless the condition says which rows it wants."""
    for df, side in ((left, "the left stream"), (right, "the right stream")):
        refuse_change_feed(df, side, join.condition.sql)


def refuse_change_feed(frame: Any, what: str, said: str = "") -> None:
    """Refuse a streaming DataFrame that is a change feed; `said`: the condition or query over it.

    A join of streams cannot take back what it has given out, and an update or a delete takes back a
    row from before.

    A condition that names the telling column, such as ``l._change_type = 'insert'``, is answer
    enough.
    """
    if not frame.isStreaming:
        return
    columns = {name.lower(): name for name in frame.columns}
    for telling, whose, inserts in FEEDS:
        if telling in columns and not re.search(rf"\b{telling}\b", said, re.IGNORECASE):
            raise _refusal(what, whose, columns[telling], f"{inserts}.drop({columns[telling]!r})")
    for at, names in _structs(frame, columns):
        if names >= ENVELOPE and not re.search(r"\b(op|after)\b", said, re.IGNORECASE):
            op = f"{at}op" if at else "op"
            inserts = f".where(\"{op} IN ('c', 'r')\").select('{at}after.*')"
            raise _refusal(what, "Debezium's", op, inserts)


def _structs(frame: Any, columns: dict[str, str]) -> list[tuple[str, set[str]]]:
    """The frame's own columns, and those of its structs."""
    found = [("", set(columns))]
    for field in frame.schema.fields:
        inside = getattr(field.dataType, "names", None)
        if inside:
            found.append((f"{field.name}.", {name.lower() for name in inside}))
    return found


def _refusal(what: str, whose: str, column: str, inserts: str) -> SchemaError:
    return SchemaError(
        f"{what} is a change feed, {whose} (its column {column!r}): a join of streams cannot take "
        f"back what an update or a delete changes. Join the new rows alone, {inserts}, or join the "
        "table itself, in foreachBatch. To have every change taken as a row of its own, drop that "
        "column"
    )


def compile_join(spec: JoinSpec, left: Any, right: Any) -> CompiledJoin:
    """The join of two DataFrames; refuses what is wrong."""
    check_has_order(spec.window, spec.order_by)
    return compile_schemas(spec, arrow_schema(left), arrow_schema(right))


def in_units(left: Any, right: Any, spec: UnitSpec, output: StructType) -> Any:
    """The output of the units of a join of two streams, their numbers included."""
    require_rocksdb(left.sparkSession)
    if spec.late is not None:
        check_late(spec)
        check_bucket(spec.late)
    rows = pack_side(left, 0, spec)
    if not spec.join.self_join:
        rows = rows.union(pack_side(right, 1, spec))
    timed = isinstance(spec.join.window, TimeWindow)
    return rows.groupBy("unit").transformWithStateInPandas(
        UnitProcessor(JoinUnit(spec)),
        inside(output, spec),
        "Append",
        "EventTime" if timed else "None",
    )


def pack_side(df: Any, side: int, spec: UnitSpec) -> Any:
    """A side's rows as blobs, a row for each unit."""
    return map_batches(name_by_position(df), route_to_units(side, spec), BLOBS)


def find_repeated(join: CompiledJoin, output: StructType) -> tuple[tuple[int, int], ...]:
    """Output columns of the right side that equal one of the left side's in every pair.

    Of columns that are compared by `=` in an inner join only one is sent to the JVM, which needs
    more time to convert a row than a unit needs to find it.
    """
    if join.spec.how != "inner":
        return ()
    kinds = [field.dataType for field in output.fields]
    alike = ((len(join.given["l"]) + right, left) for right, left in join.layout.alike.items())
    return tuple((right, left) for right, left in alike if kinds[right] == kinds[left])


def inside(output: StructType, spec: UnitSpec) -> StructType:
    """The columns of the units' output: the join's by position, and the units' numbers."""
    without = dict(spec.repeated)
    fields = enumerate(zip(output_names(len(output.fields)), output.fields, strict=True))
    columns = [
        StructField(name, field.dataType, True) for at, (name, field) in fields if at not in without
    ]
    return StructType([*columns, StructField(METRICS, StringType())])


def spread_over_units(df: Any, join: CompiledJoin, asked: Any, routing: Any) -> dict[str, Any]:
    """How many units a join has and which of them a row is sent to, as fields of a `UnitSpec`.

    Unless the caller says how many, the number is the same on every machine: a checkpoint holds
    the state of that many units, and must be readable elsewhere.
    """
    if asked is None and isinstance(routing, Routing):
        asked = routing.units
    units = DEFAULT_UNITS if asked is None else check_units(asked)
    chosen = choose_route(join, units, routing)
    if chosen.all_places(units) > len(UNIT_KEYS):
        raise OptionError(
            f"this routing has been changed too often: its {len(chosen.older) + 1} versions need "
            f"{chosen.all_places(units)} units, and there are {len(UNIT_KEYS)}"
        )
    # What all units get, no unit of a full join could be done with alone.
    alone = join.spec.how == "full" and not chosen.meets
    if alone and asked is None:
        units = 1
    if alone and units > 1:
        raise OptionError(
            "a full join without an equality needs units=1: each side must see all of the other"
        )
    partitions = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    if partitions > 4 * max(units, 4):
        warn_user(
            f"thetajoin: {units} units use {units} of {partitions} state partitions, and Spark "
            f"starts a task for each: set spark.sql.shuffle.partitions to {units}",
        )
    return {"units": units, "routing": chosen}


def require_rocksdb(session: Any) -> None:
    """Spark keeps this operator's state only in RocksDB, and the session is the user's to set."""
    if session.conf.get(PROVIDER, "") != ROCKSDB:
        raise OptionError(
            "Spark keeps the state of a streaming join only in RocksDB: call "
            f"spark.conf.set({PROVIDER!r}, {ROCKSDB!r}) first"
        )


def check_has_order(window: Window | None, order_by: tuple[str, str] | None) -> None:
    """Rows have no order of their own on Spark, and a count window needs one."""
    if isinstance(window, CountWindow) and order_by is None:
        raise WindowError(
            "a CountWindow on Spark needs order_by, a column (or one per side) that orders the rows"
        )


def check_watermarks(left: Any, right: Any, window: Window) -> None:
    """A time window in a stream needs to know how late rows may come."""
    if isinstance(window, TimeWindow):
        check_watermark(left, window.left_time, "left")
        check_watermark(right, window.right_time, "right")


def check_watermark(df: Any, column: str, side: str) -> None:
    """Refuse a stream without a watermark on its event time."""
    if column not in df.columns:
        raise WindowError(
            f"the window's time column {column!r} is not in the {side} input; "
            f"it has {', '.join(df.columns)}"
        )
    if df.isStreaming and WATERMARK not in (df.schema[column].metadata or {}):
        raise WindowError(
            f"the {side} stream has no watermark on {column!r}: call "
            f"withWatermark({column!r}, '10 minutes') on it before the join"
        )


def arrow_schema(df: Any) -> pa.Schema:
    """A DataFrame's schema as the engine sees it."""
    try:
        schema = arrow_schema_of(df.schema)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise SchemaError(f"a column's type cannot be carried by Arrow: {reason}") from error
    return pa.schema([field.remove_metadata().with_nullable(True) for field in schema])


def output_schema(compiled: CompiledJoin, left: Any, right: Any) -> StructType:
    """The output's columns with Spark's own types."""
    fields = [*left.schema.fields, *([] if compiled.layout.only_left else right.schema.fields)]
    return StructType(
        [
            StructField(name, field.dataType, True)
            for name, field in zip(compiled.layout.schema.names, fields, strict=True)
        ]
    )


def time_lags(left: Any, right: Any, window: Window) -> tuple[int, int]:
    """How far behind the watermark rows of each side may be, because a join made them."""
    if not isinstance(window, TimeWindow):
        return 0, 0
    times = left.schema[window.left_time], right.schema[window.right_time]
    lags = [int((field.metadata or {}).get(LAG, 0)) for field in times]
    return lags[0], lags[1]


def _finish(
    joined: Any, output: StructType, spec: UnitSpec, left: Any, compiled: CompiledJoin
) -> Any:
    """Observe the units' numbers, then leave only the output's columns."""
    window = compiled.window
    columns = []
    names, same_as = output_names(len(output.fields)), dict(spec.repeated)
    for at, field in enumerate(output.fields):
        metadata = None
        if isinstance(window, TimeWindow) and field.name == window.left_time:
            # Another join may go on with the left side's event time. A pair comes with the later of
            # its rows, and an unmatched row when its time is past: either is behind by the reach.
            assert compiled.clock is not None
            delay = left.schema[field.name].metadata[WATERMARK]
            metadata = {WATERMARK: delay, LAG: max(spec.lags) + compiled.clock.reach["l"]}
        columns.append(F.col(names[same_as.get(at, at)]).alias(field.name, metadata=metadata))
    return observe_units(joined).select(*columns)


def observe_units(joined: Any) -> Any:
    """Observe the units' numbers, and drop the rows that carry them.

    `units` is a list of their numbers as JSON; `late_rows` is a number of its own, because lost
    rows should be easy to notice.
    """
    mark = F.col(METRICS)
    numbers = F.collect_list(mark).alias("units")
    late = F.sum(F.get_json_object(mark, "$.late_rows").cast("long")).alias("late_rows")
    return joined.observe(f"thetajoin_{next(_numbers)}", numbers, late).where(mark.isNull())
