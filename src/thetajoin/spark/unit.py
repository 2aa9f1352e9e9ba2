"""A unit of a streaming join: Spark's stateful processor around the embedded engine.

The state store holds each unit's share of the rows, blobs for each micro-batch and side, written
once and removed when the window has passed them; the marks of outer joins; and a description with a
token that is new with every update. Everything else can be built from these.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming import StatefulProcessor

from thetajoin.engine.block import Block, concat_batches
from thetajoin.engine.parts import SIDES, Side
from thetajoin.engine.rows import make_batch
from thetajoin.engine.state import Counters, JoinState
from thetajoin.engine.store import Store, count_fitting, next_merge
from thetajoin.errors import ResourceError
from thetajoin.index.probe import Arrivals
from thetajoin.limits import limits
from thetajoin.spark.cache import SegmentCache
from thetajoin.spark.exchange import PROBING, VISITING, unpack, unpack_ordered
from thetajoin.spark.late import write_late
from thetajoin.spark.processor import States
from thetajoin.spark.tasks import Remembered, set_aside
from thetajoin.spark.unit_keys import UNIT_OF
from thetajoin.spark.unit_spec import (
    BlobInfo,
    Entry,
    UnitSpec,
    damage_error,
    entries_of,
    entry_of,
    read_description,
    rows_from,
    versions,
)
from thetajoin.window.windows import TimeWindow

METRICS = "__thetajoin_metrics"
_log = logging.getLogger("thetajoin")
# Units whose join a Python worker keeps at hand.
REMEMBERED = 256
STORE_GONE = (
    "thetajoin: Spark's state store broke off in the middle of a micro-batch. Most often a disk is "
    "full, the checkpoint's or that of spark.local.dir; the executor's log says which. Nothing is "
    "lost: make room and start the query again"
)
# Output rows that are worth a batch of their own.
FRAME_ROWS = 1 << 16


@dataclass
class Loaded:
    """A unit's join as this worker has it, and what the state store knows of its rows."""

    token: str
    state: JoinState
    cache: SegmentCache
    entries: list[Entry] = field(default_factory=list)
    timer: int | None = None
    # Spark's watermark, in microseconds, when the unit was last called.
    watermark: int | None = None
    origin: str = "state"
    # Rows and bytes that this micro-batch brought.
    received: int = 0
    received_bytes: int = 0
    failure: BaseException | None = None


_REMEMBERED: Remembered[Loaded] = Remembered(REMEMBERED)


class JoinUnit(StatefulProcessor):  # type: ignore[misc]
    """Joins what arrives with what it stores; called by Spark once a micro-batch."""

    def __init__(self, spec: UnitSpec) -> None:
        self._spec = spec

    def init(self, handle: Any) -> None:
        """Called by Spark before any rows, in every task."""
        self.start(handle, States.of(handle))

    def start(self, handle: Any, states: States) -> None:
        """Begin a task, with what is in the state store."""
        self._handle = handle
        self._description, self._rows, self._marks = states

    def close(self) -> None:
        """Called by Spark at the end of a task; nothing is held open."""
        set_aside()

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """New blobs of both sides: join, store, and give out the matches."""
        yield from self._guard_step(UNIT_OF[key[0]], _blobs_of(rows), timerValues)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,
    ) -> Iterator[pd.DataFrame]:
        """The watermark has moved in a micro-batch that has no rows."""
        yield from self._guard_step(UNIT_OF[key[0]], _blobs_of(()), timerValues)

    def _guard_step(
        self, unit: int, blobs: dict[int, list[bytes]], timers: Any
    ) -> Iterator[pd.DataFrame]:
        """A step; a state store that is gone is an error of ours, where Spark says "EOFError"."""
        try:
            yield from self._step(unit, blobs, timers)
        except (EOFError, ConnectionError) as error:
            raise ResourceError(STORE_GONE) from error

    def _step(
        self, unit: int, blobs: dict[int, list[bytes]], timers: Any
    ) -> Iterator[pd.DataFrame]:
        begun = time.perf_counter()
        # Taken out until it is saved: a task that fails in between leaves nothing half done here.
        loaded = self._load(unit, _REMEMBERED.pop((self._spec.label, unit), None))
        state = loaded.state
        before = asdict(state.counters)
        lags = self._spec.lags
        if loaded.watermark is not None:
            # Late is what the watermark of the micro-batch before has passed, as for Spark's own
            # operators: those upstream may give out now what the newest has just let them close.
            bounds = zip(SIDES, lags, strict=True)
            state.late = {side: loaded.watermark - lag for side, lag in bounds}
        # Where every unit sees every row, the first one counts them.
        counts = self._spec.routing.meets or unit == 0
        state.keeps_late = counts and self._spec.late is not None
        loaded.received_bytes = sum(len(blob) for given in blobs.values() for blob in given)
        left, homes = self._unpack(state, blobs, 0)
        right, homes_right = left, homes
        if not self._spec.join.self_join:
            right, homes_right = self._unpack(state, blobs, 1)
        loaded.received = left.num_rows + (0 if self._spec.join.self_join else right.num_rows)
        if loaded.received:
            state.homes = {"l": homes, "r": homes_right}
            step = state.begin(left, right)
            del left, right  # the step has what it needs of them
            # The state store's socket is idle while the units probe: write the rows meanwhile.
            writer = threading.Thread(target=self._write_rows, args=(loaded, step.blocks))
            writer.start()
            try:
                for batch in coalesce(state.carry_out(step)):
                    yield self._frame(batch)
            finally:
                writer.join()
            if self._spec.late is not None:
                dropped = state.take_dropped()
                write_late(self._spec.late, self._spec.label, unit, dropped, state.late)
        if isinstance(state.join.window, TimeWindow):
            watermark = timers.getCurrentWatermarkInMs()
            # Spark's watermark begins at 0, which is not a time that anybody has seen.
            if watermark > 0:
                loaded.watermark = watermark * 1000
                yield from map(self._frame, state.advance_to(loaded.watermark - max(lags)))
            self._set_timer(loaded, watermark + 1)
        self._save(unit, loaded)
        seconds = time.perf_counter() - begun
        numbers = metrics(loaded, unit, before, seconds, counts=counts)
        if numbers["late_rows"] and loaded.cache.first_to_tell("late"):
            tell_late(numbers["late_rows"])
        yield self._metrics_frame(state, numbers)

    def _unpack(
        self, state: JoinState, blobs: dict[int, list[bytes]], side: int
    ) -> tuple[pa.RecordBatch, int]:
        """A side's rows, those at home here first, and how many of them are.

        This drops their blobs: a micro-batch is in memory often enough as it is.
        """
        schema = state.join.given[SIDES[side]]
        if not self._spec.routing.meets:
            order_by = state.join.spec.order_by or (None, None)
            rows = unpack_ordered(blobs.pop(side), schema, order_by[side])
            return rows, rows.num_rows
        home, *others = (unpack(blobs.pop(side + more), schema) for more in (0, VISITING, PROBING))
        others = [rows for rows in others if rows.num_rows]
        return concat_batches([home, *others]) if others else home, home.num_rows

    def _frame(self, batch: pa.RecordBatch) -> pd.DataFrame:
        """Output rows, without what Spark can repeat by itself."""
        return to_frame(batch, [at for at, _ in self._spec.repeated])

    def _metrics_frame(self, state: JoinState, numbers: dict[str, Any]) -> pd.DataFrame:
        """One row that carries the unit's numbers of this micro-batch."""
        columns = [pa.nulls(1, field.type) for field in state.schema]
        row = self._frame(pa.RecordBatch.from_arrays(columns, schema=state.schema))
        row[METRICS] = ArrowColumn(pa.array([json.dumps(numbers)], pa.string()))
        return row

    def _load(self, unit: int, remembered: Loaded | None) -> Loaded:
        """The unit's join at the state store's version: in memory, mapped, or rebuilt."""
        saved = self._description.get()
        if saved is None:
            state = self._spec.state(unit)
            return Loaded("", state, SegmentCache(self._spec.label, unit), origin="memory")
        description = read_description(saved[0], unit)
        self._spec.check_identity(description["identity"])
        if remembered is not None:
            remembered.cache.settle()
        if remembered is not None and remembered.token == description["token"]:
            remembered.origin = "memory"
            return remembered
        state = self._spec.state(unit)
        before = None if remembered is None else remembered.cache
        loaded = Loaded(description["token"], state, SegmentCache(self._spec.label, unit, before))
        loaded.entries = [Entry(*saved) for saved in description["entries"]]
        loaded.timer = description["timer"]
        loaded.watermark = description.get("late_before", description["watermark"])
        if loaded.cache.load(loaded.token, state):
            loaded.origin = "files"
        else:
            self._rebuild(unit, loaded)
        for side in SIDES:
            state.stores[side].count = description["counts"][side]
        state.watermark = description["watermark"]
        state.counters = Counters(**description["counters"])
        self._restore_marks(loaded)
        return loaded

    def _rebuild(self, unit: int, loaded: Loaded) -> None:
        """Build the segments from the rows in the state store."""
        state = loaded.state
        for entry in loaded.entries:
            found = self._rows.getValue(entry.key)
            blob = None if found is None else bytes(found[0])
            if fault := entry.fault(None if blob is None else BlobInfo.of(blob)):
                raise damage_error(unit, fault)
            assert blob is not None
            table, numbers = rows_from(blob, entry.first, state.join.schemas[entry.side])
            for role in SIDES if self._spec.join.self_join else (entry.side,):
                batch = make_batch(table, role, state.join.parts, list(table.schema.names))
                times = None if state.join.clock is None else state.join.clock.times(table, role)[0]
                store = state.stores[role]
                store.count = entry.first
                block = store.block_of(batch, times, arrivals=numbers)
                store.add(block, entry.end + 1 - entry.first)
            loaded.cache.relieve(state)

    def _restore_marks(self, loaded: Loaded) -> None:
        preserved = any(store.config.preserved for store in loaded.state.stores.values())
        saved = self._marks.get() if preserved else None
        for side, packed in zip(SIDES, saved or (None, None), strict=True):
            store = loaded.state.stores[side]
            if packed is None:
                continue
            # A mapped segment may hold rows whose entries are gone: those are done.
            for block in store.blocks():
                assert block.settled is not None
                block.settled[:] = True
            flags = np.unpackbits(np.frombuffer(packed, np.uint8)).astype(np.bool_)
            at = 0
            for entry in loaded.entries:
                if entry.side == side:
                    store.settle(entry.first, entry.end, flags[at : at + entry.rows])
                    at += entry.rows

    def _write_rows(self, loaded: Loaded, blocks: dict[Side, Block]) -> None:
        """Write new rows to the state store; runs beside the probing."""
        try:
            for side in SIDES[:1] if self._spec.join.self_join else SIDES:
                for entry, blob in entries_of(blocks[side], side):
                    self._rows.updateValue(entry.key, (blob,))
                    loaded.entries.append(entry)
        except BaseException as error:
            loaded.failure = error

    def _save(self, unit: int, loaded: Loaded) -> None:
        """Remove what has expired, and give the state a new token."""
        state, spec = loaded.state, self._spec
        if loaded.failure is not None:
            raise loaded.failure
        kept = []
        for entry in loaded.entries:
            if state.has_expired(entry.side, entry.end, entry.newest):
                self._rows.removeKey(entry.key)
            else:
                kept.append(entry)
        loaded.entries = kept
        self._save_marks(loaded)
        self._compact(loaded)
        loaded.token = uuid.uuid4().hex
        description = {
            "identity": spec.identity,
            "written_by": versions(),
            "token": loaded.token,
            "entries": loaded.entries,
            "counts": {side: state.stores[side].count for side in SIDES},
            "watermark": state.watermark,
            "late_before": loaded.watermark,
            "counters": asdict(state.counters),
            "timer": loaded.timer,
        }
        self._description.update((json.dumps(description),))
        loaded.cache.save(loaded.token, state)
        _REMEMBERED[spec.label, unit] = loaded

    def _compact(self, loaded: Loaded) -> None:
        """Rewrite many small entries as a few: every micro-batch lists all of them.

        A side's rows keep their order, and so do their marks.
        """
        for side in SIDES:
            mine = [entry for entry in loaded.entries if entry.side == side]
            if len(mine) <= limits.most_entries:
                continue
            store = loaded.state.stores[side]
            size = sum(entry.size for entry in mine)
            most = count_fitting(limits.blob_bytes, sum(entry.rows for entry in mine), size)
            due = partial(next_merge, bounded=store.config.bounded, largest=most)
            while (found := due([entry.rows for entry in mine])) is not None:
                parts = mine[found[0] : found[1]]
                if store.config.preserved and not _in_a_row(store, parts):
                    break
                mine[found[0] : found[1]] = [self._combine(loaded.state, parts)]
            others = [entry for entry in loaded.entries if entry.side != side]
            loaded.entries = [*others, *mine]

    def _combine(self, state: JoinState, entries: list[Entry]) -> Entry:
        """Neighbouring entries made one, in the state store too."""
        side = entries[0].side
        schema = state.join.schemas[side]
        read = [rows_from(self._rows.getValue(e.key)[0], e.first, schema) for e in entries]
        table = concat_batches([rows for rows, _ in read])
        numbers = Arrivals.concat([numbers for _, numbers in read])
        newest = max((e.newest for e in entries if e.newest is not None), default=None)
        combined, blob = entry_of(side, table, numbers, newest)
        self._rows.updateValue(combined.key, (blob,))
        for entry in entries[1:]:
            self._rows.removeKey(entry.key)
        return combined

    def _save_marks(self, loaded: Loaded) -> None:
        packed: list[bytes | None] = [None, None]
        for at, side in enumerate(SIDES):
            store = loaded.state.stores[side]
            if store.config.preserved:
                mine = [entry for entry in loaded.entries if entry.side == side]
                parts = [store.read_marks(entry.first, entry.end) for entry in mine]
                packed[at] = np.packbits(np.concatenate(parts)).tobytes() if parts else b""
        if any(p is not None for p in packed):
            self._marks.update(tuple(packed))

    def _set_timer(self, loaded: Loaded, due: int) -> None:
        """Have the unit called when the watermark next moves, whether rows come or not.

        So all units know the watermark of the micro-batch before, remove what it has passed, and
        give out what is unmatched.
        """
        if due == loaded.timer:
            return
        if loaded.timer is not None:
            self._handle.deleteTimer(loaded.timer)
        self._handle.registerTimer(due)
        loaded.timer = due


def _in_a_row(store: Store, entries: list[Entry]) -> bool:
    """Whether a store holds no other row between those of some entries.

    Entries go when their newest row does, in any order, and a segment keeps the rows of one that is
    gone until it goes itself. Marks are kept for all rows between an entry's first and its last.
    """
    marks = store.read_marks(entries[0].first, entries[-1].end)
    return len(marks) == sum(entry.rows for entry in entries)


def _blobs_of(rows: Iterable[pd.DataFrame]) -> dict[int, list[bytes]]:
    """Blobs by side: of rows that are at home here, of visiting ones, of those that only probe."""
    blobs: dict[int, list[bytes]] = {
        side + more: [] for more in (0, VISITING, PROBING) for side in (0, 1)
    }
    for frame in rows:
        for side, blob in zip(frame["side"], frame["blob"], strict=True):
            blobs[int(side)].append(blob)
    return blobs


def coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each costs Spark about 2 ms, whatever its size."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= FRAME_ROWS:
            yield concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield concat_batches(waiting)


class ArrowColumn(pd.arrays.ArrowExtensionArray):  # type: ignore[misc]
    """A column that is in Spark's types already.

    Spark maps a Python function over the values of arrays, maps and structs, which fails on NULL;
    here there is nothing to convert.
    """

    def map(self, mapper: Any, na_action: Any = None) -> ArrowColumn:
        """The column itself."""
        return self


def to_frame(batch: pa.RecordBatch, without: Sequence[int] = ()) -> pd.DataFrame:
    """Output rows as pandas sees them, without a copy; columns are named by `output_names`."""
    named = enumerate(zip(output_names(batch.num_columns), batch.columns, strict=True))
    columns = dict(column for at, column in named if at not in without)
    columns[METRICS] = pa.nulls(batch.num_rows, pa.string())
    arrays = {name: ArrowColumn(column) for name, column in columns.items()}
    return pd.DataFrame(arrays, copy=False)


def output_names(columns: int) -> list[str]:
    """Names of output columns inside the operator, whatever their own: no two are equal."""
    return [f"c{at}" for at in range(columns)]


def tell_late(rows: int) -> None:
    """Say that rows were lost: in the driver's terminal in local mode, else in executors' logs.

    A listener on the driver would see all of them, and cost it 0.2 s of each micro-batch.
    """
    task = TaskContext.get()
    found = task and task.getLocalProperty("streaming.sql.batchId")
    _log.warning(
        "thetajoin: a unit dropped %d rows%s that came behind the watermark. A longer delay in "
        "withWatermark keeps such rows. This is said once a query; "
        "query.lastProgress.observedMetrics has late_rows for every micro-batch.",
        *(rows, f" of micro-batch {found}" if found else ""),
    )


def metrics(
    loaded: Loaded, unit: int, before: dict[str, int], seconds: float, *, counts: bool
) -> dict[str, Any]:
    """The unit's numbers of this micro-batch; late rows only where they are its to count."""
    state = loaded.state
    stores, counters = state.stores, asdict(state.counters)
    return {
        "unit": unit,
        "pairs": counters["pairs"] - before["pairs"],
        "unmatched": counters["unmatched"] - before["unmatched"],
        "late_rows": (counters["late_rows"] - before["late_rows"]) * counts,
        "null_times": (counters["null_times"] - before["null_times"]) * counts,
        "window_left": stores["l"].rows,
        "window_right": stores["r"].rows,
        "segments": len(stores["l"].segments) + len(stores["r"].segments),
        "index_bytes": stores["l"].index_bytes + stores["r"].index_bytes,
        "received": loaded.received,
        "received_bytes": loaded.received_bytes,
        "stored_rows": sum(entry.rows for entry in loaded.entries),
        "state_bytes": sum(entry.size for entry in loaded.entries),
        "from": loaded.origin,
        "folder": str(loaded.cache.folder.parent),
        "ms": round(seconds * 1000, 1),
    }
