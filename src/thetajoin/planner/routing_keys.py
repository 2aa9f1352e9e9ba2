"""Where a row of a join goes: the keys that a routing needs, from a compiled join.

`thetajoin.routes` has the functions from keys to units, and `planner.routing` chooses among them;
here rows become the keys that they are given, and bands of the condition their widths. In every
routing but `broadcast` a unit is a join of its own of what it is sent, and any two rows that match
meet in exactly one unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import isfinite
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Distance, FloatBand, Part, Side
from thetajoin.engine.rows import PartRows, make_batch
from thetajoin.index.interval import Interval
from thetajoin.planner.zones import Facet, Sight
from thetajoin.predicate.nodes import Call, Cast, Expr, Literal
from thetajoin.routes.copies import (
    BoxTree,
    Copies,
    Grid,
    Int32,
    KeyCells,
    UInt64,
    copies_of_intervals,
    hashes_of,
    units_of,
    units_of_points,
)
from thetajoin.routes.fingerprint import fingerprints

Mask = NDArray[np.bool_]
# Places of a part's keys: of the left row and of the right one, which must be equal.
Equal = tuple[int, int]
_ABOVE, _BELOW = ("<", "<="), (">", ">=")  # as in `probe < stored`


class Route(Protocol):
    """Says for each row of a side which units are sent a copy."""

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """Every row has at least one copy, also one that can match nothing."""
        ...


def equalities(join: CompiledJoin) -> list[list[Equal]]:
    """For each part, the equalities that all parts have, in one order."""
    named = [{names_of(part, pair): pair for pair in Sight(part).equal} for part in join.parts]
    common = set.intersection(*(set(names) for names in named))
    return [[names[name] for name in sorted(common)] for names in named]


def names_of(part: Part, pair: Equal) -> tuple[str, str]:
    """Both sides of an equality as SQL."""
    return part.keys["l"][pair[0]].expr.sql(), part.keys["r"][pair[1]].expr.sql()


def _key_rows(join: CompiledJoin, rows: pa.RecordBatch, side: Side) -> tuple[PartRows, ...]:
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
    cells of a further key. With `lone`, rows that can match nothing have a copy too. A row of a
    self-join has both roles in its one unit; as a right row it only visits those of hot keys.
    """

    join: CompiledJoin
    units: int
    hot: tuple[tuple[int, Grid], ...] = ()
    cells: CellRoute | None = None
    lone: bool = True

    @cached_property
    def _equal(self) -> list[list[Equal]]:
        return equalities(self.join)

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """By the equal keys, which any part that has a row knows."""
        parts = _key_rows(self.join, rows, side)
        found = np.full(rows.num_rows, -1, np.int32)
        hashes = np.zeros(rows.num_rows, np.uint64)
        # A row of a self-join may be able to match in one role only; its key is the same in both.
        self_join = self.join.spec.self_join
        roles: tuple[Side, ...] = SIDES if self_join else (side,)
        for role in roles:
            for part, equal in zip(
                parts if role == side else _key_rows(self.join, rows, role),
                self._equal,
                strict=True,
            ):
                if len(part):
                    keys = [part.keys[pair[SIDES.index(role)]] for pair in equal]
                    made = hashes_of(keys, len(part))
                    found[part.rows] = units_of(made, self.units)
                    hashes[part.rows] = made
        matchable = found >= 0
        alone = np.flatnonzero(~matchable).astype(np.int32)
        if alone.size and self.lone:
            found[alone] = units_of(_whole_rows(rows, alone), self.units)
        if not self.hot and (self.lone or not alone.size) and not (self_join and side == "r"):
            return Copies.single(found)
        spread, cold = self._spread(rows, side, parts, hashes, matchable)
        if self_join and side == "r":
            cold[:] = False
        rest = np.flatnonzero(cold & (found >= 0)).astype(np.int32)
        kept = Copies(rest, found[rest])
        return Copies.concat([kept, *spread]) if spread else kept

    def _spread(
        self,
        rows: pa.RecordBatch,
        side: Side,
        parts: tuple[PartRows, ...],
        hashes: UInt64,
        matchable: Mask,
    ) -> tuple[list[Copies], Mask]:
        """The copies of rows that have a hot key, and which rows have none."""
        made: list[Copies] = []
        cold = np.ones(rows.num_rows, np.bool_)
        hot = np.array([key for key, _ in self.hot], np.uint64)
        if self.cells is not None and self.hot:
            (part,) = parts
            mine = np.flatnonzero(np.isin(hashes[part.rows], hot)).astype(np.int32)
            if mine.size:
                cold[part.rows[mine]] = False
                made.append(self.cells.of_part(part.take(mine), side, hashes[part.rows[mine]]))
            return made, cold
        for key, grid in self.hot:
            mine = np.flatnonzero((hashes == np.uint64(key)) & matchable).astype(np.int32)
            if mine.size:
                cold[mine] = False
                prints = _whole_rows(rows, mine)
                if self.join.spec.self_join:
                    dealt = grid.copies_in_pairs(prints, side)
                else:
                    dealt = grid.copies(prints, side)
                units = (dealt.units + key % self.units) % self.units
                made.append(Copies(mine[dealt.rows], units.astype(np.int32), dealt.home))
        return made, cold


@dataclass(frozen=True)
class CellRoute:
    """One copy of each row of side `point`; of the other, one for each cell that it reaches.

    dim: which key of `point`, as the view that stores it numbers them.
    """

    join: CompiledJoin
    units: int
    point: Side
    dim: int
    cells: KeyCells

    def copies(self, rows: pa.RecordBatch, side: Side) -> Copies:
        """By the only part that the condition has."""
        (part,) = _key_rows(self.join, rows, side)
        made = self.of_part(part, side)
        alone = _alone(rows, part.rows, self.units)
        return made if alone is None else Copies.concat([made, alone])

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
        if self.join.spec.self_join:
            return self.grid.copies_in_pairs(_whole_rows(rows), side)
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
        (part,) = _key_rows(self.join, rows, side)
        alone = _alone(rows, part.rows, self.boxes.units)
        hashes = _whole_rows(rows, None if alone is None else part.rows)
        if side == self.point:
            made = self.boxes.route_held(take_held(self.join, side, self.keys, part), hashes)
        else:
            asked = take_asked(self.join, self.point, self.keys, part)
            made = self.boxes.route_streamed(*asked, hashes)
        made = made._replace(rows=part.rows[made.rows])
        return made if alone is None else Copies.concat([made, alone])


def find_bounded(join: CompiledJoin, side: Side) -> dict[str, Facet]:
    """The keys of a side that the other bounds, by their SQL; times are left out, for they grow."""
    part, found = join.parts[0], {}
    for facet in Sight(part).facets(side):
        if facet.column < len(part.keys[side]):
            expr = part.keys[side][facet.column].expr
            if not pa.types.is_temporal(expr.type):
                found[expr.sql()] = facet
    return found


def take_held(join: CompiledJoin, side: Side, names: tuple[str, ...], part: PartRows) -> Int64:
    """Some keys of held rows, a row for each key."""
    columns = Sight(join.parts[0]).columns(side, part)
    facets = find_bounded(join, side)
    return np.vstack([columns[facets[name].column] for name in names])


def take_asked(
    join: CompiledJoin, held: Side, names: tuple[str, ...], part: PartRows
) -> tuple[Int64, Int64]:
    """What rows of the other side ask of these keys: both ends, a row for each key."""
    columns = Sight(join.parts[0]).columns(OTHER[held], part)
    facets = find_bounded(join, held)
    asked = [facets[name].rows(columns) for name in names]
    open_low = np.full(len(part), INT64_MIN, np.int64)
    open_high = np.full(len(part), INT64_MAX, np.int64)
    low = [open_low if interval.low is None else interval.low for interval in asked]
    high = [open_high if interval.high is None else interval.high for interval in asked]
    return np.vstack(low), np.vstack(high)


class Band(NamedTuple):
    """A key of a side, by its place in the view that stores it, and its band's width.

    floats: whether the width is in doubles, else in the key's own whole numbers.
    """

    dim: int
    width: float
    floats: bool


def bands(part: Part, point: Side) -> list[Band]:
    """The keys of a side that the other bounds from both sides, a known distance apart."""
    found = []
    for dim in range(len(part.views[point].asks)):
        width = _by_distance(part, point, dim) or _by_two_ends(part, point, dim)
        if width is not None:
            found.append(Band(dim, *width))
    return found


def _by_distance(part: Part, point: Side, dim: int) -> tuple[float, bool] | None:
    wholes: dict[int, Distance] = {}
    for ask in part.views[point].asks[dim]:
        bound: str | Distance | FloatBand = ask.bound
        if isinstance(bound, Distance):
            # The two ends may have been written as two conditions.
            known = wholes.get(ask.probe_key, Distance(None, None))
            wholes[ask.probe_key] = bound = known & bound
        if isinstance(bound, str) or bound.low is None or bound.high is None:
            continue
        if isinstance(bound, Distance):
            return max(int(bound.high) - int(bound.low) + 1, 1), False
        return float(bound.high - bound.low), True
    return None


def _by_two_ends(part: Part, point: Side, dim: int) -> tuple[float, bool] | None:
    """The distance of two ends that are one expression of the other side, plus constants."""
    view = part.views[point]
    type_ = part.keys[point][view.stored[dim]].expr.type
    floats = bool(pa.types.is_floating(type_))
    if not floats and not pa.types.is_integer(type_):
        return None
    ends = [(ask.bound, part.keys[OTHER[point]][ask.probe_key].expr) for ask in view.asks[dim]]
    lows = [_split_constant(expr) for bound, expr in ends if bound in _ABOVE]
    highs = [_split_constant(expr) for bound, expr in ends if bound in _BELOW]
    widths = [high[1] - low[1] for low in lows for high in highs if low[0] == high[0]]
    reachable = [width for width in widths if width >= 0 and isfinite(width)]
    if not reachable:
        return None
    return (min(reachable), True) if floats else (max(int(min(reachable)) + 1, 1), False)


def _split_constant(expr: Expr) -> tuple[Expr, float]:
    """An expression as another one plus a constant."""
    if isinstance(expr, Cast) and expr.implicit:
        return _split_constant(expr.arg)
    if isinstance(expr, Call) and expr.name in ("+", "-") and len(expr.args) == 2:
        first, second = expr.args
        constant = _number(second)
        if constant is not None:
            base, shift = _split_constant(first)
            return base, shift + (constant if expr.name == "+" else -constant)
        constant = _number(first)
        if constant is not None and expr.name == "+":
            base, shift = _split_constant(second)
            return base, shift + constant
    return expr, 0.0


def _number(expr: Expr) -> float | None:
    if isinstance(expr, Cast):
        return _number(expr.arg)
    if isinstance(expr, Literal) and isinstance(expr.value, int | float | Decimal):
        return float(expr.value)
    return None
