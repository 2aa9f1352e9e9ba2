"""The rows of a segment, sorted: what PO-Join keeps (SPO-Join, Section 4.2).

Rows are in the order of the primary key. For each further key there are its sorted values and
the permutation from that order to the primary one (Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import fill, number_rows
from thetajoin.batch.keys import BytesKey, Int64, Key, hash_columns
from thetajoin.index.interval import Dictionary, dictionary_of
from thetajoin.index.probe import Int32, Shape
from thetajoin.kernels import emit
from thetajoin.kernels.order import (
    gather,
    gather_all,
    invert,
    merge_orders,
    order_of,
    order_of_both,
    sort_ties,
)
from thetajoin.kernels.runs import (
    RunTable,
    build_table,
    count_distinct,
    rises_in_runs,
    same_in_runs,
)
from thetajoin.kernels.threads import ALONE, Mapper, new_lock
from thetajoin.limits import limits

NO_KEYS: Int64 = np.zeros(0, np.int64)


class SortedRows:
    """An immutable segment's rows that have all keys, in the orders of these."""

    def __init__(
        self,
        shape: Shape,
        keys: Sequence[Key],
        rid: Int32,
        mapper: Mapper = ALONE,
        orders: Callable[[int, Mapper], Int32] | None = None,
    ) -> None:
        """Build from keys in any row order; `rid` numbers the rows. O(n log n), 60 ns a row.

        `orders` gives the order of an integer key, if the caller needs that too.
        """
        self.shape = shape
        self.size = len(rid)
        self.run: Int64 | None
        self.primary: Int64 | None
        self.dictionaries: list[Dictionary | None] = []
        values: list[Int64] = []
        for key in keys:
            if isinstance(key, BytesKey):
                dictionary, ranks = dictionary_of(key, mapper)
                self.dictionaries.append(dictionary)
                values.append(ranks)
            else:
                self.dictionaries.append(None)
                values.append(key)
        run = self._combine_keys([values[i] for i in shape.run])
        primary = shape.primary

        def order_by(dim: int | None) -> Int32:
            if dim is None:
                rows = number_rows(self.size)
                return rows if run is None else order_of(run, mapper)
            if run is not None:
                return order_of_both(run, values[dim], mapper)
            if orders is not None and self.dictionaries[dim] is None:
                return orders(dim, mapper)
            return order_of(values[dim], mapper)

        # Within runs of equal keys the other orders are seldom needed, so they are made on demand.
        own = shape.setters if run is None else ()
        by_primary, *by_own = map(order_by, (primary, *own))
        self.run, self.primary = (
            None if keys is None else gather(keys, by_primary, mapper)
            for keys in (run, None if primary is None else values[primary])
        )
        if self.primary is not None and shape.setters and not shape.stable:
            # Where the first key ties, the next one decides: it may then rise with the first.
            second = values[shape.setters[0]]
            by_primary = sort_ties(second, self._run_or_none, self.primary, by_primary)
        self.columns = np.empty((len(shape.tested), self.size), np.int64)
        self.sorted: dict[int, Int64] = {}
        self.perm: dict[int, Int32] = {}
        self._lock = new_lock(self)
        self.rid: Int32 = gather(rid, by_primary, mapper)
        for at, dim in enumerate(shape.tested):
            gather_all(values[dim], by_primary, self.columns[at], mapper)
        self.zone_low, self.zone_high = _zones(self.columns)
        where = invert(by_primary) if own else by_primary
        for dim, order in zip(own, by_own, strict=True):
            self.sorted[dim] = gather(values[dim], order, mapper)
            self.perm[dim] = gather(where, order, mapper)
        self._measure()

    def _measure(self) -> None:
        """Note each tested column's extremes; the rest is found out when it is needed."""
        self._runs_by_key: RunTable | None = None
        self._rises: dict[int, bool] = {}
        self._extremes = [
            (low.min(), high.max())
            for low, high in zip(self.zone_low, self.zone_high, strict=True)
            if self.size
        ]

    @cached_property
    def extremes(self) -> dict[int, tuple[int, int]]:
        """The smallest and largest value of each key that an interval must reach for a match."""
        if not self.size:
            return {}
        found = dict(zip(self.shape.tested, self._extremes, strict=True))
        if self.shape.primary is not None and self.primary is not None:
            ends = self.primary[[0, -1]] if self.run is None else self.primary
            found[self.shape.primary] = ends.min(), ends.max()
        if self.run is not None and len(self.shape.run) == 1:
            found[self.shape.run[0]] = self.run[0], self.run[-1]
        return {
            dim: (int(low), int(high))
            for dim, (low, high) in found.items()
            if not self.shape.dims[dim].negate and self.dictionaries[dim] is None
        }

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        """Everything the index consists of, by name; `from_arrays` takes it back."""
        for dim in self.shape.setters:
            self._own_order(dim)
        return self._list_arrays()

    def _list_arrays(self) -> dict[str, NDArray[Any] | None]:
        """The arrays that have been made so far."""
        named: dict[str, NDArray[Any] | None] = {
            name: getattr(self, name)
            for name in ("rid", "run", "primary", "columns", "zone_low", "zone_high")
        }
        for dim in sorted(self.perm):
            named[f"sorted {dim}"], named[f"perm {dim}"] = self.sorted[dim], self.perm[dim]
        for dim, dictionary in enumerate(self.dictionaries):
            if dictionary is not None:
                named[f"offsets {dim}"], named[f"data {dim}"] = dictionary.offsets, dictionary.data
        return named

    @classmethod
    def from_arrays(cls, shape: Shape, named: Mapping[str, Any]) -> Self:
        """The index with these `arrays`, without building or copying anything."""
        index = cls.__new__(cls)
        index.shape = shape
        for name in ("rid", "run", "primary", "columns", "zone_low", "zone_high"):
            setattr(index, name, named[name])
        index.size = len(index.rid)
        index.sorted = {dim: named[f"sorted {dim}"] for dim in shape.setters}
        index.perm = {dim: named[f"perm {dim}"] for dim in shape.setters}
        index.dictionaries = [
            Dictionary(named[f"offsets {dim}"], named[f"data {dim}"]) if spec.is_bytes else None
            for dim, spec in enumerate(shape.dims)
        ]
        index._lock = new_lock(index)
        index._measure()
        return index

    @staticmethod
    def _combine_keys(keys: list[Int64]) -> Int64 | None:
        """One run key: the equality key itself, or a hash of several (each is tested as well)."""
        if not keys:
            return None
        if len(keys) == 1:
            return keys[0]
        return hash_columns(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of the index."""
        return sum(array.nbytes for array in self._list_arrays().values() if array is not None)

    def keys(self) -> list[Key]:
        """The keys again, in primary order as `rid` is: what a merge starts from."""
        result: list[Key] = []
        for dim, dictionary in enumerate(self.dictionaries):
            values = self._column(dim)
            result.append(values if dictionary is None else dictionary.take(values >> 1))
        return result

    def primary_keys(self, positions: Int32) -> Key:
        """The primary keys at positions of the primary order."""
        assert self.shape.primary is not None
        assert self.primary is not None
        values = gather(self.primary, positions)
        dictionary = self.dictionaries[self.shape.primary]
        return values if dictionary is None else dictionary.take(values >> 1)

    def _column(self, dim: int) -> Int64:
        if dim == self.shape.primary:
            assert self.primary is not None
            return self.primary
        if dim in self.shape.tested:
            column: Int64 = self.columns[self.shape.tested.index(dim)]
            return column
        assert self.run is not None
        return self.run

    @classmethod
    def merge(cls, parts: Sequence[Self], offsets: Sequence[int]) -> Self:
        """One segment of several; part `i`'s row numbers are moved up by ``offsets[i]``."""
        shape = parts[0].shape
        rid = np.concatenate([p.rid + np.int32(o) for p, o in zip(parts, offsets, strict=True)])
        columns = zip(*(part.keys() for part in parts), strict=True)
        keys = [concat_keys(list(column)) for column in columns]
        # With runs of equal keys the parts' orders are by run first, so they are of no use here.
        orders = None if shape.run else partial(_merge_orders, parts)
        return cls(shape, keys, rid, orders=orders)

    def _own_order(self, dim: int, mapper: Mapper = ALONE) -> tuple[Int32, Int64]:
        """The permutation from a further key's order to the primary one, and the sorted values."""
        with self._lock:
            if dim not in self.perm:
                perm, ordered = self._sort_by(dim, mapper)
                self.sorted[dim], self.perm[dim] = ordered, perm
            return self.perm[dim], self.sorted[dim]

    def _sort_by(self, dim: int, mapper: Mapper = ALONE) -> tuple[Int32, Int64]:
        """The order of a tested key, inside each run, and its values in that order."""
        values, run = self._column(dim), self.run
        order = order_of(values, mapper) if run is None else order_of_both(run, values, mapper)
        return order, gather(values, order, mapper)

    def _follows(self, dim: int) -> bool:
        """Whether a tested key goes up with the primary one inside each run."""
        if dim not in self._rises:
            self._rises[dim] = rises_in_runs(self._column(dim), self._run_or_none)
        return self._rises[dim]

    def _table(self) -> RunTable:
        """The table of all runs; made once."""
        assert self.run is not None
        with self._lock:
            if self._runs_by_key is None:
                self._runs_by_key = build_table(self.run)
            return self._runs_by_key

    @property
    def _run_or_none(self) -> Int64:
        """The rows' run keys; an empty array where all rows are one run."""
        return NO_KEYS if self.run is None else self.run

    @cached_property
    def _run_numbers(self) -> Int64:
        """The number of each row's run: it has fewer bits to sort by than positions have."""
        assert self.run is not None
        begins = fill(self.size, 0, np.int64)
        np.not_equal(self.run[1:], self.run[:-1], out=begins[1:], casting="unsafe")
        return np.cumsum(begins, out=begins)

    @cached_property
    def _has_long_runs(self) -> bool:
        """Whether searching inside a run takes longer than sorting the probes by it."""
        return self.run is not None and self.size > limits.long_run * count_distinct(self.run)

    @cached_property
    def _shares_hash(self) -> bool:
        """Whether a run has rows with different equality keys, because their hashes are equal."""
        assert self.run is not None
        return not all(same_in_runs(self._column(dim), self.run) for dim in self.shape.run)

    def _check(self) -> None:
        """Verify every invariant of the structure."""
        n = self.size
        for dim in self.shape.setters:
            self._own_order(dim)
        within = np.zeros(n, np.int64) if self.run is None else self.run
        assert (within[1:] >= within[:-1]).all()
        same = within[1:] == within[:-1]
        if self.primary is not None:
            assert (self.primary[1:] >= self.primary[:-1])[same].all()
        for dim, perm in self.perm.items():
            column = self._column(dim)
            assert (np.sort(perm) == np.arange(n)).all()
            assert (column[perm] == self.sorted[dim]).all()
            assert (self.sorted[dim][1:] >= self.sorted[dim][:-1])[same].all()
        assert np.unique(self.rid).size == n
        for at, column in enumerate(self.columns):
            for block in range((n + 63) // 64):
                rows = column[block * 64 : block * 64 + 64]
                assert self.zone_low[at, block] == rows.min()
                assert self.zone_high[at, block] == rows.max()


def _merge_orders(parts: Sequence[SortedRows], dim: int, mapper: Mapper) -> Int32:
    """The order of an integer key over the rows of sorted segments, each in its primary order."""
    if dim == parts[0].shape.primary:
        primaries = [part.primary for part in parts if part.primary is not None]
        return merge_orders(primaries)
    starts = np.cumsum([0, *(part.size for part in parts[:-1])]).astype(np.int32)
    places = [part.perm[dim] + start for part, start in zip(parts, starts, strict=True)]
    order: Int32 = gather(
        np.concatenate(places), merge_orders([part.sorted[dim] for part in parts])
    )
    return order


def concat_keys(keys: list[Key]) -> Key:
    """Keys of several batches one after another."""
    if isinstance(keys[0], BytesKey):
        return BytesKey.concat([key for key in keys if isinstance(key, BytesKey)])
    return np.concatenate(keys)  # type: ignore[arg-type]


def _zones(columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Smallest and largest key of each block of 64 rows, for each column."""
    starts = np.arange(0, columns.shape[1], emit.BLOCK)
    if starts.size == 0:
        empty = np.zeros((columns.shape[0], 0), np.int64)
        return empty, empty
    low = np.minimum.reduceat(columns, starts, axis=1)
    return low, np.maximum.reduceat(columns, starts, axis=1)
