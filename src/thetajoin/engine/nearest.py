"""What a nearest match is: its key, direction, tolerance, and which of several rows to take."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from typing import Any, cast, get_args

import pyarrow as pa

from thetajoin.batch.keys import is_bytes_type
from thetajoin.engine.layout import How, parse_how
from thetajoin.engine.parts import NearKey, check_columns, compare_columns, unit_of
from thetajoin.errors import OptionError, SchemaError, WindowError, is_text
from thetajoin.index.nearest import TIES, USUAL_TIES, Direction, Ties
from thetajoin.predicate import Built, Difference
from thetajoin.predicate.builder import l, r
from thetajoin.window.windows import CountWindow, TimeWindow, Window, length_in

HOWS: tuple[How, ...] = ("left", "inner", "semi", "anti")


@dataclass(frozen=True)
class Nearest:
    """The best `k` right rows of a left row by the distance of one key; types are checked later.

    key: the compared columns, left and right. tolerance: the largest distance. ties: which of right
    rows at equal distance, by the right column `order_by`, else as they came; None: as pandas does.
    """

    key: tuple[str, str]
    direction: Direction = "backward"
    tolerance: Any = None
    k: int = 1
    ties: Ties | None = None
    order_by: str | None = None

    @classmethod
    def of(
        cls, key: Any, direction: Any, tolerance: Any, k: Any, ties: Any, order_by: Any
    ) -> Nearest:
        """From a user's arguments; refuses what would be wrong for any tables."""
        _one_of("direction", direction, get_args(Direction))
        if ties is not None:
            _one_of("ties", ties, get_args(Ties))
        if order_by is not None and not is_text(order_by):
            raise OptionError(f"order_by={order_by!r}: give a column name of the right input")
        try:
            count = operator.index(k)
        except TypeError:
            count = 0
        if count < 1 or isinstance(k, bool):
            raise OptionError(f"k={k!r}: how many rows to take is a whole number of at least 1")
        return cls(_pair(key, "key"), direction, tolerance, count, ties, order_by)

    @property
    def tie_rule(self) -> int:
        """Which of the rows at equal distance to take, as kernels want it."""
        return USUAL_TIES[self.direction] if self.ties is None else TIES[self.ties]

    def near_key(self, left: pa.Schema, right: pa.Schema) -> NearKey:
        """The key against two schemas; checks columns, types and the tolerance."""
        check_columns("key", self.key, left, right)
        check_columns("order_by", (None, self.order_by), left, right)
        try:
            pair = compare_columns(*self.key, left, right)
        except WindowError as error:
            raise SchemaError(f"nearest: {error}") from None
        has_distance = not is_bytes_type(pair.type) and not pa.types.is_boolean(pair.type)
        if not has_distance and (self.direction == "nearest" or self.tolerance is not None):
            what = "direction='nearest'" if self.direction == "nearest" else "a tolerance"
            raise OptionError(
                f"{what} needs a key with distances: {self.key[0]!r} is {pair.type}; use a number "
                "of at most 18 digits, a date or a time, or direction='backward' or 'forward'"
            )
        reach = None
        if self.tolerance is not None:
            most = _tolerance(self.tolerance, pair.type, self.key[0])
            exact = not pa.types.is_floating(pair.type)
            reach = Difference(
                pair.left, pair.right, pair.type, -most, False, most, False, pair.left, exact=exact
            )
        op = {"backward": ">=", "forward": "<=", "nearest": None}[self.direction]
        return NearKey(pair.left, pair.right, pair.type, op, reach)

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON can hold; `nearest_from_dict` reads it back."""
        plain = asdict(self)
        if self.tolerance is not None:
            plain["tolerance"] = _plain(self.tolerance)
        return plain


def nearest_from_dict(data: dict[str, Any]) -> Nearest:
    """What `Nearest.to_dict` wrote."""
    found = Nearest.of(**data)
    if isinstance(found.tolerance, dict):
        return replace(found, tolerance=Decimal(found.tolerance["decimal"]))
    return found


def nearest_how(how: Any) -> How:
    """The kind of join; rows of the right side never come out alone."""
    found = parse_how(how)
    if found not in HOWS:
        raise OptionError(
            f"how={how!r}: nearest gives rows for each left row, so it is one of {', '.join(HOWS)}"
        )
    return found


def nearest_condition(by: Any, on: Any) -> list[str | Built] | None:
    """The equalities and the further condition together; None if there is neither."""
    parts: list[str | Built] = [l[a] == r[b] for a, b in _pairs(by)]
    if on is not None:
        parts += on if isinstance(on, list | tuple) else [on]
    return parts or None


def nearest_window(window: Window, nearest: Nearest, *, streaming: bool) -> Window:
    """The window of a nearest match.

    That of a stream leaves out what lies on the wrong side of the key.
    """
    if isinstance(window, CountWindow):
        raise WindowError(
            "nearest goes by the distance of a key, not by the number of rows: use a TimeWindow"
        )
    if not streaming:
        return window
    times = nearest.key
    if not isinstance(window, TimeWindow):
        raise WindowError(
            "nearest on a stream needs a TimeWindow on its key: a left row comes out when the "
            f"watermark shows that no nearer row can come; give TimeWindow('1 hour', "
            f"time={_show_pair(times)})"
        )
    if (window.left_time, window.right_time) != times:
        raise WindowError(
            f"nearest on a stream goes by event time: key={_show_pair(times)} must be the window's "
            f"time={_show_pair((window.left_time, window.right_time))}"
        )
    before = window.length if window.before is None and window.after is None else window.before
    after = window.length if window.before is None and window.after is None else window.after
    if nearest.direction == "backward":
        after = None
    if nearest.direction == "forward":
        before = None
    if not before and not after:
        raise WindowError(
            f"{window!r} has nothing on the side that direction={nearest.direction!r} looks at"
        )
    return TimeWindow(before=before, after=after, time=window.time)


def _show_pair(pair: tuple[str, str]) -> str:
    return repr(pair[0] if pair[0] == pair[1] else pair)


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value in known and isinstance(value, str):
        return
    near = difflib.get_close_matches(str(value), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(known)}"
    raise OptionError(f"{name}={value!r}: {hint}")


def _pair(given: Any, name: str) -> tuple[str, str]:
    match given:
        case str() if given:
            return given, given
        case (str() as left, str() as right) if left and right:
            return left, right
    raise OptionError(f"{name}={given!r}: give a column name, or a pair, one per side")


def _pairs(by: Any) -> list[tuple[str, str]]:
    """Columns to be equal on: a name, or a list of names and of pairs, one per side."""
    if by is None or isinstance(by, str):
        return [_pair(by, "by")] if by else []
    if not isinstance(by, list | tuple):
        raise OptionError(f"by={by!r}: give a column name or a list of names")
    return [_pair(one, "by") for one in by]


def _tolerance(given: Any, type_: pa.DataType, column: str) -> Any:
    """A tolerance in the unit of the key, rounded down where keys lie on whole units."""
    t = pa.types
    if t.is_temporal(type_):
        return length_in(given, unit_of(type_), "nearest's tolerance")
    try:
        number = Decimal(given) if isinstance(given, int | Decimal) else float(given)
        if isinstance(given, bool | str) or math.isnan(number):
            raise TypeError
    except (TypeError, ValueError):
        raise OptionError(
            f"tolerance={given!r}: the key {column!r} is {type_}, so give a number"
        ) from None
    if number < 0:
        raise OptionError(f"tolerance={given!r} is negative: it is the largest distance allowed")
    if t.is_floating(type_):
        return float(number)
    if math.isinf(number):
        raise OptionError(f"tolerance={given!r}: leave it out where any distance will do")
    scale = type_.scale if t.is_decimal(type_) else 0
    exact = Decimal(number).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_FLOOR)
    return exact if t.is_decimal(type_) else int(exact)


def _plain(tolerance: Any) -> Any:
    """A tolerance as a value that JSON can hold and `Nearest` takes."""
    if isinstance(tolerance, Decimal):
        return {"decimal": str(tolerance)}
    if isinstance(tolerance, str | int | float):
        return tolerance
    return cast(Any, TimeWindow(tolerance, time="t").length)
