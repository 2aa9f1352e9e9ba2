"""A batch of one side's rows, filtered and keyed once, to be stored and to probe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from thetajoin.arrays import numbered
from thetajoin.batch.keys import BytesKey, Key, encode
from thetajoin.engine.parts import KeySpec, Part, Side
from thetajoin.kernels.order import gather, inverse, is_sorted, order_among, order_of
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.predicate import evaluate

Rows32 = NDArray[np.int32]


# Some rows take their order from that of all rows where they are at most this many times more.
SHARED_ORDER = 4


@dataclass(frozen=True)
class PartRows:
    """The rows that can match in one part of the condition, and their keys."""

    rows: Rows32
    keys: list[Key]
    # The orders of keys that somebody has asked for.
    orders: dict[int, Rows32] = field(default_factory=dict, repr=False, compare=False)
    # More rows that these are some of, and which: what is sorted once serves both.
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

    def _sorted_keys(self) -> set[int]:
        """The keys whose orders are at hand."""
        return set(self.orders) | (set() if self.among is None else set(self.among[0].orders))

    def sorted_by(self, key: int) -> PartRows:
        """These rows in the order of a key, with what is known of their other orders."""
        values = self.keys[key]
        if isinstance(values, BytesKey) or is_sorted(values):
            return self
        order = self.order(key)
        taken = self.take(order)
        where = inverse(order)
        for other in self._sorted_keys() - {key}:
            taken.orders[other] = gather(where, self.order(other))
        taken.orders[key] = numbered(len(self))
        return taken

    def some(self, positions: Rows32) -> PartRows:
        """Rows at positions that go up; they are sorted together with the others."""
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
        rows = numbered(table.num_rows)
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
