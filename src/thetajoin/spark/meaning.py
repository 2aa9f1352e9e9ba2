"""Spark DataFrames as inputs: names as Spark takes them, and where Spark would mean something else.

Spark does not tell case apart unless it is told to, and the engine does. So a name that is given in
another case becomes the column's own, and names that only differ in case are one name.

The engine compares text by its bytes, reads times in UTC and casts as Spark's ANSI mode does. A
session may have it otherwise, and a column may: then the part of the condition that would differ is
an error that names it. Columns that are only carried along may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.types as t
from pyspark.sql import types as T

from thetajoin.aggregate.spec import AggSpec
from thetajoin.engine.parts import compare_columns
from thetajoin.engine.rows import storage_schema
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError, OptionError, SchemaError
from thetajoin.predicate.condition import ManyScope, Names, Scope, sources_of
from thetajoin.predicate.literals import sql_type
from thetajoin.predicate.nodes import COMPARISONS, Call, Cast, Column, Expr, Literal
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.types import BOOL, DATE, STRING, digits_of, is_number
from thetajoin.spark.stream import arrow_schema
from thetajoin.window.windows import TimeWindow, Window

CASE = "spark.sql.caseSensitive"
# Columns of ours that travel beside the user's.
RESERVED = "__thetajoin_"
ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
BINARY_ORDER = "UTF8_BINARY"
# Where Spark keeps what a column was declared as.
DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
DAY = 86_400 * 10**6
# Digits after the point up to which a decimal's text is without an exponent in any mode.
PLAIN_DIGITS = 6
_UTC = re.compile(
    r"(Etc/)?(UTC|UCT|GMT0?|Zulu|Universal|Greenwich)|Z|(UTC|GMT|UT)?[+-]0?0(:?00)?", re.IGNORECASE
)
_FIXED = re.compile(
    r"(UTC|GMT|UT)?[+-]\d{1,2}(:?\d{2}(:?\d{2})?)?|Etc/GMT[+-]\d{1,2}", re.IGNORECASE
)
_WITH_ZONE = re.compile(
    r".*:\d{1,2}(\.\d+)?\s*([+-]\d{1,2}(:?\d{2})?|Z|UTC|GMT)\s*", re.IGNORECASE | re.DOTALL
)
_LOCAL = ("hour", "minute", "second")
_BELOW_MINUTE = ("second", "millisecond", "microsecond")
_COMPARED = (*COMPARISONS, "<=>", "in")


def check_kinds(left: Any, right: Any) -> None:
    """Refuse a Spark DataFrame beside something else."""
    for df, name in ((left, "left"), (right, "right")):
        if not hasattr(df, "isStreaming"):
            raise SchemaError(
                f"the {name} input is a {type(df).__name__} and the other a Spark DataFrame: "
                "make both Spark DataFrames (spark.createDataFrame)"
            )


def folds(df: Any) -> bool:
    """Whether names that differ in case are one name to Spark."""
    return bool(df.sparkSession.conf.get(CASE).lower() != "true")


def check_names(df: Any, what: str) -> None:
    """Refuse columns that could not be told apart, from each other or from ours."""
    for name in df.columns:
        if name.lower().startswith(RESERVED):
            raise SchemaError(
                f"{what} has a column {name!r}: names that begin with {RESERVED} are the join's "
                "own; rename it"
            )
    if folds(df):
        check_distinct(df.columns, f"{what} has")


def check_distinct(names: Iterable[str], what: str) -> None:
    """Refuse names that differ in case only, where Spark does not tell case apart."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f"{what} the columns {other!r} and {name!r}, which Spark takes for one while "
                f"{CASE} is false: rename one"
            )


def respell(df: Any, names: Iterable[str]) -> Any:
    """The frame with its columns in the spelling of others that Spark takes for the same."""
    if not folds(df):
        return df
    known: dict[str, str] = {}
    for name in names:
        known.setdefault(name.lower(), name)
    spelled = [known.get(name.lower(), name) for name in df.columns]
    return df if spelled == df.columns else df.toDF(*spelled)


def column_of(df: Any, name: str) -> str:
    """The column that a name means; the name itself where there is none."""
    if name in df.columns or not folds(df):
        return name
    found = [column for column in df.columns if column.lower() == name.lower()]
    return found[0] if len(found) == 1 else name


def with_columns_of(window: Any, left: Any, right: Any) -> Any:
    """The window with the columns' own names."""
    if not isinstance(window, TimeWindow):
        return window
    time = column_of(left, window.left_time), column_of(right, window.right_time)
    return window if time == (window.left_time, window.right_time) else replace(window, time=time)


def order_of(order_by: Any, *frames: Any) -> Any:
    """`order_by` with the columns' own names; what is no name or names is left as it is."""
    if isinstance(order_by, str):
        order_by = [order_by] * len(frames)
    if not isinstance(order_by, list | tuple) or len(order_by) != len(frames):
        return order_by
    if not all(isinstance(name, str) for name in order_by):
        return order_by
    return tuple(column_of(df, name) for df, name in zip(frames, order_by, strict=True))


def with_names_of(spec: JoinSpec, left: Any, right: Any) -> JoinSpec:
    """The call with window and order naming columns as the DataFrames spell them."""
    window = with_columns_of(spec.window, left, right)
    nearest = spec.nearest
    if nearest is not None:
        key = column_of(left, nearest.key[0]), column_of(right, nearest.key[1])
        order_by = nearest.order_by
        order_by = None if order_by is None else column_of(right, order_by)
        nearest = replace(nearest, key=key, order_by=order_by)
    order = order_of(spec.order_by, left, right)
    return replace(spec, window=window, order_by=order, nearest=nearest)


def check_nearest(spec: JoinSpec) -> None:
    """Refuse a nearest match that leaves open which of two rows to take: Spark's have no order."""
    nearest = spec.nearest
    if nearest is None or nearest.ties == "all" or nearest.order_by is not None:
        return
    if spec.how in ("left", "inner"):
        raise OptionError(
            f"ties={nearest.ties!r} on Spark needs order_by, a right column that says which of two "
            "rows at equal distance comes later: rows have no order there; or use ties='all'"
        )


def check_join(left: Any, right: Any, spec: JoinSpec) -> None:
    """Refuse what Spark would join differently from the engine."""
    frames = {"l": left, "r": right}
    schemas = [storage_schema(arrow_schema(df)) for df in (left, right)]
    if spec.on is not None or spec.nearest is None:
        Meaning.of(frames).check(*_bind(spec.on, Scope(*schemas)))
    _check_columns(left, right, spec.window, spec.order_by)
    if spec.nearest is not None:
        _check_columns(left, right, None, spec.nearest.key)
        order_by = spec.nearest.order_by
        if order_by is not None:
            _check_columns(right, right, None, (order_by, order_by))


def check_many(
    frames: Mapping[str, Any], on: Any, window: Window | None, orders: Mapping[str, str] | None
) -> None:
    """The same for a join of many inputs."""
    schemas = {name: storage_schema(arrow_schema(df)) for name, df in frames.items()}
    Meaning.of(frames).check(*_bind(on, ManyScope(schemas)))
    for x, y in combinations(frames, 2):
        order = None if orders is None else (orders[x], orders[y])
        _check_columns(frames[x], frames[y], window, order)


def check_aggregate(
    left: Any, right: Any, spec: AggSpec, group_by: Any, aggs: Mapping[str, str]
) -> None:
    """Refuse groups and aggregates that mean something else to Spark."""
    exprs = [group.expr for group in spec.groups] + [term.expr for term in spec.terms]
    groups = group_by.values() if isinstance(group_by, Mapping) else group_by
    texts = [*([groups] if isinstance(groups, str) else groups), *aggs.values()]
    Meaning.of({"l": left, "r": right}).check(exprs, [Source(text) for text in texts])


def _bind(on: Any, scope: Names) -> tuple[list[Expr], list[Source]]:
    from thetajoin.predicate.bind import bind

    sources = sources_of(on)
    return [bind(source, scope) for source in sources], sources


def _check_columns(left: Any, right: Any, window: Window | None, order_by: Any) -> None:
    """Columns that a window compares; one that is not there is the window's to report."""
    pairs = [order_by] if isinstance(order_by, tuple) else []
    if isinstance(window, TimeWindow):
        pairs.append((window.left_time, window.right_time))
    schemas = arrow_schema(left), arrow_schema(right)
    for one, two in pairs:
        if one in schemas[0].names and two in schemas[1].names:
            compared = compare_columns(one, two, *schemas)
            exprs = [compared.left, compared.right]
            Meaning.of({"l": left, "r": right}).check(exprs)


@dataclass(frozen=True)
class Meaning:
    """What a session and the columns of a join's inputs, by the sides' names, ask for."""

    zone: str
    ansi: bool
    schemas: Mapping[str, T.StructType]

    @staticmethod
    def of(frames: Mapping[str, Any]) -> Meaning:
        """As the first frame's session is set."""
        conf = next(iter(frames.values())).sparkSession.conf
        schemas = {side: frame.schema for side, frame in frames.items()}
        return Meaning(conf.get(ZONE), conf.get(ANSI).lower() == "true", schemas)

    def check(self, exprs: Iterable[Expr], sources: Iterable[Source] = ()) -> None:
        """Refuse expressions that Spark would give another value, and texts they were bound from.

        A typed literal has its value when it is bound, so it is looked up in the text.
        """
        local = not _UTC.fullmatch(self.zone)
        for expr in exprs:
            for node in expr.walk():
                if isinstance(node, Column):
                    self._check_collation(node)
                if not self.ansi and isinstance(node, Cast):
                    self._check_lenient(node)
                if isinstance(node, Call) and node.name in _COMPARED:
                    self._check_padding(node)
                if local and self._is_local(node):
                    raise self._in_zone(node.sql(explicit=isinstance(node, Cast)))
        if local:
            for source in sources:
                for literal in _moments(source):
                    raise self._in_zone(literal)

    def _in_zone(self, fragment: str) -> ConditionError:
        return ConditionError(
            f"this depends on the session's time zone ({ZONE} is {self.zone}), and conditions are "
            "evaluated in UTC",
            fragment=fragment,
            hint="set that to UTC, or make it a column first (withColumn) and compare the column",
        )

    def _is_local(self, node: Expr) -> bool:
        if isinstance(node, Cast):
            if isinstance(node.arg, Literal) and _has_zone(node.arg.value):
                return False
            return _crosses(node.arg.type, node.type) or _crosses(node.type, node.arg.type)
        if not isinstance(node, Call) or not any(_is_instant(arg.type) for arg in node.args):
            return False
        if node.name in _LOCAL:
            return True
        if node.name == "date_trunc":
            unit = node.args[0]
            return not isinstance(unit, Literal) or str(unit.value).lower() not in _BELOW_MINUTE
        # Spark takes differences between the hands of a clock, and adds whole days by the calendar:
        # the same unless the zone's clocks are at times further from UTC than at others.
        if node.name not in ("+", "-") or _FIXED.fullmatch(self.zone):
            return False
        return not any(_is_short(arg) for arg in node.args)

    def _check_collation(self, column: Column) -> None:
        field = self._field(column)
        for type_ in _types(field.dataType):
            collation = getattr(type_, "collation", BINARY_ORDER)
            if collation != BINARY_ORDER:
                raise SchemaError(
                    f"column {column.sql()} has the collation {collation}, and text is compared by "
                    f"its bytes: compare a column collate(lower({field.name}), '{BINARY_ORDER}') "
                    "that is made before the join"
                )

    def _check_lenient(self, cast: Cast) -> None:
        """Casts that give another value, and no error, where ANSI mode is off."""
        source, type_ = cast.arg.type, cast.type
        if cast.implicit and source == STRING and (is_number(type_) or type_ == BOOL):
            problem = "text is compared with a number, which Spark does in another way"
        elif type_ == STRING and t.is_decimal(source) and digits_of(source)[1] > PLAIN_DIGITS:
            problem = "Spark writes small decimals with an exponent"
        else:
            return
        raise ConditionError(
            f"{problem} while {ANSI} is false",
            fragment=cast.sql(explicit=True),
            hint="write the CAST that you mean, or set that to true",
        )

    def _check_padding(self, compared: Call) -> None:
        """CHAR(5) and CHAR(3), or text in the condition, are compared as if both were as long."""
        lengths = [self._char(arg) for arg in compared.args]
        widest = max(lengths)
        texts = [arg.value for arg in compared.args if isinstance(arg, Literal)]
        short = any(isinstance(text, str) and len(text) < widest for text in texts)
        if widest and (short or any(length not in (0, widest) for length in lengths)):
            raise ConditionError(
                f"a CHAR({widest}) column is compared with something shorter, which Spark fills up "
                "with spaces",
                fragment=compared.sql(),
                hint="compare rtrim(...) of both",
            )

    def _char(self, expr: Expr) -> int:
        """The length of a column that was declared CHAR; 0 of anything else."""
        if not isinstance(expr, Column) or expr.path:
            return 0
        field = self._field(expr)
        declared = str((field.metadata or {}).get(DECLARED, field.dataType.simpleString()))
        found = re.fullmatch(r"char\((\d+)\)", declared)
        return int(found[1]) if found else 0

    def _field(self, column: Column) -> T.StructField:
        field = self.schemas[column.side][column.name]
        for name in column.path:
            assert isinstance(field.dataType, T.StructType)
            field = field.dataType[name]
        return field


def _types(type_: T.DataType) -> Iterator[T.DataType]:
    yield type_
    if isinstance(type_, T.StructType):
        for field in type_.fields:
            yield from _types(field.dataType)


def _is_instant(type_: pa.DataType) -> bool:
    """Whether it is a timestamp as Spark has it: an instant, shown in some zone."""
    return isinstance(type_, pa.TimestampType) and type_.tz is not None


def _crosses(instant: pa.DataType, other: pa.DataType) -> bool:
    """Whether one type is an instant and the other what a calendar or a clock shows."""
    shown = other in (DATE, STRING) or (t.is_timestamp(other) and not _is_instant(other))
    return _is_instant(instant) and shown


def _is_short(expr: Expr) -> bool:
    """Whether it is a constant length of time below a day."""
    if not isinstance(expr, Literal) or not t.is_duration(expr.type):
        return False
    return isinstance(expr.value, int) and abs(expr.value) < DAY


def _has_zone(value: object) -> bool:
    return isinstance(value, str) and _WITH_ZONE.fullmatch(value) is not None


def _moments(source: Source) -> Iterator[str]:
    """Timestamps in a condition that say no zone."""
    from sqlglot import exp

    for node in parse(source).find_all(exp.Cast):
        if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
            type_ = sql_type(node.to)
            if type_ is not None and _is_instant(type_) and not _has_zone(node.this.name):
                yield f"TIMESTAMP {node.this.name!r}"
