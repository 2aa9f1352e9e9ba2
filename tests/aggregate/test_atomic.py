"""A micro-batch that fails leaves running totals as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest

import thetajoin as tj

SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "v": pa.int64()})


def rows(*values: tuple[str, int, int]) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


@pytest.mark.parametrize("group_by", ["l.k", "r.k", ["l.k", "r.k"], ()])
@pytest.mark.parametrize("window", [tj.FullHistory(), tj.CountWindow(3)])
def test_an_overflow_takes_nothing_in(group_by, window) -> None:
    aggs = {"n": "count(*)", "s": "sum(r.v)", "top": "max(r.v)"}
    make = {"group_by": group_by, "aggs": aggs, "window": window}
    stream, twin = (
        tj.StreamJoin("l.x < r.x", left_schema=SCHEMA, right_schema=SCHEMA, **make)
        for _ in range(2)
    )
    for each in (stream, twin):
        each.push(rows(("a", 1, 0), ("b", 5, 0)), rows(("a", 3, 2**62), ("b", 9, 7)))
    held = stream.snapshot()
    for _ in range(2):
        with pytest.raises(tj.ThetaJoinError, match=r"sum\(r\.v\) overflows BIGINT"):
            stream.push(rows(("a", 0, 0)), rows(("a", 4, 2**62), ("a", 6, 2**62), ("b", 7, 1)))
        assert stream.snapshot() == held
    again = rows(("a", 6, 0)), rows(("a", 4, -5), ("b", 8, 1))
    by = stream.push(*again).to_pydict()
    assert by == twin.push(*again).to_pydict()
    assert by["n"]
