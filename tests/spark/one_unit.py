"""A unit alone, in Spark's own tester: made, pushed into, looked into."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import EPOCH, LEFT, RIGHT, at

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("grpc", reason="grpcio is not installed")
from pyspark.sql.streaming.tws_tester import TwsTester

from thetajoin.spark.pack import packer
from thetajoin.spark.unit import METRICS, JoinUnit
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import UnitSpec

ON = "l.a < r.b AND l.c >= r.d"


def make_spec(window: Any, how: str = "inner", **changes: Any) -> UnitSpec:
    values = {
        "on": ON,
        "how": how,
        "window": window.to_dict(),
        "order_by": ("t", "t") if isinstance(window, tj.CountWindow) else None,
        "suffix": "_right",
        "self_join": False,
        "units": 1,
        "left_schema": LEFT.serialize().to_pybytes(),
        "right_schema": RIGHT.serialize().to_pybytes(),
        "label": "test",
    }
    return UnitSpec(**(values | changes))


def make_tester(spec: UnitSpec) -> TwsTester:
    timed = spec.window["kind"] == "time"
    extra = {"eventTimeExtractor": lambda row: 2**62} if timed else {}
    return TwsTester(JoinUnit(spec), timeMode="EventTime" if timed else "None", **extra)


def blobs(push: naive.Push, spec: UnitSpec | None = None) -> pd.DataFrame:
    """Both sides' rows as they come from the packing stage."""
    made = []
    spec = make_spec(tj.FullHistory()) if spec is None else spec
    for side, (rows, schema) in enumerate(((push.left, LEFT), (push.right, RIGHT))):
        batches = pa.Table.from_pylist(list(rows), schema).to_batches()
        made += [part.to_pandas() for part in packer(side, spec)(batches)]
    empty = pd.DataFrame({"unit": [], "side": [], "blob": []})
    return pd.concat(made) if made else empty


def push(tester: TwsTester, batch: naive.Push) -> Counter[Any]:
    return ids(push_frame(tester, batch))


def push_frame(tester: TwsTester, batch: naive.Push) -> pd.DataFrame:
    return tester.testInPandas(UNIT_KEYS[0], blobs(batch))


def numbers_of(frame: pd.DataFrame) -> dict[str, Any]:
    """The unit's own numbers, which come with its output."""
    return json.loads(frame[METRICS].dropna().iloc[0])


def ids(frame: pd.DataFrame) -> Counter[Any]:
    if not len(frame):
        return Counter()
    rows = frame[frame[METRICS].isna()]
    none = [None] * len(rows)
    # Both sides have four columns, and the first is the id; a semi join has the left ones only.
    left = rows["c0"].tolist()
    right = rows["c4"].tolist() if "c4" in rows else none
    return Counter(
        (None if pd.isna(l) else int(l), None if pd.isna(r) else int(r))
        for l, r in zip(left, right, strict=True)
    )


def description(tester: TwsTester) -> dict[str, Any]:
    return json.loads(tester.peekValueState("description", UNIT_KEYS[0])[0])


def stored(tester: TwsTester) -> set[str]:
    return {key[0] for key in tester.peekMapState("rows", UNIT_KEYS[0])}


def timers(tester: TwsTester) -> list[int]:
    handle = tester.handle
    handle.setGroupingKey(UNIT_KEYS[0])
    return list(handle.listTimers())


def rows_at(*times: int, first: int = 0, value: int = 0) -> naive.Push:
    """Rows of both sides at these times, that match (left 0 < right 1) or not."""
    left = [{"lid": first + i, "a": value, "c": 0, "t": at(t)} for i, t in enumerate(times)]
    right = [{"rid": first + i, "b": 1, "d": 0, "t": at(t)} for i, t in enumerate(times)]
    return naive.Push(left, right)


def sorted_by_hash(rows: Any) -> list[naive.Row]:
    """Rows with times of their own, so that no tie is left to the order of arrival."""
    return [row | {"t": at(i)} for i, row in enumerate(rows)]


def millis(seconds: int) -> int:
    return round(EPOCH.timestamp() * 1000) + seconds * 1000
