"""How large a streaming join gets at a rate of rows: cores, memory, state and disk.

Everything is multiplied out of numbers that are measured on a sample of the rows, on this machine:
bytes and seconds a row and a match, and which share of all pairs matches.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.step import Share
from thetajoin.errors import OptionError
from thetajoin.ipc import to_ipc
from thetajoin.planner.routing import choose_route, explain_route
from thetajoin.window.windows import CountWindow, FullHistory

# Rows of each side that are looked at.
SAMPLE = 20_000
# What Spark takes for a row from its source to a unit and back, in core seconds: a micro-batch of
# 400,000 rows of an empty pipeline took 0.54 s on two cores.
SPARK_S = 2 * 0.54 / 400_000
# The share of the cores that the stream may take: the rest is for bursts, restarts and commits.
BUSY = 0.5
# Of one core, for a match that is found and written out; seen are 10 to 15 ns.
LEAST_PAIR_S = 10e-9
# A Python worker with everything loaded, and a JVM whose heap is half of it, in bytes.
WORKER, JVM = 150e6, 2e9
# How often a worker has a micro-batch's rows in memory while it joins them, and how many seconds of
# rows a micro-batch is taken to have.
TIMES, BATCH = 4, 5
# Spark keeps earlier versions of the state in the checkpoint beside the newest.
VERSIONS = 2
PER = {"s": 1, "sec": 1, "second": 1, "min": 60, "m": 60, "minute": 60, "h": 3600, "hour": 3600}
PER |= {"d": 86_400, "day": 86_400}
NAMES: dict[Side, str] = {"l": "left", "r": "right"}
DAY = 86_400


def parse_rate(text: str) -> float:
    """Rows per second, from a text.

    >>> parse_rate("50000/s"), parse_rate("1.2e6 / hour"), parse_rate("6k/min")
    (50000.0, 333.3333333333333, 100.0)
    """
    found = re.fullmatch(r"\s*([\d_.]+(?:e\d+)?)\s*([kM]?)\s*/\s*([a-z]+)\s*", text)
    rate = 0.0
    if found and found[3] in PER:
        times = {"": 1, "k": 1e3, "M": 1e6}[found[2]]
        try:
            rate = float(found[1]) * times / PER[found[3]]
        except ValueError:
            rate = 0.0
    if not rate:
        raise OptionError(
            f"--rate {text!r}: write rows and a unit, such as 50000/s, 6k/min or 1M/h"
        )
    return rate


@dataclass(frozen=True)
class Measured:
    """What a sample shows.

    row_bytes: of a stored row, and index_bytes beside it. share: of all pairs that match. row_s,
    pair_s: seconds of one core for a row and for a match. stored, sent: copies of a row that are
    kept, and that units look for matches with.
    """

    rows: dict[Side, int]
    row_bytes: dict[Side, float]
    index_bytes: float
    share: float
    row_s: float
    pair_s: float
    stored: dict[Side, float]
    sent: dict[Side, float]
    routing: str


def measure(join: CompiledJoin, left: pa.Table, right: pa.Table, units: int) -> Measured:
    """Join two sizes of the sample, whatever its times are, and measure."""
    tables = {"l": left.slice(0, SAMPLE), "r": right.slice(0, SAMPLE)}
    rows: dict[Side, int] = {side: tables[side].num_rows for side in SIDES}
    if not all(rows.values()):
        raise OptionError("--rate needs rows to measure with: one of the sources has none")
    spec = replace(
        join.spec,
        window=FullHistory(),
        how="inner",
        nearest=None,
        order_by=None,
        options={"threads": 1, "merge": "inline", "head_rows": 0, "check_memory": False},
    )
    plain = None if spec.on is None else CompiledJoin(spec, join.given["l"], join.given["r"])
    batches = {side: _batch(tables[side]) for side in SIDES}
    kept = {side: batches[side].select(join.list_kept(side)) for side in SIDES}
    sizes: dict[Side, float] = {s: to_ipc(kept[s]).size / rows[s] for s in SIDES}
    index, share, row_s, pair_s = _time(plain, batches) if plain else (32.0, 0.0, 2e-6, 0.0)
    chosen = choose_route(join, units)
    stored: dict[Side, float] = {}
    sent: dict[Side, float] = {}
    for side in SIDES:
        if chosen.meets:
            copies = chosen.route(join, units).copies(batches[side], side)
            stored[side] = sent[side] = len(copies.units) / rows[side]
        else:
            part = Share.of(join.keeps, 0, units).stored_in_part
            stored[side] = 1.0 if side in part or units == 1 else float(units)
            sent[side] = float(units)
    told = explain_route(join, units)
    return Measured(rows, sizes, index, share, row_s, pair_s, stored, sent, told)


def _batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=table.schema)


def _time(
    join: CompiledJoin, batches: dict[Side, pa.RecordBatch]
) -> tuple[float, float, float, float]:
    """Index bytes a row, share of pairs, seconds a row and a pair."""
    looks = []
    _run(join, batches, 64)  # so that nothing is compiled while the clock runs
    for part in (8, 1):
        held = {
            side: batches[side].slice(0, max(batches[side].num_rows // part, 1)) for side in SIDES
        }
        looks.append(_run(join, held, 1 << 62))
    (small_n, small_pairs, small_s, _, _), (n, pairs, seconds, index, tried) = looks
    per_pair = max(
        (seconds / n - small_s / small_n) / max(pairs / n - small_pairs / small_n, 1e-9), 0
    )
    # Differences of short times may be nothing or less, and no match costs nothing.
    per_pair = max(min(per_pair, seconds / max(pairs, 1)), LEAST_PAIR_S)
    per_row = max(seconds - per_pair * pairs, seconds * 0.05) / n
    return index, pairs / tried, per_row, per_pair


def _run(
    join: CompiledJoin, batches: dict[Side, pa.RecordBatch], most: int
) -> tuple[int, int, float, float, int]:
    """Rows, pairs, seconds, index bytes a row and pairs tried, of a join of new with held."""
    given = {side: batches[side].slice(0, most) for side in SIDES}
    state = join.new_state()
    half = {side: given[side].num_rows // 2 for side in SIDES}
    first = [given[side].slice(0, half[side]) for side in SIDES]
    rest = [given[side].slice(half[side]) for side in SIDES]
    for _ in state.run(*first):
        pass
    before, begun = state.counters.pairs, time.perf_counter()
    for _ in state.run(*rest):
        pass
    seconds = time.perf_counter() - begun
    n = sum(batch.num_rows for batch in rest)
    tried = given["l"].num_rows * given["r"].num_rows - half["l"] * half["r"]
    index = sum(store.index_bytes for store in state.stores.values())
    held = sum(batch.num_rows for batch in given.values())
    return max(n, 1), state.counters.pairs - before, seconds, index / max(held, 1), max(tried, 1)


@dataclass(frozen=True)
class Sizing:
    """A streaming join at a rate, with the arithmetic."""

    rate: float
    held: dict[Side, float]
    how_held: dict[Side, str]
    seen: dict[Side, float]
    found: Measured
    units: int
    grows: bool = False

    @property
    def state(self) -> float:
        """Bytes of the rows held, all copies."""
        return sum(self.held[s] * self.found.stored[s] * self.found.row_bytes[s] for s in SIDES)

    @property
    def index(self) -> float:
        """Bytes of the index files, which hold the rows once more."""
        rows = sum(self.held[side] * self.found.stored[side] for side in SIDES)
        return self.state + rows * self.found.index_bytes

    @property
    def pairs(self) -> float:
        """Matches a second: of each new row with the other side's rows that it sees."""
        return sum(self.rate * self.seen[OTHER[s]] * self.found.share for s in SIDES)

    @property
    def busy(self) -> float:
        """Core seconds a second."""
        joined = sum(self.found.sent.values()) * self.found.row_s
        return self.rate * (joined + 2 * SPARK_S) + self.pairs * self.found.pair_s

    @property
    def cores(self) -> int:
        """Cores with room for bursts."""
        return max(ceil(self.busy / BUSY), 1)

    @property
    def memory(self) -> float:
        """Bytes: index files in memory, Python workers, one JVM."""
        return self.index + self.cores * WORKER + TIMES * self.batch + JVM

    @property
    def batch(self) -> float:
        """Bytes of a micro-batch, all copies."""
        sent = sum(self.found.sent[s] * self.found.row_bytes[s] for s in SIDES)
        return self.rate * BATCH * sent

    @property
    def disk(self) -> float:
        """Bytes on local disks: RocksDB's files and the index files."""
        return self.state + self.index

    def __str__(self) -> str:
        found, rate = self.found, f"{self.rate:,.6g}/s"
        state, index = _bytes(self.state), _bytes(self.index)
        per = "in a day, and grows without end" if self.grows else "in the window"
        lines = [
            f"sizing for {self.rate:,.6g} rows a second of each stream, measured on "
            f"{found.rows['l']:,} left and {found.rows['r']:,} right rows on this machine",
            f"  routing:  {found.routing}",
        ]
        for side in SIDES:
            lines.append(
                f"  {NAMES[side] + ':':<9} {self.how_held[side]} = {self.held[side]:,.0f} rows "
                f"{per}, x {found.stored[side]:.3g} copies x {found.row_bytes[side]:.1f} bytes = "
                f"{_bytes(self.held[side] * found.stored[side] * found.row_bytes[side])}"
            )
        lines += [
            f"  state:    {state} in RocksDB; the checkpoint holds up to {VERSIONS} x {state} = "
            f"{_bytes(VERSIONS * self.state)}",
            f"  index:    {state} of rows + {found.index_bytes:.1f} bytes a row and copy = {index}",
            f"  disk:     {state} + {index} = {_bytes(self.disk)} on local disks",
            f"  matches:  2 x {rate} x {np.mean([*self.seen.values()]):,.0f} rows seen x "
            f"{found.share:.2g} of all pairs = {self.pairs:,.0f} a second",
            f"  cores:    {rate} x ({sum(found.sent.values()):.3g} copies x "
            f"{found.row_s * 1e6:.2f} us joined + 2 x {SPARK_S * 1e6:.2f} us in Spark) + "
            f"{self.pairs:,.0f} x "
            f"{found.pair_s * 1e9:.1f} ns = {self.busy:.2f} busy, without the sink; at "
            f"{BUSY:.0%} load {self.cores}",
            f"  memory:   {index} of index, less if its disk is fast + {self.cores} x "
            f"{_bytes(WORKER)} of Python workers + {TIMES} x {_bytes(self.batch)} for "
            f"micro-batches of {BATCH} s + {_bytes(JVM)} of JVM, half of it heap = "
            f"{_bytes(self.memory)}",
            f"  units:    {self.units} here; about as many as cores, {self.cores}, are best, and a "
            "checkpoint keeps the number",
        ]
        return "\n".join(lines)


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError


def size_join(
    join: CompiledJoin,
    left: pa.Table,
    right: pa.Table,
    rate: float,
    *,
    units: int,
    delay: float = 0.0,
) -> Sizing:
    """What a join of two streams needs at a rate; takes a second or two.

    delay: seconds that the watermark stays behind, for which rows are held longer.
    """
    found = measure(join, left, right, units)
    window, text = join.window, f"{rate:,.6g}/s"
    held: dict[Side, float] = {}
    seen: dict[Side, float] = {}
    how: dict[Side, str] = {}
    for side in SIDES:
        if isinstance(window, CountWindow):
            held[side], how[side] = window.size, f"at most {window.size:,}"
            seen[side] = window.size
        elif join.clock is not None:
            seconds = max(join.clock.reach[side], 0) / _ticks(join, side)
            held[side], seen[side] = rate * (seconds + delay), rate * seconds
            how[side] = f"{text} x ({seconds:,.6g} s window + {delay:,.6g} s watermark)"
        else:
            held[side], how[side] = rate * DAY, f"{text} x {DAY:,} s"
            seen[side] = held[side]
    grows = join.clock is None and not isinstance(window, CountWindow)
    return Sizing(rate, held, how, seen, found, units, grows)


def _ticks(join: CompiledJoin, side: Side) -> float:
    """Ticks of a side's time a second; a plain integer's are taken for seconds."""
    assert join.clock is not None
    kind = join.clock.exprs[side].type
    if pa.types.is_timestamp(kind):
        return {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
    return 1.0
