"""Columns of every type are carried along, also without rows or chunks."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import thetajoin as tj

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
    pd = pytest.importorskip("pandas")
    one = pd.DataFrame({"k": [1]})
    none = pd.DataFrame({"k": pd.Series([], dtype="int64"), "s": pd.Series([], dtype=object)})
    found = tj.join_agg(one, none, "l.k < r.k", aggs={"hi": "max(r.s)", "n": "count(r.s)"})
    assert found["hi"].isna().tolist() == [True]
    assert found["n"].tolist() == [0]


@pytest.mark.parametrize("name", ["Int128", "UInt128"])
@pytest.mark.parametrize("lazy", [False, True])
def test_integers_of_128_bits(name, lazy):
    pl = pytest.importorskip("polars")
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
    pl = pytest.importorskip("polars")
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
