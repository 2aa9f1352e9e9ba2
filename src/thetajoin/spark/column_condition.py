"""Conditions given as PySpark columns (`F.col("l.x") < F.col("r.x")`), as the text they mean.

PySpark tells what a column is only in a text for people, ``<(l.x, r.x)``. It is written as SQL
here, and Spark itself is then asked whether both mean the same join (`DataFrame.sameSemantics`):
what was misread is refused, never guessed.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from thetajoin.errors import ConditionError
from thetajoin.predicate.render import backquote

_SHOWN = re.compile(r"Column<'(.*)'>", re.DOTALL)
_NAME = re.compile(r"[^\s(),'`\"]+(?=\()")
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_END = r"(?=,|\)|$| AS )"
_COLUMN = re.compile(r"[a-z_]\w*(?:\.(?:`(?:[^`]|``)+`|\w+))+" + _END, re.IGNORECASE)
# A name is shown without quotes, whatever is in it but a dot.
_ODD_COLUMN = re.compile(r"(\w+)\.([^,()`.]+?)" + _END)
_BARE = re.compile(r"[^,()]+")
_LITERAL = re.compile(r"[+-]?\d+L?|null|true|false|interval .*", re.IGNORECASE)
_FRACTION = re.compile(r"[+-]?\d+\.\d*(e[+-]?\d+)?", re.IGNORECASE)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?")
_TYPE = re.compile(r" AS ([\w ]+(\([\d, ]+\))?)\)", re.IGNORECASE)
_BETWEEN = dict.fromkeys(("<", "<=", ">", ">=", "=", "!=", "<=>", "+", "-", "*", "/", "%")) | {
    "==": "=",
    "<>": "!=",
    "and": "AND",
    "&&": "AND",
    "or": "OR",
    "||": "OR",
    "like": "LIKE",
}
_AROUND = {
    "not": "(NOT {})",
    "!": "(NOT {})",
    "negative": "(-{})",
    "isnull": "({} IS NULL)",
    "isnotnull": "({} IS NOT NULL)",
}


def with_text(left: Any, right: Any, on: Any) -> Any:
    """A condition with PySpark columns as text; anything else in it stays as it is."""
    if isinstance(on, list | tuple):
        return [with_text(left, right, part) for part in on]
    if not isinstance(on, Column):
        return on
    sides = left.alias("l"), right.alias("r")
    asked = _resolve(*sides, on)
    shown = _SHOWN.fullmatch(str(on))
    if shown is not None:
        # What `F.expr` was given is shown as it is. A fraction may be a double or a decimal.
        for text in (sql_of(shown[1]), sql_of(shown[1], decimals=True), shown[1]):
            if text is not None and _same(asked, *sides, text):
                return text
    raise ConditionError(
        "this column cannot be written as SQL",
        fragment=str(on),
        hint="write the condition as text, on='l.x < r.x'",
    )


def sql_of(shown: str, *, decimals: bool = False) -> str | None:
    """The SQL of a column as PySpark prints it; None if that is not understood.

    >>> sql_of("and(<(l.x, r.x), >=(l.y, +(r.y, 1)))")
    '((l.x < r.x) AND (l.y >= (r.y + 1)))'
    """
    reader = _Reader(shown, decimals=decimals)
    try:
        text = reader.expression()
    except _UnreadableError:
        return None
    return text if reader.at == len(shown) else None


class _UnreadableError(Exception):
    """A text that is not what PySpark shows."""


class _Reader:
    """Reads a column's text from `at` on."""

    def __init__(self, text: str, *, decimals: bool) -> None:
        self.text, self.at, self.decimals = text, 0, decimals

    def expression(self) -> str:
        """The next expression as SQL."""
        name = self._next(_NAME)
        if name is not None:
            self.at += 1
            return self._cast() if name.lower() == "cast" else self._call(name)
        for pattern in (_TEXT, _COLUMN):
            found = self._next(pattern)
            if found is not None:
                return found
        odd = _ODD_COLUMN.match(self.text, self.at)
        if odd is not None and not odd[1].isdigit():
            self.at = odd.end()
            return f"{odd[1]}.{backquote(odd[2])}"
        bare = self._next(_BARE)
        if bare is None:
            raise _UnreadableError
        if _LITERAL.fullmatch(bare):
            return bare
        if _FRACTION.fullmatch(bare):
            return bare if self.decimals else f"{bare}D"
        if _MOMENT.fullmatch(bare):
            return f"{'TIMESTAMP' if ' ' in bare else 'DATE'} '{bare}'"
        # Spark Connect shows a text without its quotes.
        quoted = bare.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}'"

    def _next(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def _take(self, expected: str) -> bool:
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def _cast(self) -> str:
        arg = self.expression()
        found = _TYPE.match(self.text, self.at)
        if found is None:
            raise _UnreadableError
        self.at = found.end()
        type_ = "BIGINT" if found[1].upper() == "LONG" else found[1]
        return f"CAST({arg} AS {type_})"

    def _call(self, name: str) -> str:
        args: list[str] = []
        while not self._take(")"):
            if args and not self._take(", "):
                raise _UnreadableError
            args.append(self.expression())
        of = name.lower()
        if of in _BETWEEN and len(args) == 2:
            return f"({args[0]} {_BETWEEN[of] or of} {args[1]})"
        if of in _AROUND and len(args) == 1:
            return _AROUND[of].format(*args)
        if of == "in" and len(args) > 1:
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        if not name.isidentifier():
            raise _UnreadableError
        return f"{name}({', '.join(args)})"


def _resolve(left: Any, right: Any, on: Any) -> Any:
    """The join that Spark would make of a column."""
    try:
        asked = left.join(right, on)
        asked.schema  # noqa: B018  Spark Connect looks at a plan only when it has to
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise ConditionError(
            f"Spark cannot resolve this column: {reason}",
            fragment=str(on),
            hint="name columns by their side, as F.col('l.x') and F.col('r.x')",
        ) from None
    return asked


def _same(asked: Any, left: Any, right: Any, text: str) -> bool:
    """Whether Spark makes the same join of a text."""
    try:
        return bool(asked.sameSemantics(left.join(right, F.expr(text))))
    except PySparkException:
        return False
