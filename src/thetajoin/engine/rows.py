"""One side's rows, from a table of any kind to keys: checked, timed, ordered, filtered."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from thetajoin.arrays import number_rows
from thetajoin.batch.keys import INT64_MIN, BytesKey, Int64, Key, encode, is_bytes_type
from thetajoin.batch.tables import Kind, to_batch
from thetajoin.engine.parts import KeySpec, Part, Side
from thetajoin.errors import SchemaError, WindowError
from thetajoin.kernels.order import gather, invert, is_sorted, order_among, order_of
from thetajoin.kernels.search import first_above, first_at_least
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.predicate import Comparison, Difference, Expr, evaluate
from thetajoin.predicate.categories import categories_of, with_categories

NAMES: dict[Side, str] = {"l": "left", "r": "right"}


def check_schema(schema: pa.Schema, side: Side) -> None:
    """Refuse inputs whose columns could not be told apart."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"the {NAMES[side]} input has two columns {name!r}: rename one")
        seen.add(name)
    for kept in schema:
        if not _can_be_taken(_storage_type(kept.type)):
            raise SchemaError(
                f"column {kept.name!r} of the {NAMES[side]} input is {kept.type}: Arrow cannot "
                "pick rows of that; cast it to plain strings, lists and structs"
            )


@functools.cache
def _can_be_taken(type_: pa.DataType) -> bool:
    """Whether Arrow has a way to gather rows of a type."""
    try:
        pa.nulls(1, type_).take(pa.array([0]))
    except pa.ArrowNotImplementedError:
        return False
    return True


def conform(batch: pa.RecordBatch, schema: pa.Schema, side: Side) -> pa.RecordBatch:
    """The batch in the schema's column order; an error if names or types are others."""
    _check_categories(batch.schema, schema, side)
    if batch.schema.equals(schema):
        return batch
    where = f"the {NAMES[side]} batch"
    missing = [name for name in schema.names if name not in batch.schema.names]
    extra = [name for name in batch.schema.names if name not in schema.names]
    if missing or extra:
        what = [f"lacks column {name!r}" for name in missing[:1]]
        what += [f"has an unexpected column {name!r}" for name in extra[:1]]
        raise SchemaError(f"{where} {' and '.join(what)}; expected {', '.join(schema.names)}")
    check_schema(batch.schema, side)
    columns = []
    for kept in schema:
        column = batch.column(kept.name)
        if column.type != kept.type:
            raise SchemaError(
                f"{where} has column {kept.name!r} as {column.type}, but it began as {kept.type}"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def take_in(table: Any, what: str, *, as_kind: Kind | None = None) -> pa.RecordBatch:
    """A table of any kind as a record batch whose fields carry all that a join needs to know."""
    return with_categories(to_batch(table, what, as_kind=as_kind), what)


def take_all_in(
    given: Mapping[str, Any], *, as_kind: Kind | None = None
) -> dict[str, pa.RecordBatch]:
    """Tables by name, as record batches; one that is given twice is read once.

    >>> rows = pa.table({"x": [1]}).to_reader()
    >>> take_all_in({"left": rows, "right": rows})["right"].num_rows
    1
    """
    made: dict[int, pa.RecordBatch] = {}
    for what, table in given.items():
        if id(table) not in made:
            made[id(table)] = take_in(table, what, as_kind=as_kind)
    return {what: made[id(table)] for what, table in given.items()}


def _check_categories(new: pa.Schema, schema: pa.Schema, side: Side) -> None:
    """Refuse rows whose ordered categories differ from those the column began with."""
    for kept in schema:
        known = categories_of(kept)
        if known is None or new.names.count(kept.name) != 1:
            continue
        found = categories_of(new.field(kept.name))
        if found is not None and not known.holds(found):
            raise SchemaError(
                f"the {NAMES[side]} batch has column {kept.name!r} with the categories {found}, "
                f"but it began with {known}"
            )


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which rows are kept: Arrow cannot gather rows of its view types."""
    return pa.schema([kept.with_type(_storage_type(kept.type)) for kept in schema])


def _storage_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(type_):
        return pa.large_string()
    if pa.types.is_binary_view(type_):
        return pa.large_binary()
    if isinstance(type_, pa.RunEndEncodedType):
        return _storage_type(type_.value_type)
    return type_


def cast_for_storage(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns in the types they are kept in."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for column, kept in zip(batch.columns, schema, strict=True):
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        columns.append(column.cast(kept.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_back(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A stored column in the type it came in."""
    if column.type == type_:
        return column
    if isinstance(type_, pa.RunEndEncodedType):
        return pc.run_end_encode(column.cast(type_.value_type), run_end_type=type_.run_end_type)
    return column.cast(type_)


@dataclass(frozen=True)
class Clock:
    """Event time: the time expression of each side, and how the window reaches around it."""

    exprs: dict[Side, Expr]
    type: pa.DataType
    reach: dict[Side, int]

    @staticmethod
    def of(time: Difference) -> Clock:
        """From ``-after <= l.time - r.time <= before``."""
        assert isinstance(time.low, int)
        assert isinstance(time.high, int)
        # A left row can match right rows up to `after` later, a right row left ones up to `before`.
        return Clock({"l": time.left, "r": time.right}, time.type, {"l": -time.low, "r": time.high})

    def extend_for_waiting(self, farthest: int | None) -> Clock:
        """The clock of left rows that wait for right rows after them, up to a distance.

        What they need of the rows before them stays for as long as they wait.
        """
        reach = {
            side: length if farthest is None else min(length, farthest)
            for side, length in self.reach.items()
        }
        return Clock(self.exprs, self.type, {"l": reach["l"], "r": reach["l"] + reach["r"]})

    def times(self, batch: pa.RecordBatch, side: Side) -> tuple[Int64, NDArray[np.bool_]]:
        """Times as integers, with the smallest integer for NULL, and which are NULL."""
        array = evaluate_side(self.exprs[side], side, batch)
        null = ~array.is_valid().to_numpy(zero_copy_only=False)
        result = np.full(len(array), INT64_MIN, np.int64)
        keys = encode(array.drop_null())
        assert not isinstance(keys, BytesKey)
        result[~null] = keys
        return result, null

    def instant(self, watermark: Any) -> int:
        """A watermark in the unit of the keys; between two of them, the later one.

        A row is late where its time is before the watermark, so rounding up changes nothing.
        """
        try:
            value = watermark.as_py() if isinstance(watermark, pa.Scalar) else watermark
            if pa.types.is_integer(self.type):
                if isinstance(value, bool):
                    raise TypeError("a boolean")
                return operator.index(value)
            unit = _NS["day" if pa.types.is_date(self.type) else self.type.unit]
            return -(-_nanoseconds(value) // unit)
        except (TypeError, ValueError, OverflowError) as error:
            raise WindowError(
                f"watermark {watermark!r} is not a time like the window's column ({self.type})"
            ) from error


_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 10**9, "day": 86_400 * 10**9}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _nanoseconds(value: Any) -> int:
    """Nanoseconds since the epoch; what has no zone is taken as UTC, as everywhere."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise ValueError("not a time")
        return int(value.astype("datetime64[ns]").astype(np.int64))
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise TypeError(f"a {type(value).__name__}")
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    micros = (aware - _EPOCH) // timedelta(microseconds=1)
    # A pandas Timestamp keeps what is below a microsecond apart.
    return micros * 1_000 + int(getattr(value, "nanosecond", 0))


@dataclass(frozen=True)
class Ordering:
    """The order of rows for a count window: a column on each side, or as they come."""

    pair: Comparison | None

    def places(
        self, left: pa.RecordBatch, right: pa.RecordBatch
    ) -> tuple[list[NDArray[np.int32] | None], list[Int64]]:
        """Each side's order, and how many rows of the other side come before each, in that order.

        A left row comes before a right one on a tie; NULL comes first. None stands for rows that
        are in order as they are.
        """
        if self.pair is None:
            all_left = np.full(right.num_rows, left.num_rows, np.int64)
            return [None, None], [np.zeros(left.num_rows, np.int64), all_left]
        ranks = self._ranks(
            evaluate_side(self.pair.left, "l", left), evaluate_side(self.pair.right, "r", right)
        )
        orders = [None if is_sorted(rank) else order_of(rank) for rank in ranks]
        ordered = [r if o is None else gather(r, o) for r, o in zip(ranks, orders, strict=True)]
        before_left, before_right = (np.empty(rank.size, np.int32) for rank in ranks)
        as_they_are = np.arange(max(rank.size for rank in ranks), dtype=np.int32)
        first_at_least(ordered[1], ordered[0], as_they_are[: ranks[0].size], before_left)
        first_above(ordered[0], ordered[1], as_they_are[: ranks[1].size], before_right)
        return orders, [before_left.astype(np.int64), before_right.astype(np.int64)]

    @staticmethod
    def _ranks(left: pa.Array, right: pa.Array) -> tuple[Int64, Int64]:
        """Integers that order both sides' values; with NULL among them, ranks, of which it is 0."""
        if not is_bytes_type(left.type) and not left.null_count and not right.null_count:
            plain = encode(left), encode(right)
            assert not isinstance(plain[0], BytesKey)
            assert not isinstance(plain[1], BytesKey)
            return plain  # type: ignore[return-value]
        ranks = rank_values(pa.concat_arrays([left, right]))
        return ranks[: len(left)], ranks[len(left) :]


def rank_values(values: pa.Array) -> Int64:
    """The rank of each value among them all; that of NULL is 0.

    >>> rank_values(pa.array([30, None, 10, 30])).tolist()
    [2, 0, 1, 2]
    """
    null = ~values.is_valid().to_numpy(zero_copy_only=False)
    keys = encode(values.drop_null())
    if isinstance(keys, BytesKey):
        keys = keys.dictionary()[1]
    _, rank = np.unique(keys, return_inverse=True)
    ranks = np.zeros(len(values), np.int64)
    ranks[~null] = rank + 1
    return ranks


Rows32 = NDArray[np.int32]


# Some rows take their order from that of all rows if all are at most this many times as many.
SHARED_ORDER = 4


def cut_evenly(rows: int, pieces: int) -> list[tuple[int, int]]:
    """Where each of some about equal pieces of the rows begins and ends.

    >>> cut_evenly(5, 2)
    [(0, 2), (2, 5)]
    """
    return list(pairwise(rows * at // pieces for at in range(pieces + 1)))


@dataclass(frozen=True)
class PartRows:
    """The rows that can match in one part of the condition, and their keys."""

    rows: Rows32
    keys: list[Key]
    # The orders of keys that have been computed.
    orders: dict[int, Rows32] = field(default_factory=dict, repr=False, compare=False)
    # The rows that these were taken from, and which of them: one sort serves both.
    among: tuple[PartRows, Rows32] | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: NDArray[np.int32]) -> PartRows:
        """Some of these rows."""
        keys = [
            k.take(positions) if isinstance(k, BytesKey) else gather(k, positions)
            for k in self.keys
        ]
        return PartRows(gather(self.rows, positions), keys)

    def where(self, mask: NDArray[np.bool_]) -> PartRows:
        """The rows for which the mask holds."""
        return self if mask.all() else self.take(np.flatnonzero(mask).astype(np.int32))

    def order(self, key: int, mapper: Mapper = ALONE) -> Rows32:
        """The stable order of a key that is not a byte string; sorted once."""
        if key not in self.orders:
            values = self.keys[key]
            assert not isinstance(values, BytesKey)
            if self.among is None:
                self.orders[key] = order_of(values, mapper)
            else:
                all_rows, mine = self.among
                self.orders[key] = order_among(all_rows.order(key, mapper), mine)
        return self.orders[key]

    def _list_orders(self) -> set[int]:
        """The keys whose orders are known."""
        return set(self.orders) | (set() if self.among is None else set(self.among[0].orders))

    def sort_by(self, key: int) -> PartRows:
        """These rows in the order of a key, with what is known of their other orders."""
        values = self.keys[key]
        if isinstance(values, BytesKey) or is_sorted(values):
            return self
        order = self.order(key)
        taken = self.take(order)
        where = invert(order)
        for other in self._list_orders() - {key}:
            taken.orders[other] = gather(where, self.order(other))
        taken.orders[key] = number_rows(len(self))
        return taken

    def some(self, positions: Rows32) -> PartRows:
        """Rows at ascending positions, which can take their order from all rows."""
        taken = self.take(positions)
        if SHARED_ORDER * len(taken) < len(self):
            return taken
        return replace(taken, among=(self, positions))

    def slice(self, start: int, end: int) -> PartRows:
        """The rows from position `start` up to `end`."""
        keys = [k.slice(start, end) if isinstance(k, BytesKey) else k[start:end] for k in self.keys]
        return PartRows(self.rows[start:end], keys)


@dataclass(frozen=True)
class KeyedBatch:
    """A batch of rows: what is kept of them, and what each part of the condition sees."""

    table: pa.RecordBatch
    parts: tuple[PartRows, ...]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def where(self, mask: NDArray[np.bool_]) -> KeyedBatch:
        """The rows for which the mask holds."""
        numbers = np.cumsum(mask, dtype=np.int32) - np.int32(1)
        parts = []
        for part in self.parts:
            inside = part.some(np.flatnonzero(gather(mask, part.rows)).astype(np.int32))
            parts.append(replace(inside, rows=gather(numbers, inside.rows)))
        return KeyedBatch(self.table.filter(pa.array(mask)), tuple(parts))

    def matchable(self) -> NDArray[np.bool_]:
        """Which rows can match at all: those that some part has."""
        mask = np.zeros(len(self), np.bool_)
        for part in self.parts:
            mask[part.rows] = True
        return mask


def make_batch(
    table: pa.RecordBatch, side: Side, parts: tuple[Part, ...], keep: list[str]
) -> KeyedBatch:
    """Evaluate filters and keys of `table`; the batch keeps the columns in `keep`."""
    made = tuple(_part_rows(table, side, part) for part in parts)
    return KeyedBatch(table.select(keep), made)


def _part_rows(table: pa.RecordBatch, side: Side, part: Part) -> PartRows:
    """Filters come first: a key may fail on rows that a filter was written to keep from it."""
    rows: Rows32 | None = None
    condition = part.filters[side]
    if condition is not None:
        passed = pc.fill_null(evaluate_side(condition, side, table), False)
        rows = np.flatnonzero(passed.to_numpy(zero_copy_only=False)).astype(np.int32)
        table = table.filter(passed)
    arrays = [evaluate_side(spec.expr, side, table) for spec in part.keys[side]]
    valid = _valid(arrays, part.keys[side])
    if valid is not None:
        kept = np.flatnonzero(valid.to_numpy(zero_copy_only=False)).astype(np.int32)
        rows = kept if rows is None else rows[kept]
        arrays = [array.filter(valid) for array in arrays]
    if rows is None:
        rows = number_rows(table.num_rows)
    keys = [
        encode(array, nan_low=spec.nan == "low")
        for array, spec in zip(arrays, part.keys[side], strict=True)
    ]
    return PartRows(rows, keys)


def evaluate_side(expr: object, side: Side, table: pa.RecordBatch) -> pa.Array:
    """Evaluate an expression over one side's rows."""
    return evaluate(expr, left=table) if side == "l" else evaluate(expr, right=table)  # type: ignore[arg-type]


def _valid(arrays: list[pa.Array], specs: tuple[KeySpec, ...]) -> pa.Array | None:
    """Rows where every key has a value; None if all have."""
    valid = None
    for array, spec in zip(arrays, specs, strict=True):
        masks = []
        if array.null_count:
            masks.append(array.is_valid())
        if spec.nan == "drop" and pa.types.is_floating(array.type):
            number = pc.fill_null(pc.invert(pc.is_nan(array)), False)
            if not pc.all(number).as_py():
                masks.append(number)
        for mask in masks:
            valid = mask if valid is None else pc.and_(valid, mask)
    return valid
