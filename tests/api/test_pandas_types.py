"""What comes in as pandas goes out with pandas' own types, and no value changes on the way."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import thetajoin as tj

LARGE = 9007199254740993  # the first integer that a double cannot hold
CATEGORIES = pd.CategoricalDtype(["low", "mid", "high", "never"], ordered=True)

COLUMNS: dict[str, Any] = {
    "Int64": pd.array([LARGE, None, -1], dtype="Int64"),
    "Int8": pd.array([1, None, -1], dtype="Int8"),
    "UInt64": pd.array([2**64 - 1, None, 1], dtype="UInt64"),
    "boolean": pd.array([True, None, False], dtype="boolean"),
    "Float64": pd.array([1.5, None, -0.0], dtype="Float64"),
    "Float32": pd.array([1.5, None, 2.5], dtype="Float32"),
    "string[python]": pd.array(["a", None, "é"], dtype="string[python]"),
    "string[pyarrow]": pd.array(["a", None, "é"], dtype="string[pyarrow]"),
    "int64[pyarrow]": pd.array([LARGE, None, 2], dtype="int64[pyarrow]"),
    "string arrow": pd.array(["a", None, "b"], dtype=pd.ArrowDtype(pa.string())),
    "decimal arrow": pd.array(
        [Decimal("1.50"), None, Decimal("2.25")], dtype=pd.ArrowDtype(pa.decimal128(9, 2))
    ),
    "timestamp arrow": pd.array([0, None, 1], dtype=pd.ArrowDtype(pa.timestamp("ms", "UTC"))),
    "int64": np.array([LARGE, 2, 3]),
    "int16": np.array([1, 2, 3], np.int16),
    "uint64": np.array([2**64 - 1, 2, 3], np.uint64),
    "bool": np.array([True, False, True]),
    "float32": np.array([1.5, np.nan, 2.5], np.float32),
    "datetime64[s]": np.array(["2024-01-01", "NaT", "2024-01-02"], "datetime64[s]"),
    "datetime64[us]": np.array(["2024-01-01", "NaT", "2024-01-02"], "datetime64[us]"),
    "datetime64[ns, Europe/Zurich]": pd.to_datetime(
        ["2024-01-01", None, "2024-07-02"], utc=True
    ).tz_convert("Europe/Zurich"),
    "timedelta64[ms]": np.array([1, "NaT", 3], "timedelta64[ms]"),
    "category": pd.Categorical(["low", None, "high"], dtype=CATEGORIES),
    "category of numbers": pd.Categorical([3, None, 1], categories=[3, 2, 1]),
    "text": np.array(["a", None, "b"], object),
    "object of int": np.array([LARGE, None, 3], object),
    "object of date": np.array([date(2024, 1, 1), None, date(2024, 1, 2)], object),
    "object of Decimal": np.array([Decimal("1.5"), None, Decimal("2.5")], object),
    "str[pyarrow]": pd.array(["a", None, "é"], dtype=pd.StringDtype("pyarrow", na_value=np.nan)),
    "str[python]": pd.array(["a", None, "é"], dtype=pd.StringDtype("python", na_value=np.nan)),
    "category of str": pd.Categorical(pd.array(["b", None, "a"], dtype="string[pyarrow]")),
    "category of Int64": pd.Categorical(pd.array([LARGE, None, 1], dtype="Int64")),
    "category of times": pd.Categorical(pd.to_datetime(["2024-01-02", None, "2024-01-01"])),
    "datetime64[us, UTC+02:00]": pd.to_datetime(
        ["2024-01-01T00:00+02:00", None, "2024-01-02T00:00+02:00"]
    ).as_unit("us"),
    "bool[pyarrow]": pd.array([True, None, False], dtype="bool[pyarrow]"),
    "float16": np.array([1.5, np.nan, 2.5], np.float16),
    "period": pd.period_range("2024-01-01", periods=3, freq="D"),
    "interval": pd.IntervalIndex.from_breaks([0, 1, 2, 3], closed="left"),
    "interval of times": pd.interval_range(pd.Timestamp("2024-01-01"), periods=3),
    "cut": pd.cut([1, 7, 3], [0, 1, 2, 3]),
    "category of periods": pd.Categorical(pd.period_range("2024-01", periods=3, freq="M")),
    "list[pyarrow]": pd.array([[1], None, []], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
}
WITHOUT_ORDER = {"period", "interval", "interval of times", "cut", "category of periods"} | {
    "list[pyarrow]",
    "float16",  # compares as float32, and is grouped so
}


def frame(name: str, column: str = "v", key: str = "k") -> pd.DataFrame:
    return pd.DataFrame({key: [1, 2, 3], column: COLUMNS[name]})


def assert_same(got: pd.Series, want: pd.Series) -> None:
    left, right = got.reset_index(drop=True), want.reset_index(drop=True)
    pd.testing.assert_series_equal(left, right, check_names=False)


@pytest.mark.parametrize("name", COLUMNS)
def test_join(name: str) -> None:
    left = frame(name)
    got = tj.join(left, pd.DataFrame({"x": [9]}), "l.k < r.x").sort_values("k")
    assert_same(got["v"], left["v"])


@pytest.mark.parametrize("name", COLUMNS)
def test_a_result_without_rows(name: str) -> None:
    left = frame(name)
    got = tj.join(left, pd.DataFrame({"x": [0]}), "l.k < r.x")
    assert_same(got["v"], left["v"].iloc[:0])


@pytest.mark.parametrize("name", COLUMNS)
def test_the_right_side(name: str) -> None:
    right = frame(name)
    got = tj.join(pd.DataFrame({"x": [0]}), right, "l.x < r.k").sort_values("k")
    assert_same(got["v"], right["v"])


@pytest.mark.parametrize("name", COLUMNS)
def test_self_join(name: str) -> None:
    left = frame(name)
    got = tj.self_join(left, "l.k < r.k").sort_values(["k", "k_right"])
    assert_same(got["v"], left["v"].iloc[[0, 0, 1]])
    assert_same(got["v_right"], left["v"].iloc[[1, 2, 2]])


@pytest.mark.parametrize("name", COLUMNS)
def test_join_many(name: str) -> None:
    tables = {"a": frame(name), "b": frame("int64", "w"), "c": frame(name)}
    got = tj.join_many(tables, "a.k < b.k AND b.k < c.k")
    assert_same(got["v"], tables["a"]["v"].iloc[[0]])
    assert_same(got["v_c"], tables["c"]["v"].iloc[[2]])


@pytest.mark.parametrize("name", COLUMNS)
def test_sql(name: str) -> None:
    left = frame(name)
    query = "SELECT a.k, a.v AS shown FROM a JOIN b ON a.k < b.x ORDER BY a.k"
    got = tj.sql(query, a=left, b=pd.DataFrame({"x": [9]}))
    assert_same(got["shown"], left["v"])


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in WITHOUT_ORDER])
def test_groups_and_extremes(name: str) -> None:
    left = frame(name)
    got = tj.join_agg(
        left,
        pd.DataFrame({"x": [9]}),
        "l.k < r.x",
        group_by=["l.k", "l.v"],
        aggs={"n": "count(*)", "most": "max(l.v)"},
    ).sort_values("k")
    assert_same(got["v"], left["v"])
    assert_same(got["most"], left["v"])
    assert got["n"].dtype == np.int64


NUMPY_WITH_NULL = {
    "int64": pd.array([LARGE, 2, 3, None], dtype="Int64"),
    "int16": pd.array([1, 2, 3, None], dtype="Int16"),
    "uint64": pd.array([2**64 - 1, 2, 3, None], dtype="UInt64"),
    "float32": np.array([1.5, np.nan, 2.5, np.nan], np.float32),
    "bool": np.array([True, False, True, None], object),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_outer_joins(name: str) -> None:
    """NumPy's integers have no place for what is missing: they become nullable, not doubles."""
    right = frame(name)
    left = pd.DataFrame({"x": [0, 5]})
    got = tj.join(left, right, "l.x < r.k", how="left").sort_values(["x", "k"])
    if name in NUMPY_WITH_NULL:
        want = pd.Series(NUMPY_WITH_NULL[name])
    else:
        want = right["v"].reindex([0, 1, 2, 3])
    assert_same(got["v"], want)


def test_integers_of_other_libraries_keep_their_values() -> None:
    """A right side from Arrow in a pandas result: the same rule."""
    right = pa.table({"k": [1, 2], "v": [LARGE, None]})
    got = tj.join(pd.DataFrame({"x": [0]}), right, "l.x < r.k").sort_values("k")
    assert got["v"].tolist() == [LARGE, pd.NA]
    assert got["v"].dtype == "Int64"


def test_arrow_results_say_nothing_of_pandas() -> None:
    right = frame("Int64")
    got = tj.join(pa.table({"x": [0]}), right, "l.x < r.k")
    assert all(field.metadata is None for field in got.schema)
    batches = tj.join_batches(right, right, "l.k < r.k")
    assert all(field.metadata is None for field in next(batches).schema)
    join = tj.StreamJoin("l.k < r.k", window=tj.FullHistory())
    assert all(field.metadata is None for field in join.push(right, right).schema)


def test_metadata_of_arrow_fields_is_kept() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), metadata={"unit": "W"})])
    table = pa.table({"k": [1, 2]}, schema=schema)
    assert tj.join(table, table, "l.k < r.k").schema.field("k").metadata == {b"unit": b"W"}


def test_sql_of_arrow_beside_pandas_says_nothing_of_pandas() -> None:
    arrow = pa.table({"k": [1, 2]})
    frame = pd.DataFrame({"k": [2, 3], "v": pd.array([1, None], "Int64")})
    found = tj.sql("SELECT a.k, b.v FROM a JOIN b ON a.k < b.k", a=arrow, b=frame)
    assert isinstance(found, pa.Table)
    assert all(field.metadata is None for field in found.schema)


def test_a_date_that_pandas_cannot_hold():
    """One line, and what to do instead."""
    left = pd.DataFrame({"a": [1]})
    right = pa.table({"b": [2], "t": pa.array([2**31 - 1], pa.date32())})
    with pytest.raises(tj.ThetaJoinError, match="pandas cannot hold a value") as caught:
        tj.join(left, right, "l.a < r.b")
    assert "\n" not in str(caught.value)
    assert tj.join(pa.table({"a": [1]}), right, "l.a < r.b").num_rows == 1


@pytest.mark.parametrize(
    "column", [pd.arrays.SparseArray([1, 0]), np.array([1j, 2]), np.array([1, "a"], object)]
)
def test_what_arrow_has_no_type_for_is_refused(column: Any) -> None:
    left = pd.DataFrame({"a": [1, 2], "odd": column})
    with pytest.raises(
        tj.ThetaJoinError, match=r"left input cannot be read as Arrow.*odd"
    ) as caught:
        tj.join(left, left, "l.a < r.a")
    assert "\n" not in str(caught.value)


def test_an_interval_that_doubles_cannot_hold() -> None:
    """pandas has no place for a missing interval between integers, but between doubles."""
    right = pd.DataFrame({"k": [1], "v": pd.arrays.IntervalArray.from_tuples([(0, LARGE)])})
    left = pd.DataFrame({"x": [0, 5]})
    assert tj.join(left, right, "l.x < r.k")["v"].iloc[0].right == LARGE
    with pytest.raises(tj.ThetaJoinError, match="pandas cannot hold a value"):
        tj.join(left, right, "l.x < r.k", how="left")


def test_the_frame_that_came_in_stays_as_it_is() -> None:
    left = pd.DataFrame({"a": [1, 2], "c": pd.cut([1, 2], [0, 1, 2])})
    before = left.copy()
    tj.join(left, left, "l.a < r.a")
    pd.testing.assert_frame_equal(left, before)
