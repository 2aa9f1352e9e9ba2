"""A unit alone, in Spark's own tester: what it keeps, what it removes, when it wakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import EPOCH, LEFT, RIGHT, at, random_batches
from thetajoin.errors import DataError, SnapshotError
from thetajoin.limits import limits

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("grpc", reason="grpcio is not installed")
from pyspark.sql.streaming.tws_tester import TwsTester

from thetajoin.engine.block import Block
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.index.arrivals import Arrivals
from thetajoin.ipc import from_ipc
from thetajoin.planner.route_plan import choose_route
from thetajoin.spark import unit as unit_module
from thetajoin.spark import unit_spec
from thetajoin.spark.pack import distinct_keys, packer, unpack_ordered
from thetajoin.spark.unit import ARRIVALS, METRICS, Entry, JoinUnit, rows_blob, rows_from
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import UnitSpec

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


@pytest.fixture(autouse=True)
def local_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    unit_spec._COMPILED.clear()  # all have one label
    return tmp_path


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


def millis(seconds: int) -> int:
    return round(EPOCH.timestamp() * 1000) + seconds * 1000


def test_rows_are_stored_once_a_batch_and_removed_whole() -> None:
    tester = make_tester(make_spec(tj.CountWindow(3)))
    assert push(tester, rows_at(0, 1, 2)) == Counter(
        {(i, j): 1 for i in range(3) for j in range(3)}
    )
    assert stored(tester) == {"l0", "r0"}
    push(tester, rows_at(0, 1, first=3))
    assert stored(tester) == {"l0", "r0", "l3", "r3"}
    push(tester, rows_at(0, first=5))
    assert stored(tester) == {"l3", "r3", "l5", "r5"}
    assert description(tester)["counts"] == {"l": 6, "r": 6}


def test_every_update_has_a_new_token() -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    tokens = set()
    for n in range(3):
        push(tester, rows_at(n, first=n))
        tokens.add(description(tester)["token"])
    assert len(tokens) == 3


@pytest.mark.parametrize("reused", ["", "1"])
@pytest.mark.parametrize(
    ("how", "units"),
    [("inner", 1), ("inner", 3), ("left", 1), ("left", 2), ("semi", 1), ("full", 1)],
)
@pytest.mark.parametrize("forget", ["nothing", "memory", "memory and files"])
@pytest.mark.parametrize("window", [tj.CountWindow(9, slide=2), tj.CountWindow(1000)])
def test_state_is_enough_to_go_on(
    how: str,
    units: int,
    forget: str,
    window: Any,
    reused: str,
    local_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At hand, from mapped files or from the state store: the result is that of one process.

    A worker that Spark uses again writes its files after the task.
    """
    monkeypatch.setenv("SPARK_REUSE_WORKER", reused)
    spec = make_spec(window, how, units=units)
    tester = make_tester(spec)
    embedded = tj.StreamJoin(
        ON, how=how, window=window, order_by="t", left_schema=LEFT, right_schema=RIGHT
    )
    origins = set()
    for batch in random_batches(7, batches=12, rows=6):
        batch = naive.Push(sorted_by_hash(batch.left), sorted_by_hash(batch.right))
        if forget != "nothing":
            unit_module._REMEMBERED.clear()
        if forget == "memory and files":
            shutil.rmtree(local_dir / "thetajoin-test", ignore_errors=True)
        frames = [tester.testInPandas(key, blobs(batch)) for key in UNIT_KEYS[:units]]
        sides = [
            pa.Table.from_pylist(list(rows), schema)
            for rows, schema in ((batch.left, LEFT), (batch.right, RIGHT))
        ]
        want = embedded.push(*sides)
        columns = [
            want[n].to_pylist() if n in want.column_names else [None] * len(want)
            for n in ("lid", "rid")
        ]
        assert sum(map(ids, frames), Counter()) == Counter(zip(*columns, strict=True))
        for frame in frames:
            if len(frame):
                origins.add(numbers_of(frame)["from"])
    assert {"nothing": "memory", "memory": "files", "memory and files": "state"}[forget] in origins


@pytest.mark.parametrize("index", ["pim_tree", "rap_table", "auto"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_any_index_gives_the_same_and_is_built_again_from_the_state(index: str, how: str) -> None:
    window = tj.CountWindow(9, slide=2)
    testers = [
        make_tester(make_spec(window, how, label=name, options={"index": name}))
        for name in (index, "po_join")
    ]
    for number, batch in enumerate(random_batches(3, batches=8, rows=6)):
        batch = naive.Push(sorted_by_hash(batch.left), sorted_by_hash(batch.right))
        if number % 3 == 2:
            unit_module._REMEMBERED.clear()
        one, other = (push(tester, batch) for tester in testers)
        assert one == other


def sorted_by_hash(rows: Any) -> list[naive.Row]:
    """Rows with times of their own, so that no tie is left to the order of arrival."""
    return [row | {"t": at(i)} for i, row in enumerate(rows)]


def test_half_a_layout_is_no_layout(local_dir: Path) -> None:
    """One segment's file is gone: nothing of the others may be taken twice."""
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(0, 1))
    unit_module._REMEMBERED.clear()
    folder = local_dir / "thetajoin-test" / "0"
    layout = json.loads(next(folder.glob("*.json")).read_text())
    (folder / layout["r"][0]).unlink()
    found = push(tester, naive.Push([], [{"rid": 9, "b": 1, "d": 0, "t": at(0)}]))
    assert found == Counter({(0, 9): 1, (1, 9): 1})


@pytest.mark.parametrize("writer", ["alive", "dead", "unknown"])
def test_files_under_way_are_waited_for_while_their_writer_lives(
    writer: str, local_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(0, 1))
    unit_module._REMEMBERED.clear()
    folder = local_dir / "thetajoin-test" / "0"
    layout = next(folder.glob("*.json"))
    pending, kept = layout.with_suffix(".pending"), layout.with_suffix(".kept")
    layout.rename(kept)
    ended = subprocess.Popen(["true"])
    ended.wait()
    pending.write_text({"alive": str(os.getpid()), "dead": str(ended.pid), "unknown": "?"}[writer])
    looks = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            kept.rename(layout)

    # Only that module's clock: other threads sleep too.
    clock = SimpleNamespace(sleep=look, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr("thetajoin.spark.cache.time", clock)
    frame = tester.testInPandas(
        UNIT_KEYS[0], blobs(naive.Push([], [{"rid": 9, "b": 1, "d": 0, "t": at(0)}]))
    )
    assert ids(frame) == Counter({(0, 9): 1, (1, 9): 1})
    assert numbers_of(frame)["from"] == ("files" if writer == "alive" else "state")
    assert len(looks) == (3 if writer == "alive" else 0)


def overwritten(data: bytes, at: float, new: bytes) -> bytes:
    start = int(len(data) * at)
    return data[:start] + new[: len(data) - start] + data[start + len(new) :]


DAMAGES: dict[str, Any] = {
    "emptied": lambda data: b"",
    "short": lambda data: b"\0" * 4,
    "other": lambda data: b"\xff" * 64,
    "truncated": lambda data: data[:-1],
    "cut in half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0",
    **{
        f"{what} at {at}": lambda data, at=at, new=new: overwritten(data, at, new)
        for at in (0.0, 0.01, 0.2, 0.5, 0.8, 0.98)
        for what, new in (("zeros", b"\0" * 640), ("a byte", b"\x5a"))
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_segment_files_cost_time_only(local_dir: Path, damage: str) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(*range(40)))
    unit_module._REMEMBERED.clear()
    for file in (local_dir / "thetajoin-test" / "0").glob("*.segment"):
        whole = file.read_bytes()
        changed = DAMAGES[damage](whole)
        assert changed != whole
        file.write_bytes(changed)
    frame = push_frame(tester, naive.Push([], [{"rid": 99, "b": 1, "d": 0, "t": at(0)}]))
    assert ids(frame) == Counter({(lid, 99): 1 for lid in range(40)})
    assert numbers_of(frame)["from"] == "state"


def test_a_segment_under_another_name_is_not_taken(local_dir: Path) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(0, 1, 2))
    push(tester, rows_at(3, 4, 5, first=3))
    unit_module._REMEMBERED.clear()
    folder = local_dir / "thetajoin-test" / "0"
    newest = max(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    one, other = json.loads(newest.read_text())["l"]
    both = [(folder / name).read_bytes() for name in (other, one)]
    for name, data in zip((one, other), both, strict=True):
        (folder / name).write_bytes(data)
    frame = push_frame(tester, naive.Push([], [{"rid": 99, "b": 1, "d": 0, "t": at(0)}]))
    assert ids(frame) == Counter({(lid, 99): 1 for lid in range(6)})
    assert numbers_of(frame)["from"] == "state"


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"token": "other", "l": [], "r": []}'])
def test_damaged_layouts_cost_time_only(local_dir: Path, damage: str) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(0, 1))
    unit_module._REMEMBERED.clear()
    for file in (local_dir / "thetajoin-test" / "0").glob("*.json"):
        file.write_text(damage)
    frame = push_frame(tester, naive.Push([], [{"rid": 9, "b": 1, "d": 0, "t": at(0)}]))
    assert ids(frame) == Counter({(0, 9): 1, (1, 9): 1})
    assert numbers_of(frame)["from"] == "state"


@pytest.mark.skipif(os.name != "posix", reason="folders have no mode here")
def test_files_where_others_may_write_are_not_used(local_dir: Path) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(0, 1))
    folder = local_dir / "thetajoin-test" / "0"
    assert [place.stat().st_mode & 0o777 for place in (folder.parent, folder)] == [0o700, 0o700]
    unit_module._REMEMBERED.clear()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="can be written to by others"):
        frame = push_frame(tester, naive.Push([], [{"rid": 9, "b": 1, "d": 0, "t": at(0)}]))
    assert ids(frame) == Counter({(0, 9): 1, (1, 9): 1})
    assert numbers_of(frame)["from"] == "state"


def test_unwritable_folder_costs_time_only(
    local_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (local_dir / "file").write_text("in the way")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(local_dir / "file"))
    tester = make_tester(make_spec(tj.FullHistory()))
    with pytest.warns(UserWarning, match="segment files cannot be written"):
        push(tester, rows_at(0, 1))
    unit_module._REMEMBERED.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was told, and is not told again
        found = push(tester, naive.Push([], [{"rid": 9, "b": 1, "d": 0, "t": at(0)}]))
    assert found == Counter({(0, 9): 1, (1, 9): 1})


@pytest.mark.parametrize("options", [{"head_rows": 100}, {"merge": "background"}])
def test_engine_options_do_not_keep_rows_out_of_the_files(options: dict[str, Any]) -> None:
    tester = make_tester(make_spec(tj.FullHistory(), options=options))
    for n in range(6):
        unit_module._REMEMBERED.clear()
        found = push(tester, rows_at(0, first=n))
        assert sum(found.values()) == 2 * n + 1


def test_unmatched_rows_come_once_whatever_the_files_still_hold() -> None:
    """A merged segment outlives the entries of its oldest rows, which have been given out."""
    tester = make_tester(make_spec(tj.CountWindow(9, slide=2), "left"))
    given: Counter[Any] = Counter()
    for n in range(12):
        unit_module._REMEMBERED.clear()
        given += push(tester, rows_at(0, 1, 2, first=3 * n, value=5))
    assert given == Counter({(lid, None): 1 for lid in range(36 - 9 + 1 - 36 % 2)})


def test_old_segment_files_are_removed(local_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "young_seconds", 0.0)
    tester = make_tester(make_spec(tj.CountWindow(4)))
    for n in range(12):
        push(tester, rows_at(0, 1, first=2 * n))
    files = list((local_dir / "thetajoin-test" / "0").iterdir())
    assert len([f for f in files if f.suffix == ".json"]) == 2
    assert len([f for f in files if f.suffix == ".segment"]) <= 12


def test_a_timer_wakes_the_unit_whenever_the_watermark_moves() -> None:
    window = tj.TimeWindow(before="7 seconds", after="3 seconds", time="t")
    tester = make_tester(make_spec(window, "left"))
    assert push(tester, rows_at(10, 12, value=5)) == Counter()
    assert timers(tester) == [1]
    # The row of 10 s can match up to 13 s, and the watermark must be past that.
    assert ids(tester.setWatermark(millis(13))) == Counter()
    assert timers(tester) == [millis(13) + 1]
    assert ids(tester.setWatermark(millis(13) + 1)) == Counter({(0, None): 1})
    assert timers(tester) == [millis(13) + 2]
    assert ids(tester.setWatermark(millis(100))) == Counter({(1, None): 1})
    assert stored(tester) == set()


@pytest.mark.parametrize("how", ["inner", "left", "full", "semi"])
def test_a_row_is_late_by_the_watermark_of_the_micro_batch_before(how: str) -> None:
    """Spark's operators upstream give out rows that the newest watermark has just passed."""
    tester = make_tester(make_spec(tj.TimeWindow("5 seconds", time="t"), how))
    assert push(tester, rows_at(10)) == Counter({(0, None if how == "semi" else 0): 1})
    late = description(tester)["counters"]["late_rows"]
    # The watermark moves with a micro-batch that has rows, which Spark hands over before timers.
    tester._currentWatermarkMs = millis(20)
    tester.handle.setWatermark(millis(20))
    found = push(tester, rows_at(12, first=1))
    assert found[1, None if how == "semi" else 1] == 1
    assert description(tester)["counters"]["late_rows"] == late
    found = push(tester, rows_at(19, 20, first=2))
    assert description(tester)["counters"]["late_rows"] == late + 2
    assert {pair for pair in found if 2 in pair} == set()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"on": "l.a <= r.b"}, "condition"),
        ({"how": "left"}, "how"),
        ({"window": tj.CountWindow(4)}, "window"),
        ({"order_by": ("lid", "rid")}, "order_by"),
        ({"units": 2}, "number of units"),
        ({"left_schema": LEFT.append(pa.field("z", pa.int8())).serialize().to_pybytes()}, "left"),
        (
            {"self_join": True, "right_schema": LEFT.serialize().to_pybytes(), "on": "l.a < r.a"},
            "condition",
        ),
    ],
)
def test_state_of_another_join_is_refused(changes: dict[str, Any], named: str) -> None:
    first = make_spec(tj.CountWindow(3))
    tester = make_tester(first)
    push(tester, rows_at(0))
    changed = JoinUnit(make_spec(**({"window": tj.CountWindow(3)} | changes)))
    changed.init(tester.handle)
    tester.processor = changed
    with pytest.raises(SnapshotError, match=named):
        push(tester, rows_at(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"on": "  r.d<=l.c   and (r.b > l.a)"},
        {"window": tj.TimeWindow("120 seconds", time="t")},
        {"left_schema": pa.schema([f.with_nullable(False) for f in LEFT]).serialize().to_pybytes()},
    ],
)
def test_another_way_to_write_the_same_join_goes_on(changes: dict[str, Any]) -> None:
    window = tj.TimeWindow("2 minutes", time="t")
    tester = make_tester(make_spec(window))
    push(tester, rows_at(0))
    unit_module._REMEMBERED.clear()
    changed = JoinUnit(make_spec(**({"window": window, "label": "again"} | changes)))
    changed.init(tester.handle)
    tester.processor = changed
    assert push(tester, rows_at(1, first=1)) == Counter({(0, 1): 1, (1, 0): 1, (1, 1): 1})


# Rows that Spark's own hash takes for one another: it skips NULLs, folds arrays without their
# lengths, and takes -0.0 for 0.0.
ALIKE = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("p", pa.int64()),
        ("q", pa.int64()),
        ("x", pa.float64()),
        ("a", pa.list_(pa.int64())),
        ("b", pa.list_(pa.int64())),
    ]
)


def alike_rows(n: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for v in range(n):
        for p, q in ((v, None), (None, v)):
            for x in (0.0, -0.0):
                for a, b in (([1, 2], [3]), ([1], [2, 3])):
                    row = {"id": 0, "k": 1, "p": p, "q": q, "x": x, "a": a, "b": b}
                    rows += [row, row]
    return rows


@pytest.mark.parametrize("how", ["inner", "semi", "left"])
@pytest.mark.parametrize("window", [tj.FullHistory(), tj.CountWindow(50, slide=7)])
def test_units_agree_on_the_order_of_rows_that_are_alike(how: str, window: Any) -> None:
    """Each unit gets the blobs in another order; each pair is found in one of them."""
    if how == "left" and isinstance(window, tj.FullHistory):
        return
    rows = alike_rows(3)
    units = 5
    order_by = ("k", "k") if isinstance(window, tj.CountWindow) else None
    schemas = {"left_schema": ALIKE, "right_schema": ALIKE}
    spec = make_spec(
        window,
        how,
        on="l.k <= r.k",
        units=units,
        order_by=order_by,
        **{name: schema.serialize().to_pybytes() for name, schema in schemas.items()},
    )
    tester = make_tester(spec)
    embedded = tj.StreamJoin("l.k <= r.k", how=how, window=window, order_by=order_by, **schemas)
    for _ in range(3):
        packed = [
            part.to_pandas()
            for side in (0, 1)
            for start in range(0, len(rows), 8)
            for part in packer(side, replace(spec, units=1))(
                pa.Table.from_pylist(rows[start : start + 8], ALIKE).to_batches()
            )
        ]
        given = []
        for unit in range(units):
            turned = [*packed[5 * unit :], *packed[: 5 * unit]][:: 1 if unit % 2 else -1]
            frame = tester.testInPandas(UNIT_KEYS[unit], pd.concat(turned))
            given.append(frame[frame[METRICS].isna()])
        got = pd.concat(given)
        # The embedded join is given the rows in the units' order: by fingerprint.
        ordered = unpack_ordered(
            [b for f in packed if f["side"][0] == 0 for b in f["blob"]], ALIKE, None
        )
        want = embedded.push(ordered, ordered)
        assert values_of(got[f"c{at}"] for at in range(want.num_columns)) == values_of(
            column.to_pylist() for column in want.columns
        )


def values_of(columns: Iterable[Iterable[Any]]) -> Counter[Any]:
    """Rows as texts, in which -0.0 is not 0.0; lists may come as arrays."""
    texts = (
        ["None" if v is pd.NA else str(list(v) if hasattr(v, "__len__") else v) for v in column]
        for column in columns
    )
    return Counter(zip(*texts, strict=True))


def test_blobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "blob_bytes", 1 << 14)
    texts = ["x" * 1000] * 100 + ["y" * 40_000]
    batch = pa.record_batch({"a": range(len(texts)), "t": texts})
    pack = packer(0, make_spec(tj.FullHistory(), units=2))
    made = [row for part in pack([batch, batch]) for row in part.to_pylist()]
    sizes = [len(row["blob"]) for row in made]
    assert all(size < 2 << 14 for size in sizes if size < 40_000)
    assert sum(size > 40_000 for size in sizes) == 4  # two rows that fit in no blob, to two units
    for key in UNIT_KEYS[:2]:
        blobs = [row["blob"] for row in made if row["unit"] == key]
        whole = unpack_ordered(blobs, pa.schema([("a", pa.int64()), ("t", pa.string())]), None)
        assert sorted(whole.column(0).to_pylist()) == sorted([*range(101)] * 2)


def test_a_micro_batch_past_2_gib_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Huge:
        type = pa.string()

        def combine_chunks(self) -> pa.Array:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    from thetajoin.spark.pack import _whole

    with pytest.raises(DataError, match=r"2 GiB in one micro-batch: .*maxFilesPerTrigger"):
        _whole(Huge())


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "pairs"), [(9, 1, {(1, 0): 1}), (1, 9, {(0, 1): 1}), (9, 9, None)]
)
def test_rows_of_a_self_join_stay_while_either_role_needs_them(
    before: int, after: int, pairs: dict[Any, int] | None, forget: bool
) -> None:
    """A row is stored once for both roles, and a window may reach further back in one of them."""
    window = tj.TimeWindow(before=f"{before} seconds", after=f"{after} seconds", time="t")
    schema = LEFT.serialize().to_pybytes()
    spec = make_spec(window, on="l.a = r.a", self_join=True, right_schema=schema)
    tester = make_tester(spec)
    push(tester, naive.Push([{"lid": 0, "a": 1, "c": 0, "t": at(10)}]))
    tester.setWatermark(millis(15))
    if forget:
        unit_module._REMEMBERED.clear()
        shutil.rmtree(Path(os.environ["SPARK_LOCAL_DIRS"]) / "thetajoin-test")
    found = push(tester, naive.Push([{"lid": 1, "a": 1, "c": 0, "t": at(16)}]))
    assert found == Counter({(0, 1): 1, (1, 0): 1} if pairs is None else pairs)
    tester.setWatermark(millis(60))
    assert stored(tester) == set()


@pytest.mark.parametrize("forget", ["nothing", "memory", "memory and files"])
def test_counters_go_on_wherever_the_state_comes_from(forget: str, local_dir: Path) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    push(tester, rows_at(0, 1))
    if forget != "nothing":
        unit_module._REMEMBERED.clear()
    if forget == "memory and files":
        shutil.rmtree(local_dir / "thetajoin-test")
    frame = push_frame(tester, rows_at(2, first=2))
    assert description(tester)["counters"]["pairs"] == 9
    numbers = numbers_of(frame)
    assert numbers["pairs"] == 5, "of this micro-batch alone"
    assert numbers["stored_rows"] == numbers["window_left"] + numbers["window_right"] == 6
    assert 0 <= numbers["ms"] < 600_000
    assert numbers_of(push_frame(tester, rows_at(3, first=3)))["from"] == "memory"


def test_entries_of_older_checkpoints_end_where_their_rows_do() -> None:
    assert Entry("l", 3, 4, None, 0).end == 6
    assert Entry("l", 3, 4, None, 0, 9).end == 9


@pytest.mark.parametrize("routing", ["broadcast", "hash", "matrix", "cells"])
def test_late_rows_are_counted_once(routing: str) -> None:
    """However many units are sent a copy of them."""
    spec = make_spec(
        tj.TimeWindow("5 seconds", time="t"), units=3, on="l.a = r.b AND ABS(l.c - r.d) <= 3"
    )
    spec = replace(spec, routing=choose_route(CompiledJoin(spec.config), 3, routing))
    tester = make_tester(spec)

    def late_rows(batch: naive.Push) -> int:
        sent = blobs(batch, spec)
        frames = [
            tester.testInPandas(UNIT_KEYS[unit], sent[sent["unit"] == UNIT_KEYS[unit]])
            for unit in range(3)
        ]
        return sum(numbers_of(frame)["late_rows"] for frame in frames)

    assert late_rows(rows_at(10)) == 0
    tester.setWatermark(millis(20))
    assert late_rows(rows_at(12, 21, first=1)) == 2


def test_rows_before_1970_are_not_late_while_nothing_is_known_of_time() -> None:
    tester = make_tester(make_spec(tj.TimeWindow("5 seconds", time="t")))
    long_ago = -round(EPOCH.timestamp()) - 1000
    push(tester, rows_at(long_ago))
    assert push(tester, rows_at(long_ago, first=1)) == Counter({(0, 1): 1, (1, 0): 1, (1, 1): 1})
    assert description(tester)["counters"]["late_rows"] == 0


def test_a_side_may_be_behind_the_watermark_by_its_lag() -> None:
    """Rows of a join carry the time of their older half: they are late only past the lag."""
    window = tj.TimeWindow("5 seconds", time="t")
    tester = make_tester(make_spec(window, lags=(4_000_000, 0)))
    push(tester, rows_at(10))
    tester.setWatermark(millis(14))
    found = push(tester, rows_at(11, first=1))
    assert found == Counter({(1, 0): 1}), "the left row is within its lag, the right one is late"
    assert stored(tester) == {"l0", "r0", "l1"}
    tester.setWatermark(millis(18))
    assert stored(tester) == {"l0", "r0", "l1"}, "rows go when neither side may still need them"
    tester.setWatermark(millis(30))
    assert stored(tester) == set()


def test_rows_that_cannot_be_written_fail_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    tester = make_tester(make_spec(tj.FullHistory()))

    def fails(*_: Any) -> None:
        raise OSError("the state store is gone")

    monkeypatch.setattr(tester.processor._rows, "updateValue", fails)
    with pytest.raises(OSError, match="the state store is gone"):
        push(tester, rows_at(0))


def test_each_side_is_ordered_by_its_own_column() -> None:
    tester = make_tester(make_spec(tj.CountWindow(1), order_by=("lid", "rid")))
    left = [{"lid": i, "a": 0, "c": 0, "t": at(0)} for i in (2, 0, 1)]
    right = [{"rid": i, "b": 1, "d": 0, "t": at(0)} for i in (1, 2, 0)]
    found = push(tester, naive.Push(left, right))
    assert found == Counter({(0, 0): 1, (1, 0): 1, (1, 1): 1, (2, 1): 1, (2, 2): 1})


def packed_blobs(values: list[pa.Array]) -> tuple[list[bytes], pa.Schema]:
    batches = [pa.record_batch({"k": array, "v": range(len(array))}) for array in values]
    made = [
        row
        for batch in batches
        for part in packer(0, make_spec(tj.FullHistory()))([batch])
        for row in part.to_pylist()
    ]
    return [row["blob"] for row in made], batches[0].schema


def test_rows_are_in_the_order_of_a_column_that_tells_them_apart() -> None:
    given, schema = packed_blobs([pa.array([5, 3]), pa.array([4, 1])])
    for blobs_ in (given, given[::-1]):
        assert unpack_ordered(blobs_, schema, "k").column("k").to_pylist() == [1, 3, 4, 5]
    given, schema = packed_blobs([pa.array([1, 3]), pa.array([4, 5])])
    assert unpack_ordered(given, schema, "k").column("k").to_pylist() == [1, 3, 4, 5]


@pytest.mark.parametrize(
    "keys", [pa.array([1, 2, 2, 7]), pa.array([1, None, 3, 7]), pa.array(["a", "b", "c", "d"])]
)
def test_rows_that_a_column_cannot_order_are_in_one_order_all_the_same(keys: pa.Array) -> None:
    assert distinct_keys(keys) is None
    given, schema = packed_blobs([keys[:2], keys[2:]])
    one, other = (
        unpack_ordered(blobs_, schema, "k").to_pylist() for blobs_ in (given, given[::-1])
    )
    assert one == other


def test_few_rows_of_many_batches_travel_together() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    assert len(list(packer(0, make_spec(tj.FullHistory()))([batch] * 5))) == 1


@pytest.mark.parametrize("numbers", [[7, 8, 9], [7, 9, 12]])
def test_stored_rows_keep_their_arrival_numbers(numbers: list[int]) -> None:
    """Those without gaps need no list of them."""
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int16())})
    arrivals = Arrivals.of(np.array(numbers))
    blob = rows_blob(Block(arrivals, batch, [], None, None))
    schema = pa.schema([pa.field("a", pa.int16(), metadata={"b": "c"}), ("b", pa.int8())])
    table, found = rows_from(blob, 7, schema)
    assert found.first == 7
    assert found.last == numbers[-1]
    assert found.rows == 3
    assert table.column(0).to_pylist() == [1, 2, 3]
    assert table.schema.field(0).metadata == {b"b": b"c"}
    has_list = ARRIVALS in (from_ipc(blob).schema.metadata or {})
    assert has_list == (numbers[-1] == 12)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_many_micro_batches_leave_few_entries(
    how: str, local_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of micro-batches is not a list of a day's entries, and nothing is lost by that."""
    monkeypatch.setattr(limits, "most_entries", 4)
    monkeypatch.setattr(limits, "smallest_class", 2)
    tester = make_tester(make_spec(tj.TimeWindow("1000 seconds", time="t"), how))
    for n in range(60):
        # Every third left row matches nothing here, and may do so later.
        push(tester, rows_at(n, first=n, value=5 if n % 3 == 0 else 0))
        entries = description(tester)["entries"]
        assert len(entries) <= 2 * 12
        assert stored(tester) == {f"{side}{first}" for side, first, *_ in entries}
    assert sum(rows for _, _, rows, *_ in entries) == 120
    unit_module._REMEMBERED.clear()
    shutil.rmtree(local_dir / "thetajoin-test")
    found = push(tester, naive.Push([], [{"rid": 99, "b": 9, "d": 0, "t": at(59)}]))
    assert found == Counter({(n, 99): 1 for n in range(60)})
    given = ids(tester.setWatermark(millis(10_000)))
    assert given == Counter(), "each left row has found a match"
    assert stored(tester) == set()
