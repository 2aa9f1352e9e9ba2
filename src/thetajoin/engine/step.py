"""A micro-batch on its way through a join: its rows, whom they meet, and what comes of it.

Everything about new rows is computed here before anything is stored, so a micro-batch that fails
leaves the state as it was. Where several units carry out one join (BiStream, Section 3), all of
them are given all new rows in the same order, so that they agree on arrival numbers, and each has
its share of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.block import Block, Flags
from thetajoin.engine.joiner import Joiner, See
from thetajoin.engine.layout import How
from thetajoin.engine.parts import OTHER, SIDES, Part, Side
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.engine.store import Store
from thetajoin.errors import OptionError
from thetajoin.index.interval import Interval
from thetajoin.window.windows import CountWindow

if TYPE_CHECKING:
    from thetajoin.engine.compiled import CompiledJoin


@dataclass(frozen=True)
class Arrival:
    """New rows of one side, in order and keyed.

    batch: the rows to probe with, the first of them with the arrival number `first`; `before` says
    how many new rows of the other side came before each.
    kept: the rows to store, made into a `block` that is not stored yet.
    """

    batch: KeyedBatch
    first: int
    before: Int64
    kept: KeyedBatch
    block: Block
    arrived: int
    late: int
    null_times: int
    # The late rows themselves, where they are wanted.
    dropped: pa.RecordBatch | None = None


@dataclass(frozen=True)
class Meeting:
    """Rows of one side, the blocks of the other that they probe, and what they see of them.

    flags: marks of the rows, where they may come out alone.
    """

    side: Side
    batch: KeyedBatch
    blocks: list[Block]
    see: See | None = None
    flags: Flags | None = None


class Sink:
    """What comes of matches: rows that have found one are marked, and pairs are given out.

    pairs: how many there were. marks: those of stored blocks as they are to be, by the blocks'
    identity; the blocks themselves keep theirs.
    """

    def __init__(self, joiner: Joiner, *, wants_pairs: bool, own: Iterable[Block] = ()) -> None:
        """own: blocks that nobody else has, whose marks are changed in place."""
        self._joiner, self._wants_pairs = joiner, wants_pairs
        self.pairs = 0
        self.marks: dict[object, Flags] = {}
        for block in own:
            self.own(block)

    def own(self, block: Block) -> None:
        """Change this block's marks in place."""
        if block.settled is not None:
            self.marks[block.identity] = block.settled

    def take(self, meeting: Meeting, joiner: Joiner | None = None) -> Iterator[pa.RecordBatch]:
        """Find a meeting's matches and mark their rows; gives the pairs, if they are wanted."""
        # Without pairs only one side has marks, and its rows' first matches are enough.
        once = not self._wants_pairs and meeting.flags is not None
        for found in (joiner or self._joiner).probe(
            meeting.batch,
            meeting.side,
            meeting.blocks,
            meeting.see,
            once=once,
            want_output=self._wants_pairs,
        ):
            self.pairs += len(found.probe_rows)
            if meeting.flags is not None:
                meeting.flags[found.probe_rows] = True
            if found.block.settled is not None:
                copy_marks(found.block, self.marks)[found.stored_rows] = True
            if found.output is not None and found.output.num_rows:
                yield found.output


def copy_marks(block: Block, marks: dict[object, Flags]) -> Flags:
    """A block's marks to change: a copy, made once, that `Store.set_marks` puts in place."""
    assert block.settled is not None
    if block.identity not in marks:
        marks[block.identity] = block.settled.copy()
    return marks[block.identity]


@dataclass(frozen=True)
class Step:
    """A micro-batch that has been taken in and is not stored yet.

    `JoinState.begin` makes it, and `JoinState.commit` stores its rows. last: nothing will follow.
    """

    join: CompiledJoin
    stores: Mapping[Side, Store]
    arrivals: Mapping[Side, Arrival]
    last: bool

    @property
    def blocks(self) -> dict[Side, Block]:
        """The rows that will be stored."""
        return {side: self.arrivals[side].block for side in SIDES}

    def meetings(self) -> Iterator[Meeting]:
        """Who meets whom: together these cover every pair with a new row exactly once."""
        new = self.blocks
        if not self.join.is_ordered:
            yield self._meet("r", [])
            yield self._meet("l", [new["r"]])
            return
        sees = {side: self._sees(side) for side in SIDES}
        if self.join.spec.self_join and self._new_meet(sees):
            yield from self._all_but_itself(sees)
            return
        met = {side: [new[OTHER[side]]] for side in SIDES}
        if self._new_meet(sees):
            # Whichever of two new rows is the later sees the other: one side can look for both.
            sees = {side: See(see.low, None) for side, see in sees.items()}
            met["r"] = []
        for side in SIDES:
            yield self._meet(side, met[side], sees[side])

    def _all_but_itself(self, sees: Mapping[Side, See]) -> Iterator[Meeting]:
        """A self-join's meetings where all new rows are in the window together.

        Each may meet every other one, and the pair's other role is that one's own. Were each to see
        the earlier ones only, in both roles, every pair would be found twice, once for nothing.
        """
        for side in SIDES:
            low = sees[side].low
            yield self._meet(side, [], None if low is None else See(low, None))
        arrival = self.arrivals["l"]
        apart = arrival.first + np.arange(len(arrival.batch))
        yield Meeting("l", arrival.batch, [self.blocks["r"]], See(None, None, apart))

    def _meet(self, side: Side, new: list[Block], see: See | None = None) -> Meeting:
        stored, arrival = self.stores[OTHER[side]].list_probed(), self.arrivals[side]
        return Meeting(side, arrival.batch, [*stored, *new], see, arrival.block.settled)

    def _sees(self, side: Side) -> See:
        """What a side's new rows may see where rows are taken in an order."""
        window, arrival = self.join.window, self.arrivals[side]
        if self.join.spec.self_join:
            seen = arrival.first + np.arange(len(arrival.batch))
        else:
            seen = self.stores[OTHER[side]].count + arrival.before
        low = window.first_visible(seen) if isinstance(window, CountWindow) else None
        return See(low, seen - 1)

    def _new_meet(self, sees: Mapping[Side, See]) -> bool:
        """Whether no new row has left the window when the last new row of the other side comes."""
        return all(
            see.low is None or not len(see.low) or see.low[-1] <= self.stores[OTHER[side]].count
            for side, see in sees.items()
        )


# Rows of each side in the sample that the units' ranges are cut from.
SAMPLED = 1024


@dataclass(frozen=True)
class Share:
    """Which part of each micro-batch a unit stores, and which it probes with.

    stores: False where all new rows are stored in other units, and only probe what is here.
    """

    unit: int = 0
    units: int = 1
    stored_in_part: frozenset[Side] = field(default_factory=frozenset)
    probed_in_part: frozenset[Side] = field(default_factory=frozenset)
    stores: bool = True

    @staticmethod
    def of(how: How, unit: int, units: int) -> Share:
        """The share of one of several units in a join of this kind."""
        if units == 1:
            return Share()
        if how == "full":
            raise OptionError("a full join needs units=1: each side must see all of the other")
        if how == "inner":
            return Share(unit, units, stored_in_part=frozenset(("l", "r")))
        side: frozenset[Side] = frozenset(("r",) if how == "right" else ("l",))
        return Share(unit, units, stored_in_part=side, probed_in_part=side)

    def part(self, rows: int, seen: int) -> tuple[int, int]:
        """The rows ``[start, end)`` of a micro-batch that are this unit's.

        Turning with the number of rows `seen` before spreads small batches over the units.

        >>> [Share(unit, 3).part(8, 0) for unit in range(3)]
        [(0, 2), (2, 5), (5, 8)]
        """
        at = (self.unit + seen) % self.units
        return rows * at // self.units, rows * (at + 1) // self.units

    def choose_stored(
        self, part: Part, batches: Mapping[Side, KeyedBatch], side: Side, seen: int
    ) -> NDArray[np.bool_]:
        """Which rows of a micro-batch this unit stores: those in its range of a key.

        The ranges are cut anew for each micro-batch, from both sides' rows together, so that the
        units are given about as many rows to store and to look for whatever comes. Rows without a
        key, and all rows where no key can be cut, are shared by their position.
        """
        batch = batches[side]
        mask = np.zeros(len(batch), np.bool_)
        mask[slice(*self.part(len(batch), seen))] = True
        rows, others = batch.parts[0], batches[OTHER[side]].parts[0]
        cut = None if len(rows) < self.units else _cut_key(part, rows, others, side)
        if cut is not None:
            mask[rows.rows] = in_range(*cut, self.unit, self.units)
        return mask


def _cut_key(
    part: Part, rows: PartRows, others: PartRows, side: Side
) -> tuple[Int64, Int64] | None:
    """The key that a side is cut by, and a sorted sample of it and of what is asked of it."""
    view = part.views[side]
    for dim in (*view.shape.run, view.shape.primary):
        key = None if dim is None else rows.keys[view.stored[dim]]
        if dim is None or key is None or isinstance(key, BytesKey):
            continue
        sample = [key[_spread(len(rows))]]
        if len(others):
            asked = view.intervals(others.take(_spread(len(others))).keys)[dim]
            assert isinstance(asked, Interval)
            sample.append(_middle(asked))
        return key, np.sort(np.concatenate(sample))
    return None


def _middle(asked: Interval) -> Int64:
    """A key for each interval: its middle, or the end it has."""
    low, high = asked.low, asked.high
    if low is None or high is None:
        only = low if high is None else high
        assert only is not None
        return only
    middle: Int64 = (low & high) + ((low ^ high) >> 1)
    return middle


def _spread(rows: int) -> NDArray[np.int32]:
    """Positions of a sample's rows."""
    return np.linspace(0, rows - 1, min(rows, SAMPLED)).astype(np.int32)


def in_range(keys: Int64, sample: Int64, unit: int, units: int) -> NDArray[np.bool_]:
    """Which keys are a unit's, of units that share a sorted sample evenly.

    Keys equal to one that takes up much of the sample are dealt to the units that share it.

    >>> keys = np.array([1, 5, 5, 5, 5, 9])
    >>> [in_range(keys, keys, unit, 3).astype(int).tolist() for unit in range(3)]
    [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    """
    size = len(sample)
    mask = np.ones(len(keys), np.bool_)
    edges = set()
    if unit > 0:
        edges.add(start := sample[size * unit // units])
        mask &= keys >= start
    if unit < units - 1:
        edges.add(end := sample[size * (unit + 1) // units])
        mask &= keys < end
    for edge in edges:
        first, last = np.searchsorted(sample, edge), np.searchsorted(sample, edge, side="right")
        if last - first > 1:
            equal = np.flatnonzero(keys == edge)
            place = first + (np.arange(len(equal)) + 0.5) / max(1, len(equal)) * (last - first)
            mask[equal] = (place * units / size).astype(np.int64) == unit
    return mask
