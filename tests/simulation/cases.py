"""What is joined: a fixed list, so that nothing is compiled twice.

Rows without an id are what finds units that disagree: many of them are equal, or equal in all that
a careless hash looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa

import naive
import thetajoin as tj
from naive import Predicate, Row
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import OptionError
from thetajoin.planner.routing import Routing, choose_route
from thetajoin.spark.unit_spec import UnitSpec

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
# The tag of rows that only serve to move a count window past all others.
END = "end"

INT, TEXT, REAL = pa.int64(), pa.string(), pa.float64()
TYPES = {
    "id": INT,
    **dict.fromkeys("abkpqo", INT),
    **dict.fromkeys("xy", REAL),
    "s": TEXT,
    "m": pa.list_(INT),
    "n": pa.list_(INT),
    "z": pa.list_(pa.list_(INT)),
    "t": pa.timestamp("us", "UTC"),
    "u": pa.timestamp("us", "UTC"),
    "tag": TEXT,
}


def schema(names: str) -> pa.Schema:
    """The columns with these names, an event time and a tag."""
    return pa.schema([(name, TYPES[name]) for name in [*names.split(), "t", "tag"]])


@dataclass(frozen=True)
class Case:
    """A condition, as text and as the oracle has it, and its columns on both sides."""

    on: str
    pred: Predicate
    columns: str
    group: str = ""

    @property
    def schema(self) -> pa.Schema:
        """Both sides' columns."""
        return schema(self.columns)

    @property
    def has_ids(self) -> bool:
        """Whether no two rows are equal."""
        return self.columns.startswith("id")


def _even_sum(l: Row, r: Row) -> bool | None:
    total = naive.arithmetic("+", l["a"], r["b"])
    return None if total is None else total % 2 == 0


def _compare(left: str, op: str, right: str) -> Predicate:
    return naive.conj((left, op, right))


CASES = (
    Case("l.a < r.a", _compare("a", "<", "a"), "id a b", "a"),
    Case("l.a <= r.a AND l.b > r.b", naive.conj(("a", "<=", "a"), ("b", ">", "b")), "id a b", "b"),
    Case("ABS(l.a - r.b) <= 1", naive.band("a", "b", "<=", 1), "id a b"),
    Case("l.a = r.a AND l.b <= r.b", naive.conj(("a", "=", "a"), ("b", "<=", "b")), "id a b", "a"),
    Case("l.a != r.b", _compare("a", "!=", "b"), "id a b"),
    Case(
        "l.a < r.a OR l.b >= r.b",
        naive.any_of(_compare("a", "<", "a"), _compare("b", ">=", "b")),
        "id a b",
    ),
    Case(
        "l.a <= r.a AND (l.a + r.b) % 2 = 0",
        naive.all_of(_compare("a", "<=", "a"), _even_sum),
        "id a b",
    ),
    Case("l.k <= r.k", _compare("k", "<=", "k"), "k p q", "k"),
    Case("l.k = r.k", _compare("k", "=", "k"), "k p q"),
    Case("l.p < r.q", _compare("p", "<", "q"), "k p q", "p"),
    Case("l.k = r.k AND l.p >= r.p", naive.conj(("k", "=", "k"), ("p", ">=", "p")), "k p q"),
    Case("ABS(l.k - r.k) <= 1", naive.band("k", "k", "<=", 1), "k p q"),
    Case("ABS(l.x - r.y) <= 1.5", naive.band("x", "y", "<=", 1.5), "x y"),
    Case(
        "l.k = r.k AND ABS(l.p - r.q) <= 1",
        naive.all_of(_compare("k", "=", "k"), naive.band("p", "q", "<=", 1)),
        "k p q",
    ),
    Case("l.x <= r.x", _compare("x", "<=", "x"), "x y", "x"),
    Case("l.x >= r.y AND l.y != r.x", naive.conj(("x", ">=", "y"), ("y", "!=", "x")), "x y"),
    Case("l.s <= r.s", _compare("s", "<=", "s"), "s k", "k"),
    Case("l.s = r.s AND l.k < r.k", naive.conj(("s", "=", "s"), ("k", "<", "k")), "s k"),
    Case("l.k >= r.k", _compare("k", ">=", "k"), "k m n z"),
    Case("l.x = r.x AND l.y >= r.y", naive.conj(("x", "=", "x"), ("y", ">=", "y")), "x y", "x"),
    Case("l.a = r.b AND l.b < r.a", naive.conj(("a", "=", "b"), ("b", "<", "a")), "id a b", "a"),
    Case(
        "l.k = r.k AND (l.p < r.p OR l.q >= r.q)",
        naive.all_of(
            _compare("k", "=", "k"), naive.any_of(_compare("p", "<", "p"), _compare("q", ">=", "q"))
        ),
        "k p q",
    ),
)
# Case, and what follows it, are drawn by the share of work a kind is worth.
WINDOWS: tuple[tuple[Any, naive.Window], ...] = (
    (
        tj.TimeWindow("3 seconds", time="t"),
        naive.Time(timedelta(seconds=3), timedelta(seconds=3)),
    ),
    (
        tj.TimeWindow(before="4 seconds", after="1 second", time="t"),
        naive.Time(timedelta(seconds=4), timedelta(seconds=1)),
    ),
    (
        tj.TimeWindow(after="2500 ms", time=("t", "t")),
        naive.Time(timedelta(), timedelta(seconds=2.5)),
    ),
    (tj.CountWindow(3), naive.Count(3)),
    (tj.CountWindow(4, slide=2), naive.Count(4, 2)),
    (tj.CountWindow(2, slide=3), naive.Count(2, 3)),
    (tj.CountWindow(50), naive.Count(50)),
    (tj.FullHistory(), naive.Full()),
)
HOWS = ("inner", "left", "right", "full", "semi", "anti")
AGGS = {"n": "count(*)", "s": "sum(r.{0})", "lo": "min(r.{0})", "hi": "max(r.{0})"}


@dataclass(frozen=True)
class Join:
    """One join of the list: everything but its rows and its cluster."""

    case: Case
    at: int
    how: str = "inner"
    self_join: bool = False
    totals: bool = False
    units: int = 1
    # Milliseconds by which left rows may be behind the watermark, because another join made them.
    lag: int = 0
    # The routing asked for.
    asked: str | None = None

    @property
    def window(self) -> naive.Window:
        """The oracle's window."""
        return WINDOWS[self.at][1]

    @property
    def timed(self) -> bool:
        """Whether event time counts."""
        return isinstance(self.window, naive.Time)

    @property
    def counted(self) -> bool:
        """Whether the order of rows counts."""
        return isinstance(self.window, naive.Count)

    @property
    def order_by(self) -> tuple[str, str] | None:
        """The columns that order rows."""
        return ("t", "t") if self.counted else None

    @property
    def routing(self) -> Routing:
        """As asked where that can be, or by the join's own choice."""
        return self.routings[0]

    @property
    def routings(self) -> list[Routing]:
        """The routing, and those that may follow it at restarts."""
        join = _compiled(self.case, self.at, self.how, self.self_join)
        try:
            if self.asked != "sampled":
                return [choose_route(join, self.units, self.asked)]
            chain = _sampled(self.case, self.how, self.units)
            first = choose_route(join, self.units, chain[0])
            follow = self.how == "inner" and all(plan.meets for plan in chain)
            return [first, *(choose_route(join, self.units, p) for p in chain[1:] if follow)]
        except OptionError:
            return [choose_route(join, self.units)]

    def __str__(self) -> str:
        kind = "self-join" if self.self_join else self.how
        totals = " totals" if self.totals else ""
        lag = f", left rows {self.lag} ms behind" if self.lag else ""
        spread = f"{self.units} units by {self.routing.to_value()}"
        return f"{kind}{totals} ON {self.case.on}, {WINDOWS[self.at][0]}, {spread}{lag}"


@cache
def _sampled(case: Case, how: str, units: int) -> list[Routing]:
    """Routings from samples, each with those before it."""
    chain: list[Routing] = []
    for seed in range(3):
        rows = Rows(case, Random(seed)).draw(40)
        sample = pa.Table.from_pylist(rows, case.schema)
        before = chain[-1] if chain and how == "inner" and chain[-1].meets else None
        chain.append(tj.routing(sample, sample, case.on, units=units, how=how, before=before))
    return chain


@cache
def _compiled(case: Case, at: int, how: str, self_join: bool) -> CompiledJoin:
    window, schema = WINDOWS[at][0], case.schema
    return CompiledJoin(JoinSpec(case.on, how, window, self_join=self_join), schema, schema)


def draw_join(rng: Random) -> Join:
    """A join, by chance."""
    case = rng.choice(CASES)
    at = rng.randrange(len(WINDOWS))
    kind = rng.random()
    units = rng.choice((1, 1, 1, 2, 2, 2, 2, 3, 3, 5))
    asked = rng.choice(
        (None, None, "broadcast", "matrix", "cells", "sampled", "sampled", "sampled")
    )
    if kind < 0.25:
        # Self-joins, totals, or both.
        totals = bool(case.group) and kind > 0.13
        return Join(
            case, at, self_join=kind < 0.18 or not totals, totals=totals, units=units, asked=asked
        )
    full_history = isinstance(WINDOWS[at][1], naive.Full)
    how = rng.choice(("inner", "semi") if full_history else HOWS)
    timed = isinstance(WINDOWS[at][1], naive.Time)
    lag = 2000 if timed and rng.random() < 0.1 else 0
    join = Join(case, at, how, units=units, lag=lag, asked=asked)
    # Only where each row is in one unit can several of them share a full join.
    return replace(join, units=1) if how == "full" and not join.routing.meets else join


@cache
def unit_spec(join: Join) -> UnitSpec:
    """The join as Spark's units are told of it."""
    window, order_by = WINDOWS[join.at][0], join.order_by
    schema = join.case.schema
    spec = JoinSpec(join.case.on, join.how, window, order_by, self_join=join.self_join)
    if join.totals:
        group = join.case.group
        aggs = {name: text.format(group) for name, text in AGGS.items()}
        query = TotalsJoin.of(replace(spec, group_by=(f"l.{group}",), aggs=aggs), schema, schema)
        spec = replace(query.spec, suffix=query.join.spec.suffix)
        schemas = query.left_schema, query.right_schema
        return UnitSpec.of(spec, *schemas, units=join.units, routing=join.routing)
    lags = (1000 * join.lag, 0)
    return UnitSpec.of(spec, schema, schema, units=join.units, routing=join.routing, lags=lags)


# --- rows ----------------------------------------------------------------------------------------

SMALL = (-1, 0, 0, 1, 1, 2, None)
REALS = (float("nan"), 0.0, -0.0, 1.5, -1.5, float("inf"), None)
TEXTS = ("", "a", "ab", "b", "é", None)
LISTS = ([1, 2], [3], [1], [2, 3], [], [None], None)
NESTED = ([[1, 2], [3]], [[1], [2, 3]], [[], [1, 2, 3]], [[]], [], None)
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("abkpq", SMALL),
    **dict.fromkeys("xy", REALS),
    "s": TEXTS,
    "m": LISTS,
    "n": LISTS,
    "z": NESTED,
}


@dataclass
class Rows:
    """Draws rows of a case; `now` is about where their event times are, in milliseconds."""

    case: Case
    rng: Random
    now: int = 0
    made: int = 0

    def draw(self, number: int) -> list[Row]:
        """Some rows, of which some are equal, or are to whoever looks carelessly."""
        rows: list[Row] = []
        for _ in range(number):
            if rows and not self.case.has_ids and self.rng.random() < 0.4:
                twin = self.rng.choice(rows)
                rows.append(dict(twin) if self.rng.random() < 0.4 else alike(twin))
            else:
                rows.append(self._row())
        return rows

    def _row(self) -> Row:
        rng = self.rng
        row: Row = {}
        for name in self.case.columns.split():
            if name == "id":
                row[name] = self.made
                self.made += 1
            else:
                row[name] = rng.choice(VALUES[name])
        # Few different times, so that they tie and lie on the bounds of windows and watermarks.
        row["t"] = None if rng.random() < 0.05 else at(self.now + 500 * rng.randint(-6, 4))
        row["tag"] = None
        return row

    def closing(self, number: int) -> list[Row]:
        """Rows that match nothing."""
        names = self.case.columns.split()
        row = dict.fromkeys(names) | {"t": at(10**9), "tag": END}
        ids = range(10**6, 10**6 + number)
        return [row | ({"id": id_} if self.case.has_ids else {}) for id_ in ids]


def alike(row: Row) -> Row:
    """Another row with the same values if NULLs, signs of zeros and ends of lists are left out."""
    other = {name: -value if value == 0.0 else value for name, value in _reals(row)}
    for one, two in (("p", "q"), ("x", "y"), ("m", "n")):
        if one in row and (row[one] is None) != (row[two] is None):
            other |= {one: row[two], two: row[one]}
    if row.get("m") and row.get("n"):
        values = [*row["m"], *row["n"]]
        cut = len(row["m"]) % (len(values) - 1) + 1
        other |= {"m": values[:cut], "n": values[cut:]}
    if row.get("z"):
        other["z"] = [[value for part in row["z"] for value in part], []]
    return row | other


def _reals(row: Row) -> list[tuple[str, float]]:
    return [(name, value) for name, value in row.items() if isinstance(value, float)]


def at(milliseconds: int) -> datetime:
    """A point in event time."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def millis(time: datetime) -> int:
    """Since 1970, as Spark's watermark counts."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """A value that is equal to another only where the two cannot be told apart."""
    if isinstance(value, float):
        return repr(value)
    return tuple(map(plain, value)) if isinstance(value, list) else value
