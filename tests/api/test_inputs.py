"""Tables of every kind in and out, the names of columns, and output in bounded pieces."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from datetime import datetime
from itertools import islice

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import ids

LEFT = {"lid": [0, 1, 2], "a": [1, 5, 3]}
RIGHT = {"rid": [0, 1], "b": [4, 9]}
PAIRS = {(0, 0): 1, (0, 1): 1, (1, 1): 1, (2, 0): 1, (2, 1): 1}
KINDS = {"arrow": pa.table, "pandas": pd.DataFrame, "polars": pl.DataFrame}
CLASSES = {"arrow": pa.Table, "pandas": pd.DataFrame, "polars": pl.DataFrame}


def as_arrow(table):
    if isinstance(table, pd.DataFrame):
        return pa.Table.from_pandas(table, preserve_index=False)
    return table.to_arrow() if isinstance(table, pl.DataFrame) else table


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
def test_the_output_is_of_the_left_inputs_kind(left, right):
    got = tj.join(KINDS[left](LEFT), KINDS[right](RIGHT), "l.a < r.b")
    assert isinstance(got, CLASSES[left])
    assert ids(as_arrow(got)) == PAIRS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_outer_joins_of_every_kind(kind, how):
    got = tj.join(KINDS[kind](LEFT), KINDS[kind](RIGHT), "l.a < r.b AND l.a > 1", how=how)
    arrow = tj.join(pa.table(LEFT), pa.table(RIGHT), "l.a < r.b AND l.a > 1", how=how)
    assert isinstance(got, CLASSES[kind])

    def numbers(table):
        rows = as_arrow(table).to_pylist()
        return sorted(
            (tuple(None if v is None or v != v else int(v) for v in row.values()) for row in rows),
            key=str,
        )

    assert numbers(got) == numbers(arrow)


@pytest.mark.parametrize("kind", KINDS)
def test_self_join_of_every_kind(kind):
    got = tj.self_join(KINDS[kind](LEFT), "l.a < r.a")
    assert isinstance(got, CLASSES[kind])
    assert len(got) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_join_batches_takes_every_kind(kind):
    batches = list(tj.join_batches(KINDS[kind](LEFT), KINDS[kind](RIGHT), "l.a < r.b"))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert ids(pa.Table.from_batches(batches)) == PAIRS


def test_explain_takes_every_kind():
    for make in KINDS.values():
        assert "l.a < r.b" in str(tj.explain(make(LEFT), make(RIGHT), "l.a < r.b"))


def test_inputs_are_not_changed():
    left, right = pd.DataFrame(LEFT), pl.DataFrame(RIGHT)
    before = left.copy(), right.clone()
    tj.join(left, right, "l.a < r.b", how="full")
    pd.testing.assert_frame_equal(left, before[0])
    assert right.equals(before[1])


def test_pandas_details():
    """An index is left behind; missing values and times come through."""
    left = pd.DataFrame(
        {
            "lid": [0, 1, 2],
            "a": pd.array([1, None, 3], dtype="Int64"),
            "when": [datetime(2024, 1, 1), None, datetime(2024, 1, 3)],
            "s": ["x", None, "z"],
        },
        index=[10, 20, 30],
    )
    right = pd.DataFrame({"rid": [0, 1], "since": [datetime(2024, 1, 2), datetime(2024, 1, 1)]})
    got = tj.join(left, right, "l.when >= r.since AND l.a > 0", how="left")
    assert list(got.columns) == ["lid", "a", "when", "s", "rid", "since"]
    rows = {(int(row.lid), None if pd.isna(row.rid) else int(row.rid)) for row in got.itertuples()}
    assert rows == {(0, 1), (1, None), (2, 0), (2, 1)}
    assert got["when"].dtype.kind == "M"


def test_pandas_nan_is_missing():
    left = pd.DataFrame({"lid": [0, 1], "a": [1.0, float("nan")]})
    right = pd.DataFrame({"rid": [0], "b": [0.0]})
    assert ids(as_arrow(tj.join(left, right, "l.a > r.b"))) == {(0, 0): 1}


def test_polars_details():
    left = pl.DataFrame(
        {"lid": [0, 1, 2], "s": ["a", None, "c"], "c": ["u", "v", "u"]}
    ).with_columns(pl.col("c").cast(pl.Categorical))
    right = pl.DataFrame({"rid": [0, 1], "t": ["b", "d"]})
    got = tj.join(left, right, "l.s < r.t")
    assert sorted(got.select("lid", "rid").rows()) == [(0, 0), (0, 1), (2, 1)]
    assert got["c"].to_list() == ["u"] * 3


def test_record_batches_and_readers():
    left, right = pa.table(LEFT), pa.table(RIGHT)
    reader = pa.RecordBatchReader.from_batches(left.schema, left.to_batches(max_chunksize=2))
    got = tj.join(reader, right.to_batches()[0], "l.a < r.b")
    assert isinstance(got, pa.Table)
    assert ids(got) == PAIRS


# --- columns -------------------------------------------------------------------------------------


def test_left_columns_then_right_ones_with_a_suffix():
    left = pa.table({"t": [1], "k": [1], "z": [1]})
    right = pa.table({"z": [2], "y": [2], "t": [2]})
    on = "l.k < r.y"
    assert tj.join(left, right, on).column_names == ["t", "k", "z", "z_right", "y", "t_right"]
    names = tj.join(left, right, on, suffix="_2").column_names
    assert names == ["t", "k", "z", "z_2", "y", "t_2"]
    assert tj.join(left, right, on, how="semi").column_names == ["t", "k", "z"]
    assert tj.join(left, right, on).to_pylist() == [
        {"t": 1, "k": 1, "z": 1, "z_right": 2, "y": 2, "t_right": 2}
    ]


def test_a_semi_join_needs_no_suffix():
    left = pa.table({"k": [1], "k_right": [1]})
    right = pa.table({"k": [2]})
    assert tj.join(left, right, "l.k < r.k", how="semi").column_names == ["k", "k_right"]


def test_unusual_column_names():
    left = pa.table({"my col": [1], "select": [1], "a`b": [1], "ü": [1]})
    right = pa.table({"l.x": [2], "R": [2]})
    on = "l.`my col` < r.`l.x` AND l.`select` < r.R AND l.`a``b` < r.R AND l.`ü` < r.R"
    assert tj.join(left, right, on).num_rows == 1
    assert tj.join(left, right, tj.l["my col"] < tj.r["l.x"]).num_rows == 1


def test_schema_is_kept():
    schema = pa.schema({"k": pa.int8(), "d": pa.dictionary(pa.int8(), pa.string())})
    left = pa.Table.from_pylist([{"k": 1, "d": "x"}], schema=schema)
    right = pa.table({"b": pa.array([2.0], pa.float32())})
    got = tj.join(left, right, "l.k < r.b")
    assert got.schema.types == [*schema.types, pa.float32()]


# --- bounded output ------------------------------------------------------------------------------


def test_output_comes_in_chunks_and_loses_no_row():
    left = pa.table({"lid": range(300), "a": [0] * 300})
    right = pa.table({"rid": range(200), "b": [1] * 200})
    batches = list(tj.join_batches(left, right, "l.a < r.b", chunk_rows=1000))
    assert max(batch.num_rows for batch in batches) <= 1000
    got = ids(pa.Table.from_batches(batches))
    assert len(got) == 60_000
    assert set(got.values()) == {1}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_chunks_of_every_join(how):
    left = pa.table({"lid": range(500), "a": [i % 9 for i in range(500)]})
    right = pa.table({"rid": range(400), "b": [i % 7 for i in range(400)]})
    on = "l.a > r.b AND l.a > 5"
    whole = tj.join(left, right, on, how=how)
    batches = list(tj.join_batches(left, right, on, how=how, chunk_rows=64))
    assert all(0 < batch.num_rows <= 64 for batch in batches)
    assert all(batch.schema == whole.schema for batch in batches)
    assert ids(pa.Table.from_batches(batches, schema=whole.schema)) == ids(whole)


def test_ten_of_a_billion_matches():
    """The caller takes ten rows and leaves: neither time nor memory follows the matches."""
    n = 40_000
    left = pa.table({"lid": range(n), "a": range(n), "c": range(n)})
    right = pa.table({"rid": range(n), "b": range(n), "d": range(n)})
    # n * (n - 1) / 2 = 8e8 matches for one condition; half of the square for two as well.
    for on in ("l.a < r.b", "l.a < r.b AND l.c < r.d", "l.a != r.b"):
        next(tj.join_batches(left.slice(0, 99), right, on))  # compiled and warm
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = [
            row
            for batch in islice(tj.join_batches(left, right, on, chunk_rows=64), 1)
            for row in batch.to_pylist()[:10]
        ]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert len(rows) == 10
        assert all(row["a"] != row["b"] for row in rows)
        assert after - before < 100 * 1024, f"{(after - before) // 1024} MiB for ten rows of {on}"


def test_import_is_light():
    """Nothing heavy is loaded before it is needed, and pandas and Polars never by us."""
    heavy = "('numba', 'pyspark', 'pandas', 'polars')"
    code = f"import sys, thetajoin; print(*[m for m in {heavy} if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_views_are_sampled_too(type_, rows):
    table = pa.table({"x": pa.array(["a", "b"] * rows, pa.string()).cast(type_)})
    few = table.slice(0, 4)
    for op in ("=", "<=>"):
        assert f"l.x {op} r.x" in str(tj.explain(table, few, f"l.x {op} r.x"))
    got = tj.join_many({"r": table, "s": few, "t": few.slice(0, 1)}, "r.x = s.x AND s.x = t.x")
    assert got.num_rows == rows * min(rows, 2)
    assert got.schema.types == [type_] * 3
