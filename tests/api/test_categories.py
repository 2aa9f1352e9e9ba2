"""Ordered categories compare by their order, all other dictionaries by their values."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import all_ids, ids, naive_ids

SIZES = ["small", "medium", "large", "huge"]  # in the order of the text: huge, large, medium, small
OTHERS = ["small", "large", "medium", "huge"]


def arrow(values: list[str | None], categories: list[str] = SIZES) -> pa.Array:
    places = [None if v is None else categories.index(v) for v in values]
    return pa.DictionaryArray.from_arrays(
        pa.array(places, pa.int8()), pa.array(categories), ordered=True
    )


def table(kind: str, values: list[str | None], name: str, first: int = 0) -> Any:
    numbers = list(range(first, first + len(values)))
    if kind == "arrow":
        return pa.table({name: pa.array(numbers, pa.int64()), "s": arrow(values)})
    if kind == "pandas":
        column = pd.Categorical(values, categories=SIZES, ordered=True)
        return pd.DataFrame({name: pd.Series(numbers, dtype="int64"), "s": column})
    column = pl.Series(values, dtype=pl.Enum(SIZES))
    return pl.DataFrame({name: pl.Series(numbers, dtype=pl.Int64), "s": column})


def as_arrow(result: Any) -> pa.Table:
    if isinstance(result, pd.DataFrame):
        return pa.Table.from_pandas(result, preserve_index=False)
    return result.to_arrow() if isinstance(result, pl.DataFrame) else result


def rows(name: str, values: list[str | None], first: int = 0) -> list[naive.Row]:
    places = [None if v is None else SIZES.index(v) for v in values]
    return [{name: first + i, "s": place} for i, place in enumerate(places)]


VALUES = st.lists(st.none() | st.sampled_from(SIZES), max_size=8)


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
@own.examples(25)
@given(left=VALUES, right=VALUES, op=own.operators, how=st.sampled_from(own.HOWS))
def test_tables(kind: str, left: Any, right: Any, op: str, how: str) -> None:
    got = tj.join(table(kind, left, "lid"), table(kind, right, "rid"), f"l.s {op} r.s", how=how)
    expected = naive.naive_join(
        rows("lid", left), rows("rid", right), naive.conj(("s", op, "s")), how=how
    )
    assert ids(as_arrow(got)) == naive_ids(expected)


@given(st.lists(st.tuples(VALUES, VALUES), max_size=4), st.sampled_from(["<", ">="]))
def test_streams_and_snapshots(batches: Any, op: str) -> None:
    """Whatever the first rows were, later ones are in the same order; a restart knows it too."""
    join = tj.StreamJoin(f"l.s {op} r.s", window=tj.FullHistory())
    got, first, lefts, rights = [], [0, 0], [], []
    for left, right in batches:
        sides = table("arrow", left, "lid", first[0]), table("arrow", right, "rid", first[1])
        got.append(join.push(*sides))
        lefts += rows("lid", left, first[0])
        rights += rows("rid", right, first[1])
        first = [first[0] + len(left), first[1] + len(right)]
        join = tj.StreamJoin.restore(join.snapshot())
    expected = naive.naive_join(lefts, rights, naive.conj(("s", op, "s")))
    assert all_ids(got) == naive_ids(expected)


def test_the_output_is_as_the_input() -> None:
    left = table("arrow", ["small", "huge"], "lid")
    got = tj.join(left, table("arrow", ["large"], "rid"), "l.s < r.s")
    assert got["s"].to_pylist() == ["small"]
    assert got.schema.field("s") == left.schema.field("s")
    assert got.schema.field("s").metadata is None
    frame = tj.join(table("pandas", ["small"], "lid"), table("pandas", ["large"], "rid"), "l.s<r.s")
    assert frame["s"].dtype == pd.CategoricalDtype(SIZES, ordered=True)
    polars = tj.join(
        table("polars", ["small"], "lid"), table("polars", ["large"], "rid"), "l.s<r.s"
    )
    assert polars["s"].dtype == pl.Enum(SIZES)


def test_a_constant_is_a_category() -> None:
    left, right = table("arrow", SIZES, "lid"), pa.table({"rid": [0]})
    got = tj.join(left, right, "l.s >= 'large' AND l.lid >= r.rid")
    assert set(got["s"].to_pylist()) == {"large", "huge"}
    between = tj.join(left, right, "l.s BETWEEN 'medium' AND 'large' AND l.lid >= r.rid")
    assert set(between["s"].to_pylist()) == {"medium", "large"}
    with pytest.raises(tj.ThetaJoinError, match="'tiny' is none of the categories"):
        tj.join(left, right, "l.s > 'tiny' AND l.lid >= r.rid")


def test_extremes_and_groups() -> None:
    left = table("arrow", ["medium", "huge", "large"], "lid")
    right = pa.table({"rid": [9]})
    aggs = {"most": "max(l.s)", "least": "min(l.s)"}
    got = tj.join_agg(left, right, "l.lid < r.rid", aggs=aggs)
    assert got.to_pylist() == [{"most": "huge", "least": "medium"}]
    grouped = tj.join_agg(left, right, "l.lid < r.rid", group_by="l.s", aggs={"n": "count(*)"})
    assert dict(zip(*grouped.to_pydict().values(), strict=True)) == dict.fromkeys(SIZES[1:], 1)


def test_a_count_windows_order() -> None:
    left = pa.table({"lid": [0, 1], "s": arrow(["huge", "small"])})
    right = pa.table({"rid": [0, 1], "s": arrow(["large", "medium"])})
    got = tj.join(
        left, right, "l.lid >= 0 AND r.rid >= l.lid - 9", window=tj.CountWindow(1), order_by="s"
    )
    # small(l1) medium(r1) large(r0) huge(l0): each sees the other side's newest row.
    assert ids(got) == {(1, 1): 1, (1, 0): 1, (0, 0): 1}


def test_joins_of_many_and_sql() -> None:
    tables = {name: table("arrow", SIZES, name) for name in "abc"}
    got = tj.join_many(tables, "a.s < b.s AND b.s < c.s AND a.s >= 'medium'")
    assert got.select(["a", "b", "c"]).to_pylist() == [{"a": 1, "b": 2, "c": 3}]
    found = tj.sql("SELECT a.a, b.b FROM a JOIN b ON a.s < b.s WHERE b.s <= 'medium'", **tables)
    assert found.to_pylist() == [{"a": 0, "b": 1}]


def refused(on: str, left: pa.Array, right: pa.Array, *matches: str) -> None:
    with pytest.raises(tj.ThetaJoinError) as caught:
        tj.join(pa.table({"s": left}), pa.table({"s": right}), on)
    message = str(caught.value)
    assert "\n" not in message
    for match in matches:
        assert match in message, message


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_what_has_no_common_order_is_refused(op: str) -> None:
    small = arrow(["small"])
    refused(f"l.s {op} r.s", small, arrow(["small"], OTHERS), "different categories", "STRING")
    refused(f"l.s {op} r.s", small, arrow(["small"], SIZES[:2]), "different categories")
    refused(f"l.s {op} r.s", small, pa.array(["small"]), "l.s", "has none", "CAST")
    unordered = pa.array(["small"]).dictionary_encode()
    refused(f"l.s {op} r.s", unordered, small, "r.s", "has none")


def test_equality_and_text_need_no_common_order() -> None:
    left = pa.table({"lid": [0, 1], "s": arrow(["small", "huge"])})
    right = pa.table({"rid": [0, 1], "s": arrow(["huge", "small"], OTHERS)})
    assert ids(tj.join(left, right, "l.s = r.s")) == {(0, 1): 1, (1, 0): 1}
    as_text = "CAST(l.s AS STRING) < CAST(r.s AS STRING)"
    assert ids(tj.join(left, right, as_text)) == {(1, 1): 1}


def test_unordered_dictionaries_compare_as_their_values() -> None:
    left = pa.table({"lid": [0, 1], "s": pa.array(["b", "a"]).dictionary_encode()})
    right = pa.table({"rid": [0, 1], "s": pa.array(["a", "c"]).dictionary_encode()})
    assert ids(tj.join(left, right, "l.s < r.s")) == {(0, 1): 1, (1, 1): 1}
    frame = pd.DataFrame({"lid": [0, 1], "s": pd.Categorical(["b", "a"], categories=["b", "a"])})
    assert ids(as_arrow(tj.join(frame, right, "l.s < r.s"))) == {(0, 1): 1, (1, 1): 1}


def test_later_rows_with_another_order_are_refused() -> None:
    join = tj.StreamJoin("l.s < r.s", window=tj.FullHistory())
    join.push(pa.table({"s": arrow(["small"])}), pa.table({"s": arrow(["huge"])}))
    with pytest.raises(tj.ThetaJoinError, match="began with small < medium"):
        join.push(pa.table({"s": arrow(["small"], OTHERS)}))
    fewer = join.push(pa.table({"s": arrow(["large"], ["small", "large"])}))
    assert fewer.num_rows == 1


def test_categories_that_are_not_known_are_refused() -> None:
    schema = pa.schema({"s": pa.dictionary(pa.int8(), pa.string(), ordered=True)})
    with pytest.raises(tj.ThetaJoinError, match="not known yet"):
        tj.StreamJoin("l.s < r.s", window=tj.FullHistory(), left_schema=schema, right_schema=schema)


def test_chunks_with_different_orders_are_refused() -> None:
    chunks = pa.chunked_array([arrow(["small"]), arrow(["small"], OTHERS)])
    with pytest.raises(tj.ThetaJoinError, match="chunk"):
        tj.join(pa.table({"s": chunks}), pa.table({"s": arrow(["small"])}), "l.s < r.s")


def test_ordered_categories_of_a_type_that_cannot_be_looked_up_are_refused() -> None:
    values = pa.array([{"x": 1}, {"x": 2}])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values, ordered=True)
    table = pa.table({"a": [1, 2], "s": column})
    with pytest.raises(tj.ThetaJoinError, match="'s' of the left input has categories of type str"):
        tj.join(table, pa.table({"b": [3]}), "l.a < r.b")
