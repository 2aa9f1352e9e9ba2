"""Joins with whole tables: of two, of one beside a stream, of one that is held while rows pass.

Nothing of such a join is kept for later rows, so only what is probed at once is built.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.arrays import fill
from thetajoin.batch.keys import BytesKey
from thetajoin.engine.block import Block, Flags, make_sorted_block, make_unsorted_block
from thetajoin.engine.joiner import See
from thetajoin.engine.layout import preserves
from thetajoin.engine.parts import MIRROR, OTHER, SIDES, Ask, Part, Side, View
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.engine.state import JoinState, mapper_of
from thetajoin.engine.step import Meeting, Sink
from thetajoin.errors import OptionError, WindowError
from thetajoin.index.probe import Arrivals, Dim, Shape
from thetajoin.kernels.jit import few_rows
from thetajoin.limits import limits
from thetajoin.paper_options import PO_JOIN
from thetajoin.window.windows import CountWindow

if TYPE_CHECKING:
    from thetajoin.engine.compiled import CompiledJoin


Singles = Literal["none", "matched", "unmatched"]
# Joins in which each row of the streaming side can be settled without seeing the others.
ALLOWED: dict[Side, tuple[str, ...]] = {
    "l": ("inner", "left", "semi", "anti"),
    "r": ("inner", "right"),
}


def join_tables(
    join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch
) -> Generator[pa.RecordBatch, None, None]:
    """The result of a join of two tables, in batches of bounded size."""
    window, index = join.window, join.options.index
    if isinstance(window, CountWindow) or index != PO_JOIN:
        batches = _run_as_stream(join, left, right)
    else:
        batches = _run_once(join, left, right)
    with closing(batches):
        while True:
            with few_rows(left.num_rows + right.num_rows):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _run_as_stream(
    join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch
) -> Generator[pa.RecordBatch, None, None]:
    state = JoinState(join)
    yield from state.run(left, right, last=True)
    yield from state.finish()


def _run_once(
    join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch
) -> Generator[pa.RecordBatch, None, None]:
    yield from _OneShot(join, left, right).run()


class _OneShot:
    """Both tables, keyed once, and which of their rows have found a match."""

    def __init__(self, join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        self._join, self._how = join, join.spec.how
        given = {"l": left, "r": right}
        with mapper_of(join, left.num_rows + right.num_rows) as mapper:
            keyed = mapper(lambda side: join.key_rows(given[side], side), SIDES)
        self._batches: dict[Side, KeyedBatch] = dict(zip(SIDES, keyed, strict=True))
        self._flags: dict[Side, Flags] = {
            side: fill(len(batch), False, np.bool_)
            for side, batch in self._batches.items()
            if preserves(self._how, side)
        }

    def run(self) -> Iterator[pa.RecordBatch]:
        """Matches as they are found, then the rows that come out alone."""
        sink = Sink(self._join.joiner, wants_pairs=self._how not in ("semi", "anti"))
        for look in self._plan_look_ups():
            yield from self._carry_out(look, sink)
        for side, flags in self._flags.items():
            yield from self._join.give_rest(side, self._batches[side].table, flags)

    def _plan_look_ups(self) -> Iterator[LookUp]:
        left, right = self._batches["l"], self._batches["r"]
        for part, *rows in zip(self._join.parts, left.parts, right.parts, strict=True):
            yield from plan_look_ups(part, *rows)

    def _carry_out(self, look: LookUp, sink: Sink) -> Iterator[pa.RecordBatch]:
        """One look-up: the stored side is sorted, and the other one probes it."""
        probing = OTHER[look.stored]
        if not all(len(rows) for rows in look.rows.values()):
            return
        batch = KeyedBatch(self._batches[probing].table, (look.rows[probing],))
        block = self._block(look)
        sink.own(block)
        see = None
        if self._join.spec.self_join:  # no row with itself
            see = See(None, None, np.arange(len(batch)))
        meeting = Meeting(probing, batch, [block], see, self._flags.get(probing))
        yield from sink.take(meeting, replace(self._join.joiner, parts=(look.part,)))

    def _block(self, look: LookUp) -> Block:
        """The stored side's rows, sorted; as they come where they are few."""
        view, table = look.part.views[look.stored], self._batches[look.stored].table
        batch = KeyedBatch(table, (look.rows[look.stored],))
        args = Arrivals.dense(0, len(batch)), batch, [view.shape], [view.stored]
        flags = self._flags.get(look.stored)
        few = len(batch) <= self._join.options.head_rows // 2
        many_probes = len(look.rows[OTHER[look.stored]]) >= limits.sorted_probes
        if view.shape.run and many_probes:  # an equality that many look up
            few = False
        if few and not any(dim.is_bytes for dim in view.shape.dims):
            return make_unsorted_block(*args, settled=flags, times=None, capacity=0)
        with mapper_of(self._join, len(batch)) as mapper:
            return make_sorted_block(*args, settled=flags, times=None, mapper=mapper)


class StaticJoin:
    """The join of a stream, which is one side, with a table, which is the other."""

    def __init__(self, join: CompiledJoin, streaming: Side, table: pa.RecordBatch) -> None:
        """Index the table once."""
        how, other = join.spec.how, OTHER[streaming]
        if how not in ALLOWED[streaming]:
            name = "left" if streaming == "l" else "right"
            raise OptionError(
                f"how={how!r} with a stream on the {name} and a table on the other side: which of "
                "the table's rows are unmatched would never be known; use "
                f"{', '.join(ALLOWED[streaming])}"
            )
        refuse_count_window(join)
        self._join, self._side = join, streaming
        batch = join.key_rows(table, other)
        times = join.times(batch.table, other)
        self._blocks = [join.new_store(other).block_of(batch, times)]
        self.table = batch.table

    def meet(self, rows: pa.RecordBatch) -> Meeting:
        """A batch of the stream, and the table that it meets."""
        batch = self._join.key_rows(rows, self._side)
        flags = None if self._join.spec.how == "inner" else np.zeros(len(batch), np.bool_)
        return Meeting(self._side, batch, self._blocks, flags=flags)

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output of a batch of the stream, which is done with once it has probed."""
        meeting, join = self.meet(rows), self._join
        joiner = join.joiner.limit_width(self.table, meeting.batch.table)
        sink = Sink(joiner, wants_pairs=join.spec.how not in ("semi", "anti"))
        yield from sink.take(meeting)
        if meeting.flags is not None:
            yield from join.give_rest(self._side, meeting.batch.table, meeting.flags)


def refuse_count_window(join: CompiledJoin) -> None:
    """Refuse to count the rows of a table beside a stream."""
    if isinstance(join.window, CountWindow):
        raise WindowError(
            "a CountWindow counts rows as they arrive, and a table has none that arrive: use "
            "FullHistory() or a TimeWindow"
        )


class HeldJoin:
    """One side's rows, held, and the other's as they pass: a task of a distributed join.

    Memory holds the held rows and one chunk of the others. Where pairs are wanted the held rows are
    indexed once and probed by each chunk; where only a match matters, each chunk is indexed and
    probed by the held rows that have found none yet.
    """

    def __init__(
        self,
        join: CompiledJoin,
        held: Side,
        rows: pa.RecordBatch,
        *,
        pairs: bool = True,
        singles: Singles = "none",
    ) -> None:
        """Key the held rows, and index them where pairs are wanted. O(n log n)."""
        self._join, self._held = join, held
        self._singles = singles
        self._batch = join.key_rows(rows, held)
        self._matched = np.zeros(len(self._batch), np.bool_)
        self._block: Block | None = None
        if pairs:
            flags = None if singles == "none" else self._matched
            self._block = self._index(self._batch, held, flags)

    def _index(self, batch: KeyedBatch, side: Side, flags: Flags | None) -> Block:
        times = self._join.times(batch.table, side)
        return self._join.new_store(side).block_of(batch, times).with_marks(flags)

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The pairs that a chunk of the other side gives."""
        join, other, block = self._join, OTHER[self._held], self._block
        chunk = join.key_rows(rows, other)
        if block is not None:
            joiner = join.joiner.limit_width(self._batch.table, chunk.table)
            sink = Sink(joiner, wants_pairs=True, own=[block])
            yield from sink.take(Meeting(other, chunk, [block]))
            return
        waiting = KeyedBatch(
            self._batch.table,
            tuple(part.where(~self._matched[part.rows]) for part in self._batch.parts),
        )
        index = self._index(chunk, other, None)
        meeting = Meeting(self._held, waiting, [index], flags=self._matched)
        yield from Sink(join.joiner, wants_pairs=False).take(meeting)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Held rows that matched, or those that did not, whichever are wanted."""
        if self._singles == "none":
            return
        wanted = self._matched if self._singles == "matched" else ~self._matched
        yield from self._join.give_alone(self._held, self._batch.table, np.flatnonzero(wanted))


# With a larger share of intervals that end before they begin, the columns are no intervals.
MOST_REVERSED = 0.01


@dataclass(frozen=True)
class LookUp:
    """A part of a condition, carried out alone: which side is stored, and both sides' rows."""

    part: Part
    stored: Side
    rows: dict[Side, PartRows]


@dataclass(frozen=True)
class Overlap:
    """Which keys of a part are the ends of intervals.

    starts, ends: positions among the keys of a side. ends_op: ``l.start op r.end``; starts_op:
    ``r.start op l.end``. dims: those of the right side's view that are compared.
    """

    starts: dict[Side, int]
    ends: dict[Side, int]
    ends_op: str
    starts_op: str


def overlap_of(part: Part) -> Overlap | None:
    """The ends of intervals that a part compares; None if it compares something else."""
    found: dict[str, tuple[int, int, str]] = {}
    view = part.views["r"]
    for dim, asks, right in zip(view.shape.dims, view.asks, view.stored, strict=True):
        if dim.equal or dim.negate:
            continue
        if len(asks) != 1 or not isinstance(asks[0].bound, str) or dim.is_bytes:
            return None
        (ask,) = asks
        found.setdefault(str(ask.bound)[0], (ask.probe_key, right, str(ask.bound)))
    ordered = [dim for dim in view.shape.dims if not dim.equal and not dim.negate]
    if len(ordered) != 2 or set(found) != {"<", ">"}:
        return None
    (l_start, r_end, ends_op), (l_end, r_start, starts_op) = found["<"], found[">"]
    keys = part.keys
    types = {keys["l"][l_start].expr.type, keys["r"][r_start].expr.type}
    types |= {keys["l"][l_end].expr.type, keys["r"][r_end].expr.type}
    if len(types) != 1 or l_start == l_end or r_start == r_end:
        return None
    return Overlap(
        {"l": l_start, "r": r_start}, {"l": l_end, "r": r_end}, ends_op, MIRROR[starts_op]
    )


def plan_look_ups(part: Part, left: PartRows, right: PartRows) -> Iterator[LookUp]:
    """How to find a part's matches between whole tables: as it is, or as two look-ups."""
    rows: dict[Side, PartRows] = {"l": left, "r": right}
    overlap = overlap_of(part)
    if overlap is not None:
        proper: dict[Side, NDArray[np.bool_]] = {
            "l": _find_proper(left, overlap, "l", "<="),
            "r": _find_proper(right, overlap, "r", overlap.ends_op),
        }
        reversed_rows = {side: (~proper[side]).sum() for side in proper}
        if all(reversed_rows[side] <= MOST_REVERSED * len(rows[side]) for side in proper):
            yield from _look_ups_of_overlap(part, overlap, rows, proper)
            return
    fewer = _count_ordered(part.views["l"]) < _count_ordered(part.views["r"])
    yield LookUp(part, "l" if fewer else "r", rows)


def _look_ups_of_overlap(
    part: Part,
    overlap: Overlap,
    rows: dict[Side, PartRows],
    proper: dict[Side, NDArray[np.bool_]],
) -> Iterator[LookUp]:
    starts, ends = overlap.starts, overlap.ends
    after = _view(
        part.views["r"],
        starts["r"],
        (Ask(starts["l"], "<="), Ask(ends["l"], MIRROR[overlap.starts_op])),
    )
    inside = _view(
        part.views["l"],
        starts["l"],
        (Ask(starts["r"], "<"), Ask(ends["r"], MIRROR[overlap.ends_op])),
    )
    # The right start inside the left interval, and the left start inside the right one.
    first = replace(part, views={"l": part.views["l"], "r": after})
    second = replace(part, views={"l": inside, "r": part.views["r"]})
    yield LookUp(first, "r", {"l": rows["l"], "r": rows["r"].where(proper["r"])})
    yield LookUp(second, "l", {"l": rows["l"].where(proper["l"]), "r": rows["r"]})
    # What neither finds: intervals that end before they begin, on the side that they begin on.
    if not proper["r"].all():
        yield _look_up_reversed(part, "r", overlap, rows, proper)
    if not proper["l"].all():
        yield _look_up_reversed(part, "l", overlap, rows, proper)


def _look_up_reversed(
    part: Part,
    side: Side,
    overlap: Overlap,
    rows: dict[Side, PartRows],
    proper: dict[Side, NDArray[np.bool_]],
) -> LookUp:
    """The matches of one side's reversed intervals that the two look-ups leave out."""
    op = "<=" if side == "r" else ">"
    extra = {
        "r": (overlap.starts["r"], Ask(overlap.starts["l"], op)),
        "l": (overlap.starts["l"], Ask(overlap.starts["r"], MIRROR[op])),
    }
    views: dict[Side, View] = {of: _with_ask(part.views[of], *extra[of]) for of in part.views}
    odd = dict(rows)
    odd[side] = rows[side].where(~proper[side])
    return LookUp(replace(part, views=views), "r", odd)


def _find_proper(rows: PartRows, overlap: Overlap, side: Side, op: str) -> NDArray[np.bool_]:
    """Which rows' intervals do not end before they begin."""
    start, end = rows.keys[overlap.starts[side]], rows.keys[overlap.ends[side]]
    assert not isinstance(start, BytesKey)
    assert not isinstance(end, BytesKey)
    return start <= end if op == "<=" else start < end


def _view(view: View, key: int, asks: tuple[Ask, ...]) -> View:
    """A view with this ordered key in place of its own ordered keys."""
    kept = [at for at, dim in enumerate(view.shape.dims) if dim.equal or dim.negate]
    return View(
        Shape((Dim(), *(view.shape.dims[at] for at in kept))),
        (key, *(view.stored[at] for at in kept)),
        (asks, *(view.asks[at] for at in kept)),
    )


def _with_ask(view: View, key: int, ask: Ask) -> View:
    """A view with one more bound on an ordered key."""
    asks = list(view.asks)
    for at, (dim, stored) in enumerate(zip(view.shape.dims, view.stored, strict=True)):
        if stored == key and not dim.equal and not dim.negate:
            asks[at] = (*asks[at], ask)
    return replace(view, asks=tuple(asks))


def _count_ordered(view: View) -> int:
    """How many intervals a probe asks for, equalities aside."""
    return sum(not dim.equal for dim in view.shape.dims)
