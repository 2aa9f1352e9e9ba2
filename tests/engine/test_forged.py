"""A snapshot that someone changed and sealed again is refused, or works; it never kills us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.errors import SnapshotError

TRIES = 400
FORGE = Path(__file__).with_name("forge.py")


def test_forged_snapshots() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(FORGE), "1", str(TRIES)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sum(found.values()) == TRIES
    assert found.keys() <= {"refused", "restored", "restored, then refused"}
    assert found["refused"] > TRIES // 2
    assert found["restored"] > TRIES // 20


def header_changed(data: bytes, change: str, into: str) -> bytes:
    from forge import parts_of, sealed

    header, body = parts_of(data)
    assert header.count(change.encode()) == 1, header
    return sealed(header.replace(change.encode(), into.encode()), body)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.syspath_prepend(str(FORGE.parent))
    join = tj.StreamJoin("l.a < r.a", how="left", window=tj.TimeWindow(5, time="t"))
    join.push(pa.table({"a": [1, 2], "t": [1, 2]}), pa.table({"a": [5], "t": [3]}))
    return join.snapshot()


CHANGES = {
    "a count below its rows": ('"count": 2', '"count": 1'),
    "a count past all numbers": ('"count": 2', '"count": 4611686018427387904'),
    "arrivals past the count": ('"firsts": [0], "starts": [0]}, "rows": {"part": 1', None),
    "rows that are not there": ('"rows": 2}, "settled"', '"rows": 9}, "settled"'),
    "a part that is not there": ('{"part": 2', '{"part": 77'),
    "lengths below zero": ('"lengths": [', '"lengths": [-8, '),
    "a watermark that is text": ('"watermark": null', '"watermark": "soon"'),
    "a thread for everything": ('"threads": 0', '"threads": 999999999'),
    "another condition": ("l.a < r.a", "l.a < r.q"),
    "another kind of join": ('"how": "left"', '"how": "inner"'),
    "no window": ('"kind": "time"', '"kind": "none"'),
    "a suffix that is none": ('"suffix": "_right"', '"suffix": null'),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_does_not_fit_together(saved: bytes, name: str) -> None:
    change, into = CHANGES[name]
    if into is None:
        into = change.replace('"firsts": [0]', '"firsts": [7]')
    with pytest.raises(SnapshotError) as caught:
        tj.StreamJoin.restore(header_changed(saved, change, into))
    assert "\n" not in str(caught.value)
    assert tj.StreamJoin.restore(saved).stats.left_rows == 2
