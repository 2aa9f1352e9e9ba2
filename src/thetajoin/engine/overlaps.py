"""Overlapping intervals as two look-ups in one order each.

``l.start <= r.end AND l.end >= r.start`` holds where the right start lies inside the left interval,
or where the left start lies inside the right one, behind its start. Each of the two is a range of
one key. That is so for intervals that do not end before they begin; the few that do are joined by
the condition as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey
from thetajoin.engine.parts import MIRROR, Ask, Part, Side, View
from thetajoin.engine.rows import PartRows
from thetajoin.index.probe import Dim, Shape

# With a larger share of intervals that end before they begin, the columns are no intervals.
MOST_REVERSED = 0.01


@dataclass(frozen=True)
class Look:
    """A part of a condition to be carried out on its own: what is stored, and both sides' rows."""

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


def looks(part: Part, left: PartRows, right: PartRows) -> Iterator[Look]:
    """How to find a part's matches between whole tables: as it is, or as two look-ups."""
    rows: dict[Side, PartRows] = {"l": left, "r": right}
    overlap = overlap_of(part)
    if overlap is not None:
        proper: dict[Side, NDArray[np.bool_]] = {
            "l": _in_order(left, overlap, "l", "<="),
            "r": _in_order(right, overlap, "r", overlap.ends_op),
        }
        reversed_rows = {side: (~proper[side]).sum() for side in proper}
        if all(reversed_rows[side] <= MOST_REVERSED * len(rows[side]) for side in proper):
            yield from _looks_of_overlap(part, overlap, rows, proper)
            return
    fewer = _ordered(part.views["l"]) < _ordered(part.views["r"])
    yield Look(part, "l" if fewer else "r", rows)


def _looks_of_overlap(
    part: Part,
    overlap: Overlap,
    rows: dict[Side, PartRows],
    proper: dict[Side, NDArray[np.bool_]],
) -> Iterator[Look]:
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
    yield Look(first, "r", {"l": rows["l"], "r": _some(rows["r"], proper["r"])})
    yield Look(second, "l", {"l": _some(rows["l"], proper["l"]), "r": rows["r"]})
    # What neither finds: intervals that end before they begin, on the side that they begin on.
    if not proper["r"].all():
        yield _reversed(part, "r", overlap, rows, proper)
    if not proper["l"].all():
        yield _reversed(part, "l", overlap, rows, proper)


def _reversed(
    part: Part,
    side: Side,
    overlap: Overlap,
    rows: dict[Side, PartRows],
    proper: dict[Side, NDArray[np.bool_]],
) -> Look:
    """The matches of one side's reversed intervals that the two look-ups leave out."""
    op = "<=" if side == "r" else ">"
    extra = {
        "r": (overlap.starts["r"], Ask(overlap.starts["l"], op)),
        "l": (overlap.starts["l"], Ask(overlap.starts["r"], MIRROR[op])),
    }
    views: dict[Side, View] = {of: _with_ask(part.views[of], *extra[of]) for of in part.views}
    odd = dict(rows)
    odd[side] = _some(rows[side], ~proper[side])
    return Look(replace(part, views=views), "r", odd)


def _in_order(rows: PartRows, overlap: Overlap, side: Side, op: str) -> NDArray[np.bool_]:
    """Which rows' intervals do not end before they begin."""
    start, end = rows.keys[overlap.starts[side]], rows.keys[overlap.ends[side]]
    assert not isinstance(start, BytesKey)
    assert not isinstance(end, BytesKey)
    return start <= end if op == "<=" else start < end


def _some(rows: PartRows, mask: NDArray[np.bool_]) -> PartRows:
    return rows if mask.all() else rows.take(np.flatnonzero(mask).astype(np.int32))


def _view(view: View, key: int, asks: tuple[Ask, ...]) -> View:
    """A view with one ordered key, and with whatever else it had but its ordered keys."""
    kept = [at for at, dim in enumerate(view.shape.dims) if dim.equal or dim.negate]
    return View(
        Shape((Dim(), *(view.shape.dims[at] for at in kept))),
        (key, *(view.stored[at] for at in kept)),
        (asks, *(view.asks[at] for at in kept)),
    )


def _with_ask(view: View, key: int, ask: Ask) -> View:
    """A view that asks one thing more of an ordered key."""
    asks = list(view.asks)
    for at, (dim, stored) in enumerate(zip(view.shape.dims, view.stored, strict=True)):
        if stored == key and not dim.equal and not dim.negate:
            asks[at] = (*asks[at], ask)
    return replace(view, asks=tuple(asks))


def _ordered(view: View) -> int:
    """How many intervals a probe asks for, equalities aside."""
    return sum(not dim.equal for dim in view.shape.dims)
