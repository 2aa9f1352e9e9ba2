"""Boxes of rows by one, two and three orders, against looking at every row."""

from __future__ import annotations

import numpy as np
import pytest

from thetajoin.aggregate.solve import GRID_RATIO, NONE, Axis, Plane, _pack, solve


def ranges(random, n, p, shape):
    ends = np.sort(random.integers(0, n + 1, (2, p)), axis=0).astype(np.int32)
    if shape == "below":
        ends[0] = 0
    if shape == "above":
        ends[1] = n
    return ends[0], ends[1]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "shapes",
    [
        ["both"],
        ["below", "above"],
        ["both", "both"],
        ["above", "both"],
        ["both", "above"],
        ["below", "below"],
        ["both", "both", "both"],
        ["above", "below", "above"],
    ],
)
@pytest.mark.parametrize("n", [1, 5, 64, 65, 700, 5000])
def test_boxes(n, shapes, keep):
    random = np.random.default_rng(n)
    p = max(1, n // GRID_RATIO - 3) if keep else 300
    sums = [random.integers(-50, 50, n), random.integers(0, 9, n)]
    ranks = [random.permutation(n).astype(np.int64)]
    ranks[0][random.random(n) < 0.2] = NONE
    orders = [np.arange(n, dtype=np.int32)]
    orders += [random.permutation(n).astype(np.int32) for _ in shapes[1:]]
    spans = [ranges(random, n, p, shape) for shape in shapes]
    axes = [Axis(o, *s, name=at) for at, (o, s) in enumerate(zip(orders, spans, strict=True))][1:]
    plane = Plane(n, sums, ranks, {} if keep else None)
    for _ in range(2):  # the second time from what was kept
        answer = solve(plane, spans[0], axes)
        for q in range(0, p, max(1, p // 50)):
            inside = np.ones(n, bool)
            for order, (start, end) in zip(orders, spans, strict=True):
                mine = np.zeros(n, bool)
                mine[order[start[q] : end[q]]] = True
                inside &= mine
            assert answer.totals[0, q] == inside.sum()
            assert answer.totals[1, q] == sums[0][inside].sum()
            assert answer.totals[2, q] == sums[1][inside].sum()
            assert answer.least[0, q] == min(ranks[0][inside].tolist(), default=NONE)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("n", [2**14, 2**14 + 3, 2**19 - 1, 2**19 + 2**14 + 5])
def test_boxes_of_many_rows(n, keep):
    """Positions on both sides of the sweeps' groups of 512, 2**14 and 2**19 places."""
    random = np.random.default_rng(n)
    order = random.permutation(n).astype(np.int32)
    sums = [random.integers(-(2**40), 2**40, n)]
    edges = [e for e in (511, 512, 513, 2**14 - 1, 2**14, 2**19, 2**19 + 1, n - 1) if e < n]
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    p = 3 * len(edges)
    low, high = ranges(random, n, p, "both")
    low[: len(edges)] = edges
    high[len(edges) : 2 * len(edges)] = edges
    low, high = np.minimum(low, high), np.maximum(low, high)
    start, end = ranges(random, n, p, "both")
    plane = Plane(n, sums, [], {} if keep else None)
    answer = solve(plane, (low, high), [Axis(order, start, end, name="y")])
    for q in range(p):
        mine = place[low[q] : high[q]]
        inside = (mine >= start[q]) & (mine < end[q])
        assert answer.totals[0, q] == inside.sum()
        assert answer.totals[1, q] == sums[0][low[q] : high[q]][inside].sum()


@pytest.mark.parametrize("n", [1, 31, 32, 33, 511, 512, 513, 2**14 - 1, 2**14, 2**14 + 1, 40_000])
def test_many_questions_give_what_few_do(n):
    """Points are added in one way where questions are many, and in another where they are few."""
    random = np.random.default_rng(n)
    p = 2 * n + 5
    order = random.permutation(n).astype(np.int32)
    plane = Plane(n, [random.integers(-(2**20), 2**20, n), random.integers(-(2**40), 2**40, n)], [])
    spans = [ranges(random, n, p, "both") for _ in range(2)]
    together = solve(plane, spans[0], [Axis(order, *spans[1])])
    rows = np.concatenate([np.arange(min(p, 40)), random.integers(0, p, 20)])
    for q in rows:
        alone = [(start[q : q + 1], end[q : q + 1]) for start, end in spans]
        few = solve(plane, alone[0], [Axis(order, *alone[1])])
        assert together.totals[:, q].tolist() == few.totals[:, 0].tolist()


@pytest.mark.parametrize("wild", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("shapes", [("below", "above"), ("above", "below")])
@pytest.mark.parametrize("sizes", [[1], [40], [3, 1, 200, 56], [500, 500]])
def test_boxes_that_are_a_difference_of_runs(sizes, shapes, wild):
    """As intervals ask for those that overlap them, with some rows (`wild`) that are none."""
    random = np.random.default_rng(len(sizes))
    n, p = sum(sizes), 400
    first = np.cumsum([0, *sizes[:-1]])
    begin = np.sort(random.random(n)) + np.repeat(first, sizes)
    begin = np.concatenate([np.sort(part) for part in np.split(begin, first[1:])])
    length = np.where(random.random(n) < wild, random.normal(0, 0.5, n), random.random(n) * 0.1)
    run = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((begin + length, run)).astype(np.int32)
    of = random.integers(0, len(sizes), p)
    runs = first[of].astype(np.int32), (first[of] + np.array(sizes)[of]).astype(np.int32)
    spans = []
    middle = random.random(p)
    for shape in shapes:
        near = np.clip(middle + random.normal(0, 0.05, p), 0, 1)
        cut = (runs[0] + near * (runs[1] - runs[0])).astype(np.int32)
        spans.append((runs[0], cut) if shape == "below" else (cut, runs[1]))
    plane = Plane(n, [random.integers(-50, 50, n)], [random.permutation(n).astype(np.int64)])
    answer = solve(plane, spans[0], [Axis(order, *spans[1], runs=runs)])
    for q in range(p):
        mine = order[spans[1][0][q] : spans[1][1][q]]
        mine = mine[(mine >= spans[0][0][q]) & (mine < spans[0][1][q])]
        assert answer.totals[:, q].tolist() == [mine.size, plane.sums[0][mine].sum()]
        assert answer.least[0, q] == plane.ranks[0][mine].min(initial=NONE)


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_counts_and_sums_at_the_edge_of_one_word(over, sign):
    """Where values just fit beside a count, and where they just do not."""
    n, bits = 1000, 10
    most = 2**63 // (n << bits) - 1 + over
    random = np.random.default_rng(5)
    values = np.full(n, sign * most, np.int64)
    order = random.permutation(n).astype(np.int32)
    low, high = ranges(random, n, 200, "both")
    start, end = ranges(random, n, 200, "above")
    plane = Plane(n, [values], [])
    assert (_pack(plane) is None) == (over > 0)
    answer = solve(plane, (low, high), [Axis(order, start, end)])
    for q in range(200):
        mine = order[start[q] : end[q]]
        inside = int(((mine >= low[q]) & (mine < high[q])).sum())
        assert answer.totals[0, q] == inside
        assert answer.totals[1, q] == inside * sign * most
