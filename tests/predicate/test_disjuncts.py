"""Each pair that a condition accepts is found by exactly one disjunct, and no other pair is."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, given

from predicate.slow import Failure, holds, value
from predicate.strategies import SCHEMA, SMALL, conditions, join_conditions, pairs_of, rows
from thetajoin.errors import ConditionError
from thetajoin.limits import change_limits
from thetajoin.predicate import Condition, compile_condition


def check(condition: Condition, left: pa.Table, right: pa.Table) -> None:
    for pair in pairs_of(left, right):
        found = [form for form in condition.disjuncts if holds(form, pair)]
        wanted = value(condition.expr, pair) is True
        assert len(found) == wanted, (condition.sql, pair, found)


def compiled(text: str) -> Condition:
    try:
        return compile_condition(text, SCHEMA, SCHEMA)
    except ConditionError as error:
        assume("names only" not in str(error) and "constant" not in str(error))
        raise


@given(text=join_conditions(), left=rows(SMALL, 5), right=rows(SMALL, 5))
def test_disjuncts_split_the_matching_pairs(text, left, right):
    check(compiled(text), left, right)


@given(text=conditions(), left=rows(SMALL, 4), right=rows(SMALL, 4))
def test_so_they_do_for_any_condition(text, left, right):
    condition = compiled(text)
    try:
        for pair in pairs_of(left, right):
            value(condition.expr, pair)
            for form in condition.disjuncts:
                holds(form, pair)
    except Failure:
        assume(False)
    check(condition, left, right)


@given(text=join_conditions(), left=rows(SMALL, 4), right=rows(SMALL, 4))
def test_and_where_or_is_never_expanded(text, left, right):
    with change_limits(disjuncts=1):
        condition = compiled(text)
    assert len(condition.disjuncts) <= 2
    check(condition, left, right)


@given(text=join_conditions())
def test_the_text_compiles_to_an_equal_condition(text):
    condition = compiled(text)
    assert compile_condition(condition.sql, SCHEMA, SCHEMA) == condition


@given(text=join_conditions())
def test_every_part_stays_on_its_side(text):
    for form in compiled(text).disjuncts:
        for part in (*form.comparisons, *form.differences):
            assert part.left.sides() == {"l"}
            assert part.right.sides() == {"r"}
            assert part.left.type == part.right.type == part.type
        assert form.left_filter is None or form.left_filter.sides() == {"l"}
        assert form.right_filter is None or form.right_filter.sides() == {"r"}
        bounds = [(d.low, d.high) for d in form.differences]
        assert (None, None) not in bounds
