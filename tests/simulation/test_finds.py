"""Defects planted on purpose: the simulator must find each of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from simulation.history import run_history
from thetajoin.engine.block import DamagedError
from thetajoin.engine.parts import SIDES
from thetajoin.engine.state import JoinState
from thetajoin.index.probe import Arrivals
from thetajoin.routes.fingerprint import Fingerprints
from thetajoin.spark.cache import SegmentCache
from thetajoin.spark.unit import JoinUnit

MOST = 400
# Where the search begins for what few histories show.
FIRST = {"parts_numbered_without_gaps": 170}
Plant = Callable[[pytest.MonkeyPatch], None]


def weak_hash(batch: pa.RecordBatch) -> Fingerprints:
    """Like Spark's xxhash64: skips NULLs, takes -0.0 for 0.0, folds lists without their ends."""

    def leaves(value: Any) -> list[Any]:
        if isinstance(value, list):
            return [leaf for item in value for leaf in leaves(item)]
        return [] if value is None else [value + 0.0 if isinstance(value, float) else value]

    rows = [leaves(list(row.values())) for row in batch.to_pylist()]
    digests = [hashlib.blake2b(repr(row).encode(), digest_size=8).digest() for row in rows]
    lane = np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)
    return Fingerprints(lane, lane)


def rows_ordered_by_a_weak_hash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("thetajoin.spark.exchange.fingerprints", weak_hash)


def rows_taken_as_they_come(patch: pytest.MonkeyPatch) -> None:
    def lanes(batch: pa.RecordBatch) -> Fingerprints:
        return Fingerprints(*(np.zeros(batch.num_rows, np.uint64) for _ in range(2)))

    patch.setattr("thetajoin.spark.exchange.fingerprints", lanes)


def tokens_not_compared(patch: pytest.MonkeyPatch) -> None:
    real = JoinUnit._load

    def load(self: JoinUnit, unit: int, remembered: Any) -> Any:
        saved = self._description.get()
        if remembered is not None and saved is not None:
            remembered.token = json.loads(saved[0])["token"]
        return real(self, unit, remembered)

    patch.setattr(JoinUnit, "_load", load)


def nothing_is_late(patch: pytest.MonkeyPatch) -> None:
    real = JoinUnit._load

    def load(self: JoinUnit, unit: int, remembered: Any) -> Any:
        held = real(self, unit, remembered)
        held.watermark = -(10**18)
        return held

    patch.setattr(JoinUnit, "_load", load)


def late_by_the_newest_watermark(patch: pytest.MonkeyPatch) -> None:
    real = JoinUnit._step

    def step(self: JoinUnit, unit: int, blobs: Any, timers: Any) -> Any:
        def load(at: int, remembered: Any) -> Any:
            held = JoinUnit._load(self, at, remembered)
            held.watermark = 1000 * timers.getCurrentWatermarkInMs()
            return held

        self._load = load  # type: ignore[method-assign]
        return real(self, unit, blobs, timers)

    patch.setattr(JoinUnit, "_step", step)


def marks_not_restored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinUnit, "_restore_marks", lambda *_: None)


def timers_not_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinUnit, "_set_timer", lambda *_: None)


def half_a_layout_trusted(patch: pytest.MonkeyPatch) -> None:
    def load(self: SegmentCache, token: str, state: JoinState) -> bool:
        self._had = {}
        try:
            layout = json.loads((self.folder / f"{token}.json").read_text())
        except (OSError, ValueError):
            return False
        for side in SIDES:
            for name in layout.get(side, []):
                try:
                    state.stores[side].segments.append(self._read(name, state, side))
                except (OSError, DamagedError):
                    continue
        return True

    patch.setattr(SegmentCache, "load", load)


def parts_numbered_without_gaps(patch: pytest.MonkeyPatch) -> None:
    def dense(self: Arrivals, start: int, rows: int) -> Arrivals:
        return Arrivals.dense(self.first + start, rows)

    patch.setattr(Arrivals, "slice", dense)


def segments_lost_on_the_way_to_files(patch: pytest.MonkeyPatch) -> None:
    real = SegmentCache._file_segments

    def filed(self: SegmentCache, state: JoinState) -> Any:
        for side in SIDES:
            del state.stores[side].segments[1:]
        return real(self, state)

    patch.setattr(SegmentCache, "_file_segments", filed)


@pytest.mark.parametrize(
    "plant",
    [
        rows_ordered_by_a_weak_hash,
        rows_taken_as_they_come,
        tokens_not_compared,
        nothing_is_late,
        late_by_the_newest_watermark,
        marks_not_restored,
        timers_not_set,
        half_a_layout_trusted,
        parts_numbered_without_gaps,
        segments_lost_on_the_way_to_files,
    ],
)
def test_a_planted_defect_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    first = FIRST.get(plant.__name__, 0)
    outcomes = (run_history(seed, tmp_path) for seed in range(first, first + MOST))
    found = next((outcome for outcome in outcomes if outcome.wrong), None)
    assert found is not None, f"{MOST} histories and nothing found"
    assert found.script.endswith(f"--histories 1 --seed {found.seed}")
