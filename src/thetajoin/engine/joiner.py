"""Probing blocks with a batch: index, then residual filter, then output, chunk by chunk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.arrays import fill
from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.block import Block
from thetajoin.engine.layout import Layout, take_columns
from thetajoin.engine.parts import OTHER, Part, Side, View
from thetajoin.engine.rows import KeyedBatch, PartRows, cut_evenly
from thetajoin.index.interval import Interval
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Probe
from thetajoin.index.sorted_rows import NO_KEYS
from thetajoin.kernels.jit import ALL_ONES
from thetajoin.kernels.order import gather, gather_into, order_of, order_of_both
from thetajoin.kernels.search import clear_unreached, drop_own
from thetajoin.limits import limits
from thetajoin.predicate import Expr, evaluate

Positions = NDArray[np.int32]
# The most bytes, about, of an output batch that leaves this process whole.
OUTPUT_BYTES = 32 << 20
# With very many probes, a sample of this many says whether it pays to look which can match.
ABLE_SAMPLED = 512
PairStream = Iterator[tuple[Positions, Positions]]


@dataclass(frozen=True)
class Found:
    """A chunk of matches of a batch with a block: positions in both, and the output rows.

    Without `Joiner.keep_rows` only the positions' number holds once the next chunk is made.
    """

    block: Block
    probe_rows: Positions
    stored_rows: Positions
    output: pa.RecordBatch | None


@dataclass(frozen=True)
class See:
    """Arrival numbers each row of a batch may be paired with, ends included.

    `apart` has the one that it may not be paired with, its own in a self-join.
    """

    low: Int64 | None
    high: Int64 | None
    apart: Int64 | None = None


@dataclass(frozen=True)
class Joiner:
    """How a probe is carried out: the parts of the condition, chunk size, threads."""

    parts: tuple[Part, ...]
    layout: Layout
    chunk_rows: int
    threads: int
    keep_rows: bool = True

    def limit_width(self, *tables: pa.RecordBatch) -> Joiner:
        """The same with fewer rows in an output batch, where the tables' rows are wide."""
        width = sum(table.nbytes / max(1, table.num_rows) for table in tables)
        rows = max(64, min(self.chunk_rows, int(OUTPUT_BYTES / max(1.0, width))))
        return self if rows == self.chunk_rows else replace(self, chunk_rows=rows)

    def probe(
        self,
        batch: KeyedBatch,
        side: Side,
        blocks: list[Block],
        see: See | None = None,
        *,
        once: bool = False,
        want_output: bool = True,
    ) -> Iterator[Found]:
        """Every match of the batch's rows (of `side`) with the blocks' rows, exactly once.

        With `once`, a batch row's first match in each block and part is enough.
        """
        tasks: list[Callable[[], Iterator[Found]]] = []
        pieces = self.threads if len(blocks) < self.threads else 1
        for at, part in enumerate(self.parts):
            view = part.views[OTHER[side]]
            first_only = once and part.residual is None
            indexes = [block.indexes[at] for block in blocks]
            rows = drop_unable(view, batch.parts[at], indexes)
            direct = count_look_up_pieces(rows, indexes, pieces)
            for piece in _split(rows, direct or pieces) if blocks else []:
                probes = _Probes(view, piece, see, direct=direct is not None)
                for block in blocks:
                    stream = _stream(block, at, probes, self.chunk_rows, first_only)
                    tasks.append(self._task(part, batch, side, probes, block, stream, want_output))
        yield from run_tasks(tasks, self.threads)

    def _task(
        self,
        part: Part,
        batch: KeyedBatch,
        side: Side,
        probed: _Probes,
        block: Block,
        stream: Callable[[], PairStream],
        want_output: bool,
    ) -> Callable[[], Iterator[Found]]:
        def locate() -> Iterator[Found]:
            room = np.empty(0, np.int32)
            for holder, probes, stored in _locate(block, stream()):
                if room.size < probes.size:
                    room = np.empty(max(probes.size, 2 * room.size), np.int32)
                probe_rows = room[: probes.size]
                gather_into(probed.rows, probes, probe_rows)
                if part.residual is not None:
                    tables = (batch.table, holder.table)
                    positions = (probe_rows, stored)
                    kept = filter_pairs(part.residual, side, tables, positions)
                    probe_rows, stored = probe_rows[kept], stored[kept]
                    if not len(kept):
                        continue
                output = None
                if want_output:
                    mine, theirs = (batch.table, probe_rows), (holder.table, stored)
                    both = (*mine, *theirs) if side == "l" else (*theirs, *mine)
                    output = self.layout.pairs(*both)
                if self.keep_rows:
                    probe_rows, stored = probe_rows.copy(), stored.copy()
                yield Found(holder, probe_rows, stored, output)

        return locate


def filter_pairs(
    residual: Expr,
    side: Side,
    tables: tuple[pa.RecordBatch, pa.RecordBatch],
    positions: tuple[Positions, Positions],
) -> NDArray[np.intp]:
    """Which pairs satisfy a residual; `side` is that of the first table."""
    sides: tuple[Side, Side] = (side, OTHER[side])
    taken = {}
    for name, table, rows in zip(sides, tables, positions, strict=True):
        needed = table.select(sorted(residual.columns(name)))
        taken[name] = pa.RecordBatch.from_arrays(take_columns(needed, rows), schema=needed.schema)
    holds = evaluate(residual, left=taken["l"], right=taken["r"])
    return np.flatnonzero(holds.fill_null(False).to_numpy(zero_copy_only=False))


def sort_probes(view: View, rows: PartRows) -> PartRows:
    """A large batch of probes in the order of the key that will drive, to read memory in sequence.

    Which key that will be is only guessed here: a wrong guess costs time, nothing else.
    """
    shape = view.shape
    drivers = (*shape.run, *shape.setters, *(() if shape.primary is None else (shape.primary,)))
    if len(rows) < limits.sorted_probes or not drivers:
        return rows
    return rows.sort_by(view.asks[drivers[0]][0].probe_key)


def side_by_side(view: View, rows: PartRows) -> PartRows:
    """A piece of probes in the order of what they will look up: neighbours read the same memory.

    The piece is small, so that its rows' own columns are read from the cache in any order.
    """
    dims = (*view.shape.run[:1], *(() if view.shape.primary is None else (view.shape.primary,)))
    keys = [rows.keys[view.asks[dim][0].probe_key] for dim in dims]
    plain = [key for key in keys if not isinstance(key, BytesKey)]
    if len(rows) < limits.sorted_probes or not plain:
        return rows
    return rows.take(order_of(plain[0]) if len(plain) == 1 else order_of_both(*plain))


def drop_unable(view: View, rows: PartRows, indexes: list[Any]) -> PartRows:
    """The rows without those that ask for nothing between the extremes of any index.

    Units that store ranges of a key are spared most of the others' probes by this.
    """
    if len(rows) < limits.sorted_probes or not all(isinstance(index, PoJoin) for index in indexes):
        return rows
    zones = [index.extremes for index in indexes if index.size]
    if not zones:
        return rows
    if len(rows) > ABLE_SAMPLED * ABLE_SAMPLED:
        places = np.linspace(0, len(rows) - 1, ABLE_SAMPLED).astype(np.int32)
        if len(_find_able(view, rows.take(places), zones)) > limits.able_share * ABLE_SAMPLED:
            return rows
    positions = _find_able(view, rows, zones)
    return rows if len(positions) > limits.able_share * len(rows) else rows.some(positions)


def _find_able(view: View, rows: PartRows, zones: list[dict[int, tuple[int, int]]]) -> Positions:
    """Which rows ask for something between the extremes of some zone."""
    touched = fill(len(rows), ALL_ONES >> np.uint64(64 - min(64, len(zones))), np.uint64)
    for dim, asked in enumerate(view.intervals(rows.keys)):
        if dim not in zones[0] or not isinstance(asked, Interval):
            continue
        low, high = zip(*(zone[dim] for zone in zones), strict=True)
        ends = (NO_KEYS if end is None else end for end in (asked.low, asked.high))
        clear_unreached(*ends, np.array(low), np.array(high), touched)
    return np.flatnonzero(touched).astype(np.int32)


def count_look_up_pieces(rows: PartRows, indexes: list[Any], pieces: int) -> int | None:
    """In how many pieces to probe indexes that all look equality keys up; None if some do not.

    Such probes need no order. In small pieces all that is computed for them stays in the cache, so
    that it costs little to put each piece in order, and threads share the pieces evenly.
    """
    most = max((index.size for index in indexes if isinstance(index, PoJoin)), default=0)
    piece = max(limits.looked_up, int(most / limits.passed_over))
    pieces = max(pieces, -(-len(rows) // piece))
    each = len(rows) // pieces
    if all(isinstance(index, PoJoin) and index.finds_runs(each) for index in indexes):
        return pieces
    return None


def make_probe(view: View, rows: PartRows, see: See | None) -> Probe:
    """What rows ask of an index."""
    by_key = {dim: rows.orders.get(asks[0].probe_key) for dim, asks in enumerate(view.asks)}
    hints = {dim: order for dim, order in by_key.items() if order is not None}
    return limit_sight(Probe(view.intervals(rows.keys), len(rows), hints=hints), see, rows.rows)


def limit_sight(probe: Probe, see: See | None, rows: Positions) -> Probe:
    """The same probes, each seeing only what `see` allows; `rows` are their positions in it."""
    if see is None:
        return probe
    low = None if see.low is None else gather(see.low, rows)
    high = None if see.high is None else gather(see.high, rows)
    return probe.restrict(low, high)


class _Probes:
    """Rows of a batch to probe with; sorted by the first thread that needs them."""

    def __init__(self, view: View, part: PartRows, see: See | None, *, direct: bool) -> None:
        self._view, self._part, self._see, self._direct = view, part, see, direct
        self._lock = threading.Lock()
        self._made: tuple[Positions, Probe] | None = None

    def _make(self) -> tuple[Positions, Probe]:
        with self._lock:
            if self._made is None:
                sort = side_by_side if self._direct else sort_probes
                rows = sort(self._view, self._part)
                self._made = rows.rows, make_probe(self._view, rows, self._see)
            return self._made

    @property
    def rows(self) -> Positions:
        """Where each probe stands in the batch."""
        return self._make()[0]

    @property
    def probe(self) -> Probe:
        """What each probe asks for."""
        return self._make()[1]

    def own_rows(self, block: Block) -> Positions | None:
        """Each probe's own row in a block, or no row's number; None if it may be found."""
        if self._see is None or self._see.apart is None:
            return None
        numbers, arrivals = gather(self._see.apart, self.rows), block.arrivals
        if arrivals.is_dense:  # the rows of others have numbers that no row here has
            own = np.clip(numbers - arrivals.first, -1, arrivals.rows)
        else:
            before = arrivals.rows_before(numbers)
            own = np.where(before < arrivals.rows_before(numbers + 1), before, -1)
        result: Positions = own.astype(np.int32)
        return result


def _split(part: PartRows, pieces: int) -> list[PartRows]:
    """About equal pieces, none of them too small to be worth a thread."""
    pieces = min(pieces, len(part) // limits.sorted_probes)
    if pieces < 2:
        return [part] if len(part) else []
    return [part.slice(a, b) for a, b in cut_evenly(len(part), pieces) if a < b]


def _stream(
    block: Block, at: int, probes: _Probes, room: int, once: bool
) -> Callable[[], PairStream]:
    def chain() -> PairStream:
        own = probes.own_rows(block)
        for stream in block.indexes[at].pairs(probes.probe, block.arrivals, room=room, once=once):
            yield from stream if own is None else _drop_own(own, stream)

    return chain


def _drop_own(own: Positions, stream: PairStream) -> PairStream:
    """Pairs without those of a row with itself; ``own[p]`` is probe `p`'s row."""
    for probes, stored in stream:
        if n := drop_own(own, probes, stored):
            yield probes[:n], stored[:n]


def _locate(block: Block, stream: PairStream) -> Iterator[tuple[Block, Positions, Positions]]:
    for probes, stored in stream:
        yield from block.locate(probes, stored)


def run_tasks(tasks: list[Callable[[], Iterator[Found]]], threads: int) -> Iterator[Found]:
    """Results of all tasks, in any order, on up to `threads` threads; stops when closed."""
    if threads == 1 or len(tasks) < 2:
        for task in tasks:
            yield from task()
        return
    results: queue.Queue[Found | BaseException | None] = queue.Queue(maxsize=2 * threads)
    stopped = threading.Event()
    pending = iter(tasks)
    lock = threading.Lock()

    def put(item: Found | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                results.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            while not stopped.is_set():
                with lock:
                    task = next(pending, None)
                if task is None:
                    break
                for found in task():
                    put(found)
                    if stopped.is_set():
                        break
        except BaseException as error:
            put(error)
        put(None)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    running = threads
    try:
        while running:
            item = results.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        stopped.set()
        for worker in workers:
            worker.join()
