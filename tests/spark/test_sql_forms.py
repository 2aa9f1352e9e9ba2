"""The queries of `query.forms` on Spark: the same rows as on Arrow tables."""

from __future__ import annotations

import pytest

import thetajoin as tj
from query.forms import FORMS, ON_SPARK, TABLES, WRONG

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frames(spark):
    return {name: spark.createDataFrame(table) for name, table in TABLES.items()}


def plain(value):
    """A value of Spark's as Arrow has it."""
    return value.asDict() if hasattr(value, "asDict") else value


def test_forms(frames):
    failed = []
    for query, want in FORMS:
        try:
            got = [tuple(map(plain, row)) for row in tj.sql(query, **frames).collect()]
        except tj.ThetaJoinError as error:
            if ON_SPARK.get(query, "") not in str(error) or query not in ON_SPARK:
                failed.append((query, str(error)))
            continue
        if sorted(got, key=repr) != sorted(want, key=repr):
            failed.append((query, got))
    assert not failed, "\n".join(f"{query}\n    {got}" for query, got in failed)


def test_mistakes(frames):
    for query, message in WRONG:
        with pytest.raises(tj.ThetaJoinError, match=message) as caught:
            tj.sql(query, **frames)
        assert "\n" not in str(caught.value)
