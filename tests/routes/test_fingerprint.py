"""Fingerprints tell different rows apart and equal ones not, however the rows are laid out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.routes.fingerprint import fingerprints

LISTS = pa.list_(pa.int64())
# For each type, values that differ.
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.int8(), [None, 0, 1, -1]),
    (pa.float64(), [None, 0.0, -0.0, 1.0, float("inf"), float("nan")]),
    (pa.float32(), [None, 0.0, -0.0, 1.5]),
    (pa.bool_(), [None, False, True]),
    (pa.string(), [None, "", "\x00", "\x00\x00", "a", "ab", "a" * 8, "a" * 9, "ä"]),
    (pa.large_string(), [None, "", "a"]),
    (pa.binary(), [None, b"", b"\x00", b"abcdefgh", b"abcdefgh\x00"]),
    (pa.binary(3), [None, b"abc", b"abd"]),
    (pa.decimal128(38, 2), [None, Decimal("0.00"), Decimal("1.00"), Decimal(2**64) / 100]),
    (pa.timestamp("us", "UTC"), [None, 0, 1]),
    (LISTS, [None, [], [None], [0], [0, 0], [1, 2], [2, 1]]),
    (pa.struct([("x", pa.int64()), ("y", pa.int64())]), [None, {"x": None, "y": 1}, {"x": 1}]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)], [("a", None)], [("b", 1)]]),
    (pa.list_(LISTS), [None, [], [[]], [[], []], [[1], [2, 3]], [[1, 2], [3]], [None]]),
]


def prints(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    both = fingerprints(batch)
    return list(zip(both.first.tolist(), both.second.tolist(), strict=True))


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda v: str(v)[:20])
def test_different_values_differ(type_: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, type_)
    found = prints(pa.record_batch({"v": column}))
    assert len(set(found)) == len(values)
    both = fingerprints(pa.record_batch({"v": column}))
    assert len(set(both.first.tolist())) == len(set(both.second.tolist())) == len(values)


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda v: str(v)[:20])
def test_layout_does_not_matter(type_: pa.DataType, values: list[Any]) -> None:
    whole = pa.record_batch({"a": pa.array(range(len(values))), "v": pa.array(values, type_)})
    want = prints(whole)
    assert [prints(whole.slice(at, 1))[0] for at in range(len(values))] == want
    backwards = whole.take(pa.array(range(len(values))[::-1]))
    assert prints(backwards)[::-1] == want
    # What lies under a NULL is nobody's business.
    masked = whole.filter(pa.array([True] * len(values)))
    assert prints(masked) == want


def test_what_lies_under_a_null_does_not_count() -> None:
    hidden = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([5, 7]))]
    )
    assert prints(pa.record_batch({"v": hidden})) == prints(
        pa.record_batch({"v": pa.array([5, None], pa.int64())})
    )
    inner = pa.array([1, 2], pa.int64())
    masked = pa.StructArray.from_arrays([inner], ["x"], mask=pa.array([False, True]))
    plain = pa.array([{"x": 1}, None], masked.type)
    assert prints(pa.record_batch({"v": masked})) == prints(pa.record_batch({"v": plain}))


def test_a_null_moves_with_its_column() -> None:
    batch = pa.record_batch({"k": [1, 1], "p": [7, None], "q": pa.array([None, 7], pa.int64())})
    assert len(set(prints(batch))) == 2


def test_no_lists_and_not_even_an_offset() -> None:
    """As Spark 4.0 sends a column of lists without a row; Arrow reads whatever lies there."""
    lies = pa.py_buffer(np.array([-7, -9], np.int32).tobytes())
    array = pa.Array.from_buffers(
        pa.list_(pa.int64()), 0, [None, lies], children=[pa.array([], pa.int64())]
    )
    assert all(len(lane) == 0 for lane in fingerprints(pa.record_batch({"a": array})))


def test_lists_are_told_apart_by_their_lengths() -> None:
    batch = pa.record_batch({"a": [[1, 2], [1]], "b": [[3], [2, 3]]})
    assert len(set(prints(batch))) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, 0.0, -0.0])), max_size=30))
def test_the_order_depends_on_the_rows_alone(rows: list[tuple[int, float | None]]) -> None:
    def ordered(given: list[tuple[int, float | None]]) -> list[str]:
        columns = [pa.array([r[0] for r in given], pa.int64())]
        columns.append(pa.array([r[1] for r in given], pa.float64()))
        batch = pa.RecordBatch.from_arrays(columns, names=["a", "b"])
        return [str(given[at]) for at in fingerprints(batch).order()]

    assert ordered(rows) == ordered(rows[::-1]) == ordered(sorted(rows, key=str))


def test_equal_first_lanes_are_ordered_by_the_second() -> None:
    from thetajoin.routes.fingerprint import Fingerprints

    first = np.array([5, 5, 1, 5], np.uint64)
    second = np.array([9, 2, 7, 2], np.uint64)
    assert Fingerprints(first, second).order().tolist() == [2, 1, 3, 0]
