"""Segment files: what a unit finds in them, and what their loss or damage costs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import LEFT, RIGHT, at, random_batches
from spark.one_unit import (
    ON,
    blobs,
    description,
    ids,
    make_spec,
    make_tester,
    numbers_of,
    push,
    push_frame,
    rows_at,
    sorted_by_hash,
)
from thetajoin.limits import limits
from thetajoin.spark import cache as cache_module
from thetajoin.spark import unit as unit_module
from thetajoin.spark.cache import SegmentCache
from thetajoin.spark.unit_keys import UNIT_KEYS

pytestmark = pytest.mark.usefixtures("local_dir")


@pytest.mark.parametrize(
    ("how", "units"),
    [("inner", 1), ("inner", 3), ("left", 1), ("left", 2), ("semi", 1), ("full", 1)],
)
@pytest.mark.parametrize("forget", ["nothing", "memory", "memory and files"])
@pytest.mark.parametrize(
    ("window", "reused"), [(tj.CountWindow(9, slide=2), "1"), (tj.CountWindow(1000), "")]
)
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
        frames = [tester.put_in(key, blobs(batch)) for key in UNIT_KEYS[:units]]
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


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("full", [False, True])
def test_a_state_larger_than_memory_is_built_into_files(
    how: str, full: bool, local_dir: Path, monkeypatch: pytest.MonkeyPatch, set_limits: Any
) -> None:
    """A unit that starts again has few segments outside of files; on a full disk, all of them."""
    set_limits(blob_bytes=1000, smallest_class=16, segment_bytes=4000)
    tester = make_tester(make_spec(tj.CountWindow(10_000), how))
    for n in range(12):
        push(tester, rows_at(*range(100 * n, 100 * n + 60), first=100 * n, value=5))
    unit_module._REMEMBERED.clear()
    shutil.rmtree(local_dir / "thetajoin-test")
    outside = []
    relieve = SegmentCache.relieve

    def watched(cache: SegmentCache, state: Any) -> None:
        relieve(cache, state)
        segments = [block for store in state.stores.values() for block in store.segments]
        outside.append(sum(block.nbytes for block in segments if not cache._has(block)))

    monkeypatch.setattr(SegmentCache, "relieve", watched)
    if full:
        monkeypatch.setattr(cache_module, "write_block", _no_room)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = push_frame(tester, naive.Push([], [{"rid": 9, "b": 9, "d": 0, "t": at(5000)}]))
    assert numbers_of(found)["from"] == "state"
    assert ids(found) == Counter({(100 * n + i, 9): 1 for n in range(12) for i in range(60)})
    assert len(outside) > 12
    if full:
        assert ["cannot be written" in str(warning.message) for warning in told] == [True]
        assert max(outside) > 20_000
    else:
        assert max(outside) < limits.segment_bytes


def _no_room(*_: Any) -> str:
    raise OSError(28, "No space left on device")


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
    frame = tester.put_in(
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


def test_old_segment_files_are_removed(local_dir: Path, set_limits: Any) -> None:
    set_limits(young_seconds=0.0)
    tester = make_tester(make_spec(tj.CountWindow(4)))
    for n in range(12):
        push(tester, rows_at(0, 1, first=2 * n))
    files = list((local_dir / "thetajoin-test" / "0").iterdir())
    assert len([f for f in files if f.suffix == ".json"]) == 2
    assert len([f for f in files if f.suffix == ".segment"]) <= 12


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


ONE, TWO = "a" * 12, "b" * 12


def test_a_new_join_removes_the_files_of_idle_ones(local_dir: Path) -> None:
    """An idle join that goes on finds its rows in the state store, and writes files again."""
    testers = {
        label: make_tester(make_spec(tj.CountWindow(50), label=label)) for label in (ONE, TWO)
    }
    batches = random_batches(8, batches=4, rows=12)
    batches = [naive.Push(sorted_by_hash(b.left), sorted_by_hash(b.right)) for b in batches]
    for label, tester in testers.items():
        push(tester, batches[0])
        assert list((local_dir / f"thetajoin-{label}").glob("0/*.json"))
    long_ago = time.time() - 2 * limits.idle_seconds
    others = [
        local_dir / name for name in ("thetajoin-kernels-1000", "thetajoin-demo", "thetajoin-d")
    ]
    for other in others:
        other.mkdir()
        os.utime(other, (long_ago, long_ago))
    for path in [local_dir / f"thetajoin-{ONE}", *(local_dir / f"thetajoin-{ONE}").glob("*")]:
        os.utime(path, (long_ago, long_ago))
    found = [push(make_tester(make_spec(tj.CountWindow(50), label="c" * 12)), batches[0])]
    assert not (local_dir / f"thetajoin-{ONE}").exists()
    assert (local_dir / f"thetajoin-{TWO}").exists()
    assert all(other.exists() for other in others), "they are nobody's segment files"
    # The worker that still maps the files, then one that must build its segments again.
    for number, batch in enumerate(batches[1:]):
        if number == 1:
            unit_module._REMEMBERED.clear()
            shutil.rmtree(local_dir / f"thetajoin-{ONE}")
        one, two = (push_frame(testers[label], batch) for label in (ONE, TWO))
        assert ids(one) == ids(two)
        assert numbers_of(one)["from"] == ("state" if number == 1 else "memory")
        found.append(ids(one))
        layouts = (local_dir / f"thetajoin-{ONE}" / "0").glob("*.json")
        newest = json.loads(max(layouts, key=lambda path: path.stat().st_mtime_ns).read_text())
        for name in [*newest["l"], *newest["r"]]:
            assert (local_dir / f"thetajoin-{ONE}" / "0" / name).exists()
    assert sum(map(len, found)) > 20
