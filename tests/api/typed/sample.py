"""What a type checker says of calls: read by mypy, never run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type, reveal_type

import polars as pl
import pyspark.sql

import thetajoin as tj


class PandasFrame:
    """What pandas' stubs say of a DataFrame, as far as it matters here."""

    @property
    def iloc(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Relation:
    """A table of a library that is not known."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def same_kind(
    eager: pl.DataFrame, lazy: pl.LazyFrame, pandas: PandasFrame, spark: pyspark.sql.DataFrame
) -> None:
    on, aggs = "l.a < r.a", {"n": "count(*)"}
    assert_type(tj.join(eager, pandas, on), pl.DataFrame)
    assert_type(tj.join(lazy, "files/*.csv", on, how="left_outer"), pl.LazyFrame)
    assert_type(tj.join(pandas, eager, on, indicator="_merge"), PandasFrame)
    assert_type(tj.join(spark, spark, on), pyspark.sql.DataFrame)
    assert_type(tj.join(left=eager, right=eager, on=[on]), pl.DataFrame)
    assert_type(tj.self_join(lazy, on), pl.LazyFrame)
    assert_type(tj.join_agg(pandas, eager, on, group_by="l.a", aggs=aggs), PandasFrame)
    assert_type(tj.self_join_agg(eager, on, aggs=aggs), pl.DataFrame)
    assert_type(tj.nearest(eager, lazy, key="ts", direction="forward"), pl.DataFrame)
    assert_type(tj.sql("SELECT a.x FROM a, b", a=eager, b=eager), pl.DataFrame)
    assert_type(tj.join_many({"a": eager, "b": eager}, "a.x < b.x"), pl.DataFrame)


def arrow(eager: pl.DataFrame, relation: Relation, path: Path) -> None:
    # pyarrow has no types of its own, so its tables are Any: what matters is that none of these is
    # taken for the kind that went in.
    reveal_type(tj.join(relation, eager, "l.a < r.a"))  # Any
    reveal_type(tj.join("a.parquet", eager, "l.a < r.a"))  # Any
    reveal_type(tj.join(path, eager, "l.a < r.a"))  # Any
    reveal_type(tj.join_batches(eager, eager, "l.a < r.a"))  # Iterator[Any]


def mistakes(eager: pl.DataFrame) -> None:
    tj.join(eager, eager, "l.a < r.a", how="outer_left")  # error
    tj.join(5, eager, "l.a < r.a")  # error
    tj.join(eager, eager, "l.a < r.a", suffix=1)  # error
    tj.nearest(eager, eager, key="ts", direction="back")  # error
    tj.nearest(eager, eager, key="ts", ties="any")  # error
    tj.StreamJoin("l.a < r.a", how="lef", window=tj.FullHistory())  # error
    tj.join(eager, eager, 5)  # error
    tj.join(eager, eager, ["l.a < r.a", 5])  # error
    tj.join(eager, 5, "l.a < r.a")  # error
    tj.join(eager, eager, "l.a < r.a", hwo="left")  # error
    tj.join(eager, eager, "l.a < r.a", threads="two")  # error
    tj.self_join(eager, True)  # error
    tj.join_agg(eager, eager, "l.a < r.a", aggs={"n": 5})  # error
    tj.nearest(eager, eager, key="ts", on=5)  # error
    tj.nearest(eager, eager, key="ts", tolerence=5)  # error
    tj.explain(eager, eager, "l.a < r.a", thread=2)  # error
    tj.join_batches(eager, eager, "l.a < r.a", chunk_row=64)  # error
    tj.join_many({"a": eager, "b": 5}, "a.x < b.x")  # error
    tj.sql(eager, a=eager)  # error
    tj.sql("SELECT a.x FROM a, b WHERE a.x < b.x", a=eager, b=5)  # error
    join = tj.StreamJoin("l.a < r.a", window=tj.FullHistory())
    join.push(left=5)  # error
    join.push(eager, rihgt=eager)  # error
    tj.StreamJoin("l.a < r.a", widow=tj.FullHistory())  # error


def fine(eager: pl.DataFrame, spark: pyspark.sql.DataFrame, column: pyspark.sql.Column) -> None:
    tj.join(eager, eager, (tj.l.a < tj.r.a) & (tj.l.b > tj.r.b), threads=2, check_memory=False)
    tj.join(eager, eager, ["l.a < r.a", tj.l.b > tj.r.b], progress=True)
    tj.join(spark, spark, column, engine="spark", units=4)
    tj.join(spark, spark, [column, "l.a < r.a"], late="late", routing="hash")
    tj.StreamJoin("l.a < r.a", window=tj.FullHistory()).push(eager, right=eager.lazy())


def batches(eager: pl.DataFrame) -> Iterator[Any]:
    return tj.join_batches(eager, eager, "l.a < r.a")
