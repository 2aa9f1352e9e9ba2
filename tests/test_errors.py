"""Errors: one line, the same after a copy, with the nearest names."""

from __future__ import annotations

from thetajoin.errors import ConditionError, OptionError, ThetaJoinError, suggest


def test_errors_are_one_line_and_survive_a_copy():
    error = ConditionError("bad\n  thing", position=3, fragment="a\nb", hint="do so")
    assert str(error) == "bad thing at position 3: `a b`; do so"
    assert isinstance(error, ThetaJoinError)
    again = type(error)(*error.args)
    assert str(again) == str(error)
    assert len(str(ConditionError("x", fragment="y" * 500))) < 120
    assert str(OptionError("a\n b")) == "a b"


def test_suggest_lists_a_few_names():
    assert suggest("x", []) == "there are none"
    assert suggest("zz", [f"column_{i}" for i in range(20)]).endswith("column_11 and 8 more")
    assert suggest("PRICE", ["price", "size"]) == "did you mean 'price'?"
