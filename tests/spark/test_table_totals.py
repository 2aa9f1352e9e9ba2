"""`join_agg` of Spark tables: how many copies of a row are sent, and that totals stay exact."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import naive
import thetajoin as tj
from spark.test_retries import Task, recorded, same_targets, targets
from strategies import assert_same_groups
from thetajoin.spark import totals

pytestmark = [pytest.mark.spark]
__all__ = ["recorded"]

UNITS = 16
AGGS = {"n": "count(*)", "s": "sum(r.y)", "hi": "max(l.x)"}
ORACLE = [
    ("count", None),
    ("sum", lambda l, r: r["y"]),
    ("max", lambda l, r: l["x"]),
]
SELF_AGGS = {"n": "count(*)", "s": "sum(r.x)", "hi": "max(l.x)"}
SELF_ORACLE = [
    ("count", None),
    ("sum", lambda l, r: r["x"]),
    ("max", lambda l, r: l["x"]),
]
ON, PRED = "l.k = r.k AND l.x <= r.y", naive.conj(("k", "=", "k"), ("x", "<=", "y"))
SELF_ON, SELF_PRED = "l.k = r.k AND l.x <= r.x", naive.conj(("k", "=", "k"), ("x", "<=", "x"))
GROUP = [lambda l, r: l["g"]]


def made(n: int, keys: list[int | None], seed: int, value: str) -> list[dict[str, Any]]:
    """Rows of which some are equal, and some have no key or no value."""
    rng = random.Random(seed)
    rows = [
        {"k": rng.choice(keys), value: rng.choice([None, *range(9)]), "g": rng.randint(0, 3)}
        for _ in range(n)
    ]
    return rows + rows[: n // 10]


def frame(spark: Any, rows: list[dict[str, Any]]) -> Any:
    columns = ", ".join(f"{name} long" for name in rows[0])
    return spark.createDataFrame([tuple(row.values()) for row in rows], columns).repartition(3)


def copies_sent(found: list[tuple[Any, Task]]) -> tuple[float, Counter[int]]:
    """Copies of a row that are sent, and how many rows each cell gets."""
    rows, cells = 0, Counter[int]()
    for df, task in found:
        whole = df.toArrow()
        rows += whole.num_rows
        for (cell, *_), number in targets(task, whole.to_batches(), len(df.columns)).items():
            cells[cell] += number
    return cells.total() / rows, cells


@pytest.mark.parametrize("how", ["inner", "left", "self"])
def test_with_an_equality_a_row_has_one_copy(
    spark: Any, recorded: list[tuple[Any, Task]], how: str
) -> None:
    keys: list[int | None] = list(range(300))
    left, right = made(3000, keys, 1, "x"), made(2000, keys, 2, "y")
    asked: dict[str, Any] = {"group_by": "l.g", "units": UNITS}
    if how == "self":
        found = tj.self_join_agg(frame(spark, left), SELF_ON, aggs=SELF_AGGS, **asked)
        pairs = naive.naive_self_join(left, SELF_PRED)
        want = naive.naive_groups(pairs, GROUP, SELF_ORACLE)
    else:
        frames = frame(spark, left), frame(spark, right)
        found = tj.join_agg(*frames, ON, how=how, aggs=AGGS, **asked)
        kept = left if how == "left" else []
        want = naive.naive_groups(naive.naive_join(left, right, PRED), GROUP, ORACLE, kept)
    copies, cells = copies_sent(recorded)
    assert copies <= 1.05
    assert len(cells) == UNITS
    assert_same_groups(found.toArrow(), want, 1)


@pytest.mark.parametrize("how", ["inner", "left", "self"])
def test_the_rows_of_a_frequent_key_are_spread(
    spark: Any, recorded: list[tuple[Any, Task]], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Most rows have one key, some have none; in a self-join equal rows meet, and none itself."""
    monkeypatch.setattr(totals, "FEW_ROWS", 0)
    keys: list[int | None] = [7] * 60 + [None] * 8 + list(range(40))
    left, right = made(400, keys, 3, "x"), made(300, keys, 4, "y")
    asked: dict[str, Any] = {"group_by": "l.g", "units": UNITS}
    if how == "self":
        found = tj.self_join_agg(frame(spark, left), SELF_ON, aggs=SELF_AGGS, **asked)
        want = naive.naive_groups(naive.naive_self_join(left, SELF_PRED), GROUP, SELF_ORACLE)
    else:
        frames = frame(spark, left), frame(spark, right)
        found = tj.join_agg(*frames, ON, how=how, aggs=AGGS, **asked)
        kept = left if how == "left" else []
        want = naive.naive_groups(naive.naive_join(left, right, PRED), GROUP, ORACLE, kept)
    copies, cells = copies_sent(recorded)
    assert 1.2 < copies < 4
    assert max(cells.values()) < 0.3 * cells.total()
    assert_same_groups(found.toArrow(), want, 1)
    assert same_targets(recorded, 3) == len(cells)


def test_what_can_match_nothing_is_not_sent(spark: Any, recorded: list[tuple[Any, Task]]) -> None:
    """But a left row whose group is wanted all the same."""
    left, right = made(300, [None, None, 1, 2], 5, "x"), made(300, [None, 1, 2], 6, "y")
    frames = frame(spark, left), frame(spark, right)
    asked: dict[str, Any] = {"group_by": "l.k", "aggs": {"n": "count(*)"}, "units": 1}
    with_key = sum(row["k"] is not None for row in left)
    for how, expected in (("inner", with_key), ("left", len(left))):
        recorded.clear()
        tj.join_agg(*frames, "l.k = r.k", how=how, **asked)
        (df, task), _ = recorded
        whole = df.toArrow()
        assert targets(task, whole.to_batches(), 1).total() == expected
