"""One side's rows, ready to answer questions: an index, and columns to add up."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.aggregate.columns import Piece, pieces_of, present, rank_values
from thetajoin.aggregate.solve import (
    MOST_ORDERS,
    Answer,
    Axis,
    Plane,
    Ranges,
    narrow,
    part_of,
    solve,
)
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import State
from thetajoin.batch.keys import Int64
from thetajoin.engine.parts import Side
from thetajoin.engine.rows import evaluate_side
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Arrivals, Probe
from thetajoin.kernels import exact_sums
from thetajoin.kernels.order import gather, invert, order_of
from thetajoin.kernels.threads import Mapper

# With more different ranges of visible rows than this, arrival becomes one more order.
MOST_RANGES = 6


@dataclass(frozen=True)
class Refused:
    """Why matches must be listed."""

    why: str


@dataclass(frozen=True)
class PlaneTerms:
    """What the rows of a plane's sums and ranks mean: term numbers with pieces or rows by rank."""

    pieces: list[tuple[int, Piece | None]]
    extremes: list[tuple[int, Int64]]


@dataclass
class Segment:
    """Rows of one side, indexed; `memo` keeps what later questions can use, None keeps nothing."""

    index: PoJoin
    table: pa.RecordBatch
    side: Side
    arrivals: Arrivals
    memo: dict[Any, Any] | None
    mapper: Mapper

    def _remember(self, key: str, make: Any) -> Any:
        if self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def count(self, probe: Probe, apart: Int64 | None = None) -> Int64 | Refused:
        """How many rows each probe matches; not the one with the arrival number `apart`."""
        memo = None if self.memo is None else self.memo.setdefault("counting", {})
        plane = Plane(self.index.size, [], [], memo, self.mapper)
        found = self._solve(probe, plane, apart)
        return found if isinstance(found, Refused) else found.totals[0]

    def answer(
        self,
        probe: Probe,
        spec: AggSpec,
        state: State,
        codes: Int64,
        apart: Int64 | None = None,
    ) -> Int64 | Refused:
        """Add each probe's matches to the state's group ``codes``; how many there were of each.

        The row with the arrival number `apart` is not counted as a probe's match.
        """
        made = self._remember("plane", lambda: self._plane(spec))
        if isinstance(made, Refused):
            return made
        plane, terms = made
        plane.mapper = self.mapper
        found = self._solve(probe, plane, apart)
        if isinstance(found, Refused):
            return found
        pairs: Int64 = found.totals[0]
        exact_sums.count_at(codes, pairs, state.pairs)
        floats: dict[int, list[tuple[Piece, Int64]]] = {}
        for (at, piece), totals in zip(terms.pieces, found.totals[1:], strict=True):
            if piece is None:
                exact_sums.count_at(codes, totals, state.counts[at])
            elif state.sums[at].words:
                exact_sums.add_at(codes, totals, piece.shift, *state.sums[at].words[piece.word])
            else:
                floats.setdefault(at, []).append((piece, totals))
        for at in self._find_counted(spec):
            if at not in {number for number, piece in terms.pieces if piece is None}:
                exact_sums.count_at(codes, pairs, state.counts[at])
        for at, pieces in floats.items():
            _add_floats(state, at, pieces, codes)
        for (at, by_rank), least in zip(terms.extremes, found.least, strict=True):
            of_group = np.full(state.size, np.iinfo(np.int64).max, np.int64)
            exact_sums.least_at(codes, least, of_group)
            state.add_best(at, of_group, self._array(spec, at), by_rank)
        return pairs

    def _find_counted(self, spec: AggSpec) -> list[int]:
        return [
            at
            for at, term in enumerate(spec.terms)
            if term.side == self.side and term.kind == "count"
        ]

    def _array(self, spec: AggSpec, at: int) -> pa.Array:
        return evaluate_side(spec.terms[at].expr, self.side, self.table)

    def _plane(self, spec: AggSpec) -> tuple[Plane, PlaneTerms] | Refused:
        """The terms' values in primary order: pieces to add up, ranks to take the least of."""
        rid, sums, ranks = self.index.rid, [], []
        terms = PlaneTerms([], [])
        for at, term in enumerate(spec.terms):
            if term.side != self.side:
                continue
            array = self._array(spec, at)
            if term.kind == "count":
                if array.null_count:
                    terms.pieces.append((at, None))
                    sums.append(gather(present(array).astype(np.int64), rid))
            elif term.kind == "sum":
                pieces = pieces_of(array, self.index.size)
                if pieces is None:
                    return Refused(f"{term.expr} has values too far apart to add exactly")
                for piece in pieces:
                    terms.pieces.append((at, piece))
                    sums.append(gather(piece.values, rid))
            else:
                rank, by_rank = rank_values(array, largest=term.kind == "max")
                terms.extremes.append((at, by_rank))
                ranks.append(gather(rank, rid))
        memo: dict[Any, Any] | None = None if self.memo is None else {}
        return Plane(self.index.size, sums, ranks, memo, self.mapper), terms

    def _solve(self, probe: Probe, plane: Plane, apart: Int64 | None) -> Answer | Refused:
        """Each probe's matches, as totals and least ranks."""
        answer = Answer.empty(plane, probe.size)
        visible = probe.find_visible(self.arrivals) if self.index.size and probe.size else None
        if visible is None:
            return answer
        spans = self.index.spans(probe, self.mapper)
        if spans is None:
            return Refused("two sets of equal keys share a hash")
        axes = [
            Axis(order, *span, name=dim, rising=spans.rising.get(dim), runs=spans.runs)
            for dim, order, span in spans.others
        ]
        few = _find_ranges(visible[1], visible[2]) if visible[0] else None
        if visible[0] and few is None:
            axes.append(self._arrival_axis(visible[1], visible[2]))
        if len(axes) + len(spans.excluded) + 1 > MOST_ORDERS:
            return Refused(f"more than {MOST_ORDERS} orders of rows decide")
        around = [
            (
                Axis(order, spans.runs[0], span[0], name=("not", dim)),
                Axis(order, span[1], spans.runs[1], name=("not", dim)),
            )
            for dim, order, span in spans.excluded
        ]
        ranges, behind = self._leave_out(apart, spans.primary, axes)
        if few is None and behind is None and not around:
            return solve(plane, ranges, axes)
        for outside in itertools.product(*around):
            sides = [*outside, *axes]
            for chosen, low, high in few or []:
                self._answer_within(plane, ranges, sides, chosen, low, high, answer)
            if few is None:
                answer.add(solve(plane, ranges, sides))
            if behind is not None:
                chosen, rest = behind
                some = [narrow(axis, chosen) for axis in sides]
                answer.add_at(chosen, solve(plane, rest, some))
        return answer

    def _leave_out(
        self, apart: Int64 | None, primary: Ranges, axes: list[Axis]
    ) -> tuple[Ranges, tuple[Int64, Ranges] | None]:
        """Ranges without the row that a probe must not be given.

        Where that row is in a probe's box, the range ends before it, and a second one, given with
        the probe's number, begins behind it.
        """
        if apart is None:
            return primary, None
        place = np.full(self.arrivals.rows, -1, np.int32)
        place[self.index.rid] = np.arange(self.index.size, dtype=np.int32)
        row = np.minimum(self.arrivals.rows_before(apart), self.arrivals.rows - 1)
        at = np.where(gather(self.arrivals.numbers(), row) == apart, gather(place, row), -1)
        starts, ends = primary
        inside = (starts <= at) & (at < ends)
        for axis in axes:
            where = invert(axis.order)[at]
            inside &= (axis.start <= where) & (where < axis.end)
        if not inside.any():
            return primary, None
        chosen = np.flatnonzero(inside)
        behind = (at[chosen] + 1).astype(np.int32), ends[chosen]
        return (starts, np.where(inside, at, ends).astype(np.int32)), (chosen, behind)

    def _answer_within(
        self,
        plane: Plane,
        primary: Ranges,
        axes: list[Axis],
        chosen: Int64,
        low: int,
        high: int,
        answer: Answer,
    ) -> None:
        """Answer probes that all see the rows from `low` to `high`, and no others."""
        if low > high:
            return
        starts, ends = (gather(bound, chosen) for bound in primary)
        axes = [narrow(axis, chosen) for axis in axes]
        if low > 0 or high < self.arrivals.rows - 1:
            plane, (starts, ends), axes = part_of(
                plane, (starts, ends), axes, (self.index.rid >= low) & (self.index.rid <= high)
            )
        answer.add_at(chosen, solve(plane, (starts, ends), axes))

    def _arrival_axis(self, low: Int64, high: Int64) -> Axis:
        order = self._remember("arrival", lambda: order_of(self.index.rid.astype(np.int64)))
        numbers = gather(self.index.rid, order)
        start = np.searchsorted(numbers, low, side="left").astype(np.int32)
        end = np.searchsorted(numbers, high, side="right").astype(np.int32)
        return Axis(order, start, np.maximum(start, end), name="arrival")


def _find_ranges(low: Int64, high: Int64) -> list[tuple[Int64, int, int]] | None:
    """The probes by the rows they see, if they see few different ranges: with a slide, they do."""
    found = []
    waiting = np.arange(low.size)
    for _ in range(MOST_RANGES):
        if not waiting.size:
            break
        first = waiting[0]
        mine = (low[waiting] == low[first]) & (high[waiting] == high[first])
        found.append((waiting[mine], int(low[first]), int(high[first])))
        waiting = waiting[~mine]
    return None if waiting.size else found


def _add_floats(state: State, at: int, pieces: list[tuple[Piece, Int64]], codes: Int64) -> None:
    """Add the exact sums of a float's pieces, rounded once for each group."""
    sums = state.sums[at]
    for piece, totals in sorted(pieces, key=lambda item: -item[0].shift):
        if piece.special is not None:
            exact_sums.add_special_float(codes, totals, piece.special, sums.floats, sums.errors)
            continue
        high, low = np.zeros(state.size, np.int64), np.zeros(state.size, np.uint64)
        exact_sums.add_at(codes, totals, 0, high, low)
        exact_sums.add_words_to_floats(high, low, piece.shift, sums.floats, sums.errors)
