"""Rows packed for units, and in the order that all units agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import thetajoin as tj
from spark.one_unit import (
    make_spec,
    make_tester,
)
from thetajoin.errors import DataError
from thetajoin.spark.exchange import distinct_keys, route_to_units, unpack_ordered
from thetajoin.spark.unit import METRICS
from thetajoin.spark.unit_keys import UNIT_KEYS

pytestmark = pytest.mark.usefixtures("local_dir")

# Rows that Spark's own hash takes for one another: it skips NULLs, folds arrays without their
# lengths, and takes -0.0 for 0.0.
ALIKE = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("p", pa.int64()),
        ("q", pa.int64()),
        ("x", pa.float64()),
        ("a", pa.list_(pa.int64())),
        ("b", pa.list_(pa.int64())),
    ]
)


def alike_rows(n: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for v in range(n):
        for p, q in ((v, None), (None, v)):
            for x in (0.0, -0.0):
                for a, b in (([1, 2], [3]), ([1], [2, 3])):
                    row = {"id": 0, "k": 1, "p": p, "q": q, "x": x, "a": a, "b": b}
                    rows += [row, row]
    return rows


@pytest.mark.parametrize("how", ["inner", "semi", "left"])
@pytest.mark.parametrize("window", [tj.FullHistory(), tj.CountWindow(50, slide=7)])
def test_units_agree_on_the_order_of_rows_that_are_alike(how: str, window: Any) -> None:
    """Each unit gets the blobs in another order; each pair is found in one of them."""
    if how == "left" and isinstance(window, tj.FullHistory):
        return
    rows = alike_rows(3)
    units = 5
    order_by = ("k", "k") if isinstance(window, tj.CountWindow) else None
    schemas = {"left_schema": ALIKE, "right_schema": ALIKE}
    spec = make_spec(
        window,
        how,
        on="l.k <= r.k",
        units=units,
        order_by=order_by,
        **{name: schema.serialize().to_pybytes() for name, schema in schemas.items()},
    )
    tester = make_tester(spec)
    embedded = tj.StreamJoin("l.k <= r.k", how=how, window=window, order_by=order_by, **schemas)
    for _ in range(3):
        packed = [
            part.to_pandas()
            for side in (0, 1)
            for start in range(0, len(rows), 8)
            for part in route_to_units(side, replace(spec, units=1))(
                pa.Table.from_pylist(rows[start : start + 8], ALIKE).to_batches()
            )
        ]
        given = []
        for unit in range(units):
            turned = [*packed[5 * unit :], *packed[: 5 * unit]][:: 1 if unit % 2 else -1]
            frame = tester.put_in(UNIT_KEYS[unit], pd.concat(turned))
            given.append(frame[frame[METRICS].isna()])
        got = pd.concat(given)
        # The embedded join is given the rows in the units' order: by fingerprint.
        ordered = unpack_ordered(
            [b for f in packed if f["side"][0] == 0 for b in f["blob"]], ALIKE, None
        )
        want = embedded.push(ordered, ordered)
        assert values_of(got[f"c{at}"] for at in range(want.num_columns)) == values_of(
            column.to_pylist() for column in want.columns
        )


def values_of(columns: Iterable[Iterable[Any]]) -> Counter[Any]:
    """Rows as texts, in which -0.0 is not 0.0; lists may come as arrays."""
    texts = (
        ["None" if v is pd.NA else str(list(v) if hasattr(v, "__len__") else v) for v in column]
        for column in columns
    )
    return Counter(zip(*texts, strict=True))


def test_blobs_are_bounded(set_limits: Any) -> None:
    set_limits(blob_bytes=1 << 14)
    texts = ["x" * 1000] * 100 + ["y" * 40_000]
    batch = pa.record_batch({"a": range(len(texts)), "t": texts})
    pack = route_to_units(0, make_spec(tj.FullHistory(), units=2))
    made = [row for part in pack([batch, batch]) for row in part.to_pylist()]
    sizes = [len(row["blob"]) for row in made]
    assert all(size < 2 << 14 for size in sizes if size < 40_000)
    assert sum(size > 40_000 for size in sizes) == 4  # two rows that fit in no blob, to two units
    for key in UNIT_KEYS[:2]:
        blobs = [row["blob"] for row in made if row["unit"] == key]
        whole = unpack_ordered(blobs, pa.schema([("a", pa.int64()), ("t", pa.string())]), None)
        assert sorted(whole.column(0).to_pylist()) == sorted([*range(101)] * 2)


def test_a_micro_batch_past_2_gib_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflows(*_: Any) -> None:
        raise DataError("column 'k' of the joined input has too much text for one array")

    blobs, schema = packed_blobs([pa.array([5, 3])])
    monkeypatch.setattr("thetajoin.spark.exchange.contiguous", overflows)
    with pytest.raises(DataError, match=r"2 GiB in one micro-batch: .*maxFilesPerTrigger"):
        unpack_ordered(blobs, schema, None)


def packed_blobs(values: list[pa.Array]) -> tuple[list[bytes], pa.Schema]:
    batches = [pa.record_batch({"k": array, "v": range(len(array))}) for array in values]
    made = [
        row
        for batch in batches
        for part in route_to_units(0, make_spec(tj.FullHistory()))([batch])
        for row in part.to_pylist()
    ]
    return [row["blob"] for row in made], batches[0].schema


def test_rows_are_in_the_order_of_a_column_that_tells_them_apart() -> None:
    given, schema = packed_blobs([pa.array([5, 3]), pa.array([4, 1])])
    for blobs_ in (given, given[::-1]):
        assert unpack_ordered(blobs_, schema, "k").column("k").to_pylist() == [1, 3, 4, 5]
    given, schema = packed_blobs([pa.array([1, 3]), pa.array([4, 5])])
    assert unpack_ordered(given, schema, "k").column("k").to_pylist() == [1, 3, 4, 5]


@pytest.mark.parametrize(
    "keys", [pa.array([1, 2, 2, 7]), pa.array([1, None, 3, 7]), pa.array(["a", "b", "c", "d"])]
)
def test_rows_that_a_column_cannot_order_are_in_one_order_all_the_same(keys: pa.Array) -> None:
    assert distinct_keys(keys) is None
    given, schema = packed_blobs([keys[:2], keys[2:]])
    one, other = (
        unpack_ordered(blobs_, schema, "k").to_pylist() for blobs_ in (given, given[::-1])
    )
    assert one == other


def test_few_rows_of_many_batches_travel_together() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    assert len(list(route_to_units(0, make_spec(tj.FullHistory()))([batch] * 5))) == 1
