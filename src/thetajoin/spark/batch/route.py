"""Sending rows to cells: a task's rows become one Arrow blob for each cell that must see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from thetajoin.engine.core import JoinCore
from thetajoin.engine.rows import make_batch
from thetajoin.engine.spec import OTHER, Side
from thetajoin.errors import DataError
from thetajoin.kernels.order import gather, order_of
from thetajoin.planner.cells import CellPlan
from thetajoin.planner.facets import Rows
from thetajoin.planner.zones import places
from thetajoin.spark.batch.worker import chunks, core_of, sights_of, to_blob
from thetajoin.spark.pack import binary
from thetajoin.spark.spec import UnitSpec

ROUTED = "cell int, held boolean, blob binary"
# Bits of a row's number that count rows within a task.
TASK_BITS = 40
Index = NDArray[np.intp]
Targets = Iterator[tuple[int, bool, Index]]


def router(
    spec: UnitSpec,
    plan: CellPlan,
    sides: tuple[Side, ...],
    keep_all: bool,
    with_hash: bool,
    numbered: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`; with two sides each row is sent in both roles.

    With `keep_all`, held rows that can match nothing are sent too. The last column is a hash of the
    row if `with_hash`, and is not sent on. With `numbered`, each row gets a number of its own.
    """

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        core = core_of(spec)
        given = core.given[sides[0]]
        schema = pa.schema(list(given)[:-1]) if numbered else given
        schema = schema.append(pa.field("hash", pa.int64())) if with_hash else schema
        next_row = TaskContext.get().partitionId() << TASK_BITS
        for chunk in chunks(batches, schema):
            hashes = None
            if with_hash:
                hashes = chunk.column(chunk.num_columns - 1).to_numpy().view(np.uint64)
                chunk = chunk.select(list(range(chunk.num_columns - 1)))
            if numbered:
                # Both parts of a row travel in one attempt of one task, so the numbers agree.
                numbers = pa.array(np.arange(next_row, next_row + chunk.num_rows))
                chunk = pa.RecordBatch.from_arrays([*chunk.columns, numbers], schema=given)
                next_row += chunk.num_rows
            for side in sides:
                chunk = pa.RecordBatch.from_arrays(chunk.columns, schema=core.given[side])
                targets = (
                    _held(core, plan, chunk, hashes, keep_all)
                    if side == plan.held
                    else _streamed(core, plan, chunk, hashes)
                )
                for cell, held, rows in targets:
                    part = chunk if len(rows) == chunk.num_rows else chunk.take(pa.array(rows))
                    columns = [
                        pa.array([cell], pa.int32()),
                        pa.array([held]),
                        binary(to_blob(part)),
                    ]
                    yield pa.RecordBatch.from_arrays(columns, ["cell", "held", "blob"])

    return route


def _changed(core: JoinCore, side: Side) -> DataError:
    name = "left" if side == "l" else "right"
    return DataError(
        f"the {name} input gave other rows than when the join was planned: cache it, or write it "
        "to a table first"
    )


def _held(
    core: JoinCore, plan: CellPlan, chunk: pa.RecordBatch, hashes: Index | None, keep_all: bool
) -> Targets:
    """Each held row goes to its group; the group's cells split it by its hash."""
    side = plan.held
    sights = sights_of(core)
    batch = make_batch(chunk, side, core.parts, [])
    rows = Rows(sights, side, batch)
    where = places(sights[0], side, batch, rows.columns[0])
    group = where.among(plan.cuts)
    kept = np.ones(len(batch), np.bool_)
    if not keep_all:
        kept[:] = False
        kept[rows.matching(plan.outside, 0)] = True
    order = order_of(group)
    ends = np.searchsorted(gather(group, order), np.arange(len(plan.groups) + 1))
    for number, start, end in zip(range(len(plan.groups)), ends[:-1], ends[1:], strict=True):
        members = order[start:end]
        if not len(members):
            continue
        _check_inside(core, plan, rows, members, number)
        members = members[kept[members]]
        if plan.dropped[number] or not len(members):
            continue
        dealt = plan.groups[number]
        for part, chosen in _deal(members, hashes, dealt.held_parts, 0):
            first = plan.first_cell[number] + part * dealt.streamed_parts
            for other in range(dealt.streamed_parts):
                yield first + other, True, chosen


def _check_inside(
    core: JoinCore, plan: CellPlan, rows: Rows, members: NDArray[np.int32], number: int
) -> None:
    """Rows outside the box that others are sent by would miss their matches: say so instead."""
    mask = np.zeros(len(rows.batch), np.bool_)
    mask[members] = True
    for at, part in enumerate(rows.batch.parts):
        chosen = mask[part.rows]
        columns = [column[chosen] for column in rows.columns[at]]
        if not plan.boxes.holds(at, columns, number):
            raise _changed(core, plan.held)


def _streamed(
    core: JoinCore, plan: CellPlan, chunk: pa.RecordBatch, hashes: Index | None
) -> Targets:
    """Each other row goes past every group that it may match."""
    side = OTHER[plan.held]
    batch = make_batch(chunk, side, core.parts, [])
    rows = Rows(sights_of(core), side, batch)
    for at in range(len(core.parts)):
        if not plan.outside.holds(at, rows.columns[at], 0):
            raise _changed(core, side)
    for number, dealt in enumerate(plan.groups):
        if plan.dropped[number]:
            continue
        matching = rows.matching(plan.boxes, number)
        if not len(matching):
            continue
        for part, chosen in _deal(matching, hashes, dealt.streamed_parts, 32):
            for other in range(dealt.held_parts):
                cell = plan.first_cell[number] + other * dealt.streamed_parts + part
                yield cell, False, chosen


def _deal(
    rows: NDArray[np.integer], hashes: Index | None, parts: int, shift: int
) -> Iterator[tuple[int, Index]]:
    """Rows dealt out by bits of their hash."""
    if parts == 1:
        yield 0, rows.astype(np.intp)
        return
    assert hashes is not None
    part = (hashes[rows] >> np.uint64(shift)) % np.uint64(parts)
    for number in range(parts):
        chosen = rows[part == number]
        if len(chosen):
            yield number, chosen.astype(np.intp)
