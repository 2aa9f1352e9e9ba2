"""A unit alone, with the simulator's state store: made, pushed into, looked into."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from simulation.store import Handle, Saved
from spark.harness import EPOCH, LEFT, RIGHT, at

pytest.importorskip("pyspark", reason="pyspark is not installed")
from thetajoin.engine.spec import JoinSpec
from thetajoin.spark.exchange import route_to_units
from thetajoin.spark.unit import METRICS, JoinUnit
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import UnitSpec

ON = "l.a < r.b AND l.c >= r.d"


def make_spec(window: Any, how: str = "inner", **changes: Any) -> UnitSpec:
    """A unit's join of the harness's rows; changes are of what it is or of how units run it."""
    values = {
        "on": ON,
        "how": how,
        "window": window,
        "order_by": ("t", "t") if isinstance(window, tj.CountWindow) else None,
    }
    own = {field.name for field in fields(JoinSpec)}
    values |= {name: value for name, value in changes.items() if name in own}
    more = {name: value for name, value in changes.items() if name not in own}
    schemas = {"left_schema": LEFT, "right_schema": RIGHT}
    written = {name: schema.serialize().to_pybytes() for name, schema in schemas.items()}
    return UnitSpec(**({"join": JoinSpec(**values), **written, "label": "test"} | more))


class Tester:
    """A unit in one task that never ends; Spark's own tester is not in 4.0 and 4.1."""

    def __init__(self, spec: UnitSpec) -> None:
        self._timed = isinstance(spec.join.window, tj.TimeWindow)
        self.handle = Handle({}, 0, lambda operation: None)
        self.use(JoinUnit(spec))

    def use(self, unit: JoinUnit) -> None:
        """Go on with another unit, as a query that was started again."""
        self.processor = unit
        unit.init(self.handle)

    def put_in(self, key: int, frame: pd.DataFrame) -> pd.DataFrame:
        """New blobs for one grouping key."""
        self.handle.key = key
        return _together(self.processor.handleInputRows((key,), iter([frame]), self._times()))

    def set_watermark(self, millis: int, *, wake: bool = True) -> pd.DataFrame:
        """Move the watermark on, and fire the timers that it has passed."""
        assert millis > self.handle.watermark
        self.handle.watermark = millis
        given = []
        for expiry, key in self.handle.expired() if wake else []:
            self.handle.key = key
            info = SimpleNamespace(getExpiryTimeInMs=lambda expiry=expiry: expiry)
            given += self.processor.handleExpiredTimer((key,), self._times(), info)
            self.handle.deleteTimer(expiry)
        return _together(given)

    def _times(self) -> Any:
        millis = self.handle.watermark if self._timed else -1
        return SimpleNamespace(getCurrentWatermarkInMs=lambda: millis)


def _together(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    given = list(frames)
    return pd.concat(given, ignore_index=True) if given else pd.DataFrame()


def make_tester(spec: UnitSpec) -> Tester:
    return Tester(spec)


def blobs(push: naive.Push, spec: UnitSpec | None = None) -> pd.DataFrame:
    """Both sides' rows as they come from the packing stage."""
    made = []
    spec = make_spec(tj.FullHistory()) if spec is None else spec
    for side, (rows, schema) in enumerate(((push.left, LEFT), (push.right, RIGHT))):
        batches = pa.Table.from_pylist(list(rows), schema).to_batches()
        made += [part.to_pandas() for part in route_to_units(side, spec)(batches)]
    empty = pd.DataFrame({"unit": [], "side": [], "blob": []})
    return pd.concat(made) if made else empty


def push(tester: Tester, batch: naive.Push) -> Counter[Any]:
    return ids(push_frame(tester, batch))


def push_frame(tester: Tester, batch: naive.Push) -> pd.DataFrame:
    return tester.put_in(UNIT_KEYS[0], blobs(batch))


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


def state_of(tester: Tester, key: int = UNIT_KEYS[0]) -> Saved:
    """What the state store has of one grouping key."""
    return tester.handle.state[key]


def description(tester: Tester) -> dict[str, Any]:
    return json.loads(state_of(tester).values["description"][0])


def stored(tester: Tester) -> set[str]:
    return {key[0] for key in state_of(tester).maps["rows"]}


def timers(tester: Tester) -> list[int]:
    return sorted(state_of(tester).timers)


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
