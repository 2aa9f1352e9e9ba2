"""What a distribution over tasks sees of rows: every key of the condition as integers, in boxes.

A box holds the least and largest value of each key over some rows. Whether a row can match any row
of a box follows from the condition alone, so rows are sent only where a match may be. Byte strings
are seen by their first eight bytes where they are compared for order, and by a hash for equality.

Each task that reads a part of the table cuts what it reads into a few hundred zones, runs of
neighbours by their place (equal keys first, then one ordered key), and gives their boxes. All zones
together are a histogram of the table and say, without sampling, where its rows are and where none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64, Key, hash_columns
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Distance, FloatBand, Part, Side
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.index.interval import Interval, interval_around, interval_of
from thetajoin.kernels.boxes import CUTS, find_zones, fold_zones
from thetajoin.kernels.hashes import hash_bytes, prefix_bytes
from thetajoin.kernels.order import gather, order_of

Mask = NDArray[np.bool_]
_LOOSE = {"<": "<=", ">": ">="}
ZONES = 256
# Rows that cuts are made from, and rows that are few enough to be sorted.
SAMPLE = 1 << 12
SMALL = 1 << 16
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Bound:
    """How a column of the probing side bounds one of the other side."""

    column: int
    bound: str | Distance | FloatBand

    def interval(self, values: Int64) -> Interval:
        """What each value asks for."""
        if isinstance(self.bound, str):
            return interval_of(self.bound, values)
        return self.bound.interval(values)

    def around(self, low: Int64, high: Int64) -> Interval:
        """What any value between two may ask for: bounds grow with the values that set them."""
        if isinstance(self.bound, str):
            return interval_around(self.bound, low, high)
        return self.bound.around(low, high)


@dataclass(frozen=True)
class Facet:
    """One column of the side that is looked at, and what bounds it from the other side."""

    column: int
    bounds: tuple[Bound, ...]

    def rows(self, probes: list[Int64]) -> Interval:
        """The values that each probing row asks for."""
        result = Interval(None, None)
        for bound in self.bounds:
            result = result & bound.interval(probes[bound.column])
        return result

    def boxes(self, low: list[Int64], high: list[Int64]) -> Interval:
        """The values that some row of each probing box may ask for."""
        result = Interval(None, None)
        for bound in self.bounds:
            result = result & bound.around(low[bound.column], high[bound.column])
        return result


@dataclass(frozen=True)
class Sight:
    """How rows of one conjunction are told apart.

    Columns of a side are its keys, then the hashes of keys that are byte strings, then, where more
    than one equality is asked, a hash of all equal keys together.
    """

    part: Part

    @cached_property
    def equal(self) -> tuple[tuple[int, int], ...]:
        """Pairs of keys, left and right, that must be equal."""
        view = self.part.views["r"]
        return tuple(
            (view.asks[dim][0].probe_key, view.stored[dim])
            for dim, kind in enumerate(view.shape.dims)
            if kind.equal
        )

    def _list_hashed(self, side: Side) -> list[int]:
        return [at for at, key in enumerate(self.part.keys[side]) if key.is_bytes]

    def width(self, side: Side) -> int:
        """Number of columns."""
        return len(self.part.keys[side]) + len(self._list_hashed(side)) + (len(self.equal) > 1)

    def equal_column(self, side: Side, key: int) -> int:
        """The column in which equal keys are equal: the key itself, or its hash."""
        hashed = self._list_hashed(side)
        return len(self.part.keys[side]) + hashed.index(key) if key in hashed else key

    def columns(self, side: Side, rows: PartRows) -> list[Int64]:
        """The rows' columns."""
        columns = [_integers(key) for key in rows.keys]
        columns += [_hashes(rows.keys[at]) for at in self._list_hashed(side)]
        if len(self.equal) > 1:
            at = 0 if side == "l" else 1
            columns.append(
                hash_columns([columns[self.equal_column(side, p[at])] for p in self.equal])
            )
        return columns

    def facets(self, side: Side) -> tuple[Facet, ...]:
        """What bounds the columns of `side`, from the columns of the other."""
        view, other = self.part.views[side], OTHER[side]
        facets = []
        for dim, kind in enumerate(view.shape.dims):
            if kind.negate:
                continue
            bounds = []
            for ask in view.asks[dim]:
                bound = ask.bound
                column = ask.probe_key
                if kind.equal:
                    column = self.equal_column(other, column)
                elif kind.is_bytes:
                    assert isinstance(bound, str)
                    bound = _LOOSE.get(bound, bound)
                bounds.append(Bound(column, bound))
            stored = view.stored[dim]
            stored = self.equal_column(side, stored) if kind.equal else stored
            facets.append(Facet(stored, tuple(bounds)))
        if len(self.equal) > 1:
            hashes = Bound(self.width(other) - 1, "=")
            facets.insert(0, Facet(self.width(side) - 1, (hashes,)))
        return tuple(facets)

    def places(self, side: Side) -> tuple[int | None, int | None]:
        """Columns to put the rows of a side in order by: equality first, then a bounded key."""
        equal = None
        if self.equal:
            at = 0 if side == "l" else 1
            several = len(self.equal) > 1
            key = self.equal_column(side, self.equal[0][at])
            equal = self.width(side) - 1 if several else key
        view = self.part.views[side]
        ordered = [
            (not _two_sided(view.asks[dim]), dim, view.stored[dim])
            for dim, kind in enumerate(view.shape.dims)
            if not kind.equal and not kind.negate
        ]
        return equal, min(ordered)[2] if ordered else None


def sights_of(compiled: CompiledJoin) -> tuple[Sight, ...]:
    """How a join's conjunctions tell rows apart."""
    return tuple(Sight(part) for part in compiled.parts)


def _two_sided(asks: tuple[object, ...]) -> bool:
    """Whether asks bound a key from below and from above."""
    ends = set()
    for ask in asks:
        bound = getattr(ask, "bound", None)
        if isinstance(bound, str):
            ends.add("low" if bound in ("<", "<=") else "high")
        elif isinstance(bound, Distance | FloatBand):
            ends |= {name for name in ("low", "high") if getattr(bound, name) is not None}
    return len(ends) == 2


def _integers(key: Key) -> Int64:
    if not isinstance(key, BytesKey):
        return key
    out = np.empty(len(key), np.int64)
    prefix_bytes(key.offsets, key.data, out)
    return out


def _hashes(key: Key) -> Int64:
    assert isinstance(key, BytesKey)
    out = np.empty(len(key), np.int64)
    hash_bytes(key.offsets, key.data, out)
    return out


@dataclass(frozen=True)
class Boxes:
    """Boxes over one side's columns, for each conjunction: ``low[part][column, box]``.

    A box without rows in a conjunction has its ends the wrong way round there.
    """

    low: list[Int64]
    high: list[Int64]

    def __len__(self) -> int:
        return int(self.low[0].shape[1])

    def merge(self, of: NDArray[Any], into: NDArray[Any], number: int) -> Boxes:
        """Boxes that hold others: box ``of[i]`` goes into ``into[i]``."""
        result: list[list[Int64]] = [[], []]
        for kept, given, fold, start in (
            (result[0], self.low, np.minimum, INT64_MAX),
            (result[1], self.high, np.maximum, INT64_MIN),
        ):
            for matrix in given:
                target = np.full((matrix.shape[0], number), start, np.int64)
                for column in range(matrix.shape[0]):
                    fold.at(target[column], into, matrix[column, of])
                kept.append(target)
        return Boxes(result[0], result[1])

    def all(self) -> Boxes:
        """One box around all of them."""
        number = len(self)
        return self.merge(np.arange(number), np.zeros(number, np.intp), 1)

    def holds(self, part: int, columns: list[Int64], box: int) -> bool:
        """Whether rows lie in a box, as they did when it was made."""
        if not columns or not columns[0].size:
            return True
        return all(
            bool(
                values.min() >= self.low[part][at, box] and values.max() <= self.high[part][at, box]
            )
            for at, values in enumerate(columns)
        )


class ProbingRows:
    """Rows of one side, to be compared with boxes of the other."""

    def __init__(self, sights: tuple[Sight, ...], side: Side, batch: KeyedBatch) -> None:
        """Compute what each row asks for; `side` is the probing rows' own."""
        self.side, self.batch = side, batch
        self.columns = [s.columns(side, p) for s, p in zip(sights, batch.parts, strict=True)]
        self._asked = [
            [(facet.column, facet.rows(columns)) for facet in sight.facets(OTHER[side])]
            for sight, columns in zip(sights, self.columns, strict=True)
        ]

    def find_matching(self, boxes: Boxes, box: int) -> NDArray[np.int32]:
        """Rows of the batch that may match a row of the box."""
        found: Mask | None = None
        for at, part in enumerate(self.batch.parts):
            low, high = boxes.low[at][:, box], boxes.high[at][:, box]
            if not len(part) or (low.size and low[0] > high[0]):
                continue
            mask: Mask | None = None
            for column, asked in self._asked[at]:
                tests = []
                if asked.low is not None:
                    tests.append(asked.low <= high[column])
                if asked.high is not None:
                    tests.append(asked.high >= low[column])
                for passed in tests:
                    mask = passed if mask is None else mask & passed
            rows = part.rows if mask is None else part.rows[mask]
            if len(self.batch.parts) == 1:
                return rows
            found = np.zeros(len(self.batch), np.bool_) if found is None else found
            found[rows] = True
        return np.flatnonzero([] if found is None else found).astype(np.int32)


def may_match(sights: tuple[Sight, ...], side: Side, boxes: Boxes, probing: Boxes) -> Mask:
    """``[box, probing box]``: whether a row of one may match a row of the other."""
    result = np.zeros((len(boxes), len(probing)), np.bool_)
    for at, sight in enumerate(sights):
        low, high = boxes.low[at], boxes.high[at]
        ends = list(probing.low[at]), list(probing.high[at])
        if not low.size or not probing.low[at].size:
            result |= True  # nothing tells these rows apart
            continue
        here = (low[0] <= high[0])[:, None] & (ends[0][0] <= ends[1][0])[None, :]
        for facet in sight.facets(side):
            asked = facet.boxes(*ends)
            if asked.low is not None:
                here &= high[facet.column][:, None] >= asked.low[None, :]
            if asked.high is not None:
                here &= low[facet.column][:, None] <= asked.high[None, :]
        result |= here
    return result


@dataclass(frozen=True)
class Places:
    """Where rows stand: by `equal` first, then by `ordered`; rows without keys stand last."""

    equal: Int64
    ordered: Int64

    def __len__(self) -> int:
        return self.equal.size

    def order(self) -> NDArray[np.int32]:
        """The rows from first to last."""
        by_ordered = order_of(self.ordered)
        return gather(by_ordered, order_of(gather(self.equal, by_ordered)))  # type: ignore[no-any-return]

    def take(self, rows: NDArray[np.integer]) -> Places:
        """The places of some rows."""
        return Places(self.equal[rows], self.ordered[rows])

    def distinct(self) -> Places:
        """Each place once; they must be in order."""
        new = np.ones(len(self), np.bool_)
        new[1:] = (np.diff(self.equal) != 0) | (np.diff(self.ordered) != 0)
        return self.take(np.flatnonzero(new))

    def among(self, cuts: Places) -> Index:
        """How many of the cuts, which are in order, are at or before each place."""
        same = len(self) and len(cuts) and (self.equal == cuts.equal[0]).all()
        if same and (cuts.equal == cuts.equal[0]).all():
            return np.searchsorted(cuts.ordered, self.ordered, "right")
        found = np.searchsorted(cuts.equal, self.equal, "left")
        ends = np.searchsorted(cuts.equal, self.equal, "right")
        within = np.flatnonzero(ends > found)
        for value in np.unique(self.equal[within]):
            rows = within[self.equal[within] == value]
            start, end = np.searchsorted(cuts.equal, value), ends[rows[0]]
            ordered = cuts.ordered[start:end]
            found[rows] = start + np.searchsorted(ordered, self.ordered[rows], "right")
        return found


def places(sight: Sight, side: Side, batch: KeyedBatch, columns: list[Int64]) -> Places:
    """The places of a batch's rows; `columns` are those of the first conjunction."""
    at = sight.places(side)
    rows = batch.parts[0].rows
    whole = []
    for column in at:
        if column is None:
            whole.append(np.zeros(len(batch), np.int64))
        elif len(rows) == len(batch):
            whole.append(columns[column])
        else:
            filled = np.full(len(batch), INT64_MAX, np.int64)
            filled[rows] = columns[column]
            whole.append(filled)
    return Places(whole[0], whole[1])


@dataclass(frozen=True)
class Zones:
    """Runs of rows: where each begins and ends, how many rows it has, and its box."""

    first: Places
    last: Places
    rows: Int64
    boxes: Boxes

    def __len__(self) -> int:
        return self.rows.size

    @property
    def total(self) -> int:
        """Rows in all zones."""
        return int(self.rows.sum())

    def to_matrix(self) -> Int64:
        """All of it as one matrix of integers, a column for each zone."""
        ends = [self.first.equal, self.first.ordered, self.last.equal, self.last.ordered, self.rows]
        return np.vstack([*ends, *self.boxes.low, *self.boxes.high])

    @staticmethod
    def from_matrix(matrix: Int64, widths: list[int]) -> Zones:
        """Zones from the matrices of all tasks side by side; `widths` of the conjunctions."""
        splits = np.cumsum([5, *widths, *widths])[:-1]
        ends, *boxes = np.split(matrix, splits)
        number = len(widths)
        return Zones(
            Places(ends[0], ends[1]),
            Places(ends[2], ends[3]),
            ends[4],
            Boxes(boxes[:number], boxes[number:]),
        )

    def coarser(self, number: int) -> Zones:
        """At most `number` zones, neighbours taken together."""
        if len(self) <= number:
            return self
        order = self.first.order()
        weight = np.cumsum(self.rows[order])
        into = np.minimum((weight - self.rows[order]) * number // max(1, weight[-1]), number - 1)
        _, into = np.unique(into, return_inverse=True)
        count = int(into.max()) + 1
        rows = np.zeros(count, np.int64)
        np.add.at(rows, into, self.rows[order])
        firsts = np.searchsorted(into, np.arange(count))
        latest = self.last.take(order)
        ranks = np.empty(len(self), np.int64)
        ranks[latest.order()] = np.arange(len(self))
        last = np.zeros(count, np.int64)
        np.maximum.at(last, into, ranks)
        back = np.empty(len(self), np.intp)
        back[ranks] = np.arange(len(self))
        boxes = self.boxes.merge(order, into, count)
        return Zones(self.first.take(order[firsts]), latest.take(back[last]), rows, boxes)


def summarise(
    sights: tuple[Sight, ...], side: Side, batch: KeyedBatch, zones: int = ZONES
) -> Zones:
    """The zones of a batch of rows; O(n), or O(n log n) for few rows and with equal keys."""
    columns = [s.columns(side, rows) for s, rows in zip(sights, batch.parts, strict=True)]
    where = places(sights[0], side, batch, columns[0])
    by_key_alone = sights[0].places(side)[0] is None
    if by_key_alone and zones == CUTS + 1 and len(batch) > SMALL:
        zone, rows, first, last = _by_cuts(where.ordered)
    else:
        zone, rows, first, last = _by_order(where, zones)
    low: list[Int64] = []
    high: list[Int64] = []
    for part, values in zip(batch.parts, columns, strict=True):
        low.append(np.full((len(values), rows.size), INT64_MAX, np.int64))
        high.append(np.full((len(values), rows.size), INT64_MIN, np.int64))
        own = zone if len(part) == len(batch) else gather(zone, part.rows)
        for at, column in enumerate(values):
            fold_zones(column, own, low[-1][at], high[-1][at])
    filled = np.flatnonzero(rows)
    boxes = Boxes([m[:, filled] for m in low], [m[:, filled] for m in high])
    return Zones(first.take(filled), last.take(filled), rows[filled], boxes)


Cut = tuple[NDArray[np.int32], Int64, Places, Places]


def _by_order(where: Places, zones: int) -> Cut:
    """Each row's zone, all of one size; the zones' rows, first and last places."""
    order, size = where.order(), len(where)
    starts = np.unique(np.linspace(0, size, min(zones, size), endpoint=False).astype(np.intp))
    rows = np.diff(np.append(starts, size)).astype(np.int64)
    zone = np.empty(size, np.int32)
    zone[order] = np.repeat(np.arange(starts.size, dtype=np.int32), rows)
    return zone, rows, where.take(order[starts]), where.take(order[starts + rows - 1])


def _by_cuts(values: Int64) -> Cut:
    """The same of rows that stand by one key alone: cut by a sample of it, so of about one size."""
    sample = np.sort(values[:: max(1, values.size // SAMPLE)])
    cuts = sample[np.linspace(0, sample.size, CUTS + 1, endpoint=False).astype(np.intp)[1:]]
    zone, rows = np.empty(values.size, np.int32), np.zeros(CUTS + 1, np.int64)
    find_zones(values, cuts, zone, rows)
    low = np.full(CUTS + 1, INT64_MAX, np.int64)
    high = np.full(CUTS + 1, INT64_MIN, np.int64)
    fold_zones(values, zone, low, high)
    alone = np.zeros(CUTS + 1, np.int64)
    return zone, rows, Places(alone, low), Places(alone, high)
