"""A condition and a window as index keys: what each side stores and what each probe asks.

Every comparison, band and time window becomes "a stored key lies in an interval that the probe row
gives". A conjunction has two views, one for each side that may be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.arrays import empty
from thetajoin.batch.keys import (
    INT64_MAX,
    INT64_MIN,
    BytesKey,
    Int64,
    Key,
    is_bytes_type,
    is_key_type,
)
from thetajoin.errors import SchemaError, ThetaJoinError, WindowError
from thetajoin.index.interval import (
    AnyInterval,
    BytesInterval,
    Interval,
    interval_of,
    shift_interval,
)
from thetajoin.index.probe import Dim, Shape
from thetajoin.kernels.search import KEY_INF, KEY_NEG_INF, find_band_end
from thetajoin.predicate import Comparison, Condition, Conjunction, Difference, Expr, align_columns
from thetajoin.predicate.nodes import conjunction as conjoin
from thetajoin.window.windows import TimeUnit, TimeWindow, Window

Side = Literal["l", "r"]
Nan = Literal["high", "low", "drop"]
SIDES: tuple[Side, Side] = ("l", "r")
OTHER: dict[Side, Side] = {"l": "r", "r": "l"}
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True)
class KeySpec:
    """An expression over one side that is stored and searched as a key."""

    expr: Expr
    nan: Nan = "high"

    @property
    def is_bytes(self) -> bool:
        """Whether its values need a dictionary."""
        return is_bytes_type(self.expr.type)


@dataclass(frozen=True)
class Ask:
    """How one probe key bounds one stored key: by an operator, or by a distance."""

    probe_key: int
    bound: str | Distance | FloatBand

    def interval(self, key: Key) -> AnyInterval:
        """The stored keys that satisfy this for each probe key."""
        if not isinstance(self.bound, str):
            assert not isinstance(key, BytesKey)
            return self.bound.interval(key)
        if isinstance(key, BytesKey):
            return BytesInterval(((self.bound, key),))
        return interval_of(self.bound, key)


@dataclass(frozen=True)
class View:
    """One conjunction with one side stored: a dimension for each interval the probes ask."""

    shape: Shape
    stored: tuple[int, ...]
    asks: tuple[tuple[Ask, ...], ...]

    def intervals(self, probe_keys: list[Key]) -> tuple[AnyInterval, ...]:
        """What a batch of probe rows with these keys asks of each stored key."""
        return tuple(
            _all_of([a.interval(probe_keys[a.probe_key]) for a in ask]) for ask in self.asks
        )


def _all_of(intervals: list[AnyInterval]) -> AnyInterval:
    result = intervals[0]
    for interval in intervals[1:]:
        result = result & interval  # type: ignore[operator]
    return result


@dataclass(frozen=True)
class Part:
    """One conjunction of the condition, compiled for both sides."""

    keys: dict[Side, tuple[KeySpec, ...]]
    views: dict[Side, View]
    filters: dict[Side, Expr | None]
    residual: Expr | None
    source: Conjunction


@dataclass(frozen=True)
class NearKey:
    """The key of a nearest match: ``left op right``, and within a distance.

    op: on which side of the left key the right one lies; None for either.
    """

    left: Expr
    right: Expr
    type: pa.DataType
    op: str | None
    reach: Difference | None


@dataclass
class _Builder:
    # Whether it matters which of two rows with one key came first.
    stable: bool = False
    # Keys and their numbers.
    keys: dict[Side, dict[KeySpec, int]] = field(default_factory=lambda: {"l": {}, "r": {}})
    dims: dict[Side, dict[tuple[int, str], list[Ask]]] = field(
        default_factory=lambda: {"l": {}, "r": {}}
    )

    def key(self, side: Side, spec: KeySpec) -> int:
        return self.keys[side].setdefault(spec, len(self.keys[side]))

    def ask(self, stored: Side, kind: str, key: int, ask: Ask) -> None:
        # An ordered key gathers all its bounds; equalities and exclusions stand alone.
        name = kind if kind == "order" else f"{kind} {ask.probe_key}"
        self.dims[stored].setdefault((key, name), []).append(ask)

    def compare(self, comparison: Comparison) -> None:
        left = self.key("l", KeySpec(comparison.left))
        right = self.key("r", KeySpec(comparison.right))
        kind = {"=": "equal", "!=": "negate"}.get(comparison.op, "order")
        self.ask("r", kind, right, Ask(left, comparison.op))
        self.ask("l", kind, left, Ask(right, MIRROR[comparison.op]))

    def differ(self, difference: Difference) -> None:
        """``low <= l - r <= high``: r in [l - high, l - low], and l in [r + low, r + high]."""
        if pa.types.is_floating(difference.type):
            # Where a NaN matches everything it must lie at the end that every interval reaches:
            # with a lower bound that is above on the left side and below on the right one.
            places: tuple[Nan, Nan] = ("low", "high") if difference.low is None else ("high", "low")
            if not difference.nan:
                places = ("drop", "drop")
            left = self.key("l", KeySpec(difference.left, places[0]))
            right = self.key("r", KeySpec(difference.right, places[1]))
            self.ask("r", "order", right, Ask(left, FloatBand.of(difference, left=True)))
            self.ask("l", "order", left, Ask(right, FloatBand.of(difference, left=False)))
            return
        low, high = whole_bounds(difference)
        left = self.key("l", KeySpec(difference.left))
        right = self.key("r", KeySpec(difference.right))
        below = None if high is None else -high
        above = None if low is None else -low
        self.ask("r", "order", right, Ask(left, Distance(below, above)))
        self.ask("l", "order", left, Ask(right, Distance(low, high)))

    def near(self, key: NearKey) -> None:
        """The key of a nearest match; it must come first, to be the one that sorts the rows."""
        # As in `differ`: no distance from NaN is within a tolerance.
        float_reach = key.reach is not None and pa.types.is_floating(key.type)
        nan: Nan = "drop" if float_reach else "high"
        left, right = self.key("l", KeySpec(key.left, nan)), self.key("r", KeySpec(key.right, nan))
        if key.op is not None:
            self.ask("r", "order", right, Ask(left, key.op))
            self.ask("l", "order", left, Ask(right, MIRROR[key.op]))
        if key.reach is not None:
            self.differ(key.reach)
        if key.op is None and key.reach is None:
            self.ask("r", "order", right, Ask(left, Distance(None, None)))
            self.ask("l", "order", left, Ask(right, Distance(None, None)))

    def view(self, stored: Side) -> View:
        dims, asks, keys = [], [], []
        specs = list(self.keys[stored])
        for (key, name), ask in self.dims[stored].items():
            kind = name.split()[0]
            is_bytes = specs[key].is_bytes
            dims.append(Dim(kind == "equal", kind == "negate", is_bytes))
            asks.append(tuple(ask))
            keys.append(key)
        return View(Shape(tuple(dims), self.stable), tuple(keys), tuple(asks))


def compile_parts(
    condition: Condition, time: Difference | None, near: NearKey | None = None
) -> tuple[Part, ...]:
    """The condition's conjunctions as parts, each with the window's time bound in it."""
    return tuple(_part(conjunction, time, near) for conjunction in condition.disjuncts)


def _part(conjunction: Conjunction, time: Difference | None, near: NearKey | None) -> Part:
    builder = _Builder(stable=near is not None)
    if near is not None:
        builder.near(near)
    checks = [] if conjunction.residual is None else [conjunction.residual]
    for comparison in conjunction.comparisons:
        builder.compare(comparison)
    for difference in conjunction.differences:
        no_interval = difference.nan and None not in (difference.low, difference.high)
        if no_interval or is_bytes_type(difference.type):
            checks.append(difference.check)
            continue
        builder.differ(difference)
    if time is not None:
        builder.differ(time)
    return Part(
        keys={"l": tuple(builder.keys["l"]), "r": tuple(builder.keys["r"])},
        views={"l": builder.view("l"), "r": builder.view("r")},
        filters={"l": conjunction.left_filter, "r": conjunction.right_filter},
        residual=conjoin(checks),
        source=conjunction,
    )


def time_difference(window: Window | None, left: pa.Schema, right: pa.Schema) -> Difference | None:
    """A time window as ``-after <= l.time - r.time <= before``; checks the columns' types."""
    if not isinstance(window, TimeWindow):
        return None
    names = window.left_time, window.right_time
    check_columns("the window's time", names, left, right, WindowError)
    pair = compare_columns(*names, left, right)
    before, after = window.bounds(time_unit(pair.type, window))
    return Difference(
        pair.left, pair.right, pair.type, -after, False, before, False, pair.left, exact=True
    )


def time_unit(type_: pa.DataType, window: TimeWindow) -> TimeUnit | None:
    """The unit that a time column's keys count in; None for plain integers."""
    if pa.types.is_integer(type_):
        return None
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_) or pa.types.is_date(type_):
        return unit_of(type_)
    raise WindowError(
        f"the window's time column {window.left_time!r} is {type_}: "
        "it must be a timestamp, a date or an integer"
    )


def unit_of(type_: pa.DataType) -> TimeUnit:
    """The unit that keys of a temporal type count in."""
    if pa.types.is_date(type_):
        return "day"
    unit: TimeUnit = type_.unit
    return unit


def check_columns(
    what: str,
    names: tuple[str | None, str | None],
    left: pa.Schema,
    right: pa.Schema,
    error: type[ThetaJoinError] = SchemaError,
) -> None:
    """Refuse names that are no columns of their side's input; None is not looked for."""
    for name, schema, side in zip(names, (left, right), ("left", "right"), strict=True):
        if name is not None and name not in schema.names:
            raise error(
                f"{what} column {name!r} is not in the {side} input; it has "
                f"{', '.join(schema.names)}"
            )


def compare_columns(left: str, right: str, ls: pa.Schema, rs: pa.Schema) -> Comparison:
    """Two columns brought to one type, as a comparison would."""
    comparison = align_columns(left, right, ls, rs)
    if not is_key_type(comparison.type):
        raise WindowError(f"column {left!r} has no order: its type is {comparison.type}")
    return comparison


@dataclass(frozen=True)
class Distance:
    """Stored integers in ``[probe + low, probe + high]``, in exact arithmetic."""

    low: int | None
    high: int | None

    def __and__(self, other: Distance) -> Distance:
        """Both at once, from the same probe key."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Distance(max(lows, default=None), min(highs, default=None))

    def interval(self, keys: Int64) -> Interval:
        """The interval around each probe key."""
        return self.around(keys, keys)

    def around(self, least: Int64, most: Int64) -> Interval:
        """What any probe key between two may ask for."""
        return shift_interval(least, most, self.low, self.high)


def whole_bounds(difference: Difference) -> tuple[int | None, int | None]:
    """An exact difference's bounds as inclusive integers in the keys' own unit."""

    def scale_up(bound: object) -> int | None:
        if bound is None:
            return None
        if isinstance(bound, Decimal):
            return int(bound.scaleb(difference.type.scale))
        assert isinstance(bound, int)
        return bound

    low, high = scale_up(difference.low), scale_up(difference.high)
    low = low + 1 if low is not None and difference.low_strict else low
    return low, high - 1 if high is not None and difference.high_strict else high


@dataclass(frozen=True)
class FloatBand:
    """Stored doubles whose rounded difference from the probe lies between two bounds.

    `left` says that the probes are the left operand of the subtraction; `single` that it is done
    in float32; `nan` that a difference which is NaN satisfies it (as it is above every bound).
    """

    low: float | None
    low_strict: bool
    high: float | None
    high_strict: bool
    left: bool
    single: bool
    nan: bool

    @staticmethod
    def of(difference: Difference, *, left: bool) -> FloatBand:
        """From a difference over floats, for probes of one side."""
        low, high = (
            None if end is None else float(end)  # type: ignore[arg-type]
            for end in (difference.low, difference.high)
        )
        single = pa.types.is_float32(difference.type)
        strict = difference.low_strict, difference.high_strict
        return FloatBand(low, strict[0], high, strict[1], left, single, difference.nan)

    def interval(self, keys: Int64) -> Interval:
        """The interval of stored keys for each probe key; exact, also for infinities and NaN."""
        ends: dict[bool, Int64] = {}
        for below, bound, strict in (
            (False, self.low, self.low_strict),
            (True, self.high, self.high_strict),
        ):
            if bound is not None:
                end = empty(keys.size, np.int64)
                find_band_end(keys, bound, strict, below, self.left, self.single, end)
                ends[below == self.left] = end
        if keys.size and (keys.max() >= KEY_INF or keys.min() <= KEY_NEG_INF):
            odd = (keys >= KEY_INF) | (keys <= KEY_NEG_INF)
            self._settle_odd(keys, odd, ends)
        return Interval(ends.get(True), ends.get(False))

    def around(self, least: Int64, most: Int64) -> Interval:
        """What any probe key between two may ask for."""
        asked = Interval(self.interval(least).low, self.interval(most).high)
        # Infinities and NaN ask for something of their own.
        odd = (least <= KEY_NEG_INF) | (most >= KEY_INF)
        return Interval(
            None if asked.low is None else np.where(odd, INT64_MIN, asked.low),
            None if asked.high is None else np.where(odd, INT64_MAX, asked.high),
        )

    def _settle_odd(self, keys: Int64, odd: NDArray[np.bool_], ends: dict[bool, Int64]) -> None:
        """What a probe that is infinite or NaN asks for.

        Against an infinity, the difference is infinite for every stored number but the same
        infinity, where it is NaN; against NaN it is always NaN.
        """
        if self.low is not None and self.high is not None:
            ends[True][odd], ends[False][odd] = INT64_MAX, INT64_MIN
            return
        infinite = (keys == KEY_INF) | (keys == KEY_NEG_INF)
        positive = (keys == KEY_INF) == self.left
        satisfied = infinite & (positive == (self.high is None))
        ((upwards, end),) = ends.items()
        end[odd] = INT64_MIN if upwards else INT64_MAX
        if not self.nan:
            end[satisfied] = (keys + (1 if upwards else -1))[satisfied]
        missed = infinite & ~satisfied
        nothing = np.int64(INT64_MAX if upwards else INT64_MIN)
        end[missed] = keys[missed] if self.nan else nothing
