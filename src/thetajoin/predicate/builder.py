"""Conditions built from Python: ``(tj.l.rp < tj.r.rp) & (tj.l.cp > tj.r.cp)``.

A built expression is SQL text and nothing else, so strings and built conditions share one path.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NoReturn, Protocol

from thetajoin.errors import ConditionError
from thetajoin.predicate.render import interval_text, quote_name, quote_text

_MOST_BITS = 127  # of 38 digits, the most that a decimal has


class Built:
    """A piece of a condition under construction; combine with operators, ``&``, ``|`` and ``~``.

    >>> from thetajoin.predicate import l, r
    >>> (l.a < r.b) & ~l.c.is_null()
    (l.a < r.b) AND (NOT (l.c IS NULL))
    """

    __slots__ = ("_atom", "_sql")
    __hash__ = None  # type: ignore[assignment]
    __iter__ = None  # `[...]` takes a field, not a position

    def __init__(self, sql: str, *, atom: bool = False) -> None:
        self._sql = sql
        self._atom = atom

    def sql(self) -> str:
        """The SQL text."""
        return self._sql

    def __repr__(self) -> str:
        return self._sql

    def __getitem__(self, name: str) -> Built:
        if not self._atom:
            raise ConditionError("only a column has fields", fragment=self._sql)
        return Built(f"{self._sql}.{_name(name)}", atom=True)

    def __bool__(self) -> NoReturn:
        raise ConditionError(
            "a condition built from l and r has no truth value yet",
            fragment=self._sql,
            hint="use & | ~ with parentheses instead of and, or, not, "
            "and .between(a, b) instead of a chained comparison",
        )

    def __lt__(self, other: object) -> Built:
        return _infix(self, "<", other)

    def __le__(self, other: object) -> Built:
        return _infix(self, "<=", other)

    def __gt__(self, other: object) -> Built:
        return _infix(self, ">", other)

    def __ge__(self, other: object) -> Built:
        return _infix(self, ">=", other)

    def __eq__(self, other: object) -> Built:  # type: ignore[override]
        return _infix(self, "=", other)

    def __ne__(self, other: object) -> Built:  # type: ignore[override]
        return _infix(self, "!=", other)

    def __add__(self, other: object) -> Built:
        return _infix(self, "+", other)

    def __radd__(self, other: object) -> Built:
        return _infix(other, "+", self)

    def __sub__(self, other: object) -> Built:
        return _infix(self, "-", other)

    def __rsub__(self, other: object) -> Built:
        return _infix(other, "-", self)

    def __mul__(self, other: object) -> Built:
        return _infix(self, "*", other)

    def __rmul__(self, other: object) -> Built:
        return _infix(other, "*", self)

    def __truediv__(self, other: object) -> Built:
        return _infix(self, "/", other)

    def __rtruediv__(self, other: object) -> Built:
        return _infix(other, "/", self)

    def __mod__(self, other: object) -> Built:
        return _infix(self, "%", other)

    def __rmod__(self, other: object) -> Built:
        return _infix(other, "%", self)

    def __and__(self, other: object) -> Built:
        return _infix(self, "AND", other)

    def __rand__(self, other: object) -> Built:
        return _infix(other, "AND", self)

    def __or__(self, other: object) -> Built:
        return _infix(self, "OR", other)

    def __ror__(self, other: object) -> Built:
        return _infix(other, "OR", self)

    def __invert__(self) -> Built:
        return Built(f"NOT {_operand(self)}")

    def __neg__(self) -> Built:
        return Built(f"-{_operand(self)}")

    def __abs__(self) -> Built:
        return Built(f"ABS({self._sql})")

    def abs(self) -> Built:
        """The absolute value, as ``abs(...)``."""
        return abs(self)

    def between(self, low: object, high: object) -> Built:
        """Whether it lies between two values, both included."""
        return Built(f"{_operand(self)} BETWEEN {_operand(low)} AND {_operand(high)}")

    def is_null(self) -> Built:
        """Whether it is NULL."""
        return Built(f"{_operand(self)} IS NULL")

    def is_not_null(self) -> Built:
        """Whether it is not NULL."""
        return Built(f"{_operand(self)} IS NOT NULL")

    def isin(self, *values: object) -> Built:
        """Whether it equals one of the values, given one by one or as one list."""
        listed = (
            values[0] if len(values) == 1 and isinstance(values[0], list | tuple | set) else values
        )
        assert isinstance(listed, list | tuple | set)
        return Built(f"{_operand(self)} IN ({', '.join(to_sql(value) for value in listed)})")

    def cast(self, type_name: Any) -> Built:
        """Cast to a SQL type, such as "double"."""
        if not isinstance(type_name, str):
            what = type(type_name).__name__
            raise ConditionError(f"cast takes a type's name, not {what}", hint='write "double"')
        return Built(f"CAST({self._sql} AS {type_name})")

    def like(self, pattern: object) -> Built:
        """Whether it matches a SQL LIKE pattern."""
        return Built(f"{_operand(self)} LIKE {_operand(pattern)}")

    def eq_null_safe(self, other: object) -> Built:
        """Equality in which NULL equals NULL (Spark's ``<=>``)."""
        return _infix(self, "<=>", other)


class SideColumns:
    """The columns of one side: ``tj.l.price``, or ``tj.l["odd name"]``."""

    __slots__ = ("_alias",)

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def __getattr__(self, name: str) -> Built:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Built:
        return Built(f"{self._alias}.{_name(name)}", atom=True)

    def __repr__(self) -> str:
        return self._alias


l = SideColumns("l")  # noqa: E741
r = SideColumns("r")


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ConditionError(
            f"a column's name is text, not {type(name).__name__}", hint='write tj.l["name"]'
        )
    return quote_name(name)


def _infix(left: object, op: str, right: object) -> Built:
    return Built(f"{_operand(left)} {op} {_operand(right)}")


def _operand(value: object) -> str:
    text = to_sql(value)
    return f"({text})" if isinstance(value, Built) and not value._atom else text


def to_sql(value: object) -> str:
    """A built expression or a Python value as SQL; a float is a DOUBLE, as it is in Python.

    >>> to_sql(1.5), to_sql(dt.timedelta(minutes=5))
    ('1.5D', "INTERVAL '5' MINUTE")
    """
    if isinstance(value, Built):
        return value.sql()
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise ConditionError("an integer of more than 38 digits cannot be part of a condition")
        return str(value)
    if isinstance(value, float):
        return f"{float(value)!r}D" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, Decimal) and value.is_finite():
        text = format(value, "f")
        return text if "." in text else text + "BD"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, dt.datetime):
        name = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        return f"{name} '{value.isoformat(' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.time) and value.tzinfo is None:
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return interval_text(value // dt.timedelta(microseconds=1), 10**6)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return to_sql(item())  # a NumPy scalar
    raise ConditionError(f"a value of type {type(value).__name__} cannot be part of a condition")


class SparkColumn(Protocol):
    """A Column of PySpark."""

    def eqNullSafe(self, other: Any) -> Any:
        """Whether it equals another, NULL included."""


# What `on` may be: SQL, made of `l` and `r`, or of PySpark's columns; or several that all hold.
On = str | Built | SparkColumn | Sequence[str | Built | SparkColumn]
