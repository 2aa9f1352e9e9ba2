"""Columns of every type are carried along, also without rows or chunks."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import all_ids, ids, refused

FIELDS = [pa.field("a", pa.int64()), pa.field("b", pa.string())]
TYPES = [
    pa.dense_union(FIELDS),
    pa.sparse_union(FIELDS),
    pa.dictionary(pa.int8(), pa.string()),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.list_view(pa.int64()),
    pa.list_(pa.int64()),
    pa.struct(FIELDS),
    pa.struct([]),
    pa.map_(pa.string(), pa.int64()),
    pa.string_view(),
    pa.binary_view(),
    pa.month_day_nano_interval(),
    pa.duration("us"),
    pa.time64("us"),
    pa.decimal256(60, 1),
    pa.float16(),
    pa.null(),
    pa.uuid(),
    pa.bool8(),
]
KEYS = pa.table({"k": [1, 2]})
OTHER = pa.table({"a": [1, 2]})


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("chunks", [0, 1, 2])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_column_without_rows(type_, chunks, how):
    column = pa.chunked_array([pa.nulls(0, type_)] * chunks, type_)
    keys = pa.chunked_array([pa.nulls(0, pa.int64())] * chunks, pa.int64())
    table = pa.table({"k": keys, "x": column})
    for left, right in ((table, KEYS), (KEYS, table)):
        found = tj.join(left, right, "l.k < r.k", how=how)
        assert found.num_rows == (2 if how == "full" else 0)


def test_extremes_over_an_empty_column_of_objects():
    one = pd.DataFrame({"k": [1]})
    none = pd.DataFrame({"k": pd.Series([], dtype="int64"), "s": pd.Series([], dtype=object)})
    found = tj.join_agg(one, none, "l.k < r.k", aggs={"hi": "max(r.s)", "n": "count(r.s)"})
    assert found["hi"].isna().tolist() == [True]
    assert found["n"].tolist() == [0]


@pytest.mark.parametrize("name", ["Int128", "UInt128"])
@pytest.mark.parametrize("lazy", [False, True])
def test_integers_of_128_bits(name, lazy):
    dtype = getattr(pl, name, None)
    if dtype is None:
        pytest.skip(f"this Polars has no {name}")
    values = [1, 2**100, 2**100 + 1, None]
    frame = pl.DataFrame({"k": pl.Series(values, dtype=dtype)})
    found = tj.join(frame.lazy() if lazy else frame, frame, "l.k < r.k")
    found = found.collect() if lazy else found
    assert found.schema == {"k": dtype, "k_right": dtype}
    wanted = [(a, b) for a in values for b in values if a is not None and b is not None and a < b]
    assert sorted(found.iter_rows()) == sorted(wanted)


def test_integers_of_more_digits_than_decimals_have():
    frame = pl.DataFrame({"k": pl.Series([2**127 - 1], dtype=pl.Int128)})
    with pytest.raises(
        tj.ThetaJoinError, match="'k' of the left input has integers of more than 38"
    ):
        tj.join(frame, frame, "l.k < r.k")


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_long_conditions_cost_what_their_length_does(word):
    def seconds(terms: int) -> float:
        on = f" {word} ".join(f"l.k < r.k + {at}" for at in range(terms))
        began = time.process_time()
        tj.explain(KEYS, KEYS, on)
        return time.process_time() - began

    seconds(10)
    few = min(seconds(50) for _ in range(3))
    assert min(seconds(400) for _ in range(3)) < 8 * 4 * few


def runs(values: list[Any], type_: pa.DataType, ends: pa.DataType) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], ends), pa.array(values, type_))


@pytest.mark.parametrize("ends", [pa.int16(), pa.int32(), pa.int64()])
def test_run_end_encoded_columns(ends: pa.DataType) -> None:
    """They are joined as what they hold and come out as they came."""
    left = pa.table({"lid": [0, 1, 2], "k": runs([5, None], pa.int64(), ends)})
    right = pa.table(
        {
            "rid": [0, 1, 2],
            "k": runs([7, 3], pa.int64(), ends),
            "s": runs(["x", None], pa.string(), ends),
        }
    )
    for how in ("inner", "left", "full"):
        got = tj.join(left, right, "l.k < r.k", how=how)
        assert got.schema.types == [*left.schema.types, *right.schema.types]
        matched = [row for row in got.to_pylist() if row["lid"] == 0]
        assert matched == [{"lid": 0, "k": 5, "rid": 0, "k_right": 7, "s": "x"}]
    join = tj.StreamJoin("l.k < r.k", how="left", window=tj.CountWindow(9))
    first = join.push(left, right)
    join = tj.StreamJoin.restore(join.snapshot())
    found = all_ids([first, join.finish()])
    assert found == {(0, 0): 1, (1, None): 1, (2, None): 1}


PAYLOADS = {
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    ),
    "list view": pa.array([[1], None], pa.list_view(pa.int64())),
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([[1]])),
    "month interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "odd date64": pa.array([1, 2], pa.date64()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 2, pa.binary(16))),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_odd_columns_pass_through(name: str) -> None:
    table = pa.table({"k": [1, 2], "v": PAYLOADS[name]})
    got = tj.join(table, table, "l.k <= r.k AND l.v IS NOT NULL", how="full")
    assert got.schema.field("v").type == PAYLOADS[name].type
    join = tj.StreamJoin("l.k < r.k", window=tj.CountWindow(9))
    join.push(table, table)
    assert tj.StreamJoin.restore(join.snapshot()).push(left=table).num_rows == 1


def test_odd_columns_have_no_order() -> None:
    for name in ("dense union", "sparse union", "list view", "dictionary of lists"):
        table = pa.table({"k": [1, 2], "v": PAYLOADS[name]})
        refused(lambda table=table: tj.join(table, table, "l.v < r.v"), "compare")


@pytest.mark.parametrize(
    "type_",
    [
        pa.struct({"x": pa.string_view()}),
        pa.list_(pa.string_view()),
        pa.struct({"x": pa.run_end_encoded(pa.int32(), pa.int64())}),
    ],
    ids=str,
)
def test_columns_whose_rows_cannot_be_picked(type_: pa.DataType) -> None:
    if type_.num_fields and pa.types.is_run_end_encoded(type_.field(0).type):
        column = pa.StructArray.from_arrays([runs([1, 2], pa.int64(), pa.int32())[:2]], ["x"])
    else:
        column = pa.nulls(2, type_)
    table = pa.table({"k": [1, 2], "v": column})
    refused(lambda: tj.join(table, OTHER, "l.k < r.a"), "'v'", "left")
    refused(lambda: tj.join(OTHER, table, "l.a < r.k"), "'v'", "right")


FRAMES: dict[str, Any] = {
    "objects of Polars": lambda: pl.DataFrame({"k": [1], "o": [object()]}),
    "objects of pandas": lambda: pd.DataFrame({"k": [1], "o": [object()]}),
    "mixed objects": lambda: pd.DataFrame({"k": [1, "x"]}),
    "integers past 64 bits": lambda: pd.DataFrame({"k": [1, 2], "o": [2**80, 1]}),
    "complex numbers": lambda: pd.DataFrame({"k": [1], "o": [1j]}),
    "sparse columns": lambda: pd.DataFrame({"k": pd.arrays.SparseArray([1, 2])}),
    "one name twice": lambda: pd.DataFrame([[1, 2]], columns=["k", "k"]),
    "one name twice as text": lambda: pd.DataFrame([[1, 2, 3]], columns=["k", 0, "0"]),
    "no columns": lambda: pd.DataFrame(),
    "no columns of Polars": lambda: pl.DataFrame(),
    "no columns of Arrow": lambda: OTHER.select([]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_tables_that_cannot_be_joined(name: str) -> None:
    make = FRAMES[name]
    refused(lambda: tj.join(make(), OTHER, "l.k < r.a"))
    refused(lambda: tj.join(OTHER, make(), "l.a < r.k"))
    refused(lambda: tj.self_join(make(), "l.k < r.k"))
    refused(lambda: tj.join_many({"x": make(), "y": OTHER}, "x.k < y.a"))
    refused(lambda: tj.join_agg(make(), OTHER, "l.k < r.a", aggs={"n": "count(*)"}))
    refused(lambda: tj.StreamJoin("l.k < r.a", window=tj.FullHistory()).push(make(), OTHER))


def test_names_that_are_no_text_become_text() -> None:
    frame = pd.DataFrame({0: [1, 5], "rid": [0, 1]})
    got = tj.join(pa.table({"lid": [0], "a": [3]}), frame, "l.a < r.`0`")
    assert ids(got) == {(0, 1): 1}
