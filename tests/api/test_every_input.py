"""Every call takes anything that can be read as Arrow, and gives Arrow where that has no kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import naive
import thetajoin as tj
from strategies import ids

LEFT = {"lid": [0, 1, 2, 3], "a": [1, 5, None, 3]}
RIGHT = {"rid": [0, 1, 2], "b": [4, 9, None]}
ON = "l.a < r.b"
PAIRS = {(0, 0): 1, (0, 1): 1, (1, 1): 1, (3, 0): 1, (3, 1): 1}


class OnlyAStream:
    """What a library that we do not know gives."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.reads = table, 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.reads += 1
        return self.table.__arrow_c_stream__(requested_schema)


class OnlyAnArray:
    def __init__(self, table: pa.Table) -> None:
        self.batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


def ibis_table(table: pa.Table) -> Any:
    return pytest.importorskip("ibis").memtable(table)


def datafusion_frame(table: pa.Table) -> Any:
    return pytest.importorskip("datafusion").SessionContext().from_arrow(table)


def narwhals_frame(native: Any) -> Any:
    return pytest.importorskip("narwhals").from_native(native)


MAKERS: dict[str, Callable[[pa.Table], Any]] = {
    "a stream": OnlyAStream,
    "an array": OnlyAnArray,
    "record batch": lambda t: t.to_batches()[0],
    "reader": lambda t: t.to_reader(2),
    "dataset": ds.dataset,
    "scanner": lambda t: ds.dataset(t).scanner(),
    "scanner of a reader": lambda t: ds.Scanner.from_batches(t.to_reader()),
    "duckdb": lambda t: duckdb.from_arrow(t),
    "ibis": ibis_table,
    "datafusion": datafusion_frame,
    "narwhals of pandas": lambda t: narwhals_frame(
        t.to_pandas(types_mapper=pd.ArrowDtype).set_axis([5] * t.num_rows)
    ),
    "narwhals of polars": lambda t: narwhals_frame(pl.from_arrow(t)),
    "narwhals, lazy": lambda t: narwhals_frame(pl.from_arrow(t).lazy()),
    "narwhals of duckdb": lambda t: narwhals_frame(duckdb.from_arrow(t)),
}
ALL: dict[str, tuple[Callable[[pa.Table], Any], type]] = {
    **{name: (make, pa.Table) for name, make in MAKERS.items()},
    "arrow": (lambda t: t, pa.Table),
    "pandas": (lambda t: t.to_pandas(types_mapper=pd.ArrowDtype), pd.DataFrame),
    "polars": (pl.from_arrow, pl.DataFrame),
    "lazy": (lambda t: pl.from_arrow(t).lazy(), pl.LazyFrame),
}


@pytest.fixture(params=ALL)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda columns: ALL[name][0](pa.table(columns))


@pytest.fixture
def out(name: str) -> Callable[[Any], pa.Table]:
    """The result as Arrow, once it is of the kind that the left input asks for."""

    def checked(result: Any) -> pa.Table:
        assert isinstance(result, ALL[name][1])
        if isinstance(result, pd.DataFrame):
            return pa.Table.from_pandas(result, preserve_index=False)
        if isinstance(result, pl.LazyFrame):
            result = result.collect()
        return result.to_arrow() if isinstance(result, pl.DataFrame) else result

    return checked


def test_join(make: Any, out: Any) -> None:
    got = out(tj.join(make(LEFT), make(RIGHT), ON))
    assert got.column_names == ["lid", "a", "rid", "b"]
    assert ids(got) == PAIRS


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_outer_joins(make: Any, out: Any, how: str) -> None:
    rows = [pa.table(side).to_pylist() for side in (LEFT, RIGHT)]
    want = naive.naive_join(*rows, naive.conj(("a", "<", "b")), how=how)
    got = out(tj.join(make(LEFT), make(RIGHT), ON, how=how)).to_pylist()
    wanted = [(l or {}) | ({} if how in ("semi", "anti") else r or {}) for l, r in want]

    def counted(found: list[dict[str, Any]]) -> list[Any]:
        return sorted(sorted((k, v) for k, v in row.items() if v is not None) for row in found)

    assert counted(got) == counted(wanted)


def test_join_batches(make: Any) -> None:
    batches = list(tj.join_batches(make(LEFT), make(RIGHT), ON))
    assert ids(pa.Table.from_batches(batches)) == PAIRS


def test_self_join(make: Any, out: Any) -> None:
    got = out(tj.self_join(make(LEFT), "l.a < r.a"))
    pairs = sorted((row["lid"], row["lid_right"]) for row in got.to_pylist())
    assert pairs == [(0, 1), (0, 3), (3, 1)]


def test_join_many(make: Any, out: Any) -> None:
    inputs = {"p": make(LEFT), "q": make(RIGHT), "s": make(LEFT)}
    got = out(tj.join_many(inputs, "p.a < q.b AND q.b < s.a"))
    found = sorted((row["lid"], row["rid"], row["lid_s"]) for row in got.to_pylist())
    assert found == [(0, 0, 1), (3, 0, 1)]


def test_join_agg(make: Any, out: Any) -> None:
    aggs = {"n": "count(*)"}
    got = out(tj.join_agg(make(LEFT), make(RIGHT), ON, group_by="l.lid", aggs=aggs))
    assert dict(zip(*got.to_pydict().values(), strict=True)) == {0: 2, 1: 1, 3: 2}
    itself = out(tj.self_join_agg(make(LEFT), "l.a < r.a", aggs=aggs))
    assert itself.to_pydict() == {"n": [3]}


def test_nearest(make: Any, out: Any) -> None:
    got = out(tj.nearest(make(LEFT), make(RIGHT), key=("a", "b"), direction="forward"))
    assert {r["lid"]: r["rid"] for r in got.to_pylist()} == {0: 0, 1: 1, 2: None, 3: 0}


def test_explain(make: Any) -> None:
    plan = tj.explain(make(LEFT), make(RIGHT), ON)
    assert plan.left_rows == 4
    assert plan.right_rows == 3


def test_sql(make: Any, out: Any) -> None:
    query = "SELECT l.lid, r.rid FROM l JOIN r ON l.a < r.b"
    assert ids(out(tj.sql(query, l=make(LEFT), r=make(RIGHT)))) == PAIRS


def test_push(make: Any) -> None:
    join = tj.StreamJoin(ON, window=tj.FullHistory())
    got = [join.push(left=make(LEFT)), join.push(right=make(RIGHT))]
    assert ids(got[1]) == PAIRS


@pytest.mark.parametrize("right", ALL)
def test_any_kind_beside_another(right: str) -> None:
    got = tj.join(pa.table(LEFT), ALL[right][0](pa.table(RIGHT)), ON)
    assert isinstance(got, pa.Table)
    assert ids(got) == PAIRS
    lazy = tj.join(pl.LazyFrame(LEFT), ALL[right][0](pa.table(RIGHT)), ON)
    assert ids(lazy.collect().to_arrow()) == PAIRS


def test_the_same_object_is_read_once() -> None:
    given = OnlyAStream(pa.table(LEFT))
    assert tj.join(given, given, "l.a < r.a").num_rows == 3
    assert given.reads == 1
    scanner = ds.Scanner.from_batches(pa.table(LEFT).to_reader())
    assert tj.join(scanner, scanner, "l.a < r.a").num_rows == 3
    with pytest.raises(tj.ThetaJoinError, match=r"cannot be read as Arrow.*already scanned"):
        tj.join(scanner, scanner, "l.a < r.a")


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise self.error


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (5, "the left input is a int: give"),
        (None, "is a NoneType"),
        ({"a": [1]}, "is a dict"),
        (pa.Table, "is a type"),
        (pa.array([1]), "non-struct"),
        (pl.Series([1]), "non-struct"),
        (Failing(RuntimeError("no such\nthing")), "cannot be read as Arrow: no such"),
        (Failing(ValueError()), "cannot be read as Arrow: ValueError"),
        (
            pl.LazyFrame({"a": [1]}).select("b"),
            'read as Arrow: unable to find column "b"',
        ),
        (duckdb.sql("SELECT 1 AS a, error('boom') AS b"), "boom"),
        (pl.DataFrame({"a": [object()]}), "column 'a' of the left input holds Python objects"),
        (pl.LazyFrame({"a": [object()]}), "column 'a' of the left input holds Python objects"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(table: Any, words: str) -> None:
    with pytest.raises(tj.ThetaJoinError) as caught:
        tj.join(table, pa.table(RIGHT), "l.a < r.b")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_objects_of_polars_are_refused() -> None:
    """A category or a field that is called Object holds none."""
    left = pl.DataFrame(
        {"a": [1], "e": ["Object"], "s": [{"Object": 1}]},
        schema_overrides={"e": pl.Enum(["Object"])},
    )
    assert (
        tj.join(left, pa.table(RIGHT), "l.a < r.b").select("e", "s").rows()
        == [("Object", {"Object": 1})] * 2
    )


def test_memory_that_runs_out_while_reading_says_so() -> None:
    with pytest.raises(tj.ThetaJoinError, match="not enough memory"):
        tj.join(Failing(MemoryError()), pa.table(RIGHT), "l.a < r.b")
