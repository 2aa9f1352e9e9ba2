"""A reader can be read once: it serves every part it is given for, and is never silently empty."""

from __future__ import annotations

import pyarrow as pa
import pytest

import thetajoin as tj

T = pa.table({"x": [1, 2, 3], "y": [3, 2, 1]})
PAIRS = {(1, 2), (1, 3), (2, 3)}


def reader(table: pa.Table = T) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2))


def pairs(table: pa.Table, *names: str) -> set[tuple[int, int]]:
    rows = list(zip(*(table[name].to_pylist() for name in names or ("x", "x_right")), strict=True))
    assert len(set(rows)) == len(rows)
    return set(rows)


def test_sql_reads_a_reader_once():
    query = "SELECT a.x, b.x AS x_right FROM a JOIN b ON a.x < b.x"
    assert pairs(tj.sql(query, a=reader(), b=T)) == PAIRS
    assert pairs(tj.sql(query, a=T, b=reader())) == PAIRS
    same = reader()
    assert pairs(tj.sql(query, a=same, b=same)) == PAIRS
    itself = "SELECT a.x, b.x AS x_right FROM t a JOIN t b ON a.x < b.x"
    assert pairs(tj.sql(itself, t=reader())) == PAIRS
    nested = "SELECT a.x, b.x AS x_right FROM (SELECT x FROM t) a JOIN t b ON a.x < b.x"
    assert pairs(tj.sql(nested, t=reader())) == PAIRS


def test_one_reader_for_both_sides():
    on = "l.x < r.x"
    same = reader()
    assert pairs(tj.join(same, same, on)) == PAIRS
    same = reader()
    batches = list(tj.join_batches(same, same, on))
    assert pairs(pa.Table.from_batches(batches)) == PAIRS
    same = reader()
    aggs = {"n": "count(*)"}
    assert tj.join_agg(same, same, on, aggs=aggs).to_pydict() == {"n": [3]}
    same = reader()
    assert "aggregates" in str(tj.explain(same, same, on, aggs=aggs))
    same = reader()
    three = tj.join_many({"r": same, "s": same, "t": same}, "r.x < s.x AND s.x < t.x")
    assert three.to_pydict()["x_t"] == [3]
    assert pairs(tj.self_join(reader(), on)) == PAIRS


def test_one_reader_for_both_sides_of_a_stream():
    join = tj.StreamJoin("l.x < r.x", window=tj.FullHistory())
    same = reader()
    assert pairs(join.push(left=same, right=same)) == PAIRS


@pytest.mark.parametrize(
    "again",
    [
        lambda used: tj.join(used, T, "l.x < r.x"),
        lambda used: tj.join(T, used, "l.x < r.x"),
        lambda used: tj.sql("SELECT a.x FROM a, b WHERE a.x < b.x", a=used, b=T),
        lambda used: tj.explain(T, used, "l.x < r.x"),
    ],
)
def test_a_reader_that_was_read_is_refused(again):
    used = reader()
    tj.join(used, T, "l.x < r.x")
    with pytest.raises(tj.ThetaJoinError, match=r"reader that has been read.*read_all") as caught:
        again(used)
    assert "\n" not in str(caught.value)
