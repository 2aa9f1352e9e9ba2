"""`index=` chooses the window structure and nothing else: same pairs, same rows owed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import thetajoin as tj
from thetajoin.errors import OptionError
from thetajoin.papers import live_store
from thetajoin.papers.catalog import NAMES

CONDITIONS: dict[str, naive.Predicate] = {
    "l.a < r.a": naive.conj(("a", "<", "a")),
    "l.a <= r.a AND l.b > r.b": naive.conj(("a", "<=", "a"), ("b", ">", "b")),
    "l.a = r.a AND l.b != r.b": naive.conj(("a", "=", "a"), ("b", "!=", "b")),
    "l.a != r.a": naive.conj(("a", "!=", "a")),
    "ABS(l.a - r.a) <= 1": naive.band("a", "a", "<=", 1),
    "l.a < r.a OR l.b = r.b": naive.any_of(
        naive.conj(("a", "<", "a")), naive.conj(("b", "=", "b"))
    ),
}
WINDOWS = {
    "full": (tj.FullHistory(), naive.Full()),
    "count": (tj.CountWindow(20), naive.Count(20)),
    "slide": (tj.CountWindow(20, 7), naive.Count(20, 7)),
    "time": (tj.TimeWindow(before=9, after=4, time="t"), naive.Time(9, 4)),
}
SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "a", "b", "t")])


def rows(random: np.random.Generator, count: int, first: int) -> list[naive.Row]:
    made = []
    for i in range(count):
        a, b = (int(x) for x in random.integers(0, 6, 2))
        time = max(0, first // 2 + int(random.integers(-4, 5)))
        made.append({"id": first + i, "a": None if random.random() < 0.1 else a, "b": b, "t": time})
    return made


def table(batch: list[naive.Row]) -> pa.Table:
    return pa.Table.from_pylist(batch, schema=SCHEMA)


def ids(pairs: list[Any]) -> Counter:
    return Counter((l and l["id"], r and r["id"]) for l, r in pairs)


def got(result: pa.Table) -> Counter:
    if "id" not in result.schema.names:
        return Counter()
    right = "id_right" if "id_right" in result.schema.names else None
    others = result[right].to_pylist() if right else [None] * result.num_rows
    return Counter(zip(result["id"].to_pylist(), others, strict=True))


@pytest.mark.parametrize("index", NAMES)
@settings(max_examples=12)
@given(
    condition=st.sampled_from(sorted(CONDITIONS)),
    window=st.sampled_from(sorted(WINDOWS)),
    how=st.sampled_from(["inner", "left", "full", "semi", "anti"]),
    sizes=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25)), min_size=1, max_size=6),
    head_rows=st.sampled_from([0, 8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_streams_against_the_naive_join(
    index: str, condition: str, window: str, how: str, sizes: list, head_rows: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    if window == "full" and how != "inner":
        how = "semi"
    ours, plain = WINDOWS[window]
    join = tj.StreamJoin(
        condition,
        how=how,
        window=ours,
        left_schema=SCHEMA,
        right_schema=SCHEMA,
        index=index,
        head_rows=head_rows,
        threads=1,
        merge="inline",
    )
    steps: list[Any] = []
    found: Counter = Counter()
    first = 0
    for n, m in sizes:
        left, right = rows(random, n, first), rows(random, m, first)
        first += max(n, m)
        steps.append(naive.Push(left, right))
        found += got(join.push(table(left), table(right)))
        if window == "time":
            steps.append(naive.Advance(max(0, first // 2 - 6)))
            join.advance(max(0, first // 2 - 6))
        for store in join._state.stores.values():
            store._check()
    if random.random() < 0.3:
        join = tj.StreamJoin.restore(join.snapshot())
    found += got(join.finish())
    expected = naive.naive_stream(steps, CONDITIONS[condition], how=how, window=plain)
    assert found == ids(expected.rows)


@pytest.mark.parametrize("index", NAMES)
def test_tables(index: str) -> None:
    random = np.random.default_rng(7)
    left, right = rows(random, 60, 0), rows(random, 50, 0)
    for condition, predicate in CONDITIONS.items():
        result = tj.join(table(left), table(right), condition, index=index, head_rows=16)
        assert got(result) == ids(naive.naive_join(left, right, predicate)), condition
    result = tj.self_join(
        table(left), "l.a < r.a AND l.b > r.b", window=tj.CountWindow(20, 5), index=index
    )
    predicate = naive.conj(("a", "<", "a"), ("b", ">", "b"))
    assert got(result) == ids(naive.naive_self_join(left, predicate, window=naive.Count(20, 5)))


def test_row_numbers_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_store, "LARGEST", 100)
    monkeypatch.setattr(live_store, "SMALLEST", 16)
    random = np.random.default_rng(3)
    join = tj.StreamJoin("l.a < r.a", window=tj.CountWindow(30), index="b_plus_tree")
    steps, found = [], Counter()
    for at in range(12):
        left, right = rows(random, 20, 20 * at), rows(random, 20, 20 * at)
        steps.append(naive.Push(left, right))
        found += got(join.push(table(left), table(right)))
        assert all(store._next <= 100 for store in join._state.stores.values())
    plain = naive.naive_stream(steps, CONDITIONS["l.a < r.a"], window=naive.Count(30))
    assert found == ids(plain.rows)


@pytest.mark.parametrize(
    "index", [name for name in NAMES if name not in ("po_join", "nested_loop")]
)
def test_a_condition_without_a_key_names_what_can_serve_it(index: str) -> None:
    here = table([])
    with pytest.raises(OptionError, match=r"no key to look up; use po_join, nested_loop or auto"):
        tj.join(here, here, "(l.a + r.a) % 2 = 0", index=index)


def test_strings_need_a_dictionary() -> None:
    here = pa.table({"s": ["a"]})
    with pytest.raises(OptionError, match=r"'pim_tree' cannot serve .*; use po_join or auto"):
        tj.join(here, here, "l.s < r.s", index="pim_tree")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": "pim"}, "index='pim' is not known"),
        ({"index": 3}, "index=3 is not known"),
        ({"index": "pim_tree", "index_options": {"n": 3}}, "has no parameter 'n'; it has m, D_I"),
        ({"index": "pim_tree", "index_options": {"m": 2.0}}, "must be at most 1"),
        ({"index": "bi_sort", "index_options": {"B": 1.5}}, "must be a whole number"),
        ({"index": "bi_sort", "index_options": {"B": 0}}, "must be a number above 0"),
        ({"index": "rap_table", "index_options": {"sigma": 0.5}}, "must be above 1"),
        ({"index": "css_tree", "index_options": {"intersection": "xor"}}, "must be one of bitset"),
        ({"index": "bi_sort", "index_options": 3}, "give a dictionary"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    here = table([])
    with pytest.raises(OptionError, match=message):
        tj.join(here, here, "l.a < r.a", **options)


@pytest.mark.parametrize("index", ["bitset", "hash"])
def test_keys_that_are_read_in_place(index: str) -> None:
    """Beside keys that are computed: kernels are given both kinds of arrays together."""
    moments = pa.array([0], pa.timestamp("ns", "UTC"))
    left = pa.table({"c": moments})
    right = pa.table({"a": moments, "b": pa.array([0], pa.timestamp("ms", "UTC"))})
    got = tj.join(left, right, "l.c BETWEEN r.b AND r.a", head_rows=0, index=index)
    assert got.num_rows == 1
