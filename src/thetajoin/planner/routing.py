"""Which routing a streaming join uses, and what it needs to know: a value that can be saved.

```
hash       an equality: one copy of each row, in the unit of its key
contrand   the same, with keys that a sample shows to be frequent spread over several units
cells      a band, or a point in an interval: one copy of the point, a few of the interval
ranges     inequalities: boxes of the keys, cut by a sample; a row goes where it can match
matrix     anything: left rows to a row of units, right rows to a column
broadcast  anything: every unit is sent every row; what a count window and a self-join need
```
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.layout import How
from thetajoin.engine.parts import Part, Side
from thetajoin.errors import OptionError
from thetajoin.planner.routing_keys import (
    Band,
    CellRoute,
    HashRoute,
    MatrixRoute,
    RangeRoute,
    Route,
    bands,
    equalities,
    names_of,
)
from thetajoin.predicate.render import canonical_text
from thetajoin.routes.copies import BoxTree, Grid, KeyCells, grid_of
from thetajoin.window.windows import CountWindow

Kind = Literal["hash", "contrand", "cells", "ranges", "matrix", "broadcast"]
KINDS: tuple[Kind, ...] = ("hash", "contrand", "cells", "ranges", "matrix", "broadcast")
# Units of a join that is not told how many.
DEFAULT_UNITS = 4
MOST_UNITS = 512
# Units up to which a join without a key to route by sends every row to all of them.
MOST_BROADCAST = 8
# A cell is this many times as wide as the intervals: wider cells give fewer copies, narrower ones
# spread the rows better.
CELL_WIDTHS = 2
_WIDEST = 1 << 62
_NAMES: dict[Side, str] = {"l": "left", "r": "right"}


@dataclass(frozen=True)
class Routing:
    """A routing and its parameters: the same in every task, and after a restart.

    point: the side whose rows have one copy; for cells, which of its keys, and the cells' width.
    grid: of units. hot: frequent keys, by their hashes, each with the grid of units that it is
    spread over. boxes: of ranges, and over which keys. units, on: how many units and which
    condition it was made for, if from a sample. older: routings that rows were stored by before.
    """

    kind: Kind
    point: Side | None = None
    dim: int = 0
    width: float = 0
    floats: bool = False
    grid: Grid | None = None
    hot: tuple[tuple[int, Grid], ...] = ()
    boxes: BoxTree | None = None
    keys: tuple[str, ...] = ()
    units: int | None = None
    on: str | None = None
    older: tuple[Routing, ...] = ()

    def __str__(self) -> str:
        return "\n".join(_describe(plan) for plan in (self, *self.older[::-1]))

    def to_json(self) -> str:
        """As text, to be kept beside a checkpoint; `from_json` takes it back."""
        return json.dumps(self.to_value())

    @staticmethod
    def from_json(text: str) -> Routing:
        """What `to_json` gave.

        >>> Routing.from_json('"hash"').kind
        'hash'
        """
        try:
            return Routing.from_value(json.loads(text))
        except json.JSONDecodeError as error:
            raise OptionError(f"this is not a routing: {str(text)[:80]}") from error

    def places(self, units: int) -> int:
        """Units of this routing alone, with those for rows outside all boxes."""
        return units if self.boxes is None else self.boxes.places

    def all_places(self, units: int) -> int:
        """Units with those of older routings, which come first."""
        return sum(plan.places(units) for plan in (*self.older, self))

    @property
    def meets(self) -> bool:
        """Whether every unit is a join of its own, so that units need not agree on anything."""
        return self.kind != "broadcast"

    def to_value(self) -> Any:
        """As a value for JSON; just the name where there is nothing to add."""
        values = {
            "point": self.point,
            "dim": self.dim,
            "width": self.width,
            "floats": self.floats,
            "grid": None if self.grid is None else list(self.grid),
            "hot": [[key, *grid] for key, grid in self.hot],
            "boxes": None if self.boxes is None else asdict(self.boxes),
            "keys": self.keys,
            "units": self.units,
            "on": self.on,
            "older": [plan.to_value() for plan in self.older],
        }
        said = {name: value for name, value in values.items() if value}
        plain: Any = json.loads(json.dumps({"kind": self.kind, **said}))
        return plain if said else self.kind

    @staticmethod
    def from_value(value: Any) -> Routing:
        """What `to_value` gave."""
        try:
            given: dict[str, Any] = {"kind": value} if isinstance(value, str) else dict(value)
            if given["kind"] not in KINDS:
                raise ValueError(given["kind"])
            if given.get("grid") is not None:
                given["grid"] = Grid(*given["grid"])
            if given.get("boxes") is not None:
                given["boxes"] = BoxTree(**{n: _tuples(v) for n, v in given["boxes"].items()})
            given["hot"] = tuple((int(h[0]), Grid(h[1], h[2])) for h in given.get("hot", ()))
            given["keys"] = tuple(given.get("keys", ()))
            given["older"] = tuple(map(Routing.from_value, given.get("older", ())))
            return Routing(**given)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise OptionError(f"this is not a routing: {str(value)[:80]}") from error

    def tasks(self, join: CompiledJoin, units: int) -> int:
        """How many tasks a join of tables has."""
        if self.grid is None:
            return self.places(units)
        return self.grid.pairs if join.spec.self_join else self.grid.units

    def route(self, join: CompiledJoin, units: int, *, lone: bool = True) -> Route:
        """The function from rows to units; with `lone`, also for rows without matches."""
        cells = None
        if self.point is not None:
            cells = CellRoute(join, units, self.point, self.dim, KeyCells(self.width, self.floats))
        if self.kind == "cells":
            assert cells is not None
            return cells
        if self.kind == "matrix":
            assert self.grid is not None
            return MatrixRoute(join, units, self.grid)
        if self.kind == "ranges":
            assert self.point is not None
            assert self.boxes is not None
            return RangeRoute(join, self.point, self.keys, self.boxes)
        assert self.kind in ("hash", "contrand")
        return HashRoute(join, units, self.hot, cells, lone)


BROADCAST = Routing("broadcast")


def check_units(units: object) -> int:
    """A number of units, if it is one."""
    if isinstance(units, bool) or not isinstance(units, int) or not 1 <= units <= MOST_UNITS:
        raise OptionError(f"units={units!r}: must be a whole number from 1 to {MOST_UNITS}")
    return units


def choose_route(join: CompiledJoin, units: int, asked: object = None) -> Routing:
    """The routing that was asked for, or the one that sends the fewest copies."""
    if isinstance(asked, Routing):
        return _fit(asked, join, units)
    if asked is not None and asked not in KINDS:
        raise OptionError(f"routing={asked!r} is not known: use {', '.join(KINDS)}")
    if asked in ("contrand", "ranges"):
        what = "which keys are frequent" if asked == "contrand" else "where the keys lie"
        raise OptionError(
            f"routing={asked!r} needs to know {what}: pass "
            "routing=tj.routing(sample_left, sample_right, on, units=...)"
        )
    found = [
        plan if isinstance(plan, Routing) else (name, plan)
        for name, plan in (
            ("hash", hash_keys(join)),
            ("cells", _cells(join)),
            ("matrix", _matrix(join, units)),
        )
        if asked in (None, name)
    ]
    plans = [plan for plan in found if isinstance(plan, Routing)]
    if asked in ("hash", "cells", "matrix") and not plans:
        ((_, why),) = found  # type: ignore[misc]
        raise OptionError(f"routing={asked!r} cannot be used: {why}")
    if asked == "broadcast" or not plans:
        return BROADCAST
    if plans[0].kind == "matrix" and units <= MOST_BROADCAST and asked is None:
        return BROADCAST
    return plans[0]


def _fit(plan: Routing, join: CompiledJoin, units: int) -> Routing:
    """A routing made from a sample, if it suits the join that it is given to."""
    if plan.on is not None and plan.on != meaning_of(join):
        raise OptionError(
            f"this routing was made for another condition, {plan.on}: make one for "
            f"{join.condition.sql}"
        )
    if plan.units not in (None, units):
        raise OptionError(f"this routing was made for {plan.units} units: pass units={plan.units}")
    single = find_preserved(join.keeps)
    why = ""
    if plan.kind in ("hash", "contrand"):
        found = hash_keys(join)
        why = found if isinstance(found, str) else ""
    elif plan.kind != "broadcast":
        why = _why_one_copy(join)
    if not why and plan.older and not all(p.meets for p in (plan, *plan.older)):
        why = "a routing by broadcast cannot follow another, nor be followed"
    if not why and plan.older and join.keeps != "inner":
        why = "only an inner join can have its routing changed"
    if not why and plan.hot and plan.point is None and join.keeps != "inner":
        if join.keeps == "full" or join.spec.self_join:
            why = "its frequent keys have copies in several units"
        else:
            fitting = tuple((key, grid_of(grid.units, single)) for key, grid in plan.hot)
            plan = replace(plan, hot=fitting)
    if not why and plan.hot and join.spec.self_join:
        why = "a row of a self-join has two roles"
    if not why and plan.point is not None and single not in (None, plan.point):
        why = (
            f"it keeps {_NAMES[plan.point]} rows in one place, and in this join the "
            f"{_NAMES[single]} ones must be: make it with how={join.keeps!r}"
        )
    if not why and plan.point is not None and join.keeps == "full":
        why = "in a full join the rows of both sides must be in one place"
    if not why and plan.boxes is not None and plan.boxes.finite and join.keeps != "inner":
        why = f"its boxes are those of an inner join: make it with how={join.keeps!r}"
    if not why and plan.grid is not None:
        plan = replace(plan, grid=grid_of(plan.grid.units, single))
    if why:
        raise OptionError(f"this routing by {plan.kind} cannot be used: {why}")
    return plan


def meaning_of(join: CompiledJoin) -> str:
    """A condition as text, the same however it is written."""
    return canonical_text(join.condition.expr)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def explain_route(join: CompiledJoin, units: int, asked: object = None) -> str:
    """The routing in words, with the copies of a row that it sends."""
    plan = choose_route(join, units, asked)
    if plan.kind in ("hash", "contrand"):
        equal = equalities(join)[0]
        keys = ", ".join(" = ".join(names_of(join.parts[0], pair)) for pair in equal)
        spread = f"; {len(plan.hot)} frequent keys over several units" if plan.hot else ""
        return f"{plan.kind} of {keys}: one copy of each row{spread}"
    if plan.kind == "ranges":
        return _describe(plan)
    if plan.kind == "cells":
        assert plan.point is not None
        part = join.parts[0]
        key = part.keys[plan.point][part.views[plan.point].stored[plan.dim]].expr.sql()
        other = "right" if plan.point == "l" else "left"
        return (
            f"cells of {key}, {plan.width:g} wide: one copy of a {_NAMES[plan.point]} row, "
            f"about {1 + 1 / CELL_WIDTHS:g} of a {other} row"
        )
    why = "" if asked in ("matrix", "broadcast") else f" ({_why(join)})"
    if plan.kind == "matrix":
        assert plan.grid is not None
        rows, columns = plan.grid
        return (
            f"matrix of {rows} x {columns} units: {columns} copies of a left row, {rows} of a "
            f"right row{why}"
        )
    return f"broadcast: a copy of each row for every unit{why or ' (as asked)'}"


def _describe(plan: Routing) -> str:
    """A routing in one line, as far as that is possible without its join."""
    made = "" if plan.on is None else f" for {plan.on}, {plan.units} units"
    if plan.kind == "ranges":
        assert plan.point is not None
        assert plan.boxes is not None
        return (
            f"ranges{made}: a {_NAMES[plan.point]} row in one of {plan.boxes.axis.count(-1)} boxes "
            f"of {', '.join(plan.keys)}; a row of the other side in those that it reaches"
        )
    if plan.kind == "contrand":
        return f"contrand{made}: {len(plan.hot)} frequent keys over several units"
    if plan.kind == "cells":
        assert plan.point is not None
        return f"cells{made}: {plan.width:g} wide, one copy of a {_NAMES[plan.point]} row"
    if plan.grid is not None:
        return f"matrix{made}: {plan.grid.rows} x {plan.grid.columns} units"
    return f"{plan.kind}{made}"


def _why(join: CompiledJoin) -> str:
    """Why no key says where a row's matches are."""
    return "; ".join(why for why in (hash_keys(join), _cells(join)) if isinstance(why, str))


def find_preserved(how: How) -> Side | None:
    """The side of which each row must be in one place, so that it is known whether it matched."""
    if how in ("left", "semi", "anti"):
        return "l"
    return "r" if how == "right" else None


def hash_keys(join: CompiledJoin) -> Routing | str:
    """One unit for the rows of each key that must be equal, or why there is none."""
    if isinstance(join.window, CountWindow):
        return "under a CountWindow every unit must see every row"
    equal = equalities(join)
    if not all(equal):
        return "an alternative of the condition has no equality in common with the others"
    if join.spec.self_join and not all(_symmetric(join.parts[0], pair) for pair in equal[0]):
        return "the two sides of the equality differ, so a row of a self-join has two places"
    return Routing("hash")


def _symmetric(part: Part, pair: tuple[int, int]) -> bool:
    left, right = names_of(part, pair)
    return left.replace("l.", "r.") == right


def _cells(join: CompiledJoin) -> Routing | str:
    """Cells of a band whose width the condition says."""
    why = _why_one_copy(join)
    if why:
        return why
    (part,) = join.parts
    single = find_preserved(join.keeps)
    timely = False
    for point in ("l", "r") if single is None else (single,):
        for band in bands(part, point):
            if grows(join, part, point, band.dim):
                timely = True
                continue
            return Routing("cells", point, band.dim, *_width(band))
    if timely:
        return "the rows of a micro-batch lie close together in time"
    return "no key is bounded from both sides by a distance"


def _why_one_copy(join: CompiledJoin) -> str:
    """Why no row's copies can be told by one key of it."""
    return _why_no_copies(join) or ("the condition has alternatives" * (len(join.parts) != 1))


def _why_no_copies(join: CompiledJoin) -> str:
    """Why a row cannot be sent to several units, each a join of its own."""
    if isinstance(join.window, CountWindow):
        return "under a CountWindow every unit must see every row"
    if join.spec.self_join:
        return "a row of a self-join has two roles"
    return "in a full join the rows of both sides must be in one place" * (join.keeps == "full")


def _width(band: Band) -> tuple[float, bool]:
    """How wide cells are to be, and whether in doubles."""
    wide = CELL_WIDTHS * band.width
    if not band.floats:
        return min(wide, _WIDEST), False
    # Equal doubles have equal keys: each is a cell of its own.
    return (float(wide), True) if wide > 0 and np.isfinite(wide) else (1, False)


def grows(join: CompiledJoin, part: Part, point: Side, dim: int) -> bool:
    """Whether a key is a time: the rows of one micro-batch then lie in one or two cells."""
    expr = part.keys[point][part.views[point].stored[dim]].expr
    if join.clock is not None and expr == join.clock.exprs[point]:
        return True
    return bool(pa.types.is_temporal(expr.type))


def _matrix(join: CompiledJoin, units: int) -> Routing | str:
    single = find_preserved(join.keeps)
    return _why_no_copies(join) or Routing("matrix", grid=grid_of(units, single))
