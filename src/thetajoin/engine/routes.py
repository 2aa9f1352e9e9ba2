"""Where a row of a streaming join goes: the keys a routing needs, from a compiled join.

`routing` has the functions from keys to units; this says which keys they are given, and what a join
can be routed by at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import Part, Side
from thetajoin.engine.rows import make_batch
from thetajoin.errors import OptionError
from thetajoin.routing.fingerprint import fingerprints
from thetajoin.routing.hashing import units_of_hashes, units_of_keys
from thetajoin.window.windows import CountWindow

Routing = Literal["hash", "broadcast"]
ROUTINGS: tuple[Routing, ...] = ("hash", "broadcast")
Int32 = NDArray[np.int32]
# Places of a part's keys: of the left row and of the right one, which must be equal.
Equal = tuple[int, int]


def choose_routing(join: CompiledJoin, asked: object = None) -> Routing:
    """The routing that was asked for, or the one that sends the fewest copies."""
    if asked is not None and asked not in ROUTINGS:
        raise OptionError(f"routing={asked!r} is not known: use {' or '.join(ROUTINGS)}")
    why = _why_not_hash(join)
    if asked == "hash" and why:
        raise OptionError(f"routing='hash' cannot be used: {why}")
    return "broadcast" if why or asked == "broadcast" else "hash"


def explain_routing(join: CompiledJoin, asked: object = None) -> str:
    """The routing in words, with the copies of a row that it sends."""
    if choose_routing(join, asked) == "hash":
        equal = equalities(join)[0]
        keys = ", ".join(" = ".join(_name(join.parts[0], pair)) for pair in equal)
        return f"hash of {keys}: one copy of each row"
    return f"broadcast: a copy of each row for every unit ({_why_not_hash(join) or 'as asked'})"


def _why_not_hash(join: CompiledJoin) -> str:
    if isinstance(join.config.window, CountWindow):
        return "under a CountWindow every unit must see every row"
    equal = equalities(join)
    if not all(equal):
        return "an alternative of the condition has no equality in common with the others"
    if join.config.self_join and not all(_symmetric(join.parts[0], pair) for pair in equal[0]):
        return "the two sides of the equality differ, so a row of a self-join has two places"
    return ""


def equalities(join: CompiledJoin) -> list[list[Equal]]:
    """For each part, the equalities that all parts have, in one order."""
    named = [{_name(part, pair): pair for pair in _equal(part)} for part in join.parts]
    common = set.intersection(*(set(names) for names in named))
    return [[names[name] for name in sorted(common)] for names in named]


def _equal(part: Part) -> list[Equal]:
    view = part.views["r"]
    return [
        (ask.probe_key, key)
        for dim, key, asks in zip(view.shape.dims, view.stored, view.asks, strict=True)
        if dim.equal
        for ask in asks[:1]
    ]


def _name(part: Part, pair: Equal) -> tuple[str, str]:
    return part.keys["l"][pair[0]].expr.sql(), part.keys["r"][pair[1]].expr.sql()


def _symmetric(part: Part, pair: Equal) -> bool:
    left, right = _name(part, pair)
    return left.replace("l.", "r.") == right


@dataclass(frozen=True)
class HashRoute:
    """The unit of each row of a side, by the keys that must be equal."""

    join: CompiledJoin
    units: int

    def units_of(self, rows: pa.RecordBatch, side: Side) -> Int32:
        """Rows that cannot match have a unit too, by all they hold: they may come out alone."""
        given = self.join.taken_in(rows, side)
        keyed = make_batch(given, side, self.join.parts, [])
        found = np.full(rows.num_rows, -1, np.int32)
        at = 0 if side == "l" else 1
        for part, equal in zip(keyed.parts, equalities(self.join), strict=True):
            if len(part):
                found[part.rows] = units_of_keys([part.keys[p[at]] for p in equal], self.units)
        alone = np.flatnonzero(found < 0)
        if alone.size:
            prints = fingerprints(rows.take(pa.array(alone)) if alone.size < found.size else rows)
            found[alone] = units_of_hashes(prints.first, self.units)
        return found
