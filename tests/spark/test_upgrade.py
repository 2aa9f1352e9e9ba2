"""Checkpoints and snapshots that were kept of released versions go on, exactly."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

import thetajoin as tj
from campaigns.upgrade import CHECKPOINT, SNAPSHOT, files, goes_on, measure, unpacked
from data.make_kept import CHECKPOINTS, SNAPSHOTS, all_expected, kept_of
from thetajoin.engine.snapshot import MAGIC, VERSION
from thetajoin.errors import SnapshotError

KEPT = {f"{file.parent.name}/{file.stem}": file for file in files()}
QUICK = "checkpoint-left-time-broadcast"


def test_there_are_some_of_every_kind() -> None:
    wanted = {f"{SNAPSHOT}-{case.name}" for case in SNAPSHOTS}
    wanted |= {f"{CHECKPOINT}-{case.name}" for case in CHECKPOINTS}
    assert wanted <= {file.stem for file in KEPT.values()}


@pytest.mark.parametrize("name", [name for name in KEPT if SNAPSHOT in name])
def test_a_snapshot_goes_on(name: str) -> None:
    with unpacked(KEPT[name]) as kept:
        assert goes_on(kept) == kept.expected
        assert kept.before != kept.expected


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.endswith(QUICK) else pytest.mark.slow)
        for name in KEPT
        if CHECKPOINT in name
    ],
)
def test_a_checkpoint_goes_on(name: str, spark: Any) -> None:
    with unpacked(KEPT[name]) as kept:
        assert goes_on(kept, spark) == kept.expected


@pytest.mark.parametrize(
    ("kind", "case"),
    [*((SNAPSHOT, case) for case in SNAPSHOTS), *((CHECKPOINT, case) for case in CHECKPOINTS)],
)
def test_what_was_kept_is_what_the_oracle_says(kind: str, case: Any, tmp_path: Path) -> None:
    """The oracle, asked again today about the same rows."""
    made, steps = kept_of(case, kind, tmp_path)
    with unpacked(KEPT[f"{tj.__version__}/{kind}-{case.name}"]) as kept:
        assert all_expected(case, steps) == kept.expected
        for side in "lr":
            for number in range(kept.batches):
                assert made.batch(side, number).equals(kept.batch(side, number))


@pytest.mark.spark
@pytest.mark.slow
def test_all_of_them_are_counted(spark: Any) -> None:
    found = measure(session=spark)
    assert found == {"upgrade_ok": len(KEPT), "upgrade_kept": len(KEPT), "wrong": []}


def test_a_snapshot_of_a_newer_version_is_refused() -> None:
    with unpacked(files(SNAPSHOT)[0]) as kept:
        data = (kept.folder / "snapshot").read_bytes()
    newer = MAGIC + struct.pack(">H", VERSION + 1) + data[len(MAGIC) + 2 :]
    with pytest.raises(SnapshotError, match=f"format {VERSION + 1}, this thetajoin reads up to"):
        tj.StreamJoin.restore(newer)
    with pytest.raises(SnapshotError, match="damaged"):
        tj.StreamJoin.restore(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])


def test_state_of_a_newer_version_or_damaged_is_refused() -> None:
    from spark.one_unit import make_spec
    from thetajoin.spark.unit_spec import BlobInfo, Entry, read_description

    spec = make_spec(tj.FullHistory())
    whole = {"token": "", "entries": [], "counts": {}, "watermark": None, "counters": {}}
    whole |= {"identity": spec.identity, "timer": None, "written_by": {"thetajoin": "9.9"}}
    assert read_description(json.dumps(whole), 0) == whole
    newer = whole | {"identity": spec.identity | {"format": 2}}
    with pytest.raises(SnapshotError, match=r"format 2, written by thetajoin 9\.9"):
        read_description(json.dumps(newer), 0)
    for damaged in ("{", "[]", json.dumps({"identity": spec.identity})):
        with pytest.raises(SnapshotError, match="the checkpoint is damaged: in unit 3"):
            read_description(damaged, 3)
    blob = b"not arrow"
    look = BlobInfo.of(blob)
    assert "cannot be read" in Entry("l", 0, 1, None, len(blob)).fault(look)
    assert "bytes" in Entry("l", 0, 1, None, 3).fault(look)
    assert "checksum" in Entry("l", 0, 1, None, len(blob), None, 1).fault(look)
    assert "not there" in Entry("l", 0, 1, None, len(blob)).fault(None)
