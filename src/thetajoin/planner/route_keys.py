"""Where a row of a streaming join goes: the keys a routing needs, from a compiled join.

`thetajoin.routes` has the functions from keys to units, and `planner.route_plan` chooses among
them; here rows become the keys that they are given. In every one of these routings a unit is a join
of its own of what it is sent, and any two rows that match meet in exactly one unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Part, Side
from thetajoin.engine.rows import PartRows, make_batch
from thetajoin.index.interval import Interval
from thetajoin.planner.facets import Facet, Sight
from thetajoin.routes.cells import Cells, copies_of_intervals, units_of_points
from thetajoin.routes.copies import Copies
from thetajoin.routes.fingerprint import fingerprints
from thetajoin.routes.hashing import Int32, UInt64, hashes_of, units_of
from thetajoin.routes.matrix import Grid
from thetajoin.routes.ranges import BoxTree

# Places of a part's keys: of the left row and of the right one, which must be equal.
Equal = tuple[int, int]


class Route(Protocol):
    """Says for each row of a side which units are sent a copy."""

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """Every row has at least one copy, also one that can match nothing."""
        ...


def equalities(join: CompiledJoin) -> list[list[Equal]]:
    """For each part, the equalities that all parts have, in one order."""
    named = [{names_of(part, pair): pair for pair in _equal(part)} for part in join.parts]
    common = set.intersection(*(set(names) for names in named))
    return [[names[name] for name in sorted(common)] for names in named]


def _equal(part: Part) -> list[Equal]:
    view = part.views["r"]
    return [
        (ask.probe_key, key)
        for dim, key, asks in zip(view.shape.dims, view.stored, view.asks, strict=True)
        if dim.equal
        for ask in asks[:1]
    ]


def names_of(part: Part, pair: Equal) -> tuple[str, str]:
    """Both sides of an equality as SQL."""
    return part.keys["l"][pair[0]].expr.sql(), part.keys["r"][pair[1]].expr.sql()


def _keyed(join: CompiledJoin, rows: pa.RecordBatch, side: Side) -> tuple[PartRows, ...]:
    return make_batch(join.take_in(rows, side), side, join.parts, []).parts


def _whole_rows(rows: pa.RecordBatch, which: Int32 | None = None) -> UInt64:
    """Hashes of all that rows hold, or some of them."""
    return fingerprints(rows if which is None else rows.take(pa.array(which))).first


def _alone(rows: pa.RecordBatch, matchable: Int32, units: int) -> Copies | None:
    """One copy of each row that can match nothing: it may come out alone, and is counted."""
    if len(matchable) == rows.num_rows:
        return None
    mask = np.ones(rows.num_rows, np.bool_)
    mask[matchable] = False
    alone = np.flatnonzero(mask).astype(np.int32)
    return Copies(alone, units_of(_whole_rows(rows, alone), units))


@dataclass(frozen=True)
class HashRoute:
    """One copy of each row, in the unit that a hash of the keys that must be equal names.

    Rows of `hot` keys, by their hashes, are spread over several units: as a grid of them, or by
    cells of a further key.
    """

    join: CompiledJoin
    units: int
    hot: tuple[tuple[int, Grid], ...] = ()
    cells: CellRoute | None = None

    @cached_property
    def _equal(self) -> list[list[Equal]]:
        return equalities(self.join)

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """By the equal keys, which any part that has a row knows."""
        parts = _keyed(self.join, rows, side)
        found = np.full(rows.num_rows, -1, np.int32)
        hashes = np.zeros(rows.num_rows, np.uint64)
        # A row of a self-join may be able to match in one role only; its key is the same in both.
        roles: tuple[Side, ...] = SIDES if self.join.spec.self_join else (side,)
        for role in roles:
            for part, equal in zip(
                parts if role == side else _keyed(self.join, rows, role), self._equal, strict=True
            ):
                if len(part):
                    keys = [part.keys[pair[SIDES.index(role)]] for pair in equal]
                    made = hashes_of(keys, len(part))
                    found[part.rows] = units_of(made, self.units)
                    hashes[part.rows] = made
        alone = np.flatnonzero(found < 0).astype(np.int32)
        if alone.size:
            found[alone] = units_of(_whole_rows(rows, alone), self.units)
        if not self.hot:
            return Copies.single(found)
        return self._spread(rows, side, parts, found, hashes)

    def _spread(
        self,
        rows: pa.RecordBatch,
        side: Side,
        parts: tuple[PartRows, ...],
        found: Int32,
        hashes: UInt64,
    ) -> Copies:
        """The copies of rows of which some have a hot key."""
        matchable = np.zeros(rows.num_rows, np.bool_)
        for part in parts:
            matchable[part.rows] = True
        made: list[Copies] = []
        cold = np.ones(rows.num_rows, np.bool_)
        hot = np.array([key for key, _ in self.hot], np.uint64)
        if self.cells is not None:
            (part,) = parts
            mine = np.flatnonzero(np.isin(hashes[part.rows], hot)).astype(np.int32)
            if mine.size:
                cold[part.rows[mine]] = False
                made.append(self.cells.of_part(part.take(mine), side, hashes[part.rows[mine]]))
        else:
            for key, grid in self.hot:
                mine = np.flatnonzero((hashes == np.uint64(key)) & matchable).astype(np.int32)
                if mine.size:
                    cold[mine] = False
                    dealt = grid.copies(_whole_rows(rows, mine), side)
                    units = (dealt.units + key % self.units) % self.units
                    made.append(Copies(mine[dealt.rows], units.astype(np.int32), dealt.home))
        rest = np.flatnonzero(cold).astype(np.int32)
        return Copies.joined([Copies(rest, found[rest]), *made])


@dataclass(frozen=True)
class CellRoute:
    """One copy of each row of side `point`; of the other, one for each cell that it reaches.

    dim: which key of `point`, as the view that stores it numbers them.
    """

    join: CompiledJoin
    units: int
    point: Side
    dim: int
    cells: Cells

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """By the only part that the condition has."""
        (part,) = _keyed(self.join, rows, side)
        made = self.of_part(part, side)
        alone = _alone(rows, part.rows, self.units)
        return made if alone is None else Copies.joined([made, alone])

    def of_part(self, part: PartRows, side: Side, among: UInt64 | None = None) -> Copies:
        """The copies of rows that can match; `among` are hashes of keys that must be equal."""
        view = self.join.parts[0].views[self.point]
        if side == self.point:
            key = part.keys[view.stored[self.dim]]
            assert isinstance(key, np.ndarray)
            return Copies(part.rows, units_of_points(self.cells.of(key), among, self.units))
        asked = view.intervals(part.keys)[self.dim]
        assert isinstance(asked, Interval)
        found = copies_of_intervals(self.cells, asked.low, asked.high, among, self.units)
        return found._replace(rows=part.rows[found.rows])


@dataclass(frozen=True)
class MatrixRoute:
    """Left rows to a row of units, right rows to a column of them."""

    join: CompiledJoin
    units: int
    grid: Grid

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """By all that a row holds: nothing else spreads rows whatever the condition is."""
        return self.grid.copies(_whole_rows(rows), side)


@dataclass(frozen=True)
class RangeRoute:
    """One copy of each row of side `point`, in the box of its keys; others go where they reach."""

    join: CompiledJoin
    point: Side
    keys: tuple[str, ...]
    boxes: BoxTree

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """By the only part that the condition has."""
        (part,) = _keyed(self.join, rows, side)
        alone = _alone(rows, part.rows, self.boxes.units)
        hashes = _whole_rows(rows, None if alone is None else part.rows)
        if side == self.point:
            made = self.boxes.held(held_keys(self.join, side, self.keys, part), hashes)
        else:
            asked = asked_keys(self.join, self.point, self.keys, part)
            made = self.boxes.streamed(*asked, hashes)
        made = made._replace(rows=part.rows[made.rows])
        return made if alone is None else Copies.joined([made, alone])


def bounded_keys(join: CompiledJoin, side: Side) -> dict[str, Facet]:
    """The keys of a side that the other bounds, by their SQL; times are left out, for they grow."""
    part, found = join.parts[0], {}
    for facet in Sight(part).facets(side):
        if facet.column < len(part.keys[side]):
            expr = part.keys[side][facet.column].expr
            if not pa.types.is_temporal(expr.type):
                found[expr.sql()] = facet
    return found


def held_keys(join: CompiledJoin, side: Side, names: tuple[str, ...], part: PartRows) -> Int64:
    """Some keys of held rows, a row for each key."""
    columns = Sight(join.parts[0]).columns(side, part)
    facets = bounded_keys(join, side)
    return np.vstack([columns[facets[name].column] for name in names])


def asked_keys(
    join: CompiledJoin, held: Side, names: tuple[str, ...], part: PartRows
) -> tuple[Int64, Int64]:
    """What rows of the other side ask of these keys: both ends, a row for each key."""
    columns = Sight(join.parts[0]).columns(OTHER[held], part)
    facets = bounded_keys(join, held)
    asked = [facets[name].rows(columns) for name in names]
    open_low = np.full(len(part), INT64_MIN, np.int64)
    open_high = np.full(len(part), INT64_MAX, np.int64)
    low = [open_low if interval.low is None else interval.low for interval in asked]
    high = [open_high if interval.high is None else interval.high for interval in asked]
    return np.vstack(low), np.vstack(high)
