"""What a partitioning sees of rows: every key of the condition as integers, and boxes of them.

A box holds the least and largest value of each key over some rows. Whether a row can match any row
of a box follows from the condition alone, so rows are sent only where a match may be. Byte strings
are seen by their first eight bytes where they are compared for order, and by a hash for equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64, Key, mixed
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Distance, FloatBand, Part, Side
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.index.interval import Interval, interval_around, interval_of
from thetajoin.kernels.hashes import hash_bytes, prefix_bytes

Mask = NDArray[np.bool_]
_LOOSE = {"<": "<=", ">": ">="}


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

    def _hashed(self, side: Side) -> list[int]:
        return [at for at, key in enumerate(self.part.keys[side]) if key.is_bytes]

    def width(self, side: Side) -> int:
        """Number of columns."""
        return len(self.part.keys[side]) + len(self._hashed(side)) + (len(self.equal) > 1)

    def equal_column(self, side: Side, key: int) -> int:
        """The column in which equal keys are equal: the key itself, or its hash."""
        hashed = self._hashed(side)
        return len(self.part.keys[side]) + hashed.index(key) if key in hashed else key

    def columns(self, side: Side, rows: PartRows) -> list[Int64]:
        """The rows' columns."""
        columns = [_integers(key) for key in rows.keys]
        columns += [_hashes(rows.keys[at]) for at in self._hashed(side)]
        if len(self.equal) > 1:
            at = 0 if side == "l" else 1
            columns.append(mixed([columns[self.equal_column(side, p[at])] for p in self.equal]))
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

    def merged(self, of: NDArray[Any], into: NDArray[Any], number: int) -> Boxes:
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
        return self.merged(np.arange(number), np.zeros(number, np.intp), 1)

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


class Rows:
    """Probing rows against boxes of the other side."""

    def __init__(self, sights: tuple[Sight, ...], side: Side, batch: KeyedBatch) -> None:
        """Compute what each row asks for; `side` is the probing rows' own."""
        self.side, self.batch = side, batch
        self.columns = [s.columns(side, p) for s, p in zip(sights, batch.parts, strict=True)]
        self._asked = [
            [(facet.column, facet.rows(columns)) for facet in sight.facets(OTHER[side])]
            for sight, columns in zip(sights, self.columns, strict=True)
        ]

    def matching(self, boxes: Boxes, box: int) -> NDArray[np.int32]:
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
