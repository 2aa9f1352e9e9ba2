"""Joins of three streams: steps of two, chained."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj
from spark.harness import TIME, Streams, at

pytestmark = [pytest.mark.spark]

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("t", TIME)])
ON = "r.x < s.x AND s.x <= u.x"


def made(streams: Streams) -> dict[str, list[dict[str, Any]]]:
    """Three streams of two micro-batches; the seconds are kept beside the times."""
    rng = random.Random(3)
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in "rsu":
        rows[name] = []
        for batch in (0, 1):
            new = [
                {"id": 100 * batch + i, "x": rng.randint(0, 5), "s": 6 * batch + rng.randint(0, 5)}
                for i in range(6)
            ]
            rows[name] += new
            kept = [{"id": row["id"], "x": row["x"], "t": at(row["s"])} for row in new]
            streams.write(name, kept, SCHEMA)
    return rows


@pytest.mark.parametrize("seconds", [None, 4])
def test_three_streams(streams: Streams, seconds: int | None) -> None:
    rows = made(streams)
    mark = None if seconds is None else ("t", "30 seconds")
    inputs = {name: streams.read(name, mark) for name in "rsu"}
    window = tj.FullHistory() if seconds is None else tj.TimeWindow(f"{seconds} seconds", time="t")
    joined = tj.join_many(inputs, ON, window=window)
    assert joined.isStreaming
    assert joined.columns == ["id", "x", "t", "id_s", "x_s", "t_s", "id_u", "x_u", "t_u"]
    found = streams.run(joined).rows
    got = Counter(zip(*(found[c].to_pylist() for c in ("id", "id_s", "id_u")), strict=True))
    near = float("inf") if seconds is None else seconds
    expected = Counter(
        (r["id"], s["id"], u["id"])
        for r, s, u in product(rows["r"], rows["s"], rows["u"])
        if r["x"] < s["x"] <= u["x"]
        and max(r["s"], s["s"], u["s"]) - min(r["s"], s["s"], u["s"]) <= near
    )
    assert got == expected
    assert expected


def test_a_stream_without_a_window(streams: Streams) -> None:
    made(streams)
    inputs = {name: streams.read(name) for name in "rsu"}
    with pytest.raises(tj.ThetaJoinError, match="FullHistory"):
        tj.join_many(inputs, ON)
    with pytest.raises(tj.ThetaJoinError, match="join_many of streams"):
        tj.join_many(inputs, ON, window=tj.CountWindow(5), order_by="x")
