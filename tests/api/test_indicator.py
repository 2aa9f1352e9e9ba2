"""A column that says which sides a row comes from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj

VALUES = st.lists(st.none() | st.integers(0, 3), max_size=6)
NAMES = ["inner", "left", "right", "full"]


def rows(name: str, values: list[int | None]) -> list[naive.Row]:
    return [{name: at, "x": value} for at, value in enumerate(values)]


def table(name: str, values: list[int | None]) -> pa.Table:
    schema = pa.schema({name: pa.int64(), "x": pa.int64()})
    return pa.Table.from_pylist(rows(name, values), schema=schema)


def expected(left: Any, right: Any, op: str, how: str) -> Counter[Any]:
    found = naive.naive_join(
        rows("lid", left), rows("rid", right), naive.conj(("x", op, "x")), how=how
    )
    return Counter(
        (
            None if l is None else l["lid"],
            None if r is None else r["rid"],
            "right_only" if l is None else "left_only" if r is None else "both",
        )
        for l, r in found
    )


def said(table: pa.Table) -> Counter[Any]:
    return Counter(zip(*(table[n].to_pylist() for n in ("lid", "rid", "_merge")), strict=True))


@own.examples(40)
@given(VALUES, VALUES, own.operators, st.sampled_from(NAMES))
def test_tables(left: Any, right: Any, op: str, how: Any) -> None:
    tables = table("lid", left), table("rid", right)
    arguments: dict[str, Any] = {"how": how, "indicator": "_merge"}
    got = tj.join(*tables, f"l.x {op} r.x", **arguments)
    assert got.column_names == ["lid", "x", "rid", "x_right", "_merge"]
    assert said(got) == expected(left, right, op, how)
    batches = tj.join_batches(*tables, f"l.x {op} r.x", **arguments)
    assert said(pa.Table.from_batches(batches, schema=got.schema)) == said(got)


@own.examples(25)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=3), st.sampled_from(NAMES))
def test_streams_and_snapshots(batches: Any, how: Any) -> None:
    window = tj.TimeWindow(100, time=("lid", "rid"))
    schemas = table("lid", []).schema, table("rid", []).schema
    join = tj.StreamJoin(
        "l.x < r.x",
        how=how,
        window=window,
        indicator="_merge",
        left_schema=schemas[0],
        right_schema=schemas[1],
    )
    got, lefts, rights = [], [], []
    for left, right in batches:
        first = len(lefts), len(rights)
        lefts, rights = lefts + left, rights + right
        got.append(
            join.push(table("lid", lefts).slice(first[0]), table("rid", rights).slice(first[1]))
        )
        join = tj.StreamJoin.restore(join.snapshot())
    got.append(join.finish())
    assert said(pa.concat_tables(got)) == expected(lefts, rights, "<", how)


def test_nearest() -> None:
    left, right = table("lid", [1, 5, None]), table("rid", [4])
    got = tj.nearest(left, right, key="x", indicator="found")
    assert got["found"].to_pylist() == ["left_only", "both", "left_only"]
    got = tj.nearest(left, right, key="x", how="inner", indicator="found")
    assert got["found"].to_pylist() == ["both"]
    nothing = tj.nearest(left, right.slice(1), key="x", indicator="found")
    assert nothing["found"].to_pylist() == ["left_only"] * 3


def test_kinds() -> None:
    """As pandas' own merge has it, and as a category of Polars."""
    left, right = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [2, 3]})
    want = left.merge(right, how="outer", on="k", indicator=True)["_merge"]
    got = tj.join(left, right, "l.k = r.k", how="full", indicator="_merge")
    assert got["_merge"].dtype == want.dtype
    assert sorted(got["_merge"]) == sorted(want)
    polars = tj.join(pl.from_pandas(left), right, "l.k = r.k", how="left", indicator="_merge")
    assert sorted(polars["_merge"].to_list()) == ["both", "left_only"]
