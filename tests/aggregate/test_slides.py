"""Count windows that slide by many rows: rows between two slides see the same rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj

SCHEMA = pa.schema([(name, pa.int64()) for name in ("a", "b", "g", "t")])


def rows(seed: int, number: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "a": None if draw.random() < 0.4 else draw.randrange(50),
            "b": draw.randrange(50),
            "g": draw.randrange(5),
            "t": at,
        }
        for at in range(number)
    ]


@pytest.mark.parametrize("group", ["l.g", "r.g"])
@pytest.mark.parametrize(("size", "slide"), [(120, 60), (90, 45), (110, 37), (70, 1)])
def test_keys_that_are_null_take_no_place_in_the_ranges(group: str, size: int, slide: int) -> None:
    left, right = rows(1, 300), rows(2, 300)
    stream = tj.StreamJoin(
        "l.a < r.a AND l.b > r.b",
        group_by=group,
        aggs={"n": "count(*)"},
        left_schema=SCHEMA,
        right_schema=SCHEMA,
        window=tj.CountWindow(size, slide),
        order_by="t",
    )
    got: dict[int, int] = {}
    for start in range(0, 300, 50):
        both = (pa.Table.from_pylist(side[start : start + 50], SCHEMA) for side in (left, right))
        got |= {row["g"]: row["n"] for row in stream.push(*both).to_pylist()}
    pairs = naive.naive_join(
        left,
        right,
        naive.conj(("a", "<", "a"), ("b", ">", "b")),
        window=naive.Count(size, slide),
        order_by="t",
    )
    assert got == Counter((l if group == "l.g" else r)["g"] for l, r in pairs)
