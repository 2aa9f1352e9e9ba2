"""What the demo shows of its join: numbers while it runs, whether it was exact, and a plot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from thetajoin.cli.display import units_table
from thetajoin.cli.terminal import megabytes

if TYPE_CHECKING:
    from thetajoin.jobs.progress import JoinProgress

ON = "l.rp < r.rp AND l.cp > r.cp"
SHOWN = 8  # batches on the terminal at once


@contextmanager
def live_numbers(
    console: Console, seen: list[JoinProgress], batches: int
) -> Iterator[Callable[[], None]]:
    """The numbers on a terminal while the query runs, drawn anew by what is yielded."""
    if not console.is_terminal:
        yield lambda: None
        return
    begun = time.perf_counter()
    with Live(console=console, auto_refresh=False) as live:
        yield lambda: live.update(
            draw_numbers(list(seen), batches, time.perf_counter() - begun), refresh=True
        )


def draw_numbers(seen: list[JoinProgress], batches: int, elapsed: float) -> Group:
    """The newest micro-batches, all of them together, and the units of the newest."""
    if not seen:
        return Group(f"first micro-batch: Python workers start, kernels compile ({elapsed:.0f} s)")
    table = Table(title=f"{len(seen)} of {batches} micro-batches", title_justify="left")
    for name in ("batch", "rows in", "rows/s", "matches", "stored rows", "state", "cached", "late"):
        table.add_column(name, justify="right")
    table.add_column("time", justify="right")
    for p in seen[-SHOWN:]:
        stored = f"{p.window_rows:,}", megabytes(p.state_bytes)
        numbers = _add_up([p], p.rows_per_s, *stored)
        table.add_row(str(p.batch), *numbers, f"{p.batch_ms / 1000:.1f} s")
    table.add_section()
    table.add_row("all", *_add_up(seen, steady_rate(seen), "", ""), f"{elapsed:.0f} s")
    return Group(table, units_table(seen[-1]))


def _add_up(seen: list[JoinProgress], rate: float, stored: str, state: str) -> list[str]:
    """Numbers of micro-batches, added up."""
    hits, misses = sum(p.cache_hits for p in seen), sum(p.cache_misses for p in seen)
    return [
        f"{sum(p.input_rows for p in seen):,}",
        f"{rate:,.0f}",
        f"{sum(p.matches for p in seen):,}",
        stored,
        state,
        f"{hits}/{hits + misses}",
        str(sum(p.late_rows for p in seen)),
    ]


def steady_rate(seen: list[JoinProgress]) -> float:
    """Rows a second of the median micro-batch, without the first, which starts the workers."""
    return median([p.rows_per_s for p in seen[1:] or seen])


def window_start(seen: np.ndarray, size: int, slide: int = 1) -> np.ndarray:
    """The first index a row sees when the other side has had `seen` rows.

    >>> window_start(np.array([0, 3, 4, 5]), 3).tolist()
    [0, 0, 1, 2]
    """
    return np.asarray(slide * -(-np.maximum(0, seen - size) // slide))


def visible(left_ts: np.ndarray, right_ts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """For each left row the right rows ``[start, end)`` it meets in a count window.

    Both sides come in order of time, left before right on a tie: a right row is later than a left
    row of the same time. The earlier ones are those the left row sees; the later ones those that
    see it, and as windows only move on, they follow without a gap.
    """
    before_left = np.searchsorted(right_ts, left_ts, side="left")
    before_right = np.searchsorted(left_ts, right_ts, side="right")
    first_seen = window_start(before_right, size)
    ends = np.searchsorted(first_seen, np.arange(len(left_ts)), side="right")
    return window_start(before_left, size), np.maximum(ends, before_left)


def brute_force(
    left: pa.Table, right: pa.Table, size: int, advance: Callable[[int], None]
) -> np.ndarray:
    """The matches of each left row, by comparing it with every right row it meets."""
    lt, lrp, lcp = (left.column(name).to_numpy() for name in ("ts", "rp", "cp"))
    rt, rrp, rcp = (right.column(name).to_numpy() for name in ("ts", "rp", "cp"))
    starts, ends = visible(lt, rt, size)
    counts = np.zeros(len(lt), np.int64)

    def count(chunk: range) -> None:
        for at in chunk:
            seen = slice(starts[at], ends[at])
            counts[at] = np.count_nonzero((lrp[at] < rrp[seen]) & (lcp[at] > rcp[seen]))
        advance(len(chunk))

    chunks = [range(at, min(at + 1000, len(lt))) for at in range(0, len(lt), 1000)]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(count, chunk) for chunk in chunks]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return counts


def is_exact(
    left: pa.Table, right: pa.Table, size: int, found: pa.Table, counts: np.ndarray
) -> bool:
    """Whether the pairs found are exactly those there are.

    All different, all true, and as many for each left row as brute force counts: then none is
    missing. An id is a row's place in its stream.
    """
    at, to = found.column("id").to_numpy(), found.column("id_right").to_numpy()
    starts, ends = visible(left.column("ts").to_numpy(), right.column("ts").to_numpy(), size)
    lrp, lcp = left.column("rp").to_numpy()[at], left.column("cp").to_numpy()[at]
    rrp, rcp = right.column("rp").to_numpy()[to], right.column("cp").to_numpy()[to]
    true = (lrp < rrp) & (lcp > rcp) & (to >= starts[at]) & (to < ends[at])
    different = len(np.unique(at * right.num_rows + to)) == len(at)
    same = np.array_equal(np.bincount(at, minlength=left.num_rows), counts)
    return bool(true.all()) and different and same


def plot(progress: list[JoinProgress], window: int, rows: int, path: Path) -> None:
    """Rows a second and matches of each micro-batch, one above the other.

    rows: of a micro-batch.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import EngFormatter, MaxNLocator

    batches = [p.batch for p in progress]
    figure, (speed, output) = plt.subplots(
        2, 1, sharex=True, figsize=(8, 6.2), layout="constrained"
    )
    figure.suptitle(
        f"Streaming join  {ON}\n"
        f"window: the last {window:,} rows of each side; "
        f"{rows:,} rows a micro-batch",
        fontsize=11,
    )
    rate = steady_rate(progress)
    rates = [p.rows_per_s for p in progress]
    speed.bar(batches[:1], rates[:1], color="0.75", label="the first, which starts the workers")
    speed.bar(batches[1:], rates[1:], color="tab:blue", label="the others")
    speed.axhline(rate, color="tab:orange", label=f"median of the others: {rate:,.0f} rows/s")
    speed.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=9)
    speed.set_ylabel("rows joined a second")
    output.bar(batches, [p.matches for p in progress], color="tab:green")
    output.set_ylabel("matches in the micro-batch")
    output.set_xlabel("micro-batch")
    output.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (speed, output):
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.05)
    figure.savefig(path, dpi=150)
    plt.close(figure)


MADE_BY = "thetajoin demo"
