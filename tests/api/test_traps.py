"""Where the papers, and other engines' inequality joins, go wrong: each once, and not here."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from strategies import HOWS, all_ids, ids, naive_ids


def numbered(name, **columns):
    n = len(next(iter(columns.values())))
    return pa.table({name: np.arange(n)} | columns)


def pairs(result):
    got = list(zip(result["lid"].to_pylist(), result["rid"].to_pylist(), strict=True))
    assert len(got) == len(set(got)), "a pair came twice"
    return set(got)


COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


def grid_pairs(grid):
    return {tuple(pair) for pair in np.argwhere(grid).tolist()}


@pytest.mark.parametrize(("op1", "op2"), list(itertools.product(COMPARE, COMPARE)))
def test_ties_under_mixed_strict_and_non_strict_operators(op1, op2):
    """IEJoin as published is wrong here: every value occurs dozens of times."""
    rng = np.random.default_rng(11)
    a, c = rng.integers(0, 6, (2, 150))
    b, d = rng.integers(0, 6, (2, 170))
    got = tj.join(
        numbered("lid", a=a, c=c), numbered("rid", b=b, d=d), f"l.a {op1} r.b AND l.c {op2} r.d"
    )
    grid = COMPARE[op1](a[:, None], b) & COMPARE[op2](c[:, None], d)
    assert pairs(got) == grid_pairs(grid)


@pytest.mark.parametrize("head_rows", [0, 1, 3, 2048])
@pytest.mark.parametrize("merge", ["inline", "background"])
def test_the_first_rank_and_probes_outside_all_keys(head_rows, merge):
    """Known code for SPO-Join loses rank 0, and probes below or above every stored key."""
    on = "l.a < r.b AND l.c > r.d"
    stored = numbered("rid", b=[10, 20, 30], d=[30, 20, 10])
    probes = numbered("lid", a=[-1, 5, 10, 29, 30, 99], c=[99, 35, 31, 11, 99, -1])
    expected = grid_pairs(
        (np.array(probes["a"])[:, None] < np.array(stored["b"]))
        & (np.array(probes["c"])[:, None] > np.array(stored["d"]))
    )
    assert expected  # the lowest and the highest key are among them
    options = {"window": tj.FullHistory(), "head_rows": head_rows, "merge": merge}
    join = tj.StreamJoin(on, **options)
    join.push(right=stored)
    assert pairs(join.push(left=probes)) == expected
    other_way = tj.StreamJoin(on, **options)
    other_way.push(left=probes)
    assert pairs(other_way.push(right=stored)) == expected


@pytest.mark.parametrize("head_rows", [1, 4])
@pytest.mark.parametrize("merge", ["inline", "background"])
def test_nothing_is_replayed_after_the_second_merge(head_rows, merge):
    """Many merges on both sides, and each pair still exactly once."""
    rng = np.random.default_rng(5)
    n, batch = 120, 3
    a, c, b, d = rng.integers(0, 10, (4, n))
    join = tj.StreamJoin(
        "l.a < r.b AND l.c >= r.d", window=tj.FullHistory(), head_rows=head_rows, merge=merge
    )
    results = []
    for low in range(0, n, batch):
        part = slice(low, low + batch)
        results.append(
            join.push(
                pa.table({"lid": np.arange(n)[part], "a": a[part], "c": c[part]}),
                pa.table({"rid": np.arange(n)[part], "b": b[part], "d": d[part]}),
            )
        )
    assert pairs(pa.concat_tables(results)) == grid_pairs((a[:, None] < b) & (c[:, None] >= d))


def test_nan_and_null():
    nan = float("nan")
    values = [None, nan, 1.0, float("inf"), -nan]
    rows = [{"lid": i, "rid": i, "k": v} for i, v in enumerate(values)]
    left = pa.table({"lid": range(5), "k": values})
    right = pa.table({"rid": range(5), "k": values})
    for op in naive.OPERATORS:
        expected = naive.naive_join(rows, rows, naive.conj(("k", op, "k")))
        assert ids(tj.join(left, right, f"l.k {op} r.k")) == naive_ids(expected)
    assert (1, 4) in ids(tj.join(left, right, "l.k = r.k"))
    assert (3, 1) in ids(tj.join(left, right, "l.k < r.k"))


def test_null_in_the_second_key_of_a_left_join():
    left = pa.table({"lid": [0, 1, 2], "a": [1, 1, None], "c": [5, None, 5]})
    right = pa.table({"rid": [0], "b": [2], "d": [3]})
    got = tj.join(left, right, "l.a < r.b AND l.c > r.d", how="left")
    assert ids(got) == {(0, 0): 1, (1, None): 1, (2, None): 1}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("right", [[], [(None, None)], [(None, 5), (1, None), (None, None)]])
def test_empty_and_all_null_input_under_between(how, right):
    left_rows = [{"lid": i, "a": v} for i, v in enumerate([1, None, 3])]
    right_rows = [{"rid": i, "b": low, "d": high} for i, (low, high) in enumerate(right)]
    got = tj.join(
        pa.table({"lid": [0, 1, 2], "a": [1, None, 3]}),
        pa.Table.from_pylist(
            right_rows, schema=pa.schema({"rid": pa.int64(), "b": pa.int64(), "d": pa.int64()})
        ),
        "l.a BETWEEN r.b AND r.d",
        how=how,
    )
    pred = naive.conj(("a", ">=", "b"), ("a", "<=", "d"))
    assert ids(got) == naive_ids(naive.naive_join(left_rows, right_rows, pred, how=how))


@pytest.mark.parametrize("op", ["<", "<=", ">=", "=", "!="])
def test_a_thousand_identical_timestamps(op):
    same = [datetime(2024, 1, 1)] * 1000
    got = tj.join(
        numbered("lid", t=same), numbered("rid", t=same), f"l.t {op} r.t AND l.lid < r.rid"
    )
    assert got.num_rows == (499_500 if op in ("<=", ">=", "=") else 0)


def test_a_thousand_identical_timestamps_in_windows():
    same = [datetime(2024, 1, 1)] * 1000
    left, right = numbered("lid", t=same), numbered("rid", t=same)
    got = tj.join(left, right, "l.lid <= r.rid", window=tj.TimeWindow("1 second", time="t"))
    assert got.num_rows == 500_500
    # All left rows come first; each right row then sees the newest ten of them.
    got = tj.join(left, right, "l.lid <= r.rid", window=tj.CountWindow(10), order_by="t")
    assert pairs(got) == {(i, j) for i in range(990, 1000) for j in range(i, 1000)}


@pytest.mark.parametrize("how", ["left", "full", "anti"])
def test_empty_right_side_of_a_left_join(how):
    left = pa.table({"lid": [0, 1], "a": [1, None]})
    right = pa.table({"rid": pa.array([], pa.int64()), "b": pa.array([], pa.int64())})
    for on in ("l.a < r.b", "l.a = r.b", "ABS(l.a - r.b) <= 3", "l.a < r.b AND l.lid > r.rid"):
        got = tj.join(left, right, on, how=how)
        assert ids(got) == {(0, None): 1, (1, None): 1}


def test_text_against_date():
    """As Spark in ANSI mode: the text is read as a date, and what is no date is an error."""
    left = pa.table({"lid": [0, 1, 2], "s": ["2024-01-02", "2024-1-3", None]})
    right = pa.table({"rid": [0, 1], "d": [date(2024, 1, 5), date(2024, 1, 2)]})
    # As text "2024-1-3" would be above both dates.
    assert ids(tj.join(left, right, "l.s <= r.d")) == {(0, 0): 1, (0, 1): 1, (1, 0): 1}
    assert ids(tj.join(left, right, "l.s > r.d")) == {(1, 1): 1}
    with pytest.raises(tj.ThetaJoinError):
        tj.join(pa.table({"s": ["soon"]}), right, "l.s <= r.d")


@pytest.mark.parametrize("sort", [False, True])
def test_bounds_with_constants_at_scale(sort):
    """Fifty thousand rows a side: several segments, blocks and chunks."""
    rng = np.random.default_rng(1)
    n = 50_000
    x, y = rng.integers(0, 1_000_000, n), rng.integers(0, 1_000_000, n)
    if sort:
        x, y = np.sort(x), np.sort(y)[::-1]
    left, right = numbered("lid", x=x), numbered("rid", y=y)
    ordered = np.sort(y)
    for on, low, high in (
        ("l.x >= r.y + 10 AND l.x < r.y + 60", -59, -10),
        ("r.y BETWEEN l.x - 25 AND l.x + 25", -25, 25),
        ("ABS(l.x - r.y) < 26", -25, 25),
        ("l.x - r.y > 9 AND l.x - r.y <= 59", -59, -10),
    ):
        expected = np.searchsorted(ordered, x + high, "right") - np.searchsorted(ordered, x + low)
        got = tj.join(left, right, on)
        counts = np.bincount(got["lid"].to_numpy(), minlength=n)
        assert np.array_equal(counts, expected), on
        difference = got["y"].to_numpy() - got["x"].to_numpy()
        assert difference.min() >= low
        assert difference.max() <= high
        keys = got["lid"].to_numpy() * n + got["rid"].to_numpy()
        assert len(np.unique(keys)) == len(keys)


def test_inclusive_ranges_over_timestamps():
    start = datetime(2024, 1, 1)
    hour = timedelta(hours=1)
    events = pa.table({"lid": range(5), "t": [start + i * hour for i in range(5)]})
    spans = pa.table(
        {"rid": [0, 1], "since": [start + hour, start], "until": [start + 3 * hour, start]}
    )
    got = tj.join(events, spans, "l.t BETWEEN r.since AND r.until")
    assert pairs(got) == {(1, 0), (2, 0), (3, 0), (0, 1)}
    finer = events.set_column(1, "t", events["t"].cast(pa.timestamp("ns")))
    assert pairs(tj.join(finer, spans, "l.t BETWEEN r.since AND r.until")) == pairs(got)
    got = tj.join(events, spans, "l.t > r.since AND l.t < r.until")
    assert pairs(got) == {(2, 0)}


def test_anti_join_over_a_range():
    left = numbered("lid", a=np.arange(1000))
    right = numbered("rid", low=np.arange(0, 1000, 10), high=np.arange(0, 1000, 10) + 6)
    got = tj.join(left, right, "l.a BETWEEN r.low AND r.high", how="anti")
    assert set(got["a"].to_pylist()) == {i for i in range(1000) if i % 10 > 6}
    assert got.num_rows == 300


@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097])
def test_the_last_word_of_a_bitmap(n):
    """Only the last row, in every order, satisfies both conditions."""
    stored = np.arange(n)
    right = numbered("rid", b=stored, d=stored)
    left = pa.table({"lid": [0], "a": [n - 1], "c": [n - 1]})
    assert pairs(tj.join(left, right, "l.a <= r.b AND l.c <= r.d")) == {(0, n - 1)}
    backwards = numbered("rid", b=stored[::-1].copy(), d=stored[::-1].copy())
    assert pairs(tj.join(left, backwards, "l.a <= r.b AND l.c <= r.d")) == {(0, 0)}
    assert tj.join(left, right, "l.a >= r.b AND l.c >= r.d").num_rows == n


def test_the_order_of_the_predicates():
    rng = np.random.default_rng(2)
    left = numbered("lid", a=rng.integers(0, 9, 80), c=rng.random(80), e=rng.integers(0, 3, 80))
    right = numbered("rid", b=rng.integers(0, 9, 90), d=rng.random(90), f=rng.integers(0, 3, 90))
    parts = ["l.a < r.b", "l.c >= r.d", "l.e = r.f", "l.a + 2 != r.b"]
    results = [
        pairs(tj.join(left, right, " AND ".join(order))) for order in itertools.permutations(parts)
    ]
    assert results[0]
    assert all(result == results[0] for result in results)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_than_two_to_the_31_pairs():
    n = 66_000
    column = pa.array(np.arange(n, dtype=np.uint32) % 251, pa.uint8())
    total = 0
    matches = n * n - sum(int(k) ** 2 for k in np.bincount(np.arange(n) % 251))
    assert matches > 2**31
    for batch in tj.join_batches(pa.table({"a": column}), pa.table({"b": column}), "l.a != r.b"):
        total += batch.num_rows
    assert total == matches


@pytest.mark.parametrize("rows", [63, 64, 65, 128, 1000])
@pytest.mark.parametrize("how", HOWS)
def test_one_input_batch_that_fills_several_output_chunks(rows, how):
    left = numbered("lid", a=np.zeros(rows, np.int64))
    right = numbered("rid", b=np.ones(3, np.int64))
    got = list(tj.join_batches(left, right, "l.a < r.b", how=how, chunk_rows=64))
    expected = {"semi": rows, "anti": 0}.get(how, 3 * rows)
    assert sum(batch.num_rows for batch in got) == expected
    assert sum(all_ids(pa.Table.from_batches([batch]) for batch in got).values()) == expected


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
def test_the_pass_over_unmatched_rows_ends(rows, how):
    """No match at all, and as many unmatched rows as fill chunks exactly, or nearly."""
    left = numbered("lid", a=np.ones(rows, np.int64))
    right = numbered("rid", b=np.zeros(rows, np.int64))
    got = list(tj.join_batches(left, right, "l.a < r.b", how=how, chunk_rows=64))
    expected = rows * (2 if how == "full" else 1)
    assert sum(batch.num_rows for batch in got) == expected
    assert all(batch.num_rows for batch in got)
