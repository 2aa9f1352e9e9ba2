"""Every window structure, under random insertions, expiries and probes, gives the right rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.batch.keys import INT64_MAX, INT64_MIN
from thetajoin.index.interval import Interval, interval_of
from thetajoin.index.probe import Arrivals, Dim, Probe, Shape
from thetajoin.papers import catalog

# Small parameters, so that nodes split, sub-windows fill and trees merge all the time.
SMALL: dict[str, dict[str, Any]] = {
    "b_plus_tree": {"f_b": 4},
    "css_tree": {"N_Sub": 30, "f_ib": 4},
    "b_chain": {"N_Sub": 25, "f_b": 4},
    "ib_chain": {"L": 3, "f_b": 5, "f_ib": 4},
    "im_tree": {"m": 0.2, "f_b": 4, "f_ib": 4},
    "pim_tree": {"m": 0.3, "D_I": 2, "f_b": 4, "f_ib": 4},
    "rap_table": {"N_Sub": 40, "P": 5, "sigma": 1.1},
    "wib_tree": {"N_Sub": 70, "W": 4, "fanout": 4},
    "bi_sort": {"N_Sub": 60, "B": 7, "P": 5},
    "nested_loop": {},
    "bitset": {"f_b": 4},
    "hash": {"f_b": 4},
}
CASES = [
    *SMALL.items(),
    ("css_tree", {"N_Sub": 30, "f_ib": 4, "intersection": "hash"}),
    ("css_tree", {"N_Sub": 30, "f_ib": 4, "intersection": "test"}),
    ("pim_tree", {"m": 1.0, "D_I": 1, "f_b": 4, "f_ib": 4}),
    *((name, {}) for name in SMALL),
]
OPS = ("<", "<=", ">", ">=", "=", "!=", "band")


def asked(op: str, keys: np.ndarray) -> Interval:
    if op == "band":
        low = np.where(keys < INT64_MIN + 2, INT64_MIN, keys - 2)
        return Interval(low, np.where(keys > INT64_MAX - 2, INT64_MAX, keys + 2))
    return interval_of(op, keys)


def holds(op: str, probe: int, stored: int) -> bool:
    return {
        "<": probe < stored,
        "<=": probe <= stored,
        ">": probe > stored,
        ">=": probe >= stored,
        "=": probe == stored,
        "!=": probe != stored,
        "band": probe - 2 <= stored <= probe + 2,
    }[op]


def values(random: np.random.Generator, kind: str, dims: int, rows: int, at: int) -> np.ndarray:
    """Keys full of ties, spread wide, growing with time, or at the ends of the range."""
    if kind == "ties":
        return random.integers(-3, 4, (dims, rows))
    if kind == "growing":
        return at + np.arange(rows) + random.integers(0, 2, (dims, rows))
    wide = random.integers(-1000, 1000, (dims, rows))
    if kind == "extreme":
        ends = random.choice([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX], (dims, rows))
        return np.where(random.random((dims, rows)) < 0.5, ends, wide)
    return wide


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    ops = draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=3))
    if all(op == "!=" for op in ops):
        ops.append(draw(st.sampled_from(("<", "=", "band"))))
    return {
        "ops": ops,
        "kind": draw(st.sampled_from(["ties", "wide", "growing", "extreme"])),
        "batches": draw(st.lists(st.sampled_from([1, 1, 2, 9, 40, 130]), min_size=1, max_size=12)),
        "window": draw(st.sampled_from([None, 50, 120])),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "room": draw(st.sampled_from([64, 97, 5000])),
        "holes": draw(st.booleans()),
        "see": draw(st.booleans()),
    }


def found(index: Any, probe: Probe, arrivals: Arrivals, run: dict, **how: Any) -> list:
    pairs: list[tuple[int, int]] = []
    for stream in index.pairs(probe, arrivals, room=run["room"], **how):
        for probes, rows in stream:
            assert 0 < len(probes) == len(rows) <= run["room"]
            pairs += zip(probes.tolist(), rows.tolist(), strict=True)
    return pairs


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "")
@given(run=runs())
def test_every_structure_against_brute_force(name: str, options: dict, run: dict) -> None:
    random = np.random.default_rng(run["seed"])
    ops, dims = run["ops"], len(run["ops"])
    shape = Shape(tuple(Dim(op == "=", op == "!=") for op in ops))
    index = catalog.make(name, shape, run["window"], options)
    held: dict[int, tuple[int, ...]] = {}
    first = last = 0
    for size in run["batches"]:
        keys = values(random, run["kind"], dims, size, last)
        rid = last + np.arange(size)
        last += size
        if run["holes"]:
            kept = np.flatnonzero(random.random(size) < 0.8)
            keys, rid = keys[:, kept], rid[kept]
        index.insert([np.ascontiguousarray(k) for k in keys], rid.astype(np.int32))
        held |= {int(r): tuple(keys[:, i].tolist()) for i, r in enumerate(rid)}
        if run["window"] is not None:
            first = last if random.random() < 0.1 else max(first, last - run["window"])
            index.expire(first)
            index.base = first
            held = {r: key for r, key in held.items() if r >= first}
        index._check()
        asking = values(random, run["kind"], dims, int(random.integers(1, 6)), last)
        count = asking.shape[1]
        low = high = None
        if run["see"]:
            low = random.integers(first, last + 2, count) + 1000
            high = low + random.integers(-1, 60, count)
        intervals = tuple(asked(op, asking[at]) for at, op in enumerate(ops))
        probe = Probe(intervals, count, low, high)
        arrivals = Arrivals.dense(1000 + first, last - first)
        expected = [
            (p, r)
            for p in range(count)
            for r, key in held.items()
            if all(holds(op, int(asking[at, p]), key[at]) for at, op in enumerate(ops))
            and (low is None or low[p] <= r + 1000 <= high[p])
        ]
        assert sorted(found(index, probe, arrivals, run)) == sorted(expected)
        once = found(index, probe, arrivals, run, once=True)
        assert set(once) <= set(expected)
        assert {p for p, _ in once} == {p for p, _ in expected}


@pytest.mark.parametrize("name", catalog.NAMES[1:])
def test_parameters_have_the_papers_names(name: str) -> None:
    assert set(SMALL[name]) <= set(catalog.parameters(name))
