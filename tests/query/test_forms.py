"""Every form of a query that people write gives its rows, or one line."""

from __future__ import annotations

import pytest

import thetajoin as tj
from query.forms import FORMS, TABLES, WRONG


def in_order(rows):
    return sorted(rows, key=repr)


@pytest.mark.parametrize(("query", "want"), FORMS)
def test_forms(query, want):
    got = [tuple(row.values()) for row in tj.sql(query, **TABLES).to_pylist()]
    if "ORDER BY" in query and "OVER" not in query:
        assert got == want
    assert in_order(got) == in_order(want)


@pytest.mark.parametrize(("query", "message"), WRONG)
def test_mistakes(query, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        tj.sql(query, **TABLES)
    assert "\n" not in str(caught.value)
