"""LIMIT and a look at the first rows take no more of a join than they need."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from strategies import examples, left_rows, left_table, right_rows, right_table
from thetajoin.query import join
from thetajoin.query.run import compile_query

ROWS = 60_000  # a side; more than a billion pairs
X = np.random.default_rng(1).permutation(ROWS)
T, U = pa.table({"x": X}), pa.table({"y": X[::-1].copy()})


@pytest.fixture
def taken(monkeypatch):
    """How many batches of a join were taken; far too many are an error, not the end of memory."""
    counts = Counter()
    open_join = join.open_join

    def watched(*args, **arguments):
        schema, batches = open_join(*args, **arguments)

        def counted():
            for batch in batches:
                counts["batches"] += 1
                assert counts["batches"] < 100, "the whole join is built"
                yield batch

        return schema, counted()

    monkeypatch.setattr(join, "open_join", watched)
    return counts


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("SELECT x, y FROM t JOIN u ON x < y LIMIT 3", 1),
        ("SELECT x + y AS z FROM t JOIN u ON x < y WHERE y > 10 LIMIT 3 OFFSET 300000", 4),
        ("SELECT DISTINCT x % 7 AS z FROM t JOIN u ON x < y LIMIT 3", 2),
        ("SELECT x, y FROM t LEFT JOIN u ON x < y WHERE y IS NOT NULL LIMIT 3", 1),
        ("SELECT x FROM t JOIN u ON x < y LIMIT 0", 0),
        ("SELECT s.x, v.y FROM (SELECT x, y FROM t JOIN u ON x < y LIMIT 3) s JOIN u v "
         "ON s.x < v.y LIMIT 3", 2),
    ],
)  # fmt: skip
def test_a_limit_stops_the_join(taken, query, most):
    got = tj.sql(query, t=T, u=U)
    assert got.num_rows == (0 if query.endswith("LIMIT 0") else 3)
    assert taken["batches"] <= most


def test_the_first_rows_of_a_query(taken):
    schema, batches = compile_query("SELECT y, x FROM t JOIN u ON x < y", {"t": T, "u": U}).open()
    assert schema.names == ["y", "x"]
    (batch,) = islice(batches, 1)
    assert batch.schema == schema
    assert taken["batches"] == 1
    first = compile_query("SELECT y, x FROM t JOIN u ON x < y", {"t": T, "u": U}).first(20)
    assert first.num_rows == 20
    assert taken["batches"] == 2


CLAUSES = st.tuples(
    st.sampled_from(["", "DISTINCT "]),
    st.sampled_from(["", " ORDER BY 1, 2 DESC", " ORDER BY 2 NULLS LAST, 1"]),
    st.none() | st.integers(0, 4),
    st.integers(0, 3),
)


@examples(60)
@given(left_rows(), right_rows(), CLAUSES, st.sampled_from([1, 5, 1 << 17]))
def test_clauses_batch_by_batch(left, right, clauses, waiting):
    """Whatever the batches, rows are those of the whole result, and as many as there should be."""
    distinct, order, limit, offset = clauses
    cut = ("" if limit is None else f" LIMIT {limit}") + (f" OFFSET {offset}" if offset else "")
    query = f"SELECT {distinct}x.c, y.d FROM t1 x JOIN t2 y ON x.a <= y.b{order}"
    pairs = naive.naive_join(left, right, naive.conj(("a", "<=", "b")))
    rows = Counter((l["c"], r["d"]) for l, r in pairs)
    if distinct:
        rows = Counter(dict.fromkeys(rows, 1))
    whole = compile_query(query, {"t1": left_table(left), "t2": right_table(right)})
    assert Counter(_rows(whole.table())) == rows
    part = compile_query(query + cut, {"t1": left_table(left), "t2": right_table(right)})
    open_join = join.open_join

    def in_pieces(*args):
        """The same rows in batches of few, as a join may give them."""
        schema, batches = open_join(*args)
        table = pa.Table.from_batches(batches, schema)
        return schema, iter(table.to_batches(max_chunksize=waiting))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "open_join", in_pieces)
        made = part.table()
    end = None if limit is None else offset + limit
    if order:
        assert _rows(made) == _rows(whole.table())[offset:end]
    assert Counter(_rows(made)) <= rows
    assert made.num_rows == len(range(rows.total())[offset:end])


def _rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT x, y FROM t JOIN u ON x < y) q LIMIT 3",
        "SELECT z FROM (SELECT x + y AS z FROM t JOIN u ON x < y) WHERE z % 5 = 1 LIMIT 3 OFFSET 9",
        "WITH q AS (SELECT x, y FROM t JOIN u ON x < y) SELECT x FROM q WHERE y % 5 = 1 LIMIT 3",
        "SELECT x, y FROM t JOIN u ON x < y WHERE x IN (SELECT y FROM u) LIMIT 3",
        "SELECT x, y FROM t JOIN u ON x < y UNION ALL SELECT 1, 2 LIMIT 3 OFFSET 5",
        "SELECT repeat('a', x % 3) AS s FROM t JOIN u ON x < y LIMIT 3",
    ],
)
def test_a_limit_around_the_join_stops_it(taken, query):
    assert tj.sql(query, t=T, u=U).num_rows == 3
    assert taken["batches"] < 50


def test_the_first_rows_of_a_query_that_an_engine_runs(taken):
    query = "WITH q AS (SELECT x, y FROM t JOIN u ON x < y) SELECT * FROM q"
    assert compile_query(query, {"t": T, "u": U}).first(20).num_rows == 20
    assert taken["batches"] < 50
