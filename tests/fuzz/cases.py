"""A case: a call of the package with tables, a condition, a window and options, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from fuzz import draw as drawing
from fuzz.aggregates import Agg, aggregates
from fuzz.conditions import Conditions, families
from fuzz.draw import NOW, Draw
from fuzz.kinds import DAY, Column, Kind, Table, arrow_type, kind_of
from fuzz.nodes import Node, both

HOWS = ("inner", "left", "right", "full", "semi", "anti")
SPELLINGS = {
    "inner": ("inner",),
    "left": ("left", "leftouter", "left_outer"),
    "right": ("right", "rightouter", "right_outer"),
    "full": ("full", "outer", "fullouter", "full_outer"),
    "semi": ("semi", "leftsemi", "left_semi"),
    "anti": ("anti", "leftanti", "left_anti"),
}
INDEXES = (
    *("auto", "po_join", "b_plus_tree", "css_tree", "b_chain", "ib_chain", "im_tree", "pim_tree"),
    *("rap_table", "wib_tree", "bi_sort", "nested_loop", "bitset", "hash"),
)
CALLS = {
    "join": 30,
    "join_batches": 8,
    "explain": 2,
    "self_join": 10,
    "join_many": 9,
    "join_agg": 10,
    "self_join_agg": 4,
    "chain": 5,
    "sql": 11,
    "stream": 22,
}
ONE_TABLE = ("self_join", "self_join_agg")
MANY_TABLES = ("join_many", "chain")
PLAIN = ("pandas", "pandas_arrow", "pandas_nullable", "polars", "lazy")
TIMES = (
    *("pa.int64()", "pa.int32()", "pa.date32()"),
    *(f"pa.timestamp('{unit}')" for unit in ("s", "ms", "us", "ns")),
    "pa.timestamp('us', 'UTC')",
)


@dataclass(frozen=True)
class Window:
    """A window: by time (`before`, `after` in nanoseconds or plain numbers), by count, or none."""

    name: str
    before: int = 0
    after: int = 0
    size: int = 1
    slide: int = 1
    plain: bool = False


@dataclass(frozen=True)
class Step:
    """What a stream does next: push rows of both sides up to these, advance, or restart."""

    name: str
    left: int = 0
    right: int = 0
    watermark: int = 0


@dataclass(frozen=True)
class Case:
    """Everything a call is made of."""

    call: str
    tables: Mapping[str, Table]
    on: Node
    form: str = "sql"
    how: str = "inner"
    spelling: str = "inner"
    window: Window | None = None
    order_by: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    groups: tuple[Node, ...] = ()
    aggs: tuple[Agg, ...] = ()
    suffix: str = "_right"
    limit: int | None = None
    chain: tuple[tuple[str, Node], ...] = ()
    where: Node | None = None

    @property
    def left(self) -> Table:
        """The first table."""
        return next(iter(self.tables.values()))

    def with_table(self, side: str, table: Table) -> Case:
        """The case with another table; in a self-join both sides are one."""
        sides = list(self.tables) if self.call in ONE_TABLE else [side]
        return replace(self, tables={**self.tables, **dict.fromkeys(sides, table)})


def case(seed: int, number: int) -> Case:
    """The case of that number: the same for the same seed, whatever ran before."""
    draw = Draw(f"{seed}:{number}")
    draw.edge = draw.chance(0.05)
    call = draw.weighted(CALLS)
    inputs = _inputs(draw, call)
    tables = _tables(draw, call, inputs)
    on = _condition(draw, tables)
    window = _window(draw, call, tables)
    if window is not None:
        tables, inputs = _timed(draw, tables, window, call, inputs)
    made = Case(call, tables, on, window=window, inputs=inputs)
    made = replace(made, options=_options(draw, call, on), form=_form(draw, call))
    if window is not None and window.name == "count":
        made = replace(made, order_by=draw.chance(0.6))
    if call not in (*ONE_TABLE, *MANY_TABLES, "join_agg"):
        made = _with_how(draw, made)
    if call == "sql" and window is not None:
        made = replace(made, window=replace(window, after=window.before))
    if call == "stream":
        made = replace(made, steps=_steps(draw, made))
    if call in ("join", "join_batches", "self_join", "stream") and draw.chance(0.1):
        made = replace(made, suffix=draw.pick(("_2", "\u00e9", " right", ".r")))
    if call == "chain":
        made = _chained(draw, made)
    if call in ("join_agg", "self_join_agg") or (
        call == "sql" and made.how == "inner" and draw.chance(0.4)
    ):
        groups, aggs = aggregates(draw, tables)
        made = replace(made, groups=groups, aggs=aggs)
    if call == "sql" and not made.aggs and made.how in ("inner", "semi", "anti"):
        made = replace(made, limit=draw.randint(0, 9) if draw.chance(0.3) else None)
    return made


def _inputs(draw: Draw, call: str) -> dict[str, str]:
    kinds = {"arrow": 8, "chunked": 2, "sliced": 2}
    if call != "stream":
        kinds |= {
            "batch": 1,
            "reader": 1,
            "polars": 1.5,
            "lazy": 0.5,
            "dataset": 0.5,
            "stream": 0.5,
        }
        kinds |= {"pandas": 1, "pandas_arrow": 0.7, "pandas_nullable": 0.7}
    sides = ("r", "s", "t") if call in MANY_TABLES else ("l", "r")
    chosen = {side: draw.weighted(kinds) for side in sides}
    return dict.fromkeys(sides, chosen["l"]) if call in ONE_TABLE else chosen


def _tables(draw: Draw, call: str, inputs: Mapping[str, str]) -> dict[str, Table]:
    kinds = families(draw)
    plain = any(given in PLAIN for given in inputs.values())
    if plain:
        kinds = ["number" if kind == "clock" else kind for kind in kinds]
    tables = {}
    for side, given in inputs.items():
        rows = min(drawing.size(draw), 12 if call in MANY_TABLES else 200)
        prefix = "c" if draw.chance(0.3) else side
        tables[side] = drawing.table(draw, f"{side}id", kinds, prefix, rows, plain, given)
    if call in ONE_TABLE:
        tables["r"] = tables["l"]
    return tables


def _condition(draw: Draw, tables: Mapping[str, Table]) -> Node:
    sides = list(tables)
    return both([Conditions(draw, tables, a, b).condition() for a, b in pairwise(sides)])


def _chained(draw: Draw, made: Case) -> Case:
    """Two joins in SQL, one after the other, and a WHERE after them."""
    tables = made.tables
    first = Conditions(draw, tables, "r", "s").condition()
    second = Conditions(draw, tables, draw.pick(("r", "s")), "t").condition()
    hows = [draw.pick(("inner", "left", "right", "full")) for _ in range(2)]
    where = None
    if draw.chance(0.6):
        pair = draw.sample(list(tables), 2)
        over = Conditions(draw, tables, *pair)
        where = over.one_sided(pair[0]) if draw.chance(0.7) else over.crossed()
    return replace(made, chain=((hows[0], first), (hows[1], second)), where=where)


def _form(draw: Draw, call: str) -> str:
    if call in MANY_TABLES:
        return "sql"
    return draw.weighted({"sql": 6, "list": 1, "python": 3})


def _with_how(draw: Draw, made: Case) -> Case:
    how = draw.pick(HOWS) if draw.chance(0.6) else "inner"
    if made.call == "stream" and made.window is not None and made.window.name == "full":
        how = draw.pick(("inner", "semi"))
    if made.call == "sql" and made.window is not None:
        how = "inner"
    return replace(made, how=how, spelling=draw.pick(SPELLINGS[how]))


def _options(draw: Draw, call: str, on: Node) -> dict[str, Any]:
    if call in ("sql", "chain"):
        return {}
    options: dict[str, Any] = {}
    if draw.chance(0.5):
        options["threads"] = draw.pick((1, 1, 2))
    if draw.chance(0.25):
        options["chunk_rows"] = 64
    if draw.chance(0.3):
        options["head_rows"] = draw.pick((0, 1, 2, 5, 100))
    if draw.chance(0.3):
        options["merge"] = draw.pick(("inline", "background"))
    if draw.chance(0.3) and "agg" not in call:
        options["index"] = draw.pick(INDEXES if _has_keys(on) else INDEXES[:2])
    return options


def _has_keys(on: Node) -> bool:
    """Whether every index may serve a condition: it orders numbers of at most 64 bits."""
    parts = on.args if on.op == "and" else (on,)
    if any(n.kind.name in ("text", "binary", "decimal") for n in on.walk()):
        return False
    if any(n.op == "or" or n.kind == Kind("uint", 64) for n in on.walk()):
        return False
    return any(
        p.op in ("<", "<=", ">", ">=", "=") and all(len(a.sides()) == 1 for a in p.args)
        for p in parts
    )


# --- windows and streams -------------------------------------------------------------------------


def _window(draw: Draw, call: str, tables: Mapping[str, Table]) -> Window | None:
    share = {"stream": 1.0, "explain": 0.2, "chain": 0.0}.get(call, 0.35)
    if not draw.chance(share):
        return None
    name = draw.weighted({"time": 4, "count": 4, "full": 1})
    if name == "count":
        return Window(name, size=draw.pick((1, 2, 3, 5, 10, 30)), slide=draw.pick((1, 1, 2, 3, 7)))
    before, after = draw.randint(0, 6), draw.randint(0, 6)
    if draw.chance(0.5):
        after = before
    return Window(name, before or 1, after or (before or 1), plain=draw.chance(0.4))


def _timed(
    draw: Draw, tables: Mapping[str, Table], window: Window, call: str, inputs: dict[str, str]
) -> tuple[dict[str, Table], dict[str, str]]:
    """The tables with a column of times, in nanoseconds or as plain numbers."""
    codes = [code for code in TIMES if ("int" in code) == window.plain]
    found = {}
    nulls = draw.pick((0.0, 0.0, 0.1))
    first = draw.pick(codes)
    for side, table in tables.items():
        code = first if draw.chance(0.7) else draw.pick(codes)
        if ("date" in code) != ("date" in first):
            code = first
        if "pandas" in inputs[side] and code == "pa.date32()":
            inputs = {**inputs, side: "arrow"}
        steps = [i * 16 // max(1, table.size) + draw.randint(-3, 3) for i in range(table.size)]
        if draw.chance(0.3):
            draw.shuffle(steps)
        unit = _unit(code, first)
        base = _base(draw, window, code)
        null = 0.0 if window.plain and inputs[side] == "pandas" else nulls
        times = [None if draw.chance(null) else base + step * unit for step in steps]
        found[side] = Table((*table.columns, Column("t", code, tuple(times))))
    if call in ONE_TABLE:
        found["r"] = found["l"]
    return found, inputs


def _base(draw: Draw, window: Window, code: str) -> int:
    """Where times begin: now and then at one of the ends of a plain number."""
    if not window.plain:
        return NOW
    return draw.pick((2**63 - 20, -(2**63) + 4)) if draw.edge and "64" in code else 0


def _unit(code: str, first: str) -> int:
    """Nanoseconds in the step of a time column: a coarser one than either column's tick."""
    if "int" in code:
        return 1
    return DAY if "date" in first else 10**9


def window_unit(case: Case) -> int:
    """Nanoseconds, or ones, in which a time window is counted."""
    assert case.window is not None
    if case.window.plain:
        return 1
    codes = [table.column("t").code for table in case.tables.values()]
    return DAY if any(kind_of(arrow_type(c)).name == "date" for c in codes) else 10**9


def _steps(draw: Draw, made: Case) -> tuple[Step, ...]:
    """Pushes of both sides until all rows are in, with watermarks and restarts between them."""
    sizes = [table.size for table in made.tables.values()]
    count = draw.randint(1, 6)
    ends = [[*sorted(draw.randint(0, size) for _ in range(count - 1)), size] for size in sizes]
    steps = []
    timed = made.window is not None and made.window.name == "time"
    for at, (left, right) in enumerate(zip(*ends, strict=True)):
        steps.append(Step("push", left, right))
        if timed and draw.chance(0.4):
            base = _base(draw, made.window, made.left.column("t").code)
            moved = draw.randint(-6, 2) + 16 * (at + 1) // count
            steps.append(Step("advance", watermark=base + moved * window_unit(made)))
        if draw.chance(0.25):
            steps.append(Step("restore"))
    return tuple(steps)
