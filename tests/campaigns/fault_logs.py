"""Reading what a streaming query leaves on disk: its checkpoint's logs, its sink's files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from campaigns.fault_query import AGGREGATES, SIDES


@dataclass
class Batch:
    """A micro-batch as the checkpoint describes it."""

    files: dict[str, list[Path]]
    watermark: int


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


def read_sink(folder: Path) -> pa.Table:
    """The rows in the files that the sink's log names."""
    paths = {
        entry["path"].removeprefix("file://") for entry in read_log(folder / "_spark_metadata")
    }
    return pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(paths)])


def read_totals(folder: Path) -> dict[Any, tuple[Any, ...]]:
    """The last totals of each group, from the micro-batches' files."""
    latest: dict[Any, tuple[Any, ...]] = {}
    for path in sorted(folder.iterdir(), key=lambda path: int(path.stem)):
        table = pq.read_table(path)
        latest |= by_group([table[name].to_pylist() for name in ("p", *AGGREGATES)])
    return latest


def by_group(columns: list[list[Any]]) -> dict[Any, tuple[Any, ...]]:
    """Rows of a table given by its columns, by the first of them."""
    return {group: tuple(rest) for group, *rest in zip(*columns, strict=True)}


def newest(folder: Path) -> int:
    """The largest number that a file of a log is named by; -1 without any."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    numbers = [int(m[1]) for name in names if (m := re.match(r"(\d+)(?![^._])", name))]
    return max(numbers, default=-1)
