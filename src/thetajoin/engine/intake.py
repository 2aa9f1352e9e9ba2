"""Taking rows in: schema check, order inside a micro-batch, event times, late rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MIN, BytesKey, Int64, encode
from thetajoin.engine.rows import evaluate_side
from thetajoin.engine.spec import Side
from thetajoin.errors import SchemaError, WindowError
from thetajoin.kernels.order import order_of
from thetajoin.predicate import Comparison, Difference, Expr

NAMES: dict[Side, str] = {"l": "left", "r": "right"}


def check_schema(schema: pa.Schema, side: Side) -> None:
    """Refuse inputs whose columns could not be told apart."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"the {NAMES[side]} input has two columns {name!r}: rename one")
        seen.add(name)


def conform(batch: pa.RecordBatch, schema: pa.Schema, side: Side) -> pa.RecordBatch:
    """The batch in the schema's column order; an error if names or types are others."""
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
    for field in schema:
        column = batch.column(field.name)
        if column.type != field.type:
            raise SchemaError(
                f"{where} has column {field.name!r} as {column.type}, but it began as {field.type}"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


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

    def times(self, batch: pa.RecordBatch, side: Side) -> tuple[Int64, NDArray[np.bool_]]:
        """Times as integers, the least one for NULL, and which are NULL."""
        array = evaluate_side(self.exprs[side], side, batch)
        null = ~array.is_valid().to_numpy(zero_copy_only=False)
        result = np.full(len(array), INT64_MIN, np.int64)
        keys = encode(array.drop_null())
        assert not isinstance(keys, BytesKey)
        result[~null] = keys
        return result, null

    def instant(self, watermark: Any) -> int:
        """A watermark given as a datetime, date, number, text or Arrow scalar, as an integer."""
        try:
            if hasattr(watermark, "to_datetime64"):
                watermark = watermark.to_datetime64()
            scalar = watermark if isinstance(watermark, pa.Scalar) else pa.scalar(watermark)
            keys = encode(pa.array([scalar.as_py()], scalar.type).cast(self.type))
            assert not isinstance(keys, BytesKey)
            return int(keys[0])
        except (pa.ArrowException, TypeError, ValueError, AssertionError) as error:
            raise WindowError(
                f"watermark {watermark!r} is not a time like the window's column ({self.type})"
            ) from error


@dataclass(frozen=True)
class Ordering:
    """The order of rows for a count window: a column on each side, or as they come."""

    pair: Comparison | None

    def places(
        self, left: pa.RecordBatch, right: pa.RecordBatch
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], Int64, Int64]:
        """Each side's order, and how many rows of the other side come before each, in that order.

        A left row comes before a right one on a tie; NULL comes first.
        """
        if self.pair is None:
            first = np.arange(left.num_rows, dtype=np.int32)
            second = np.arange(right.num_rows, dtype=np.int32)
            none_before = np.zeros(left.num_rows, np.int64)
            return first, second, none_before, np.full(right.num_rows, left.num_rows, np.int64)
        ranks = self._ranks(
            evaluate_side(self.pair.left, "l", left), evaluate_side(self.pair.right, "r", right)
        )
        orders = [order_of(rank) for rank in ranks]
        sorted_left, sorted_right = ranks[0][orders[0]], ranks[1][orders[1]]
        before_left = np.searchsorted(sorted_right, sorted_left, side="left")
        before_right = np.searchsorted(sorted_left, sorted_right, side="right")
        return orders[0], orders[1], before_left.astype(np.int64), before_right.astype(np.int64)

    @staticmethod
    def _ranks(left: pa.Array, right: pa.Array) -> tuple[Int64, Int64]:
        """Ranks of both sides' values among all of them; NULL is 0."""
        both = pa.concat_arrays([left, right])
        null = ~both.is_valid().to_numpy(zero_copy_only=False)
        keys = encode(both.drop_null())
        if isinstance(keys, BytesKey):
            keys = keys.dictionary()[1]
        _, rank = np.unique(keys, return_inverse=True)
        ranks = np.zeros(len(both), np.int64)
        ranks[~null] = rank + 1
        return ranks[: len(left)], ranks[len(left) :]
