"""Joins of three and more tables against nested loops."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj

INEQUALITIES = st.sampled_from(naive.OPERATORS)
VALUES = st.lists(st.tuples(own.nullable_ints, own.nullable_ints), max_size=7)


def tables(*rows: list[tuple[Any, Any]], names: str = "rst") -> dict[str, pa.Table]:
    schema = {"id": pa.int64(), "a": pa.int64(), "b": pa.int64()}
    return {
        name: own.table([{"id": i, "a": a, "b": b} for i, (a, b) in enumerate(given)], schema)
        for name, given in zip(names, rows, strict=True)
    }


def found(result: pa.Table, names: str = "rst") -> Counter[tuple[int, ...]]:
    columns = ["id", *(f"id_{name}" for name in names[1:])]
    return Counter(zip(*(result[column].to_pylist() for column in columns), strict=True))


def expected(inputs: dict[str, pa.Table], holds: Any) -> Counter[tuple[int, ...]]:
    lists = [table.to_pylist() for table in inputs.values()]
    rows = (dict(zip(inputs, combination, strict=True)) for combination in product(*lists))
    return Counter(tuple(r["id"] for r in row.values()) for row in rows if holds(row))


@own.examples(25)
@given(VALUES, VALUES, VALUES, INEQUALITIES, INEQUALITIES)
def test_chains(r, s, t, first, second):
    inputs = tables(r, s, t)
    got = tj.join_many(inputs, f"r.a {first} s.a AND s.a {second} t.b")

    def holds(row):
        return (
            naive.compare(row["r"]["a"], first, row["s"]["a"]) is True
            and naive.compare(row["s"]["a"], second, row["t"]["b"]) is True
        )

    assert found(got) == expected(inputs, holds)
    assert got.column_names == ["id", "a", "b", "id_s", "a_s", "b_s", "id_t", "a_t", "b_t"]


@own.examples(25)
@given(VALUES, VALUES, VALUES, VALUES)
def test_graphs(r, s, t, u):
    """A star, a cycle, a part over three inputs and a filter, all at once."""
    inputs = tables(r, s, t, u, names="rstu")
    on = ["r.a < s.a AND r.b > t.b", "t.a <= u.a AND u.b != r.b", "r.a + s.b >= u.a", "s.b > 0"]
    got = tj.join_many(inputs, on)

    def holds(row):
        r, s, t, u = (row[name] for name in "rstu")
        total = naive.arithmetic("+", r["a"], s["b"])
        return all(
            value is True
            for value in (
                naive.compare(r["a"], "<", s["a"]),
                naive.compare(r["b"], ">", t["b"]),
                naive.compare(t["a"], "<=", u["a"]),
                naive.compare(u["b"], "!=", r["b"]),
                naive.compare(total, ">=", u["a"]),
                naive.compare(s["b"], ">", 0),
            )
        )

    assert found(got, "rstu") == expected(inputs, holds)


def test_the_paper_s_three_way_cases():
    """Figures 9 and 10: R < S <= T on uniform streams, R >= S < T on prices that wander."""
    random = np.random.default_rng(9)
    ranges = ((20, 50), (10, 40), (0, 30))
    uniform = {
        name: pa.table({"x": random.uniform(*ends, 120)})
        for name, ends in zip("rst", ranges, strict=True)
    }
    wandering = {
        name: pa.table({"x": start + random.normal(0, 1, 120).cumsum()})
        for name, start in zip("rst", (50.0, 48.0, 51.0), strict=True)
    }
    for inputs, on, ops in (
        (uniform, "r.x < s.x AND s.x <= t.x", ("less", "less_equal")),
        (wandering, "r.x >= s.x AND s.x < t.x", ("greater_equal", "less")),
    ):
        r, s, t = (inputs[name]["x"].to_numpy() for name in "rst")
        first = getattr(np, ops[0])(r[:, None], s[None, :]).sum(axis=0)
        second = getattr(np, ops[1])(s[:, None], t[None, :]).sum(axis=1)
        assert tj.join_many(inputs, on).num_rows == int((first * second).sum())


@pytest.mark.parametrize(
    ("window", "unit"),
    [
        (tj.TimeWindow(3, time="t"), None),
        (tj.TimeWindow(before=1, after=4, time="t"), None),
        (tj.TimeWindow("3 seconds", time="t"), "s"),
        (tj.TimeWindow("3 days", time="t"), "day"),
    ],
    ids=repr,
)
def test_every_two_rows_lie_in_a_time_window(window, unit):
    random = np.random.default_rng(1)
    types = {None: pa.int64(), "s": pa.timestamp("us"), "day": pa.date32()}
    steps = {None: 1, "s": timedelta(seconds=1), "day": timedelta(days=1)}
    start = 0 if unit is None else datetime(2024, 1, 1)
    inputs, ticks = {}, {}
    for name in "rst":
        ticks[name] = random.integers(0, 12, 9)
        times = [start + int(tick) * steps[unit] for tick in ticks[name]]
        times = [time.date() for time in times] if unit == "day" else times
        inputs[name] = pa.table({"id": range(9), "a": random.integers(0, 9, 9), "t": times})
        inputs[name] = inputs[name].set_column(2, "t", pa.array(times, types[unit]))
    before, after = (1, 4) if window.length is None else (3, 3)
    # The selective part makes the planner begin with the last two.
    got = tj.join_many(inputs, "r.a <= s.a AND s.a < t.a - 3", window=window)
    values = {name: table["a"].to_pylist() for name, table in inputs.items()}
    near = Counter(
        (i, j, k)
        for i, j, k in product(range(9), repeat=3)
        if values["r"][i] <= values["s"][j] < values["t"][k] - 3
        and all(
            -before <= ticks[y][b] - ticks[x][a] <= after
            for (x, a), (y, b) in ((("r", i), ("s", j)), (("r", i), ("t", k)), (("s", j), ("t", k)))
        )
    )
    assert found(got) == near


def seen_by_the_latest(keys: list[list[Any]], size: int, slide: int) -> set[tuple[int, ...]]:
    """Rows by number, one of each input, of which the latest to come sees the others.

    Row by row as the definition has it; NULL comes first, and the input given first on a tie.
    """
    rows = [
        (k is not None, k or 0, at, i) for at, own in enumerate(keys) for i, k in enumerate(own)
    ]
    counts, results = [0] * len(keys), set()
    place: list[dict[int, int]] = [{} for _ in keys]
    for *_, at, row in sorted(rows):
        first = [slide * -(-max(0, n - size) // slide) for n in counts]
        visible = [[r for r, n in p.items() if n >= f] for p, f in zip(place, first, strict=True)]
        visible[at] = [row]
        results.update(product(*visible))
        place[at][row] = counts[at]
        counts[at] += 1
    return results


KEYS = st.lists(own.nullable_ints, max_size=9)


@own.examples(60)
@given(KEYS, KEYS, KEYS, st.integers(1, 6), st.integers(1, 8), st.booleans())
def test_the_latest_row_sees_the_others_in_a_count_window(r, s, t, size, slide, ordered):
    keys = [r, s, t]
    inputs = tables(*[[(k, i % 3) for i, k in enumerate(own_keys)] for own_keys in keys])
    order = "a" if ordered else None
    window = tj.CountWindow(size, slide)
    got = tj.join_many(inputs, "r.b <= s.b AND s.b != t.b", window=window, order_by=order)
    # As they come: all rows of an input after those of the inputs before.
    taken = keys if ordered else [[at] * len(own_keys) for at, own_keys in enumerate(keys)]
    near = Counter(
        (i, j, k) for i, j, k in seen_by_the_latest(taken, size, slide) if i % 3 <= j % 3 != k % 3
    )
    assert found(got) == near


def test_a_count_window_over_two_is_that_of_join():
    random = np.random.default_rng(2)
    inputs = tables(
        *[[tuple(row) for row in random.integers(0, 9, (40, 2))] for _ in "rs"], names="rs"
    )
    window = tj.CountWindow(5, 2)
    got = tj.join_many(inputs, "r.b < s.b", window=window, order_by=["a", "id"])
    expected = tj.join(inputs["r"], inputs["s"], "l.b < r.b", window=window, order_by=("a", "id"))
    ids = zip(expected["id"].to_pylist(), expected["id_right"].to_pylist(), strict=True)
    assert found(got, "rs") == Counter(ids)
    assert expected.num_rows


def test_the_smallest_join_comes_first():
    from thetajoin.many_inputs import _Tables
    from thetajoin.planner.join_order import order_joins
    from thetajoin.predicate.condition import conjuncts

    x = np.arange(1000)
    inputs = {name: pa.table({"x": x}) for name in "rst"}
    shared = _Tables(inputs)
    parts = conjuncts("r.x < s.x AND s.x = t.x", shared.schemas)
    steps = order_joins(list(inputs), parts, shared.estimate())
    assert {steps[0].joined[0], steps[0].name} == {"s", "t"}
    assert steps[1].name == "r"


def test_kinds_follow_the_first_input():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2]})
    got = tj.join_many({"a": frame, "b": frame, "c": frame}, "a.x < b.x AND b.x <= c.x")
    assert isinstance(got, pandas.DataFrame)
    assert got.values.tolist() == [[1, 2, 2]]


def test_a_cross_join_only_where_it_is_asked_for():
    inputs = tables([(1, 1), (2, 2)], [(2, 2)], [(5, 5), (6, 6)])
    got = tj.join_many(inputs, "r.a < s.a AND t.a > 5", cross=True)
    assert found(got) == {(0, 0, 1): 1}
