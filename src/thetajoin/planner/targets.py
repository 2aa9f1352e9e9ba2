"""Which cells must see which rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64, Key
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Side
from thetajoin.engine.rows import KeyedBatch, make_batch
from thetajoin.errors import DataError
from thetajoin.kernels.order import gather, order_of
from thetajoin.planner.cells import CellPlan
from thetajoin.planner.facets import Rows, sights_of
from thetajoin.planner.zones import places

Index = NDArray[np.int32]
Hashes = NDArray[np.uint64]
Targets = Iterator[tuple[int, Index]]


def changed(side: Side) -> DataError:
    """The error for rows that were not there when the cells were planned."""
    name = "left" if side == "l" else "right"
    return DataError(
        f"the {name} input gave other rows than when the join was planned: cache it, or write it "
        "to a table first"
    )


def held_targets(
    compiled: CompiledJoin,
    plan: CellPlan,
    chunk: pa.RecordBatch,
    hashes: Hashes | None,
    keep_all: bool,
) -> Targets:
    """Each held row goes to its group; the group's cells split it by its hash."""
    side = plan.held
    sights = sights_of(compiled)
    batch = make_batch(chunk, side, compiled.parts, [])
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
        _check_inside(plan, rows, members, number)
        members = members[kept[members]]
        if plan.dropped[number] or not len(members):
            continue
        dealt = plan.groups[number]
        for part, chosen in _deal(members, hashes, dealt.held_parts, 0):
            first = plan.first_cell[number] + part * dealt.streamed_parts
            for other in range(dealt.streamed_parts):
                yield first + other, chosen


def _check_inside(plan: CellPlan, rows: Rows, members: NDArray[np.int32], number: int) -> None:
    """Rows outside the box that others are sent by would miss their matches: say so instead."""
    mask = None
    for at, part in enumerate(rows.batch.parts):
        chosen = members
        if len(part) != len(rows.batch):  # some rows have no part in this conjunction
            if mask is None:
                mask = np.zeros(len(rows.batch), np.bool_)
                mask[members] = True
            chosen = np.flatnonzero(mask[part.rows]).astype(np.int32)
        columns = [gather(column, chosen) for column in rows.columns[at]]
        if not plan.boxes.holds(at, columns, number):
            raise changed(plan.held)


def streamed_targets(
    compiled: CompiledJoin, plan: CellPlan, chunk: pa.RecordBatch, hashes: Hashes | None
) -> Targets:
    """Each other row goes past every group that it may match."""
    side = OTHER[plan.held]
    batch = make_batch(chunk, side, compiled.parts, [])
    rows = Rows(sights_of(compiled), side, batch)
    for at in range(len(compiled.parts)):
        if not plan.outside.holds(at, rows.columns[at], 0):
            raise changed(side)
    for number, dealt in enumerate(plan.groups):
        matching = rows.matching(plan.boxes, number)
        if not len(matching):
            continue
        if compiled.spec.nearest is not None:
            matching = matching[_may_be_nearest(compiled, plan, rows.batch, number, matching)]
        if plan.dropped[number]:
            raise changed(side)  # its held rows are nowhere, for nothing could match them
        for part, chosen in _deal(matching, hashes, dealt.streamed_parts, 32):
            for other in range(dealt.held_parts):
                cell = plan.first_cell[number] + other * dealt.streamed_parts + part
                yield cell, chosen


def _may_be_nearest(
    compiled: CompiledJoin, plan: CellPlan, batch: KeyedBatch, number: int, matching: Index
) -> NDArray[np.bool_]:
    """Which right rows may be the nearest of some row of a group.

    Of those before all keys of the group only the last are, and of those behind it the first: as
    many as are wanted, for each of the keys to be equal on. That is known only where nothing else
    decides.
    """
    nearest, part = compiled.spec.nearest, compiled.parts[0]
    assert nearest is not None
    view, rows = part.views["r"], batch.parts[0]
    primary = view.shape.primary
    assert primary is not None
    keys = rows.keys[view.stored[primary]]
    others = (d.equal for at, d in enumerate(view.shape.dims) if at != primary)
    alone = len(compiled.parts) == 1 and part.residual is None and all(others)
    if not alone or isinstance(keys, BytesKey):
        return np.ones(len(matching), np.bool_)
    at = np.searchsorted(rows.rows, matching)
    runs = [_codes(rows.keys[view.stored[dim]])[at] for dim in view.shape.run]
    key, own = keys[at], view.asks[primary][0].probe_key
    before = key < plan.boxes.low[0][own, number]
    behind = key > plan.boxes.high[0][own, number]
    kept: NDArray[np.bool_] = ~(before | behind)
    if nearest.direction != "forward":
        kept[before] = _largest(key[before], [run[before] for run in runs], nearest.k)
    if nearest.direction != "backward":
        kept[behind] = _largest(~key[behind], [run[behind] for run in runs], nearest.k)
    return kept


def _codes(key: Key) -> Int64:
    """Numbers that are equal where keys are, and only there."""
    return key.dictionary()[1] if isinstance(key, BytesKey) else key


def _largest(keys: Int64, runs: list[Int64], k: int) -> NDArray[np.bool_]:
    """Which keys are among the `k` largest of their run, those that tie with the last included.

    >>> _largest(np.array([5, 7, 7, 1]), [np.array([0, 0, 0, 9])], 1).tolist()
    [False, True, True, True]
    """
    if not keys.size:
        return np.zeros(0, np.bool_)
    order = np.lexsort((keys, *runs))
    new = np.zeros(keys.size, np.bool_)
    new[0] = True
    for run in runs:
        in_order = run[order]
        new[1:] |= in_order[1:] != in_order[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], keys.size)
    least = keys[order[np.maximum(starts, ends - k)]]
    kept = np.empty(keys.size, np.bool_)
    kept[order] = keys[order] >= np.repeat(least, ends - starts)
    return kept


def _deal(
    rows: Index, hashes: Hashes | None, parts: int, shift: int
) -> Iterator[tuple[int, Index]]:
    """Rows dealt out by bits of their hash."""
    if parts == 1:
        yield 0, rows
        return
    assert hashes is not None
    part = (hashes[rows] >> np.uint64(shift)) % np.uint64(parts)
    for number in range(parts):
        chosen = rows[part == number]
        if len(chosen):
            yield number, chosen
