"""Streams for the SPO-Join paper's queries, written as Parquet files."""

from __future__ import annotations

import math
import os
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from thetajoin.cli.command import check_interrupted
from thetajoin.errors import OptionError, suggest
from thetajoin.jobs.files import check_writable, real

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_correlated(
    rows: int, window: int, matches: float, seed: int, *, first: int = 0
) -> pa.Table:
    """Rows ``(id, a, b)`` of which ``l.a < r.a AND l.b > r.b`` holds for about `matches` a row.

    `a` is uniform and `b` follows it with noise of width s, as a rack's power and its cooling do.
    Each predicate alone keeps half the window; both keep ``window * s / 6`` rows.
    """
    random = np.random.default_rng(seed)
    a = random.random(rows)
    b = a + random.random(rows) * (6.0 * matches / window)
    return pa.table({"id": np.arange(first, first + rows), "a": a, "b": b})


def power_stream(rows: int, window: int, matches: float, seed: int, *, first: int = 0) -> pa.Table:
    """Readings of one data centre (Q1): number, time, rack power and cooling power in watts."""
    made = make_correlated(rows, window, matches, seed, first=first)
    numbers = np.arange(first, first + rows)
    return pa.table(
        {
            "id": numbers,
            "ts": _make_times(numbers),
            "rp": pa.array(np.asarray(made["a"]) * 4000 + 500),
            "cp": pa.array(np.asarray(made["b"]) * 3000 + 300),
        }
    )


def taxi_stream(rows: int, window: int, matches: float, seed: int, *, first: int = 0) -> pa.Table:
    """Taxi trips (Q2): number, time, distance and fare."""
    made = make_correlated(rows, window, matches, seed, first=first)
    numbers = np.arange(first, first + rows)
    return pa.table(
        {
            "id": numbers,
            "ts": _make_times(numbers),
            "trip_distance": pa.array(np.asarray(made["a"]) * 40),
            "trip_fare": pa.array(2.5 + np.asarray(made["b"]) * 120),
        }
    )


def _make_times(numbers: np.ndarray) -> pa.Array:
    """A reading each millisecond."""
    start = int(START.timestamp() * 1_000_000)
    return pa.array(start + numbers * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))


STREAMS = {"power": (("dc1", "dc2"), power_stream), "taxi": (("trips",), taxi_stream)}


def write_streams(
    kind: str,
    out: Path,
    rows: int,
    files: int,
    matches: float,
    seed: int,
    *,
    window: int | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write each stream of a kind into a folder of its own; gives the folders.

    About `matches` rows of a `window` (all rows unless told) match a row of the other stream. Files
    are a second of age apart: Spark's file source reads the oldest first. A folder that holds files
    is refused: old ones would be rows of the stream. With `overwrite` its Parquet files go when all
    new ones are written.
    """
    if kind not in STREAMS:
        raise OptionError(f"no streams {kind!r}: {suggest(kind, STREAMS)}")
    if rows < 1 or files < 1 or files > rows:
        raise OptionError("rows and files must be at least 1, and no more files than rows")
    if not 0 <= matches < math.inf:
        raise OptionError(f"matches must be a number that is not below 0, not {matches}")
    if seed < 0:
        raise OptionError(f"seed must not be below 0, not {seed}")
    names, make = STREAMS[kind]
    folders = [out / name for name in names]
    for folder in folders:
        _check_folder(folder, overwrite)
    begun = time.time() - files
    partial = out / f".{os.getpid()}.partial"
    try:
        for at, name in enumerate(names):
            (partial / name).mkdir(parents=True)
            table = make(rows, window or rows, matches, seed * 1000 + at)
            edges = np.linspace(0, rows, files + 1).astype(int)
            for number, (start, end) in enumerate(pairwise(edges)):
                check_interrupted()
                path = partial / name / f"{number:05d}.parquet"
                parquet.write_table(table.slice(start, end - start), path)
                os.utime(path, (begun + number, begun + number))
        check_interrupted()
        for folder in folders:
            _take_over(folder, partial / folder.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            out.rmdir()  # if it is empty, because this was stopped
    return folders


def _check_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that cannot be written, or that has files."""
    check_writable(real(folder), folder)
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise OptionError(f"{folder} has files: choose another folder, or add --overwrite")


def _take_over(folder: Path, new: Path) -> None:
    """Move new files in, for those that are there."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    for file in sorted(new.iterdir()):
        os.replace(file, folder / file.name)
