"""Finds the nearest stored rows of a batch of left rows, over blocks and alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import (
    INT64_MAX,
    INT64_MIN,
    BytesKey,
    Int64,
    Key,
    float_values,
    is_bytes_type,
)
from thetajoin.engine.block import Block
from thetajoin.engine.joiner import filter_pairs, make_probe
from thetajoin.engine.layout import Positions
from thetajoin.engine.nearest import Nearest
from thetajoin.engine.parts import View
from thetajoin.engine.rows import KeyedBatch, PartRows, cut_evenly, rank_values
from thetajoin.index.nearest import nearest_rows
from thetajoin.index.po_join import PoJoin
from thetajoin.index.sorted_rows import concat_keys
from thetajoin.kernels.nearest import ALL, LAST, OUTWARD, Wanted
from thetajoin.kernels.order import gather
from thetajoin.limits import limits

if TYPE_CHECKING:
    from thetajoin.engine.nearest_join import NearestJoin

NO_ROWS: Positions = np.zeros(0, np.int32)
# Where pairs must pass a further check: rows to look at first, and by how much that grows.
LOOKED_AT, MORE = 4, 8


@dataclass(frozen=True)
class Neighbours:
    """Left rows and their nearest right rows, those of a left row together, the nearest first.

    left: positions in the batch; block: the number of the right row's block; row: its position.
    """

    left: Positions
    block: Positions
    row: Positions

    def __len__(self) -> int:
        return int(self.left.size)

    def where(self, mask: NDArray[np.bool_]) -> Neighbours:
        """Some of them."""
        return Neighbours(self.left[mask], self.block[mask], self.row[mask])

    @staticmethod
    def concat(parts: list[Neighbours]) -> Neighbours:
        """All of them, one after another."""
        columns = ("left", "block", "row")
        return Neighbours(*(np.concatenate([getattr(p, name) for p in parts]) for name in columns))


@dataclass(frozen=True)
class _Candidates:
    """Matches that may be among the nearest, by the part of the condition they satisfy.

    key: the right rows' keys in an order that all of them share.
    """

    left: Positions
    part: Positions
    block: Positions
    row: Positions
    key: Int64

    def __len__(self) -> int:
        return int(self.left.size)

    def take(self, at: NDArray[np.intp]) -> _Candidates:
        """Some of them."""
        return _Candidates(self.left[at], self.part[at], self.block[at], self.row[at], self.key[at])


class NearestFinder:
    """Finds the nearest rows of left rows among the rows of some blocks.

    in_order: rows at equal distance are to be taken as they stand in their blocks.
    """

    def __init__(
        self,
        join: NearestJoin,
        blocks: list[Block],
        *,
        in_order: bool = False,
        threads: int | None = None,
    ) -> None:
        self._join, self._blocks = join, blocks
        self._threads = join.joiner.threads if threads is None else threads
        self._nearest: Nearest = join.nearest
        if join.layout.only_left:  # any match will do
            self._nearest = replace(self._nearest, k=1, ties="first", order_by=None)
        self._order_by = None if in_order else self._nearest.order_by
        self._is_bytes = is_bytes_type(join.near_key.type)
        self._is_float = pa.types.is_floating(join.near_key.type)

    def find(self, batch: KeyedBatch) -> Neighbours:
        """The nearest rows of a batch of left rows; O(log n) a row where nothing else is tested."""
        pieces = self._pieces(batch)
        if len(pieces) == 1:
            return self._find(pieces[0])
        with ThreadPoolExecutor(self._threads) as pool:
            return Neighbours.concat(list(pool.map(self._find, pieces)))

    def _pieces(self, batch: KeyedBatch) -> list[KeyedBatch]:
        """About equal pieces of a large batch, a thread for each; left rows stay in order."""
        count = min(self._threads, len(batch) // limits.sorted_probes)
        if count < 2:
            return [batch]
        return [
            KeyedBatch(batch.table, tuple(_between(part, a, b) for part in batch.parts))
            for a, b in cut_evenly(len(batch), count)
        ]

    def _find(self, batch: KeyedBatch) -> Neighbours:
        nearest = self._nearest
        ties = nearest.tie_rule
        if any(part.residual is not None for part in self._join.parts):
            return self._find_checked(batch)
        if self._order_by is None and len(self._blocks) * len(self._join.parts) == 1:
            return self._find_in_one(batch)
        found = self._candidates(batch, nearest.k, ties if self._order_by is None else ALL)
        if nearest.k > 1 or np.bincount(found.left).max(initial=0) > 1:
            found = found.take(self._select(batch, found, nearest.k, ties))
        return Neighbours(found.left, found.block, found.row)

    def _find_in_one(self, batch: KeyedBatch) -> Neighbours:
        """The rows that an index gives are the nearest of all, where there is no other."""
        (rows,), nearest = batch.parts, self._nearest
        pieces = [(NO_ROWS, NO_ROWS)]
        for place in self._nearest_first(0):  # none where there are no rows
            index = self._index(place, 0)
            for left, positions in self._nearest_in(rows, 0, index, nearest.k, nearest.tie_rule):
                pieces.append((left, gather(index.rid, positions)))
        left, row = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return Neighbours(left, np.zeros(left.size, np.int32), row)

    def _find_checked(self, batch: KeyedBatch) -> Neighbours:
        """Look at a few rows for each left row, and at more where too few pass the check."""
        nearest = self._nearest
        done: list[Neighbours] = []
        waiting, k = batch, nearest.k + LOOKED_AT
        while any(len(part) for part in waiting.parts):
            found = self._candidates(waiting, k, ALL)
            # All that are as near as the k-th, over blocks and parts: no other row is nearer.
            found = found.take(self._select(waiting, found, k, ALL))
            looked_at = np.bincount(found.left, minlength=len(batch))
            found = found.take(self._filter(waiting, found))
            found = found.take(self._select(waiting, found, nearest.k, nearest.tie_rule))
            enough = np.bincount(found.left, minlength=len(batch)) >= nearest.k
            final = enough | (looked_at < k)
            best = Neighbours(found.left, found.block, found.row)
            done.append(best.where(final[best.left]))
            waiting = KeyedBatch(
                batch.table, tuple(part.where(~final[part.rows]) for part in waiting.parts)
            )
            k *= MORE
        if not done:
            return Neighbours(*(np.zeros(0, np.int32) for _ in range(3)))
        return Neighbours.concat(done)

    def _filter(self, batch: KeyedBatch, found: _Candidates) -> NDArray[np.intp]:
        """Candidates whose pairs satisfy what could not be made into keys."""
        kept = [np.zeros(0, np.intp)]
        step = self._join.options.chunk_rows
        for number, part in enumerate(self._join.parts):
            for place, block in enumerate(self._blocks):
                mine = np.flatnonzero((found.part == number) & (found.block == place))
                if part.residual is None:
                    kept.append(mine)
                    continue
                for start in range(0, len(mine), step):
                    at = mine[start : start + step]
                    tables, rows = (batch.table, block.table), (found.left[at], found.row[at])
                    kept.append(at[filter_pairs(part.residual, "l", tables, rows)])
        return np.concatenate(kept)

    def _candidates(self, batch: KeyedBatch, k: int, ties: int) -> _Candidates:
        """The nearest rows in each block and part of the condition."""
        pieces: list[tuple[Positions, int, int, Positions]] = []
        keys: list[Key] = []
        best = self._no_keys_yet(batch) if k == 1 else None
        for number, rows in enumerate(batch.parts):
            for place in self._nearest_first(number):
                index = self._index(place, number)
                asking = rows if best is None else rows.where(self._can_improve(index, rows, best))
                for left, positions in self._nearest_in(asking, number, index, k, ties):
                    found_keys = index.primary_keys(positions)
                    pieces.append((left, number, place, gather(index.rid, positions)))
                    keys.append(found_keys)
                    if best is not None and not isinstance(found_keys, BytesKey):
                        best[left] = found_keys
        if not pieces:
            none: Positions = np.zeros(0, np.int32)
            return _Candidates(none, none, none, none, np.zeros(0, np.int64))
        lefts, numbers, places, found = zip(*pieces, strict=True)
        sizes = [left.size for left in lefts]
        key = concat_keys(keys)
        return _Candidates(
            np.concatenate(lefts),
            np.repeat(np.array(numbers, np.int32), sizes),
            np.repeat(np.array(places, np.int32), sizes),
            np.concatenate(found),
            key.dictionary()[1] if isinstance(key, BytesKey) else key,
        )

    def _index(self, place: int, number: int) -> PoJoin:
        index = self._blocks[place].indexes[number]
        assert isinstance(index, PoJoin)
        return index

    def _nearest_first(self, number: int) -> list[int]:
        """The blocks that have rows, those first whose keys begin where the search does."""
        places = [place for place, block in enumerate(self._blocks) if block.rows]
        ends = {place: self._ends(self._index(place, number)) for place in places}
        if self._nearest.direction == "backward":
            return sorted(places, key=lambda place: -ends[place][1])
        return sorted(places, key=lambda place: ends[place][0])

    @staticmethod
    def _ends(index: PoJoin) -> tuple[int, int]:
        """The smallest and the largest key of an index, or what bounds them for byte strings."""
        assert index.shape.primary is not None
        return index.extremes.get(index.shape.primary, (INT64_MIN, INT64_MAX))

    def _no_keys_yet(self, batch: KeyedBatch) -> Int64 | None:
        """The best key of each left row so far, so that blocks without a better one can be skipped.

        None where that would not be seen from a block's ends.
        """
        worst = {"backward": INT64_MIN, "forward": INT64_MAX}.get(self._nearest.direction)
        if worst is None or len(self._blocks) == 1 or self._is_bytes:
            return None
        return np.full(batch.table.num_rows, worst, np.int64)

    def _can_improve(self, index: PoJoin, rows: PartRows, best: Int64) -> NDArray[np.bool_]:
        """The rows for which an index may have a key as good as their best."""
        low, high = self._ends(index)
        mine: Int64 = gather(best, rows.rows)
        return mine <= high if self._nearest.direction == "backward" else mine >= low

    def _nearest_in(
        self, rows: PartRows, number: int, index: PoJoin, k: int, ties: int
    ) -> Iterator[tuple[Positions, Positions]]:
        """Left rows, and positions of their nearest rows in the primary order of an index."""
        if not index.size or not len(rows):
            return
        view = self._join.parts[number].views["r"]
        probe = make_probe(view, rows, None)
        wanted = Wanted(min(k, index.size), ties, self._is_float)
        room = self._join.options.chunk_rows
        direction = self._nearest.direction
        own = _own_keys(view, rows)
        for probes, positions in nearest_rows(index, probe, own, direction, wanted, room):
            yield gather(rows.rows, probes), positions.copy()

    def _select(self, batch: KeyedBatch, found: _Candidates, k: int, ties: int) -> NDArray[np.intp]:
        """The nearest `k` candidates of each left row, by left row and distance."""
        columns: list[NDArray[Any]] = [found.row, found.block, self._order(found)]
        if ties == LAST:
            columns = [~column for column in columns]
        elif ties == OUTWARD:
            above = found.key > self._own(batch)[found.left]
            columns = [*(np.where(above, column, ~column) for column in columns), above]
        distance = self._distances(batch, found)
        order = np.lexsort((*columns, *reversed(distance), found.left))
        left = found.left[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = left[1:] != left[:-1]
        at = np.arange(len(order))
        start = np.maximum.accumulate(np.where(new, at, 0))
        if ties == ALL:
            farther = new.copy()
            for column in distance:
                sorted_column = column[order]
                farther[1:] |= sorted_column[1:] != sorted_column[:-1]
            at = np.maximum.accumulate(np.where(farther, at, 0))
        chosen: NDArray[np.intp] = order[at - start < k]
        return chosen

    def _order(self, found: _Candidates) -> Int64:
        """Ranks of candidates by the column that decides between rows at equal distance."""
        name = self._order_by
        if name is None or not len(found):
            return np.zeros(len(found), np.int64)
        values: list[pa.Array] = []
        places: list[NDArray[np.intp]] = []
        for place, block in enumerate(self._blocks):
            mine = np.flatnonzero(found.block == place)
            places.append(mine)
            values.append(block.table.column(name).take(pa.array(found.row[mine])))
        ranks = np.empty(len(found), np.int64)
        ranks[np.concatenate(places)] = rank_values(pa.concat_arrays(values))
        return ranks

    def _distances(self, batch: KeyedBatch, found: _Candidates) -> list[NDArray[Any]]:
        """Columns that order candidates of one left row by distance, the first decides first."""
        if self._nearest.direction != "nearest":
            return [~found.key if self._nearest.direction == "backward" else found.key]
        return distances(self._own(batch)[found.left], found.key, is_float=self._is_float)

    def _own(self, batch: KeyedBatch) -> Int64:
        """The key of each left row."""
        own = np.zeros(batch.table.num_rows, np.int64)
        for part, rows in zip(self._join.parts, batch.parts, strict=True):
            own[rows.rows] = _own_keys(part.views["r"], rows)
        return own


def distances(a: Int64, b: Int64, *, is_float: bool) -> list[NDArray[Any]]:
    """Columns that order pairs of keys by their distance, exactly; the first decides first.

    Of doubles the rounded difference, then what rounding took from it. Infinite distances compare
    by the number of keys in between.
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    between = high.view(np.uint64) - low.view(np.uint64)
    if not is_float:
        return [between]
    x, y = float_values(high), float_values(low)
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = np.where(high == low, 0.0, x - y)
        back = x - rounded
        rest = (back - y) + (x - (rounded + back))
    infinite = ~np.isfinite(rounded) | (high == INT64_MAX)
    infinite &= high != low
    rounded = np.where(infinite, np.inf, rounded)
    rest = np.where(infinite | (high == low), 0.0, rest)
    return [rounded, rest, np.where(infinite, between, np.uint64(0))]


def _own_keys(view: View, rows: PartRows) -> Int64:
    """The left rows' keys; zeros for byte strings, which have no distance."""
    primary = view.shape.primary
    assert primary is not None
    keys = rows.keys[view.asks[primary][0].probe_key]
    return np.zeros(len(rows), np.int64) if isinstance(keys, BytesKey) else keys


def _between(part: PartRows, first: int, end: int) -> PartRows:
    """The rows of a part that stand between two positions of the batch."""
    a, b = np.searchsorted(part.rows, [first, end])
    return part.slice(int(a), int(b))
