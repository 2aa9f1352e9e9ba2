"""Output columns cut from large pieces hold what Arrow's own take gives."""

from __future__ import annotations

import datetime as dt
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.engine.slab import ALIGNMENT, PIECE_BYTES, WORTH_BYTES, Slab
from thetajoin.kernels import memory

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
@pytest.mark.parametrize("taken", [0, 1, 3, WORTH_BYTES])
def test_same_values_as_arrow(name: str, taken: int) -> None:
    column = COLUMNS[name].slice(17, 900)
    rows = np.random.default_rng(0).integers(0, len(column), taken).astype(np.int32)
    (got,) = Slab().take([column], rows)
    got.validate(full=True)
    assert got.equals(column.take(pa.array(rows)))


def test_pieces_are_aligned_and_apart() -> None:
    slab = Slab()
    sizes = [
        1,
        63,
        64,
        65,
        PIECE_BYTES // 3,
        PIECE_BYTES // 2,
        PIECE_BYTES // 2,
        PIECE_BYTES + 1,
        8,
    ]
    pieces = [slab.bytes(size) for size in sizes]
    spans = sorted((p.ctypes.data, p.ctypes.data + p.size) for p in pieces)
    assert [p.size for p in pieces] == sizes
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_memory_is_used_again_once_nobody_reads_it() -> None:
    gc.collect()
    memory._spare.clear()
    whole = memory.large_bytes(PIECE_BYTES)
    whole[:] = 7
    address, column = whole.ctypes.data, pa.py_buffer(whole[64:128])
    del whole
    gc.collect()
    others = [memory.large_bytes(PIECE_BYTES) for _ in range(8)]
    for other in others:
        assert other.ctypes.data != address
        other[:] = 8
    assert set(column.to_pybytes()) == {7}
    del column, other, others
    gc.collect()
    most = memory.SPARE_BYTES // PIECE_BYTES
    assert len(memory._spare[PIECE_BYTES]) == most
    again = [memory.large_bytes(PIECE_BYTES - 5) for _ in range(most)]
    assert memory.spare_bytes() == 0
    assert len({array.ctypes.data for array in again}) == most


def test_large_arrays_of_any_type() -> None:
    for dtype in (np.int32, np.uint64, np.float64):
        small, large = memory.empty(10, dtype), memory.empty(1_000_003, dtype)
        assert (small.size, large.size) == (10, 1_000_003)
        assert small.dtype == large.dtype == dtype
        large[:] = 5
        assert large.flags.c_contiguous
        assert large.flags.writeable
        assert int(large.sum()) == 5 * large.size


def test_a_forked_process_has_memory_of_its_own() -> None:
    mine = Slab().bytes(1_000)
    mine[:] = 1
    child = os.fork()
    if child == 0:
        mine[:] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert (mine == 1).all()


def test_threads_never_share_memory() -> None:
    slab = Slab()

    def fill(value: int) -> tuple[np.ndarray, int]:
        mine = slab.bytes(100_000 + value)
        mine[:] = value
        return mine, value

    with ThreadPoolExecutor(4) as pool:
        for filled, value in pool.map(fill, range(200)):
            assert (filled == value).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_large_join_outlives_its_chunks(threads: int) -> None:
    """Columns stay what they were after later chunks were written."""
    n = 60_000
    random = np.random.default_rng(1)
    left, right = (
        pa.table({"x": random.permutation(n), "name": [str(i) for i in range(n)]}) for _ in "lr"
    )
    out = tj.join(left, right, "ABS(l.x - r.x) <= 4", threads=threads)
    x, other = out["x"].to_numpy(), out["x_right"].to_numpy()
    assert (np.abs(x - other) <= 4).all()
    assert np.unique(x * n + other).size == out.num_rows == 9 * n - 20
    assert left["name"].to_numpy()[left["x"].to_numpy().argsort()][x].tolist() == (
        out["name"].to_pylist()
    )
