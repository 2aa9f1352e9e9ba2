"""Bound expressions as Spark SQL, with no more parentheses than precedence asks for."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from functools import cache

import pyarrow.types as t

from thetajoin.predicate.nodes import (
    COARSENED,
    COMPARISONS,
    MIRROR,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
)
from thetajoin.predicate.types import ticks_per_second, type_name

_BITS = ("|", "^", "&")
_NOT, _PREDICATE, _ADD, _UNARY, _ATOM = 3, 4, 6, 8, 9
_INFIX = {
    "or": 1,
    "and": 2,
    **dict.fromkeys((*COMPARISONS, "<=>"), 4),
    **dict.fromkeys(_BITS, 5),
    **dict.fromkeys(("+", "-"), _ADD),
    **dict.fromkeys(("*", "/", "%", "div"), 7),
}
_SUFFIX = {"int8": "Y", "int16": "S", "int32": "", "int64": "L"}
_INTERVALS = (("DAY", 86400), ("HOUR", 3600), ("MINUTE", 60), ("SECOND", 1))
_EPOCH = dt.date(1970, 1, 1).toordinal()
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def render(expr: Expr, explicit: bool = False) -> str:
    """The expression's text.

    >>> import pyarrow as pa
    >>> render(Call(pa.bool_(), "<", (Column(pa.int32(), "l", "a"), Literal(pa.int64(), 5))))
    'l.a < 5L'
    """
    return _render(expr, explicit)[0]


def _render(expr: Expr, explicit: bool) -> tuple[str, int]:
    """Text and precedence."""
    if isinstance(expr, Column):
        return ".".join([expr.side, *map(quote_name, (expr.name, *expr.path))]), _ATOM
    if isinstance(expr, Literal):
        text = literal_text(expr)
        return text, _UNARY if text.startswith("-") else _ATOM
    if isinstance(expr, Cast):
        if expr.implicit and not explicit:
            return _render(expr.arg, explicit)
        name = "TRY_CAST" if expr.lenient else "CAST"
        return f"{name}({render(expr.arg, explicit)} AS {type_name(expr.type)})", _ATOM
    assert isinstance(expr, Call)
    return _render_call(expr, explicit)


def _render_call(call: Call, explicit: bool) -> tuple[str, int]:
    def at(index: int, least: int) -> str:
        text, level = _render(call.args[index], explicit)
        return text if level >= least else f"({text})"

    name, args = call.name, call.args
    if name.startswith(COARSENED):
        return _render(args[0], explicit)
    if name in _INFIX:
        level = _INFIX[name]
        if name in _BITS:
            first = rest = _UNARY  # engines disagree on how these bind among themselves
        else:
            first, rest = level + (level < _ADD), level + 1
        operands = [at(0, first), *(at(i, rest) for i in range(1, len(args)))]
        return f" {name.upper()} ".join(operands), level
    if name == "not":
        return f"NOT {at(0, _NOT + 1)}", _NOT
    if name in ("neg", "~"):
        # `-5` is one literal; `-(5)` is the operator on it.
        literal = isinstance(args[0], Literal)
        sign = "-" if name == "neg" else "~"
        return f"{sign}({at(0, 0)})" if literal else f"{sign}{at(0, _ATOM)}", _UNARY
    if name in ("isnull", "isnotnull"):
        return f"{at(0, _PREDICATE + 1)} IS {'NOT ' if 'not' in name else ''}NULL", _PREDICATE
    if name == "in":
        listed = ", ".join(at(i, 0) for i in range(1, len(args)))
        return f"{at(0, _PREDICATE + 1)} IN ({listed})", _PREDICATE
    if name == "like":
        escape = f" ESCAPE {at(2, _ATOM)}" if len(args) > 2 else ""
        return f"{at(0, _PREDICATE + 1)} LIKE {at(1, _PREDICATE + 1)}{escape}", _PREDICATE
    if name == "case":
        arms = (f"WHEN {at(i, 0)} THEN {at(i + 1, 0)}" for i in range(0, len(args) - 1, 2))
        return f"CASE {' '.join(arms)} ELSE {at(len(args) - 1, 0)} END", _ATOM
    return f"{name.upper()}({', '.join(at(i, 0) for i in range(len(args)))})", _ATOM


@cache
def _keywords() -> frozenset[str]:
    from sqlglot.tokens import Tokenizer

    return frozenset(Tokenizer.KEYWORDS)


def quote_name(name: str) -> str:
    """A column name as SQL: backquoted where it is not a plain word.

    >>> quote_name("rp"), quote_name("odd name")
    ('rp', '`odd name`')
    """
    if _PLAIN.fullmatch(name) and name.upper() not in _keywords():
        return name
    return backquote(name)


def backquote(name: str) -> str:
    """A column name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A string as a SQL literal.

    >>> print(quote_text("it's"))
    'it\\'s'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + "'"


def literal_text(literal: Literal) -> str:
    """A constant as Spark SQL."""
    type_, value = literal.type, literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if "." in text else text + "BD"
    if isinstance(value, float):
        return repr(value) + ("F" if t.is_float32(type_) else "D")
    assert isinstance(value, int)
    if t.is_date32(type_):
        return f"DATE '{dt.date.fromordinal(value + _EPOCH).isoformat()}'"
    if t.is_timestamp(type_):
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
        return f"{type_name(type_)} '{moment.isoformat(' ')}'"
    if t.is_duration(type_):
        return interval_text(value, ticks_per_second(type_))
    if t.is_time64(type_):
        return f"TIME '{(dt.datetime.min + dt.timedelta(microseconds=value)).time().isoformat()}'"
    return f"{value}{_SUFFIX[str(type_)]}"


def interval_text(ticks: int, ticks_per_second: int) -> str:
    """A duration as an INTERVAL literal in the largest unit that divides it.

    >>> interval_text(300_000_000, 1_000_000)
    "INTERVAL '5' MINUTE"
    """
    for unit, seconds in _INTERVALS:
        count, rest = divmod(ticks, seconds * ticks_per_second)
        if rest == 0:
            return f"INTERVAL '{count}' {unit}"
    return f"INTERVAL '{format(Decimal(ticks) / ticks_per_second, 'f')}' SECOND"


def canonical_text(expr: Expr) -> str:
    """The expression's text with the operands of AND and OR, and sides of comparisons, in order.

    >>> from thetajoin.predicate import compile_condition
    >>> import pyarrow as pa
    >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    >>> texts = ("l.a < r.a AND l.b > r.b", "r.b<l.b   and (r.a > l.a)")
    >>> {canonical_text(compile_condition(text, schema, schema).expr) for text in texts}
    {'((l.a < r.a) AND (l.b > r.b))'}
    """
    if isinstance(expr, Call) and expr.name in ("and", "or"):
        parts = sorted({canonical_text(part) for part in expr.args})
        return f"({f' {expr.name.upper()} '.join(parts)})" if len(parts) > 1 else parts[0]
    if isinstance(expr, Call) and expr.name in MIRROR:
        left, right = (canonical_text(part) for part in expr.args)
        op = expr.name
        if right < left:
            left, op, right = right, MIRROR[op], left
        return f"({left} {op} {right})"
    return expr.sql(explicit=True)
