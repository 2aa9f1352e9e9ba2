"""A routing made from samples of both sides: frequent keys, widths of intervals, boxes of keys."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, isqrt
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.batch.keys import float_values
from thetajoin.edge import public
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.layout import How, parse_how
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import PartRows, make_batch, take_all_in
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import DataError
from thetajoin.index.interval import Interval
from thetajoin.planner.routing import (
    CELL_WIDTHS,
    Routing,
    check_units,
    choose_route,
    find_preserved,
    grows,
    hash_keys,
    meaning_of,
)
from thetajoin.planner.routing_keys import bands, equalities, find_bounded, take_asked, take_held
from thetajoin.predicate.builder import On
from thetajoin.routes.copies import Grid, cut_boxes, grid_of, hashes_of, pairs_of
from thetajoin.window.windows import CountWindow

# The share of intervals that are no longer than those that cells are made for.
LONG_INTERVALS = 0.9
Samples = dict[Side, tuple[PartRows, ...]]


@public("give smaller samples")
def routing(
    sample_left: Any,
    sample_right: Any,
    on: On,
    *,
    units: int,
    how: How = "inner",
    before: Routing | None = None,
) -> Routing:
    """How a stream's rows are to be spread over units, judged by samples of both sides.

    Pass the result as ``routing=`` to `join` with the same condition and units, and keep it
    (`to_json`, `from_json`): a checkpoint needs the routing that it was started with. To spread
    rows in another way from a restart on, make another one with ``before=`` the last. Costs a sort
    of the samples.

    Args:
        sample_left: some hundreds or thousands of left rows, of any kind that `join` takes but
            Spark's.
        sample_right: right rows.
        on: the condition, as for `join`.
        units: the number of units of the streaming join.
        how: the kind of join.
        before: the routing that a checkpoint was last used with.

    Returns:
        A routing that can be printed and kept as JSON.

    >>> import pyarrow as pa, thetajoin as tj
    >>> keys = pa.table({"a": range(100), "b": range(100, 0, -1)})
    >>> tj.routing(keys, keys, "l.a < r.a AND l.b < r.b", units=4).kind
    'ranges'
    """
    check_units(units)
    rows = take_all_in({"left": sample_left, "right": sample_right})
    left, right = rows["left"], rows["right"]
    join = CompiledJoin(JoinSpec(on, parse_how(how)), left.schema, right.schema)
    for name, sample in rows.items():
        if not sample.num_rows:
            raise DataError(f"the {name} sample has no rows: take some hundreds at least")
    made = _make(join, {"l": left, "r": right}, units)
    older = () if before is None else (*before.older, replace(before, older=()))
    plan = replace(made, units=units, on=meaning_of(join), older=older)
    return choose_route(join, units, plan)


def has_one_place(join: CompiledJoin) -> bool:
    """Whether an equality says where all matches of a row are."""
    return isinstance(hash_keys(join), Routing)


def route_tables(
    join: CompiledJoin, units: int, samples: dict[Side, pa.RecordBatch] | None
) -> Routing:
    """How the rows of two tables are spread over cells, each a join of its own.

    By an equality if there is one; keys that are frequent in the samples have several cells.
    """
    if isinstance(join.window, CountWindow):
        return Routing("matrix", grid=Grid(1, 1))
    plain = hash_keys(join)
    if isinstance(plain, str):
        return Routing("matrix", grid=pairs_of(units) if join.spec.self_join else grid_of(units))
    if samples is None:
        return plain
    keyed: Samples = {
        side: make_batch(rows, side, join.parts, []).parts for side, rows in samples.items()
    }
    return _with_hot_keys(join, keyed, units, plain)


def _make(join: CompiledJoin, samples: dict[Side, pa.RecordBatch], units: int) -> Routing:
    keyed: Samples = {
        side: make_batch(join.take_in(rows, side), side, join.parts, []).parts
        for side, rows in samples.items()
    }
    plain = choose_route(join, units)
    if plain.kind == "hash":
        return _with_hot_keys(join, keyed, units, plain)
    if plain.kind == "cells" or len(join.parts) != 1 or join.keeps == "full":
        return plain
    if not all(len(parts[0]) for parts in keyed.values()):
        return plain
    return _cells(join, keyed) or _ranges(join, keyed, units) or plain


def _with_hot_keys(join: CompiledJoin, keyed: Samples, units: int, plain: Routing) -> Routing:
    """Spread keys over several units that would fill one alone."""
    shares: dict[int, float] = {}
    equal = equalities(join)
    for at, side in enumerate(SIDES):
        hashes = np.concatenate(
            [
                hashes_of([part.keys[pair[at]] for pair in pairs], len(part))
                for part, pairs in zip(keyed[side], equal, strict=True)
            ]
        )
        found, counts = np.unique(hashes, return_counts=True)
        often = counts > np.maximum(hashes.size / units, 1)
        for key, count in zip(found[often].tolist(), counts[often].tolist(), strict=True):
            shares[key] = max(shares.get(key, 0.0), count / hashes.size)
    if not shares:
        return plain
    hot = tuple((key, _spread(share, units)) for key, share in sorted(shares.items()))
    single = find_preserved(join.keeps)
    if len(join.parts) == 1 and join.keeps != "full" and not join.spec.self_join:
        for point in SIDES if single is None else (single,):
            for band in bands(join.parts[0], point):
                cells = _cells_of(join, keyed, point, band.dim)
                if cells is not None:
                    return replace(cells, kind="contrand", hot=hot)
    return Routing("contrand", hot=hot)


def _spread(share: float, units: int) -> Grid:
    """The grid for a key with this share of the rows, so that no unit is sent twice its own."""
    lines = min(isqrt(units), max(2, ceil(share * units)))
    return Grid(lines, lines)


def _cells(join: CompiledJoin, keyed: Samples) -> Routing | None:
    """Cells of a key that the other side bounds from both sides, wide enough for most intervals."""
    single = find_preserved(join.keeps)
    for point in SIDES if single is None else (single,):
        view = join.parts[0].views[point]
        for dim in range(len(view.asks)):
            kind = view.shape.dims[dim]
            if kind.negate or kind.is_bytes or kind.equal:
                continue
            if grows(join, join.parts[0], point, dim):
                continue
            found = _cells_of(join, keyed, point, dim)
            if found is not None:
                return found
    return None


def _cells_of(join: CompiledJoin, keyed: Samples, point: Side, dim: int) -> Routing | None:
    part = join.parts[0]
    asked = part.views[point].intervals(keyed[OTHER[point]][0].keys)[dim]
    if not isinstance(asked, Interval) or asked.low is None or asked.high is None:
        return None
    expr = part.keys[point][part.views[point].stored[dim]].expr
    floats = bool(pa.types.is_floating(expr.type))
    low, high = (float_values(end) if floats else end for end in (asked.low, asked.high))
    length = high.astype(np.float64) - low.astype(np.float64)
    length = length[np.isfinite(length) & (length >= 0)]
    if not length.size:
        return None
    long = float(np.quantile(length, LONG_INTERVALS))
    mine = keyed[point][0].keys[part.views[point].stored[dim]]
    assert isinstance(mine, np.ndarray)
    values = float_values(mine) if floats else mine
    spread = float(np.ptp(values.astype(np.float64)))
    # Cells that most rows share would put most rows into one unit.
    if not np.isfinite(spread) or spread < 4 * CELL_WIDTHS * long:
        return None
    if not floats:
        return Routing("cells", point, dim, max(ceil(CELL_WIDTHS * long), 1))
    if long <= 0:
        return Routing("cells", point, dim, 1)
    return Routing("cells", point, dim, CELL_WIDTHS * long, floats=True)


def _ranges(join: CompiledJoin, keyed: Samples, units: int) -> Routing | None:
    """Boxes of one side's keys: of the side with which the busiest unit is sent the fewest rows."""
    single = find_preserved(join.keeps)
    tried = []
    for held in SIDES if single is None else (single,):
        keys = tuple(find_bounded(join, held))
        if not keys:
            continue
        columns = take_held(join, held, keys, keyed[held][0])
        boxes = cut_boxes(columns, units, finite=join.keeps == "inner")
        _, reached = boxes.find_reached(*take_asked(join, held, keys, keyed[OTHER[held]][0]))
        sent = np.bincount(reached, minlength=units).max() / len(keyed[OTHER[held]][0])
        tried.append(((sent + 2 / units) / 2, Routing("ranges", held, boxes=boxes, keys=keys)))
    if not tried:
        return None
    # The share of all rows that the busiest unit is sent, as the sample has it.
    busiest, found = min(tried, key=lambda made: made[0])
    plain = choose_route(join, units)
    if plain.grid is not None and busiest > (1 / plain.grid.rows + 1 / plain.grid.columns) / 2:
        return None
    return found
