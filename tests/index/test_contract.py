"""Every window structure finds exactly the rows that lie in a probe's intervals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Key, encode
from thetajoin.index.interval import AnyInterval, BytesInterval, Interval, interval_of
from thetajoin.index.po_join import Head, PoJoin
from thetajoin.index.probe import Arrivals, Dim, Probe, Shape
from thetajoin.limits import limits

OPS = ("<", "<=", ">", ">=", "band")
EXTREMES = [INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]


def holds(op: str, probe: int, stored: int) -> bool:
    return {
        "<": probe < stored,
        "<=": probe <= stored,
        ">": probe > stored,
        ">=": probe >= stored,
        "=": probe == stored,
        "!=": probe != stored,
        "band": probe - 1 <= stored <= probe + 1,
    }[op]


def asked(op: str, keys: np.ndarray, is_bytes: bool) -> AnyInterval:
    if is_bytes:
        texts = encode(pa.array([text(k) for k in keys.tolist()], pa.string()))
        assert isinstance(texts, BytesKey)
        if op == "band":
            low = encode(pa.array([text(k - 1) for k in keys.tolist()], pa.string()))
            high = encode(pa.array([text(k + 1) for k in keys.tolist()], pa.string()))
            return BytesInterval(((("<="), low), ((">="), high)))  # type: ignore[arg-type]
        return BytesInterval(((op, texts),))
    if op == "band":
        low = np.where(keys == INT64_MIN, keys, keys - 1)
        return Interval(low, np.where(keys == INT64_MAX, keys, keys + 1))
    return interval_of(op, keys)


def text(key: int) -> str:
    """Text that orders as small numbers do, with long common beginnings."""
    return (
        "prefix of some length " * (key % 2) + "é" * (key + 2) if key < -50 else f"p{key + 50:03d}"
    )


@st.composite
def cases(draw: st.DrawFn) -> dict:
    dims = draw(
        st.lists(
            st.tuples(st.sampled_from([*OPS, "=", "!="]), st.booleans()), min_size=0, max_size=4
        )
    )
    span = draw(st.sampled_from([1, 3, 8, 30]))
    rows = draw(st.sampled_from([0, 1, 2, 63, 64, 65, 130, 700]))
    probes = draw(st.sampled_from([0, 1, 2, 7, 40]))
    seed = draw(st.integers(0, 2**32 - 1))
    return {
        "ops": [op for op, _ in dims],
        "is_bytes": [b for _, b in dims],
        "span": span,
        "rows": rows,
        "probes": probes,
        "seed": seed,
        "room": draw(st.sampled_from([64, 65, 200, 4096])),
        "see": draw(st.booleans()),
        "extremes": draw(st.booleans()),
    }


def build(case: dict) -> tuple:
    random = np.random.default_rng(case["seed"])
    d, n, m = len(case["ops"]), case["rows"], case["probes"]
    stored = random.integers(-case["span"], case["span"] + 1, (d, n))
    probes = random.integers(-case["span"], case["span"] + 1, (d, m))
    if case["extremes"]:
        for at, is_bytes in enumerate(case["is_bytes"]):
            if not is_bytes and case["ops"][at] != "band":
                stored[at, : n // 3] = random.choice(EXTREMES, n // 3)
                probes[at, : m // 2] = random.choice(EXTREMES, m // 2)
    dims = tuple(
        Dim(op == "=", op == "!=", b) for op, b in zip(case["ops"], case["is_bytes"], strict=True)
    )
    keys: list[Key] = []
    for at, is_bytes in enumerate(case["is_bytes"]):
        if is_bytes:
            keys.append(encode(pa.array([text(k) for k in stored[at].tolist()], pa.string())))
        else:
            keys.append(stored[at])
    rid = random.permutation(n * 2)[:n].astype(np.int32)
    intervals = tuple(
        asked(op, probes[at], case["is_bytes"][at]) for at, op in enumerate(case["ops"])
    )
    low = high = None
    if case["see"]:
        low = random.integers(0, n + 2, m) + 1000
        high = low + random.integers(-1, n + 2, m)
    expected = set()
    for p in range(m):
        for x in range(n):
            good = all(
                holds(op, int(probes[at, p]), int(stored[at, x]))
                for at, op in enumerate(case["ops"])
            )
            seen = low is None or low[p] <= rid[x] + 1000 <= high[p]
            if good and seen:
                expected.add((p, int(rid[x])))
    return Shape(dims), keys, rid, Probe(intervals, m, low, high), expected


def collect(streams: list, room: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for stream in streams:
        for probe, row in stream:
            assert 0 < len(probe) == len(row) <= room
            pairs += zip(probe.tolist(), row.tolist(), strict=True)
    return pairs


@given(cases())
def test_po_join_finds_every_pair_once(case: dict) -> None:
    shape, keys, rid, probe, expected = build(case)
    index = PoJoin(shape, keys, rid)
    index._check()
    streams = index.pairs(probe, Arrivals.dense(1000, case["rows"] * 2), room=case["room"])
    pairs = collect(streams, case["room"])
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


@given(cases(), st.sampled_from(["scan", "bitmap"]))
def test_each_kernel_when_forced(case: dict, kind: str) -> None:
    """The choice of a kernel is a matter of cost only."""
    with pytest.MonkeyPatch.context() as patch:
        costs = {"MOVE_NS": 1e9, "SUMMARY_NS": 1e9} if kind == "scan" else {"TEST_NS": 1e12}
        for name, cost in costs.items():
            patch.setattr(f"thetajoin.index.po_join.{name}", cost)
        patch.setattr(limits, "block_ns", 1e-3 if kind == "scan" else 1e12)
        shape, keys, rid, probe, expected = build(case)
        index = PoJoin(shape, keys, rid)
        streams = index.pairs(probe, Arrivals.dense(1000, case["rows"] * 2), room=case["room"])
        pairs = collect(streams, case["room"])
    assert sorted(pairs) == sorted(expected)


@given(cases(), st.integers(1, 5))
def test_merged_parts_are_the_whole(case: dict, cuts: int) -> None:
    shape, keys, rid, probe, expected = build(case)
    places = np.array_split(np.arange(case["rows"]), cuts)
    parts = [
        PoJoin(
            shape,
            [k.take(at) if isinstance(k, BytesKey) else k[at] for k in keys],
            rid[at] - np.int32(10 * i),
        )
        for i, at in enumerate(places)
    ]
    index = PoJoin.merge(parts, [10 * i for i in range(cuts)])
    index._check()
    streams = index.pairs(probe, Arrivals.dense(1000, case["rows"] * 2), room=case["room"])
    assert sorted(collect(streams, case["room"])) == sorted(expected)


@given(cases(), st.integers(1, 5))
def test_head_finds_every_pair_once(case: dict, cuts: int) -> None:
    case["is_bytes"] = [False] * len(case["ops"])
    shape, keys, rid, probe, expected = build(case)
    head = Head(shape, case["rows"])
    for at in np.array_split(np.arange(case["rows"]), cuts):
        head.append([k[at] for k in keys if not isinstance(k, BytesKey)], rid[at])
        head._check()
    streams = head.pairs(probe, Arrivals.dense(1000, case["rows"] * 2), room=case["room"])
    assert sorted(collect(streams, case["room"])) == sorted(expected)


@given(cases())
def test_once_gives_each_probe_with_a_match_one(case: dict) -> None:
    shape, keys, rid, probe, expected = build(case)
    index = PoJoin(shape, keys, rid)
    streams = index.pairs(
        probe, Arrivals.dense(1000, case["rows"] * 2), room=case["room"], once=True
    )
    pairs = collect(streams, case["room"])
    assert set(pairs) <= expected
    assert sorted(p for p, _ in pairs) == sorted({p for p, _ in expected})


@pytest.mark.parametrize("narrow", [1, 2])
def test_the_key_that_leaves_fewer_rows_open_sets_the_bits(narrow: int) -> None:
    """Two keys whose windows move equally far over a batch differ in how many rows they leave."""
    random, rows = np.random.default_rng(3), 20_000
    stored = [random.permutation(rows).astype(np.int64) for _ in range(3)]
    middle = np.linspace(0, rows, 5000).astype(np.int64)
    band, half = Interval(middle - 20, middle + 20), Interval(None, middle)
    primary = Interval(middle - rows // 8, middle + rows // 8)
    others = (band, half) if narrow == 1 else (half, band)
    index = PoJoin(Shape((Dim(), Dim(), Dim())), stored, np.arange(rows, dtype=np.int32))
    drive = index.drive(Probe((primary, *others), len(middle)))
    assert (drive.kind, drive.key) == ("bitmap", narrow)
