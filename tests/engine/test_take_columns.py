"""Output columns hold what Arrow's own take gives; large arrays are like any other."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from thetajoin.arrays import empty, fill, number_rows
from thetajoin.engine.layout import WORTH_ROWS, take_columns

ROWS = 1_000
COLUMNS = {
    "int8": pa.array(np.arange(ROWS) % 100, pa.int8()),
    "uint16": pa.array(np.arange(ROWS), pa.uint16()),
    "int32": pa.array(np.arange(ROWS), pa.int32()),
    "int64": pa.array(np.arange(ROWS) - 500, pa.int64()),
    "double": pa.array(np.linspace(-1, 1, ROWS)),
    "with_null": pa.array([None if i % 7 == 0 else i for i in range(ROWS)], pa.int64()),
    "all_null": pa.nulls(ROWS, pa.float64()),
    "nothing": pa.nulls(ROWS),
    "bool": pa.array(np.arange(ROWS) % 3 == 0),
    "string": pa.array([f"row {i}" for i in range(ROWS)]),
    "decimal": pa.array([Decimal(i).scaleb(-2) for i in range(ROWS)], pa.decimal128(12, 2)),
    "date": pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=i) for i in range(ROWS)]),
    "time": pa.array(np.arange(ROWS), pa.timestamp("us", tz="UTC")),
    "dictionary": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
    "list": pa.array([[i, i + 1] for i in range(ROWS)]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("taken", [0, 1, 3, WORTH_ROWS - 1, WORTH_ROWS, 1 << 20])
def test_same_values_as_arrow(name: str, taken: int) -> None:
    column = COLUMNS[name].slice(17, 900)
    rows = np.random.default_rng(0).integers(0, len(column), taken).astype(np.int32)
    (got,) = take_columns(pa.record_batch([column], ["x"]), rows)
    got.validate(full=True)
    assert got.equals(column.take(pa.array(rows)))


def test_large_arrays_of_any_type() -> None:
    for dtype in (np.int32, np.uint64, np.float64):
        small, large = empty(10, dtype), empty(1_000_003, dtype)
        assert (small.size, large.size) == (10, 1_000_003)
        assert small.dtype == large.dtype == dtype
        large[:] = 5
        assert large.flags.c_contiguous
        assert large.flags.writeable
        assert int(large.sum()) == 5 * large.size


def test_large_arrays_that_are_filled() -> None:
    for size in (0, 10, 8192, 8193, 1_000_003):
        assert (number_rows(size) == np.arange(size)).all()
        assert number_rows(size).dtype == np.int32
        assert (fill(size, -1, np.int32) == np.full(size, -1, np.int32)).all()
        assert fill(size, True, np.bool_).all()
