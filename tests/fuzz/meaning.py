"""What an expression means, value by value, in plain Python: Spark's ANSI mode.

An overflow keeps its exact value, and is noted: a join may refuse it or answer exactly, but never
wrap. Where there is no value at all (a division by zero, a bad cast) the result is FAILED.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np

import naive
from fuzz.kinds import DAY, Kind, Table
from fuzz.nodes import COMPARISONS, Node


class _Failed:
    def __repr__(self) -> str:
        return "FAILED"


FAILED: Any = _Failed()
Environment = Mapping[str, int | None]  # which row of each table; None where it has none
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass
class Notes:
    """Whether some value overflowed or had none, so that a DataError is a right answer too."""

    may_fail: bool = False

    def fail(self) -> Any:
        """Note that there is no value."""
        self.may_fail = True
        return FAILED

    def fitted(self, value: Any, kind: Kind) -> Any:
        """The value, noted if it lies outside of its kind."""
        if kind.name == "int":
            outside = not -(2 ** (kind.size - 1)) <= value < 2 ** (kind.size - 1)
        elif kind.name == "decimal":
            outside = abs(value.scaleb(kind.scale)) >= 10**kind.size
        elif kind.name in ("timestamp", "span"):
            outside = not -(2**63) < value // kind.size < 2**63
        else:
            outside = kind.name == "date" and not -(2**31) <= value // DAY < 2**31
        self.may_fail |= outside
        return value


def compiled(node: Node, tables: Mapping[str, Table], notes: Notes) -> Callable[[Environment], Any]:
    """The expression as a function of a choice of rows; of one table it is computed beforehand."""
    sides = node.sides()
    if not sides:
        value = evaluated(node, {}, {}, notes)
        return lambda rows: value
    if len(sides) == 1:
        (side,) = sides
        values = [evaluated(node, tables, {side: i}, notes) for i in range(tables[side].size)]
        absent = evaluated(node, tables, {side: None}, notes)
        return lambda rows: absent if rows[side] is None else values[rows[side]]
    parts = [compiled(arg, tables, notes) for arg in node.args]
    for arg, part in zip(node.args, parts, strict=True):
        for side in arg.sides() if len(arg.sides()) == 1 else ():
            # Cast for the operator whether or not the other side has a row for it.
            for row in range(tables[side].size):
                _note_casts(node, [arg], [part({side: row})], notes)
    return lambda rows: applied(node, [part(rows) for part in parts], notes)


def evaluated(node: Node, tables: Mapping[str, Table], rows: Environment, notes: Notes) -> Any:
    """The expression's value for one choice of rows."""
    if node.op == "lit":
        return node.value
    if node.op == "col":
        side, name = node.value
        row = rows[side]
        return None if row is None else tables[side].column(name).values[row]
    return applied(node, [evaluated(arg, tables, rows, notes) for arg in node.args], notes)


def applied(node: Node, values: list[Any], notes: Notes) -> Any:
    """An operator's value for its operands' values."""
    op = node.op
    if op in ("and", "or"):
        return _logical(values, op == "or")
    if op in ("case", "if"):
        chosen = values[1] if values[0] is True else values[2]
        return FAILED if values[0] is FAILED else coerced(chosen, node.kind)
    if op == "coalesce":
        return coerced(next((v for v in values if v is not None), None), node.kind)
    if any(value is FAILED for value in values):
        return FAILED
    if op in _TESTS:
        _note_casts(node, node.args, values, notes)
        return _TESTS[op](*values)
    if op in ("greatest", "least"):
        there = [coerced(v, node.kind) for v in values if v is not None]
        return naive.extreme("max" if op == "greatest" else "min", there) if there else None
    if op == "nullif":
        return None if naive.compare(values[0], "=", values[1]) is True else values[0]
    if any(value is None for value in values):
        # The operands are cast, column by column, whether or not the other one has a value.
        _note_casts(node, node.args, values, notes)
        return None
    if op in ("cast", "try_cast"):
        return _cast(node, values[0], notes)
    if op in _FUNCTIONS:
        for value, arg in zip(values, node.args, strict=True):
            if arg.kind.name == "timestamp":
                notes.fitted(value, Kind("timestamp", 1000))
        try:
            return _FUNCTIONS[op](*values)
        except OverflowError:  # Python knows the years 1 to 9999 only
            return notes.fail()
    return _arithmetic(node, values, notes)


def _note_casts(node: Node, args: Sequence[Node], values: list[Any], notes: Notes) -> None:
    """Note what does not fit the unit that an operator casts its operands to.

    A date beside a timestamp is one; sums and differences are in the finer unit.
    """
    kinds = [arg.kind for arg in node.args]
    units = [kind.size for kind in kinds if kind.name == "timestamp"]
    for value, arg in zip(values, args, strict=True):
        if value is None or value is FAILED:
            continue
        if node.op in ("+", "-") and node.kind.name in ("timestamp", "span"):
            if arg.kind.name in ("timestamp", "span", "date"):
                notes.fitted(value, Kind("timestamp", node.kind.size))
        elif node.op == "in" and arg.kind.name == "timestamp":
            notes.fitted(value, Kind("timestamp", min(units)))
        elif arg.kind.name == "date" and units:
            notes.fitted(value, Kind("timestamp", max(1000, min(units))))


def coerced(value: Any, kind: Kind) -> Any:
    """A number in the kind that it has together with others."""
    if value is None or value is FAILED:
        return value
    if kind.name == "float":
        return naive.as_float(value)
    return Decimal(value) if kind.name == "decimal" else value


def _logical(values: list[Any], stops_at: bool) -> Any:
    known = [value for value in values if value is not FAILED]
    if stops_at not in known and len(known) < len(values):
        return FAILED
    return naive.connect(known, stops_at)


def _between(value: Any, low: Any, high: Any) -> bool | None:
    return naive.connect([naive.compare(value, ">=", low), naive.compare(value, "<=", high)], False)


def _in(value: Any, *others: Any) -> bool | None:
    return naive.connect([naive.compare(value, "=", other) for other in others], True)


def _comparison(op: str) -> Callable[[Any, Any], bool | None]:
    return lambda a, b: naive.compare(a, op, b)


_TESTS: dict[str, Callable[..., Any]] = {
    **{op: _comparison(op) for op in (*COMPARISONS, "<>")},
    "<=>": lambda a, b: (a is b) if a is None or b is None else naive.order(a, b) == 0,
    "between": _between,
    "in": _in,
    "not": lambda a: None if a is None else not a,
    "isnull": lambda a: a is None,
    "isnotnull": lambda a: a is not None,
    "istrue": lambda a: a is True,
    "isnan": lambda a: a is not None and math.isnan(a),
}


# --- arithmetic ----------------------------------------------------------------------------------


def _arithmetic(node: Node, values: list[Any], notes: Notes) -> Any:
    op, kind = node.op, node.kind
    if kind.name == "float":
        return _floats(op, [naive.as_float(value) for value in values], kind, notes)
    if kind.name in ("timestamp", "span", "date"):
        return _temporal(node, values, notes)
    with localcontext(prec=120):
        a, b = values[0], values[-1]
        if op in ("%", "div") and b == 0:
            return notes.fail()
        if op == "%":
            return notes.fitted(abs(a) % abs(b) * (-1 if a < 0 else 1), kind)
        if op == "div":
            return notes.fitted(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), kind)
        if op in ("floor", "ceil"):
            return _whole(op, a, kind)
        if kind.name == "decimal":
            a, b = Decimal(a), Decimal(b)
        return notes.fitted(_plain(op, a, b), kind)


def _plain(op: str, a: Any, b: Any) -> Any:
    if op == "neg":
        return -a
    if op == "abs":
        return abs(a)
    return naive.arithmetic(op, a, b)


def _floats(op: str, values: list[float], kind: Kind, notes: Notes) -> Any:
    a, b = values[0], values[-1]
    if op in ("/", "%") and b == 0:
        return notes.fail()
    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        if op == "sqrt":
            result = np.sqrt(x)
        elif op == "sign":
            result = np.sign(x)
        elif op == "%":
            result = np.fmod(x, y)
        elif op == "/":
            result = x / y
        else:
            result = _plain(op, x, y)
        return float(np.float32(result)) if kind.size == 32 else float(result)


def _whole(op: str, value: Any, kind: Kind) -> Any:
    """floor and ceil; of a float as Java converts it to a long."""
    if isinstance(value, Decimal):
        return Decimal(math.floor(value) if op == "floor" else math.ceil(value))
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else 2**63 - 1 if value > 0 else -(2**63)
    found = math.floor(value) if op == "floor" else math.ceil(value)
    return max(-(2**63), min(2**63 - 1, found))


def _temporal(node: Node, values: list[Any], notes: Notes) -> Any:
    op, kind = node.op, node.kind
    a, b = values[0], values[-1]
    if op in ("neg", "abs"):
        return notes.fitted(-a if op == "neg" else abs(a), kind)
    if op == "date_trunc":
        return notes.fitted(_truncated(a, b, notes), kind)
    if kind.name == "date" and node.args[1].kind.name in ("int", "uint"):
        b *= DAY
    _note_casts(node, node.args, values, notes)
    return notes.fitted(a + b if op in ("+", "date_add") else a - b, kind)


def _truncated(unit: str, value: int, notes: Notes) -> int:
    notes.fitted(value, Kind("timestamp", 1000))
    if unit == "week":
        return (value + 3 * DAY) // (7 * DAY) * (7 * DAY) - 3 * DAY  # 1970 began on a Thursday
    length = {"second": 10**9, "minute": 60 * 10**9, "hour": 3600 * 10**9, "day": DAY}[unit]
    return value // length * length


# --- functions and casts -------------------------------------------------------------------------


def _day(value: int) -> date:
    return date(1970, 1, 1) + timedelta(days=value // DAY)


def _substring(text: str, position: int, count: int) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + count, 0)]


def _like(text: str, pattern: str) -> bool:
    parts = [{"%": ".*", "_": "."}.get(character) or re.escape(character) for character in pattern]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "length": len,
    "upper": str.upper,
    "lower": str.lower,
    "trim": lambda text: text.strip(" "),
    "concat": lambda *texts: "".join(texts),
    "substring": _substring,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda text, part: part in text,
    "like": _like,
    "year": lambda value: _day(value).year,
    "month": lambda value: _day(value).month,
    "day": lambda value: _day(value).day,
    "hour": lambda value: value // (3600 * 10**9) % 24,
    "minute": lambda value: value // (60 * 10**9) % 60,
    "second": lambda value: value // 10**9 % 60,
    "datediff": lambda a, b: a // DAY - b // DAY,
    "unix_seconds": lambda value: value // 10**9,
    "unix_millis": lambda value: value // 10**6,
}


def _cast(node: Node, value: Any, notes: Notes) -> Any:
    """The value in another kind; a failure of TRY_CAST is NULL."""
    quiet = Notes()
    result = _converted(value, node.kind, quiet)
    if node.op == "try_cast":
        return None if quiet.may_fail else result
    return notes.fail() if quiet.may_fail else result


def _converted(value: Any, kind: Kind, notes: Notes) -> Any:
    if isinstance(value, str) and kind.name == "int":
        text = value.strip()
        return notes.fitted(int(text), kind) if _INTEGER.fullmatch(text) else notes.fail()
    if kind.name == "float":
        with np.errstate(all="ignore"):
            found = naive.as_float(value)
            return float(np.float32(found)) if kind.size == 32 else found
    if kind.name == "bool":
        return value != 0
    if kind.name == "text":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind.name == "date":
        return notes.fitted(value // DAY * DAY, kind)
    if kind.name == "decimal":
        with localcontext(prec=120):
            exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
            return notes.fitted(exact, kind)
    if kind.name == "int":
        if isinstance(value, float) and not math.isfinite(value):
            return notes.fail()
        if isinstance(value, Decimal):
            value = value.to_integral_value(ROUND_DOWN)
        return notes.fitted(int(value), kind)
    return notes.fitted(value, kind)
