"""`df.thetajoin`, where it was asked for and nowhere else."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import thetajoin as tj
import thetajoin.pandas
import thetajoin.polars
from thetajoin.accessor import Accessor

LEFT, RIGHT = {"a": [1, 5, None]}, {"b": [4, 9]}
KINDS = [pd.DataFrame, pl.DataFrame, pl.LazyFrame]


def rows(table: Any) -> Any:
    if isinstance(table, pl.LazyFrame):
        table = table.collect()
    return (
        table.to_dict("list") if isinstance(table, pd.DataFrame) else table.to_dict(as_series=False)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_call(kind: Any) -> None:
    left, right, on, aggs = kind(LEFT), kind(RIGHT), "l.a < r.b", {"n": "count(*)"}
    pairs = [
        (left.thetajoin.join(right, on, how="left"), tj.join(left, right, on, how="left")),
        (left.thetajoin.self_join("l.a < r.a"), tj.self_join(left, "l.a < r.a")),
        (left.thetajoin.join_agg(right, on, aggs=aggs), tj.join_agg(left, right, on, aggs=aggs)),
        (
            left.thetajoin.self_join_agg("l.a < r.a", aggs=aggs),
            tj.self_join_agg(left, "l.a < r.a", aggs=aggs),
        ),
        (
            left.thetajoin.nearest(right, key=("a", "b")),
            tj.nearest(left, right, key=("a", "b")),
        ),
    ]
    for got, want in pairs:
        assert type(got) is kind
        assert str(rows(got)) == str(rows(want))
    batches = pa.Table.from_batches(left.thetajoin.join_batches(right, on))
    assert batches.num_rows == 3
    assert str(left.thetajoin.explain(right, on)) == str(tj.explain(left, right, on))


def test_a_mistake_is_reported_as_everywhere() -> None:
    with pytest.raises(tj.ThetaJoinError, match="unknown option 'thread'"):
        pd.DataFrame(LEFT).thetajoin.join(pl.DataFrame(RIGHT), "l.a < r.b", thread=1)


def test_all_calls_with_a_left_table_are_there() -> None:
    for name in tj.__all__:
        made = getattr(tj, name)
        first = next(iter(inspect.signature(made).parameters), "") if callable(made) else ""
        if inspect.isfunction(made) and first in ("left", "df"):
            assert hasattr(Accessor, name), name


def test_nothing_is_registered_without_being_asked() -> None:
    code = (
        "import pandas, polars, thetajoin as tj\n"
        "tj.join(pandas.DataFrame({'a': [1]}), polars.DataFrame({'b': [2]}), 'l.a < r.b')\n"
        "frames = pandas.DataFrame, polars.DataFrame, polars.LazyFrame\n"
        "print(*[hasattr(frame, 'thetajoin') for frame in frames])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["False"] * 3
