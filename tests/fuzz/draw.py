"""Random values, columns and tables: narrow ranges with many ties, extremes, NULL, NaN."""

from __future__ import annotations

import math
import random
import string
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from fuzz.kinds import BOOL, DAY, LONG, STORED, Column, Kind, Table, arrow_type, kind_of

T = TypeVar("T")
NOW = 1_704_067_200 * 10**9  # 2024-01-01
WORDS = ("", "a", "A", "aa", "ab", "b", " a ", "é", "zz", "\uffff", "\U00010000", "a\x00", "10")
BYTES = (b"", b"a", b"ab", b"\x00", b"\xff", b"a\x00", b"\xff\xff", b"zz")
FLOATS = (0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 2.0, 3.0)
ODD_FLOATS = (math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1e300, -1e300, 2.0**53, 0.1, 1e-3)
ODD_SINGLES = (math.nan, math.inf, -math.inf, 2.0**-149, 1e38, -1e38, 2.0**24, 0.1, 1e-3)
ODD_HALVES = (math.nan, math.inf, -math.inf, 2.0**-24, 65504.0, 0.1)


class Draw(random.Random):
    """A seeded source of choices; on the `edge`, values are extremes and bands abound."""

    edge = False

    def chance(self, share: float) -> bool:
        """True in that share of the calls."""
        return self.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[int(self.random() * len(choices))]

    def weighted(self, choices: dict[T, float]) -> T:
        """One of the choices, by weight."""
        return self.choices(list(choices), list(choices.values()))[0]


def values(draw: Draw, kind: Kind, code: str, size: int) -> list[Any]:
    """A column's values."""
    pool = _pool(draw, kind, code)
    nulls = draw.weighted({0.0: 5, 0.15: 4, 0.6: 1, 1.0: 0.1})
    return [None if draw.chance(nulls) else draw.pick(pool) for _ in range(size)]


def _pool(draw: Draw, kind: Kind, code: str) -> Sequence[Any]:
    style = "extreme" if draw.edge else draw.weighted({"narrow": 7, "extreme": 1, "wide": 1})
    name = kind.name
    if name in ("int", "uint"):
        return _integers(draw, kind, style)
    if name == "float":
        return _floats(draw, code, style)
    if name == "decimal":
        unscaled = _integers(draw, Kind("int", 8), style)
        top = 10**kind.size - 1
        if style != "narrow":
            unscaled = [*unscaled, top, -top, top - 1]
        return [Decimal(n).scaleb(-kind.scale, _EXACT) for n in unscaled]
    if name == "text":
        return _words(draw, style)
    if name == "binary":
        return [b.ljust(2, b"\x00")[:2] for b in BYTES] if "(2)" in code else BYTES
    if name == "bool":
        return (False, True)
    return _ticks(draw, kind, style)


def _exact_context() -> Any:
    from decimal import Context

    return Context(prec=120)


_EXACT = _exact_context()


def _integers(draw: Draw, kind: Kind, style: str) -> list[int]:
    low = 0 if kind.name == "uint" else -(2 ** (kind.size - 1))
    high = 2**kind.size - 1 if kind.name == "uint" else 2 ** (kind.size - 1) - 1
    if style == "wide":
        return [draw.randint(low, high) for _ in range(8)] + [0]
    narrow = list(range(max(low, -3), 5))
    if style == "extreme":
        odd = [low, low + 1, high, high - 1]
        odd += [2**53, 2**53 + 1] if kind.size == 64 else []
        return [*odd, *odd, *narrow[:5]]
    return narrow


def _floats(draw: Draw, code: str, style: str) -> Sequence[float]:
    if style == "narrow":
        return FLOATS
    if "64" in code:
        odd, type_ = ODD_FLOATS, np.float64
    else:
        odd, type_ = (ODD_HALVES, np.float16) if "16" in code else (ODD_SINGLES, np.float32)
    if style == "wide":
        odd = tuple(draw.uniform(-5, 5) for _ in range(8))
    return [float(type_(value)) for value in (*odd, *FLOATS[:5])]


def _words(draw: Draw, style: str) -> Sequence[str]:
    if style != "wide":
        return WORDS
    letters = string.ascii_letters + " é%_\\'\"\n"
    return ["".join(draw.choices(letters, k=draw.randint(0, 20))) for _ in range(8)]


def _ticks(draw: Draw, kind: Kind, style: str) -> list[int]:
    unit = kind.size
    if kind.name == "clock":
        return [n * unit for n in (0, 1, 2, 3, DAY // unit - 1)]
    base = NOW // unit * unit if kind.name in ("date", "timestamp") and draw.chance(0.7) else 0
    if style == "narrow":
        return [base + n * unit for n in range(-3, 5)]
    if style == "wide":
        # Whole hours and minutes beside single ticks, so that units meet.
        lengths = (unit, max(unit, 10**9), max(unit, 3600 * 10**9), max(unit, DAY))
        return [base + draw.randint(-3, 3) * draw.pick(lengths) for _ in range(8)]
    most = 2**31 - 1 if kind.name == "date" else 2**63 - 1
    if kind.name == "date":
        most = 2_000_000
    return [n * unit for n in (-most, -most + 1, most, most - 1, -1, 0, 1)]


# --- tables --------------------------------------------------------------------------------------


def column(draw: Draw, name: str, family: str, size: int, plain: bool, given: str) -> Column:
    """A column of a family; `plain` means types that every library keeps."""
    code = draw.pick(STORED[family])
    while plain and not _is_plain(code):
        code = draw.pick(STORED[family])
    kind = kind_of(arrow_type(code))
    drawn = [_as_given(value, kind, given) for value in values(draw, kind, code, size)]
    if code == "pa.date64()":
        drawn = [None if value is None else value // DAY * DAY for value in drawn]
    return Column(name, code, tuple(drawn))


def _is_plain(code: str) -> bool:
    # Polars and pandas turn seconds into finer units, which overflow at the extremes.
    odd = ("decimal", "view", "time32", "time64", "dictionary", "date", "binary(2)", "'s'")
    return not any(word in code for word in odd)


def _as_given(value: Any, kind: Kind, given: str) -> Any:
    """NumPy has no NULL among integers and booleans; in pandas NaN is NULL."""
    own = given == "pandas" or (given == "pandas_nullable" and kind not in (LONG, BOOL))
    if value is None and own:
        return {"int": 0, "uint": 0, "bool": False}.get(kind.name)
    missing = "pandas" in given and isinstance(value, float) and math.isnan(value)
    return None if missing else value


def size(draw: Draw) -> int:
    """A number of rows: mostly a few, sometimes none, seldom many."""
    most = draw.weighted({0: 0.4, 1: 0.5, 4: 2, 12: 5, 30: 3, 130: 0.08})
    return most if most <= 1 else draw.randint(0 if most == 30 else 1, most)


def table(
    draw: Draw,
    id_name: str,
    families: Sequence[str],
    prefix: str,
    rows: int,
    plain: bool,
    given: str,
) -> Table:
    """A table with a column of each family at least, and one that numbers its rows."""
    names = [*families, *(draw.pick(families) for _ in range(draw.randint(0, 1)))]
    columns = [
        column(draw, f"{prefix}{i}", family, rows, plain, given) for i, family in enumerate(names)
    ]
    return Table((Column(id_name, "pa.int64()", tuple(range(rows))), *columns))
