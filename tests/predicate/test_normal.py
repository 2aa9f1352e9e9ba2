"""Normal forms asserted one by one: comparisons, differences, filters, OR and !=."""

from __future__ import annotations

from decimal import Decimal as D

import pyarrow as pa
import pytest

from thetajoin.limits import limits
from thetajoin.predicate import Condition, compile_condition, evaluate

SCHEMA = pa.schema(
    {
        "a": pa.int32(),
        "b": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "ns": pa.timestamp("ns"),
        "n": pa.decimal128(10, 2),
        "w": pa.decimal128(38, 10),
        "u": pa.uint64(),
        "i": pa.duration("ms"),
    }
)


def compiled(text: str) -> Condition:
    return compile_condition(text, SCHEMA, SCHEMA)


def shape(text: str) -> list[str]:
    """One line a disjunct: what is searched, then the filters and the residual."""
    lines = []
    for form in compiled(text).disjuncts:
        searched = ", ".join(map(str, (*form.comparisons, *form.differences)))
        rest = {"left": form.left_filter, "right": form.right_filter, "rest": form.residual}
        named = [f"{name}: {part}" for name, part in rest.items() if part is not None]
        lines.append("; ".join([searched, *named]))
    return lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l.a < r.a AND l.f >= r.f", ["l.a < r.a, l.f >= r.f"]),
        ("r.a < l.a", ["l.a > r.a"]),
        ("r.a = l.b", ["l.b = r.a"]),
        ("l.a BETWEEN r.a AND r.b", ["l.a >= r.a, l.a <= r.b"]),
        (
            "l.a NOT BETWEEN r.a AND r.a + 1",
            ["l.a < r.a", "l.a > r.a + 1; rest: NOT COALESCE(l.a < r.a, FALSE)"],
        ),
        ("NOT (l.a < r.a OR l.f = r.f)", ["l.a >= r.a, l.f != r.f"]),
        (
            "l.a + 1 < r.a * 2 AND l.a > 3 AND r.s LIKE 'x%'",
            ["l.a + 1 < r.a * 2; left: l.a > 3; right: r.s LIKE 'x%'"],
        ),
        ("l.a < r.a AND l.a + r.a > 5", ["l.a < r.a; rest: l.a + r.a > 5"]),
        ("l.a < r.a AND l.a < r.a", ["l.a < r.a"]),
        ("1 = 1 AND l.a < r.a", ["l.a < r.a"]),
        ("l.a < r.a OR 1 = 0", ["l.a < r.a"]),
        ("l.a > 3 AND r.a < 5", ["; left: l.a > 3; right: r.a < 5"]),
        ("(l.a < r.a) IS TRUE", ["l.a < r.a"]),
    ],
)
def test_conjunctions(text, expected):
    assert shape(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABS(l.a - r.a) <= 5", ["-5 <= l.a - r.a <= 5"]),
        ("5 > ABS(r.a - l.a)", ["-4 <= l.a - r.a <= 4"]),
        ("ABS(l.f - r.f) < 0.5", ["-0.5 < l.f - r.f < 0.5"]),
        ("ABS(l.g - r.g) <= 1.5D", ["-1.5 <= l.g - r.g <= 1.5"]),
        ("ABS(l.a - r.a) > 5", ["l.a - r.a <= -6", "6 <= l.a - r.a"]),
        ("ABS(l.a - r.a) = 5", ["-5 <= l.a - r.a <= -5", "5 <= l.a - r.a <= 5"]),
        ("ABS(l.a - r.a) = -1", ["2 <= l.a - r.a <= -2"]),
        ("ABS(l.f - r.f) = -0.0D", ["0.0 <= l.f - r.f <= 0.0"]),
        ("ABS(l.a - r.a) = 0", ["0 <= l.a - r.a <= 0"]),
        ("ABS(l.a - r.a) <= -1", ["1 <= l.a - r.a <= -1"]),
        ("ABS(l.a - r.a) <= 2 + 3", ["-5 <= l.a - r.a <= 5"]),
        ("l.a - r.a > 0.5", ["1 <= l.a - r.a"]),
        ("l.a - r.a < -0.5", ["l.a - r.a <= -1"]),
        ("l.a - r.a = 0.5", ["1 <= l.a - r.a <= 0"]),
        ("r.a - l.a >= 7", ["l.a - r.a <= -7"]),
        ("l.a - r.b BETWEEN -1 AND 2", ["-1 <= l.a - r.b <= 2"]),
        ("l.a - r.a != 5", ["l.a - r.a <= 4", "6 <= l.a - r.a"]),
        ("l.b - r.b > 9007199254740992D", ["9007199254740994 <= l.b - r.b"]),
        ("l.b - r.b >= 9007199254740993L", ["9007199254740993 <= l.b - r.b"]),
        ("ABS(l.n - r.n) <= 0.5", ["-0.50 <= l.n - r.n <= 0.50"]),
        ("ABS(l.n - r.n) < 0.055", ["-0.05 <= l.n - r.n <= 0.05"]),
        ("ABS(l.n - r.n) <= 0.1D", ["-0.10 <= l.n - r.n <= 0.10"]),
        ("l.n - r.a <= 3", ["l.n - r.a <= 3.00"]),
        ("ABS(l.d - r.d) <= INTERVAL 36 HOURS", ["-1 <= l.d - r.d <= 1"]),
        ("DATEDIFF(r.d, l.d) < 3", ["-2 <= l.d - r.d"]),
        ("l.t - r.t <= INTERVAL '5' MINUTE", ["l.t - r.t <= 300000000"]),
        ("ABS(l.ns - r.t) <= INTERVAL '1' SECOND", ["-1000000000 <= l.ns - r.t <= 1000000000"]),
        ("l.i - r.i > INTERVAL '0.0015' SECOND", ["2 <= l.i - r.i"]),
        ("l.u - r.u < 3", ["l.u - r.u <= 2"]),
        ("l.f - r.f > 1 AND l.f - r.f <= 2 AND l.f - r.f > 0", ["1.0 < l.f - r.f <= 2.0"]),
    ],
)
def test_differences(text, expected):
    assert shape(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "l.f - r.f > CAST('Infinity' AS DOUBLE)",
        "l.f - r.f < CAST('NaN' AS DOUBLE)",
        "l.a - r.a < NULL",
        "CAST(l.a - r.a AS TINYINT) < 3",
        "l.a - r.a < l.b",
        "l.a * r.a < 3",
        "ABS(l.a - r.a) != 3",
        "ABS(l.w * 10000000000 - r.w) < 1e0",
    ],
)
def test_what_is_no_bounded_difference_is_checked(text):
    (form,) = compiled(text).disjuncts
    assert not form.differences
    assert form.residual is not None


def test_differences_carry_types_exactness_and_nan():
    (whole,) = compiled("ABS(l.a - r.b) <= 5").disjuncts[0].differences
    assert (whole.type, whole.exact, whole.nan) == (pa.int64(), True, False)
    assert (whole.low, whole.low_strict, whole.high, whole.high_strict) == (-5, False, 5, False)
    (decimal,) = compiled("l.n - r.n < 0.5").disjuncts[0].differences
    assert (decimal.type, decimal.exact, decimal.high) == (pa.decimal128(10, 2), True, D("0.49"))
    (above,) = compiled("l.f - r.f > 0.5").disjuncts[0].differences
    assert (above.low, above.low_strict, above.exact, above.nan) == (0.5, True, False, True)
    (mirrored,) = compiled("r.f - l.f > 0.5").disjuncts[0].differences
    assert (mirrored.low, mirrored.high, mirrored.nan) == (None, -0.5, True)
    assert mirrored.check.sql() == "r.f - l.f > 0.5"
    (band,) = compiled("ABS(l.f - r.f) <= 0.5").disjuncts[0].differences
    assert (band.nan, band.check.sql()) == (False, "l.f - r.f >= -0.5D AND l.f - r.f <= 0.5D")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l.a != r.a", ["l.a < r.a", "l.a > r.a"]),
        ("l.a != r.a AND l.b = r.b", ["l.a != r.a, l.b = r.b"]),
        ("l.a != r.a AND l.b != r.b", ["l.a < r.a, l.b != r.b", "l.a > r.a, l.b != r.b"]),
        ("l.a != r.a AND ABS(l.f - r.f) < 1", ["l.a != r.a, -1.0 < l.f - r.f < 1.0"]),
        ("l.ns != r.t", ["l.ns < r.t", "l.ns > r.t"]),
    ],
)
def test_unequal_is_split_only_where_nothing_else_searches(text, expected):
    assert shape(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l.a < r.a OR l.a > r.a", ["l.a < r.a", "l.a > r.a"]),
        ("l.a < r.a OR l.a > r.a OR r.a = l.a", ["l.a < r.a", "l.a > r.a", "l.a = r.a"]),
        ("l.a - r.a < -3 OR l.a - r.a > 3", ["l.a - r.a <= -4", "4 <= l.a - r.a"]),
        ("l.f - r.f < -3 OR l.f - r.f > 3", ["l.f - r.f < -3.0", "3.0 < l.f - r.f"]),
        ("l.a <=> r.a", ["l.a = r.a", "; left: l.a IS NULL; right: r.a IS NULL"]),
        ("l.a < r.a OR (l.a < r.a AND l.b > r.b)", ["l.a < r.a"]),
        (
            "l.b = r.b AND (l.a < r.a OR l.f < r.f)",
            ["l.b = r.b, l.a < r.a", "l.b = r.b, l.f < r.f; rest: NOT COALESCE(l.a < r.a, FALSE)"],
        ),
        (
            "l.a < r.a OR l.b > 3",
            ["l.a < r.a", "; left: l.b > 3; rest: NOT COALESCE(l.a < r.a, FALSE)"],
        ),
        (
            "l.b > 3 OR l.a < r.a",
            ["; left: l.b > 3", "l.a < r.a; left: NOT COALESCE(l.b > 3, FALSE)"],
        ),
        (
            "l.a = r.a AND (l.b < r.b OR l.a + r.a > 5)",
            ["l.a = r.a; rest: l.b < r.b OR l.a + r.a > 5"],
        ),
        ("l.a = r.a AND ABS(l.b * r.b) > 5", ["l.a = r.a; rest: ABS(l.b * r.b) > 5"]),
        ("l.a < r.a OR l.a + r.a > 5", ["; rest: l.a < r.a OR l.a + r.a > 5"]),
    ],
)
def test_or_makes_disjoint_disjuncts(text, expected):
    assert shape(text) == expected


def test_a_large_or_is_checked_pair_by_pair():
    many = " OR ".join(f"l.a = r.a + {i}" for i in range(limits.disjuncts + 1))
    (form,) = compiled(many).disjuncts
    assert not form.comparisons
    (form,) = compiled(f"l.b < r.b AND ({many})").disjuncts
    assert len(form.comparisons) == 1
    assert form.residual is not None
    assert len(compiled(many.rsplit(" OR ", 1)[0]).disjuncts) == limits.disjuncts


def test_a_long_and_does_not_recurse():
    many = " AND ".join(f"l.a + {i} < r.a + {i}" for i in range(2000))
    assert len(compiled(many).disjuncts[0].comparisons) == 2000


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "="])
def test_times_of_different_units_are_compared_in_the_coarser(op):
    far = 253402300799  # the year 9999, which nanoseconds do not reach
    seconds = pa.table({"t": pa.array([far, -1, 0, 1, None], pa.timestamp("s"))})
    ticks = [2**63 - 1, -(2**63), -(10**9), -1, 0, 1, 10**9, None]
    nanos = pa.table({"t": pa.array(ticks, pa.timestamp("ns"))})
    for left, right in ((seconds, nanos), (nanos, seconds)):
        condition = compile_condition(f"l.t {op} r.t", left.schema, right.schema)
        ((comparison,),) = (form.comparisons for form in condition.disjuncts)
        assert comparison.type == pa.timestamp("s")
        keys = (
            evaluate(comparison.left, left=left).cast(pa.int64()).to_pylist(),
            evaluate(comparison.right, right=right).cast(pa.int64()).to_pylist(),
        )
        scale = {True: 10**9, False: 1}
        for i, x in enumerate(left["t"].cast(pa.int64()).to_pylist()):
            for j, y in enumerate(right["t"].cast(pa.int64()).to_pylist()):
                pair = keys[0][i], keys[1][j]
                if x is None or y is None:
                    assert None in pair
                    continue
                exact = x * scale[left is seconds], y * scale[right is seconds]
                wanted = _holds(op, *exact)
                assert (None not in pair and _holds(op, *pair)) == wanted


def _holds(op: str, a: int, b: int) -> bool:
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b}[op]
