"""What a fault history should have given: a brute-force join of the micro-batches it took.

The micro-batches are read from the checkpoint's own logs, so nothing here depends on the engine.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SIZE, SLIDE = 1500, 100
BEFORE, AFTER = 45_000, 15_000  # milliseconds
SIDES = ("l", "r")
Ints = npt.NDArray[np.int64]


@dataclass
class Batch:
    """A micro-batch as the checkpoint describes it."""

    files: dict[str, list[Path]]
    watermark: int


def compare(folder: Path, kind: str) -> dict[str, Any]:
    """The sink's pairs against those of the naive join of the checkpoint's micro-batches."""
    batches = list(read_batches(folder / "checkpoint"))
    taken = sorted(path.name for batch in batches for path in batch.files["l"] + batch.files["r"])
    there = sorted(path.name for side in SIDES for path in (folder / side).glob("*.parquet"))
    if taken != there:
        raise RuntimeError("the checkpoint's logs do not name every file once")
    rows = {side: [_read(batch.files[side]) for batch in batches] for side in SIDES}
    watermarks = [batch.watermark for batch in batches]
    pairs = count_pairs if kind == "count" else time_pairs
    late, wanted = pairs(rows["l"], rows["r"], watermarks)
    given = read_sink(folder / "out")
    distinct = np.unique(given)
    return {
        "lost_pairs": len(np.setdiff1d(wanted, distinct)),
        "duplicate_pairs": len(given) - len(distinct),
        "wrong_pairs": len(np.setdiff1d(distinct, wanted)),
        "pairs": len(wanted),
        "rows": sum(len(ids) for side in SIDES for ids, *_ in rows[side]),
        "late_rows": late,
        "batches": len(batches),
        "batches_of_several_files": sum(
            max(len(batch.files[side]) for side in SIDES) > 1 for batch in batches
        ),
    }


Rows = tuple[Ints, Ints, Ints, Ints]


def _read(paths: list[Path]) -> Rows:
    """Ids, both keys, and the order or the time in milliseconds."""
    if not paths:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing, nothing
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    at = table.column("at")
    if pa.types.is_timestamp(at.type):
        table = table.set_column(3, "at", at.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()))
    ids, a, b, when = (table.column(name).to_numpy() for name in ("id", "a", "b", "at"))
    return ids, a, b, when


def read_batches(checkpoint: Path) -> Iterator[Batch]:
    """The micro-batches: which files of each source, and the watermark they were run with."""
    named = []
    for source in ("0", "1"):
        entries = {e["path"]: e["batchId"] for e in read_log(checkpoint / "sources" / source)}
        paths = [(number, Path(path.removeprefix("file://"))) for path, number in entries.items()]
        named.append(sorted(paths))
    before = [-1, -1]
    for batch in range(newest(checkpoint / "offsets") + 1):
        _, about, *offsets = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
        until = [_offset(text, at) for text, at in zip(offsets, before, strict=True)]
        files: dict[str, list[Path]] = {side: [] for side in SIDES}
        for low, high, paths in zip(before, until, named, strict=True):
            for at, path in paths:
                if low < at <= high:
                    files[path.parent.name].append(path)
        before = until
        yield Batch(files, json.loads(about)["batchWatermarkMs"])


def _offset(text: str, before: int) -> int:
    return before if text == "-" else int(json.loads(text)["logOffset"])


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The entries of a log of Spark's; a compacted file repeats those before it."""
    entries = []
    for path in folder.iterdir():
        if re.fullmatch(r"\d+(\.compact)?", path.name):
            entries += [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return entries


def read_sink(folder: Path) -> Ints:
    """The pairs in the files that the sink's log names, each as one number."""
    paths = {
        entry["path"].removeprefix("file://") for entry in read_log(folder / "_spark_metadata")
    }
    tables = [pq.ParquetFile(path).read() for path in sorted(paths)]
    return np.concatenate([_pairs(t["id"].to_numpy(), t["id_right"].to_numpy()) for t in tables])


def _pairs(left: Ints, right: Ints) -> Ints:
    return left.astype(np.int64) << 32 | right


def count_pairs(left: list[Rows], right: list[Rows], _: list[int]) -> tuple[int, Ints]:
    """Late rows (none) and pairs of a count window, from its definition."""
    seen = [0, 0]
    numbered: list[list[tuple[Ints, ...]]] = [[], []]
    for batch in zip(left, right, strict=True):
        sides = np.repeat([0, 1], [len(rows[0]) for rows in batch])
        at = np.concatenate([rows[3] for rows in batch])
        order = np.lexsort((sides, at))
        for side, rows in enumerate(batch):
            place = np.empty(len(order), np.int64)
            place[order] = np.cumsum(sides[order] != side)
            own = np.argsort(rows[3], kind="stable")
            others = seen[1 - side] + place[sides == side][own]
            ids, a, b = (column[own] for column in rows[:3])
            index = seen[side] + np.arange(len(ids))
            numbered[side].append((ids, a, b, index, others))
        seen = [seen[side] + len(batch[side][0]) for side in (0, 1)]
    (lid, la, lb, li, ln), (rid, ra, rb, ri, rn) = (
        [np.concatenate(columns) for columns in zip(*parts, strict=True)] for parts in numbered
    )

    def first(count: Ints) -> Ints:
        return SLIDE * -(-np.maximum(0, count - SIZE) // SLIDE)

    def holds(at: slice) -> npt.NDArray[np.bool_]:
        i, n = li[at, None], ln[at, None]
        sees = (ri < n) & (ri >= first(n)) | (i < rn) & (i >= first(rn))
        return sees & (la[at, None] <= ra) & (lb[at, None] >= rb)

    return 0, _brute(lid, rid, holds)


def time_pairs(left: list[Rows], right: list[Rows], watermarks: list[int]) -> tuple[int, Ints]:
    """Late rows and pairs of a time window, from its definition."""
    late, kept = 0, []
    for side in (left, right):
        in_time = [rows[3] >= mark for rows, mark in zip(side, watermarks, strict=True)]
        late += sum(int((~which).sum()) for which in in_time)
        parts = [[c[which] for c in rows] for rows, which in zip(side, in_time, strict=True)]
        kept.append([np.concatenate(columns) for columns in zip(*parts, strict=True)])
    (lid, la, lb, lt), (rid, ra, rb, rt) = kept

    def holds(at: slice) -> npt.NDArray[np.bool_]:
        t = lt[at, None]
        near = (rt >= t - BEFORE) & (rt <= t + AFTER)
        return near & (la[at, None] <= ra) & (lb[at, None] >= rb)

    return late, _brute(lid, rid, holds)


def _brute(lid: Ints, rid: Ints, holds: Callable[[slice], npt.NDArray[np.bool_]]) -> Ints:
    """Every left row with every right row, some left rows at a time."""
    found = [np.empty(0, np.int64)]
    for start in range(0, len(lid), 500):
        i, j = np.nonzero(holds(slice(start, start + 500)))
        found.append(_pairs(lid[start + i], rid[j]))
    return np.unique(np.concatenate(found))


def newest(folder: Path) -> int:
    """The largest number that a file of a log is named by; -1 without any."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    numbers = [int(m[1]) for name in names if (m := re.match(r"(\d+)(?![^._])", name))]
    return max(numbers, default=-1)
