"""Every mistake in a condition: one line with what is wrong, where, and what would be right."""

from __future__ import annotations

import pyarrow as pa
import pytest

from thetajoin.errors import ConditionError, OptionError, ThetaJoinError, nearest
from thetajoin.predicate import compile_condition, l, r

LEFT = pa.schema(
    {
        "rp": pa.float64(),
        "cp": pa.float64(),
        "n": pa.int32(),
        "d": pa.date32(),
        "flag": pa.bool_(),
        "s": pa.string(),
        "list": pa.list_(pa.int8()),
        "mixed": pa.int8(),
        "Mixed": pa.int8(),
        "st": pa.struct({"x": pa.int32()}),
        "only_left": pa.int32(),
        "dur": pa.duration("us"),
    }
)
RIGHT = LEFT.remove(LEFT.get_field_index("only_left"))


def message(on: object) -> str:
    with pytest.raises(ConditionError) as caught:
        compile_condition(on, LEFT, RIGHT)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("on", "parts"),
    [
        # names
        (
            "l.rp < r.rpp",
            ["unknown column 'rpp' of the right side", "position 8", "`r.rpp`", "'rp'?"],
        ),
        ("l.zzz < r.rp", ["unknown column 'zzz'", "position 1", "`l.zzz`", "there are: rp, cp"]),
        (
            "x.rp < r.rp",
            ["unknown alias 'x'", "position 1", "`x.rp`", "only l (left) and r (right)"],
        ),
        ("rp < r.rp", ["'rp' is ambiguous", "position 1", "write l.rp or r.rp"]),
        ("only_lef < r.n", ["unknown column 'only_lef'", "'only_left'?"]),
        ("l.MIXED < r.n", ["'MIXED' of the left side is ambiguous", "mixed, Mixed"]),
        ("l.st.y < r.n", ["unknown column 'y' in struct 'st'", "`l.st.y`", "there are: x"]),
        ("l.n.x < r.n", ["n is INT, so has no field 'x'"]),
        ("l.* < r.n", ["is not supported", "position"]),
        # types
        (
            "l.n < r.d",
            ["cannot compare INT with DATE", "position 1", "`l.n < r.d`", "cast one side"],
        ),
        ("l.rp < r.rp AND l.flag = r.n", ["BOOLEAN with INT", "position 17", "`l.flag = r.n`"]),
        ("l.d - r.d <= 5", ["INTERVAL DAY TO SECOND with INT", "DATEDIFF(a, b) <= 5"]),
        ("l.list = r.list", ["cannot compare"]),
        ("l.st = r.st", ["cannot compare"]),
        ("l.s < r.dur", ["cannot compare STRING with INTERVAL"]),
        ("l.n IN (r.d)", ["IN mixes INT and DATE"]),
        ("l.n AND l.rp < r.rp", ["AND takes conditions, not INT", "l.n > 0"]),
        ("l.d * 2 < r.n", ["* does not take DATE and INT"]),
        ("l.d + l.rp < r.d", ["+ does not take"]),
        ("l.flag & r.flag", ["& takes integers, not BOOLEAN", "AND"]),
        ("CAST(l.d AS INT) < r.n", ["cannot cast DATE to INT", "position 6"]),
        ("l.n LIKE r.s", ["LIKE takes STRING, not INT"]),
        ("l.n + r.n", ["must be true or false, not INT", "`l.n + r.n`"]),
        ("lower(l.flag) < r.s AND year(l.n) = r.n", ["year takes DATE, not INT", "`year(l.n)`"]),
        (
            "l.d < DATE '2024-13-01' AND l.n < r.n",
            ["'2024-13-01' is not a valid DATE", "position 12"],
        ),
        # constants and one side
        ("1 < 2", ["condition is constant (always true)", "`1 < 2`", "l with one over r"]),
        ("NULL", ["condition is constant (never true)"]),
        ("l.n < r.n AND 1 > 2", ["condition is constant (never true)"]),
        ("l.n < r.n OR TRUE", ["condition is constant (always true)"]),
        ("NOT (l.n < r.n OR TRUE)", ["condition is constant (never true)"]),
        ("l.n > 3", ["names only the left side (l)", "`l.n > 3`", "over r"]),
        ("r.n > 3 AND r.rp < 2", ["names only the right side (r)", "over l"]),
        # syntax
        ("l.n <", ["operand is missing", "position 5", "`<`"]),
        ("l.n < AND r.n", ["operand is missing", "position 7", "`AND`"]),
        ("l.n < (r.n", [") is missing", "position 10"]),
        ("l.n < r.n)", ["unexpected text", "position 10", "`)`"]),
        ("l.n < r.n limit 3", ["unexpected text", "position 11", "`limit`"]),
        ("l.s < 'abc", ["' is never closed", "position 7", "`'abc`"]),
        ("l.`rp < 3", ["` is never closed", "position 3"]),
        ("l.n\n  < AND", ["operand is missing", "position 9"]),
        ("", ["condition is empty"]),
        ("  ", ["condition is empty"]),
        ("l.n < r.n; l.rp < r.rp", ["one condition is expected", "AND"]),
        ("CAST(l.n AS foo) < r.n", ["expected TYPE", "position 13", "`foo`"]),
        ("l.n BETWEEN 1", ["operand is missing"]),
        ("l.n IN ()", ["IN needs a list"]),
        # clauses that do not belong
        ("l.n < (SELECT MAX(x) FROM t)", ["a subquery", "position 7", "`(SELECT MAX(x) FROM t)`"]),
        ("l.n IN (SELECT x FROM t)", ["a subquery", "position 8", "`(SELECT x FROM t)`"]),
        ("EXISTS (SELECT 1)", ["a subquery", "(SELECT 1)"]),
        ("SUM(l.n) < r.n", ["an aggregate (sum)", "position 1", "`SUM(l.n)`"]),
        ("l.n < COUNT(*)", ["an aggregate (count)", "position 7", "`COUNT(*)`"]),
        ("ROW_NUMBER() OVER (ORDER BY l.n) < r.n", ["a window function", "`ROW_NUMBER() OVER"]),
        ("sqr(l.n) < r.n", ["unsupported function 'sqr'", "`sqr(l.n)`", "did you mean 'sqrt'?"]),
        ("zzzzzz(l.n) < r.n", ["unsupported function 'zzzzzz'", "there are: abs"]),
        ("pow(l.n) < r.n", ["pow takes 2 arguments, not 1", "`pow(l.n)`"]),
        ("round(l.rp, l.n) < r.n", ["round takes a constant number of digits"]),
        ("l.n BETWEEN SYMMETRIC 3 AND r.n", ["BETWEEN SYMMETRIC is not supported"]),
        ("trim('x' FROM l.s) < r.s", ["TRIM of other characters"]),
        ("l.s RLIKE r.s", ["regexplike is not supported", "position 1", "`l.s RLIKE r.s`"]),
        ("l.n < ?", ["placeholder is not supported"]),
        (
            "l.d + INTERVAL 1 MONTH < r.d",
            ["MONTH has no fixed length", "position 7", "INTERVAL 1 MONTH"],
        ),
        ("l.d + INTERVAL 1 EON < r.d", ["unknown interval unit EON", "day"]),
        ("date_trunc('eon', l.d) < r.d", ["date_trunc takes a constant unit", "hour"]),
        # several
        (["l.n < r.n", "l.x < r.n"], ["in condition 2: unknown column 'x'", "position 1"]),
        ([], ["empty list"]),
        (5, ["text or built from l and r, not int"]),
        (None, ["text or built from l and r, not NoneType"]),
    ],
)
def test_messages(on, parts):
    text = message(on)
    for part in parts:
        assert part in text


def test_built_conditions_have_no_truth_value():
    for use in (
        lambda: (l.n < r.n) and (l.rp < r.rp),
        lambda: 1 < l.n < r.n,
        lambda: not (l.n < r.n),
    ):
        with pytest.raises(ConditionError, match=r"use & \| ~ .* instead of and.*between"):
            use()


def test_errors_are_one_line_and_survive_a_copy():
    error = ConditionError("bad\n  thing", position=3, fragment="a\nb", hint="do so")
    assert str(error) == "bad thing at position 3: `a b`; do so"
    assert isinstance(error, ThetaJoinError)
    again = type(error)(*error.args)
    assert str(again) == str(error)
    assert len(str(ConditionError("x", fragment="y" * 500))) < 120
    assert str(OptionError("a\n b")) == "a b"


def test_nearest_lists_a_few_names():
    assert nearest("x", []) == "there are none"
    assert nearest("zz", [f"column_{i}" for i in range(20)]).endswith("column_11 and 8 more")
    assert nearest("PRICE", ["price", "size"]) == "did you mean 'price'?"
