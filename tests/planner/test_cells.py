"""Cells without a cluster: rows summarised, routed and joined in this process give every pair once.

What Spark does between these steps is only to carry blobs, so that everything that could lose or
double a pair is tested here over all conditions; `spark/test_batch.py` tests the carrying.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
from strategies import HOWS, SCHEMA_L, SCHEMA_R, ids, naive_ids, table
from thetajoin.batch.keys import INT64_MAX, INT64_MIN
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES
from thetajoin.engine.rows import make_batch
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.tables import HeldJoin
from thetajoin.errors import DataError
from thetajoin.planner.cells import CellPlan, cell_copies, plan_cells, sample_matches
from thetajoin.planner.zones import Places, Sight, Zones, summarise

BYTES_L = SCHEMA_L | {"s": pa.string()}
BYTES_R = SCHEMA_R | {"u": pa.string()}
# What each kind of join gives out, by the side that is held.
KINDS: dict[str, list[tuple[str, bool, str]]] = {
    "inner": [("l", True, "none")],
    "left": [("l", True, "unmatched")],
    "right": [("r", True, "unmatched")],
    "full": [("l", True, "unmatched"), ("r", False, "unmatched")],
    "semi": [("l", False, "matched")],
    "anti": [("l", False, "unmatched")],
}


def batches(rows: pa.Table, pieces: int) -> list[pa.RecordBatch]:
    """A table as tasks read it."""
    whole = rows.combine_chunks().to_batches()
    if not whole:
        return []
    step = -(-whole[0].num_rows // pieces)
    return [whole[0].slice(at, step) for at in range(0, whole[0].num_rows, step)]


def zones_of(compiled: CompiledJoin, side: Any, read: list[pa.RecordBatch]) -> Zones:
    sights = tuple(Sight(part) for part in compiled.parts)
    widths = [sight.width(side) for sight in sights]
    matrices = [np.zeros((5 + 2 * sum(widths), 0), np.int64)]
    for batch in read:
        keyed = make_batch(batch, side, compiled.parts, [])
        matrices.append(summarise(sights, side, keyed, zones=3).to_matrix())
    return Zones.from_matrix(np.concatenate(matrices, axis=1), widths)


def planned(
    compiled: CompiledJoin,
    held: Any,
    read: dict[Any, list[pa.RecordBatch]],
    keep: bool,
    cores: int,
    most: int,
) -> CellPlan:
    sights = tuple(Sight(part) for part in compiled.parts)
    samples = {side: read[side][0] for side in SIDES}
    return plan_cells(
        sights,
        held,
        {side: zones_of(compiled, side, read[side]) for side in SIDES},
        sample_matches(compiled, held, samples),
        cores=cores,
        preserved=keep,
        most_held=most,
    )


def hashes(batch: pa.RecordBatch) -> Any:
    """Bits to deal rows by."""
    mixed = np.arange(1, batch.num_rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed


def distributed(
    left: pa.Table, right: pa.Table, on: str, how: str, *, pieces: int, cores: int, most: int
) -> Iterator[pa.Table]:
    compiled = CompiledJoin(
        JoinSpec(on, how, options={"threads": 1}),
        left.schema,
        right.schema,  # type: ignore[arg-type]
    )
    read = {"l": batches(left, pieces), "r": batches(right, pieces)}
    for held, pairs, singles in KINDS[how]:
        keep = how != "inner"
        plan = planned(compiled, held, read, keep, cores, most)
        cells: dict[int, dict[bool, list[pa.RecordBatch]]] = {}
        for batch in read[held]:
            sent = cell_copies(compiled, plan, batch, held, hashes(batch), singles == "unmatched")
            for cell, _, rows in sent.by_unit():
                kept = cells.setdefault(cell, {True: [], False: []})
                kept[True].append(batch.take(pa.array(rows)))
        for batch in read[OTHER[held]]:
            sent = cell_copies(compiled, plan, batch, OTHER[held], hashes(batch))
            for cell, _, rows in sent.by_unit():
                kept = cells.setdefault(cell, {True: [], False: []})
                kept[False].append(batch.take(pa.array(rows)))
        assert all(0 <= cell < plan.cells for cell in cells)
        for kept in cells.values():
            if not kept[True]:
                continue
            whole = pa.Table.from_batches(kept[True]).combine_chunks().to_batches()[0]
            join = HeldJoin(compiled, held, whole, pairs=pairs, singles=singles)  # type: ignore[arg-type]
            for chunk in kept[False]:
                yield pa.Table.from_batches(list(join.run(chunk)), compiled.layout.schema)
            yield pa.Table.from_batches(list(join.finish()), compiled.layout.schema)


SPREAD = st.fixed_dictionaries(
    {
        "pieces": st.integers(1, 3),
        "cores": st.integers(1, 5),
        "most": st.sampled_from([2, 5, 1000]),
    }
)


def check(
    left: Any, right: Any, condition: own.Condition, how: str, spread: dict[str, int]
) -> None:
    tables = table(left, BYTES_L), table(right, BYTES_R)
    found = distributed(*tables, condition.sql, how, **spread)
    total: Counter[Any] = Counter()
    for part in found:
        total += ids(part)
    assert total == naive_ids(naive.naive_join(left, right, condition.pred, how=how))


def with_text(rows: list[naive.Row], name: str, texts: list[str | None]) -> list[naive.Row]:
    return [row | {name: texts[i % len(texts)]} for i, row in enumerate(rows)]


TEXTS = st.lists(st.none() | own.strings, min_size=1, max_size=6)
LEFT = own.left_rows(20).filter(bool)
RIGHT = own.right_rows(20).filter(bool)


@pytest.mark.parametrize("how", HOWS)
@own.examples(25)
@given(left=LEFT, right=RIGHT, condition=own.conditions(), spread=SPREAD)
def test_any_condition(how, left, right, condition, spread):
    check(with_text(left, "s", [None]), with_text(right, "u", [None]), condition, how, spread)


@own.examples(25)
@given(
    left=LEFT,
    right=RIGHT,
    texts=st.tuples(TEXTS, TEXTS),
    ops=st.tuples(own.operators, own.operators, own.operators),
    how=st.sampled_from(HOWS),
    spread=SPREAD,
)
def test_strings_and_several_equalities(left, right, texts, ops, how, spread):
    condition = own.Condition(
        f"l.s {ops[0]} r.u AND l.a {ops[1]} r.b AND l.x {ops[2]} r.y",
        naive.conj(("s", ops[0], "u"), ("a", ops[1], "b"), ("x", ops[2], "y")),
    )
    rows = with_text(left, "s", texts[0]), with_text(right, "u", texts[1])
    check(*rows, condition, how, spread)


FLOATS = own.Condition("ABS(l.x - r.y) <= 1.0D", naive.band("x", "y", "<=", 1.0))


@own.examples(25)
@given(LEFT, RIGHT, st.sampled_from(HOWS), SPREAD)
def test_float_bands(left, right, how, spread):
    check(with_text(left, "s", [None]), with_text(right, "u", [None]), FLOATS, how, spread)


def numbers(rows: int, seed: int, top: int = 1 << 40) -> pa.Table:
    random = np.random.default_rng(seed)
    a = random.integers(0, top, rows)
    return pa.table({"id": np.arange(rows), "a": a, "b": a + random.integers(0, top // 50, rows)})


def plan_of(left: pa.Table, right: pa.Table, on: str, cores: int = 4) -> CellPlan:
    compiled = CompiledJoin(JoinSpec(on), left.schema, right.schema)
    read = {"l": batches(left, 2), "r": batches(right, 2)}
    sights = tuple(Sight(part) for part in compiled.parts)
    zones = {}
    for side in SIDES:
        keyed = [make_batch(batch, side, compiled.parts, []) for batch in read[side]]
        matrix = np.concatenate([summarise(sights, side, k).to_matrix() for k in keyed], axis=1)
        zones[side] = Zones.from_matrix(matrix, [s.width(side) for s in sights])
    return plan_cells(sights, "l", zones, None, cores=cores, preserved=False, most_held=1 << 22)


def test_a_second_comparison_keeps_rows_from_cells_they_cannot_match():
    left, right = numbers(40_000, 1), numbers(40_000, 2)
    both = plan_of(left, right, "l.a < r.a AND l.b > r.b")
    assert sum(group.streamed for group in both.groups) < 1.3 * 40_000
    one = plan_of(left, right, "l.a < r.a")
    assert sum(group.streamed for group in one.groups) > 1.5 * 40_000


def test_a_repeated_value_is_dealt_out():
    left = numbers(40_000, 1).set_column(1, "a", pa.array(np.full(40_000, 7)))
    plan = plan_of(left, left, "l.a = r.a")
    assert plan.groups[0].cells >= 4


def test_ranges_that_do_not_meet_are_not_sent():
    left, right = numbers(1000, 1), numbers(1000, 2)
    right = right.set_column(1, "a", pa.array(np.asarray(right["a"]) - (1 << 50)))
    plan = plan_of(left, right, "l.a < r.a")
    assert all(plan.dropped)


def test_other_rows_than_planned_are_an_error():
    left, right = numbers(1000, 1), numbers(1000, 2)
    compiled = CompiledJoin(JoinSpec("l.a < r.a"), left.schema, right.schema)
    plan = plan_of(left, right, "l.a < r.a")
    beyond = numbers(10, 3).set_column(1, "a", pa.array(np.full(10, 1 << 60)))
    batch = beyond.to_batches()[0]
    with pytest.raises(DataError, match="left input gave other rows"):
        cell_copies(compiled, plan, batch, "l", None)
    with pytest.raises(DataError, match="right input gave other rows"):
        cell_copies(compiled, plan, batch, "r", None)


def test_a_row_that_would_match_what_was_left_out_is_an_error():
    """It lies between those that were seen, where nothing was, so the rows there went nowhere."""
    left = pa.table({"a": np.arange(1000, 2000)})
    right = pa.table({"a": np.append(np.arange(100), np.arange(5000, 5100))})
    on = "ABS(l.a - r.a) <= 10"
    compiled = CompiledJoin(JoinSpec(on), left.schema, right.schema)
    plan = plan_of(left, right, on)
    assert all(plan.dropped)
    assert not len(cell_copies(compiled, plan, right.to_batches()[0], "r", None).rows)
    between = pa.record_batch({"a": [50, 1500]})
    with pytest.raises(DataError, match="right input gave other rows"):
        cell_copies(compiled, plan, between, "r", None)


@own.examples(25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), st.data())
def test_places(rows, data):
    cuts = sorted(data.draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)))

    def made(pairs):
        matrix = np.array(pairs, np.int64).reshape(-1, 2)
        return Places(matrix[:, 0].copy(), matrix[:, 1].copy())

    assert [rows[i] for i in made(rows).order()] == sorted(rows)
    found = made(rows).among(made(cuts))
    assert found.tolist() == [sum(cut <= row for cut in cuts) for row in rows]


@pytest.mark.parametrize("skewed", [False, True])
def test_many_rows_are_cut_and_not_sorted(skewed: bool) -> None:
    """Each row lies in one zone, and boxes are those of the rows between a zone's ends."""
    random = np.random.default_rng(4)
    size = 150_000
    a = np.minimum(random.zipf(1.3, size), 1 << 40) if skewed else random.permutation(size)
    b = a * 2 + random.integers(-50, 50, size)
    has_key = random.random(size) > 0.05
    rows = pa.record_batch({"a": pa.array(a, mask=~has_key), "b": pa.array(b)})
    compiled = CompiledJoin(JoinSpec("l.a < r.a AND l.b > r.b"), rows.schema, rows.schema)
    sight = Sight(compiled.parts[0])
    zones = summarise((sight,), "l", make_batch(rows, "l", compiled.parts, []))
    assert zones.total == size
    if not skewed:
        assert len(zones) > 230
        assert np.sort(zones.rows)[-2] < 3 * size / 256  # the last has all rows without a key
    order = np.argsort(zones.first.ordered)
    assert (zones.last.ordered[order][:-1] < zones.first.ordered[order][1:]).all()
    names = [next(iter(key.expr.columns("l"))) for key in compiled.parts[0].keys["l"]]
    values = {"a": a[has_key], "b": b[has_key]}
    place = values[names[sight.places("l")[1] or 0]]
    for zone in range(len(zones)):
        inside = (place >= zones.first.ordered[zone]) & (place <= zones.last.ordered[zone])
        for at, name in enumerate(names):
            mine = values[name][inside]
            ends = (mine.min(), mine.max()) if mine.size else (INT64_MAX, INT64_MIN)
            assert (zones.boxes.low[0][at][zone], zones.boxes.high[0][at][zone]) == ends
