"""Whose join of two tables on Spark costs less: thetajoin's, or Spark's own on an equality.

Spark's own join brings rows with equal keys together inside the JVM and tests the rest of the
condition on every two of them. thetajoin sends all rows to Python, and then follows the matches
alone. So Spark wins where equal keys are rare, and loses where many rows share a key.

A nearest match is a window over the rows of both tables to Spark, which sorts whole rows inside the
JVM. thetajoin sorts keys alone, but sends whole rows to Python and back. So Spark wins with wide
rows, and loses where one key has most rows or nothing is equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from thetajoin.batch.keys import Int64, hash_columns
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import make_batch
from thetajoin.planner.cells import sample_matches
from thetajoin.planner.routing_keys import equalities
from thetajoin.planner.zones import Sight

Engine = Literal["auto", "thetajoin", "spark"]
ENGINES: tuple[Engine, ...] = ("auto", "thetajoin", "spark")


@dataclass(frozen=True)
class Costs:
    """What an engine costs: seconds to start, then core-microseconds for what it reads and makes.

    byte: of input rows, texts and lists counted as 16. match_byte: of output rows.
    """

    start_s: float
    row: float
    byte: float
    pair: float = 0.0
    match: float = 0.0
    match_byte: float = 0.0


# Fitted by the benchmark fit-engines to joins and nearest matches of tables in Parquet files, run
# by both engines into Spark's noop sink on local[2] with Spark 4.3. Another machine has others, but
# much less differs how they relate, and only that decides.
SPARK = Costs(start_s=0.14, row=0.25, byte=0.0067, pair=0.0053, match_byte=0.0015)
OURS = Costs(start_s=0.1, row=0.45, byte=0.016, match_byte=0.0033)
SPARK_NEAREST = Costs(start_s=0.18, row=1.1, byte=0.0055)
OUR_NEAREST = Costs(start_s=0.12, row=0.22, byte=0.02)
# So many times the pairs that first rows and Spark's idea of a table's size tell may there be.
UNSURE = 4
# Seconds that are not worth a look at first rows, nor one at rows drawn of all: Spark jobs both.
FIRST_S, DRAW_S = 0.06, 0.2
# Where Spark has no idea of a table's size, it is taken for large.
MOST_ROWS = 1e15


def _bytes(rows: Mapping[Side, float], widths: Mapping[Side, float]) -> float:
    """Bytes of all rows of both sides."""
    return sum(rows[side] * widths[side] for side in SIDES)


@dataclass(frozen=True)
class KeyEstimate:
    """What samples say about a join with an equality.

    rows: of each side. pairs: with equal keys. hottest: those of the most frequent key, which
    Spark leaves to one task. matches: pairs that satisfy the whole condition.
    """

    rows: Mapping[Side, float]
    pairs: float
    hottest: float
    matches: float

    @property
    def all_rows(self) -> float:
        """Of both sides."""
        return sum(self.rows.values())

    def spark(self, widths: Mapping[Side, float], cores: int) -> float:
        """Seconds by Spark's own join."""
        return self._seconds(SPARK, widths, cores) + max(
            SPARK.pair * self.pairs / cores / 1e6, SPARK.pair * self.hottest / 1e6
        )

    def ours(self, widths: Mapping[Side, float], cores: int) -> float:
        """Seconds by thetajoin's, which divides the rows of one key too."""
        return self._seconds(OURS, widths, cores)

    def _seconds(self, costs: Costs, widths: Mapping[Side, float], cores: int) -> float:
        a_match = costs.match + costs.match_byte * sum(widths.values())
        read = costs.row * self.all_rows + costs.byte * _bytes(self.rows, widths)
        return costs.start_s + (read + a_match * self.matches) / cores / 1e6


@dataclass(frozen=True)
class EngineChoice:
    """Which engine joins, and why."""

    engine: Literal["thetajoin", "spark"]
    reason: str

    def __str__(self) -> str:
        return f"{'Spark' if self.engine == 'spark' else 'thetajoin'}: {self.reason}"


def has_equality(compiled: CompiledJoin) -> bool:
    """Whether rows that match always have an equal key, whichever alternative they match by."""
    return bool(equalities(compiled)[0])


def choose_engine(estimate: KeyEstimate, widths: Mapping[Side, float], cores: int) -> EngineChoice:
    """The engine that is cheaper by estimates.

    >>> rows: dict[Side, float] = {"l": 3e6, "r": 3e6}
    >>> few, many = KeyEstimate(rows, 5e7, 1e3, 5e6), KeyEstimate(rows, 3e9, 1e6, 2e6)
    >>> [choose_engine(keys, {"l": 24, "r": 24}, cores=2).engine for keys in (few, many)]
    ['spark', 'thetajoin']
    """
    seen = (
        f"about {_number(estimate.pairs)} pairs of {_number(estimate.all_rows)} rows have equal "
        f"keys, {_number(estimate.matches)} match"
    )
    if estimate.spark(widths, cores) <= estimate.ours(widths, cores):
        many = estimate.pairs > UNSURE * estimate.all_rows
        why = "what shares a key matches" if many else "few rows share a key"
        return EngineChoice("spark", f"{seen}: {why}")
    if estimate.hottest > estimate.pairs / cores:
        return EngineChoice("thetajoin", f"{seen}: one key has most, and Spark leaves it to a task")
    return EngineChoice("thetajoin", f"{seen}: many rows share a key")


def choose_for_nearest(
    rows: Mapping[Side, float], widths: Mapping[Side, float], hottest: float, cores: int
) -> EngineChoice:
    """The cheaper of both for a nearest match, with a share of the rows at the most frequent key.

    Spark sorts the rows of a key in one task.

    >>> rows, wide, narrow = {"l": 1e6, "r": 1e6}, {"l": 200, "r": 200}, {"l": 24, "r": 24}
    >>> [choose_for_nearest(rows, widths, 0.01, cores=2).engine for widths in (wide, narrow)]
    ['spark', 'thetajoin']
    >>> choose_for_nearest(rows, wide, hottest=1.0, cores=8).engine
    'thetajoin'
    """
    rows = {side: min(count, MOST_ROWS) for side, count in rows.items()}
    total, size = sum(rows.values()), _bytes(rows, widths)

    def seconds(costs: Costs, share: float) -> float:
        return costs.start_s + (costs.row * total + costs.byte * size) * share / 1e6

    ours = seconds(OUR_NEAREST, 1 / cores)
    seen = f"{_number(total)} rows of {_number(size / max(1, total))} bytes, as Spark reckons"
    if seconds(SPARK_NEAREST, max(hottest, 1 / cores)) <= ours:
        return EngineChoice("spark", f"{seen}: Spark's window over both tables costs less")
    if seconds(SPARK_NEAREST, 1 / cores) <= ours:
        return EngineChoice("thetajoin", f"{seen}: one key has most, and Spark leaves it to a task")
    return EngineChoice("thetajoin", f"{seen}: Spark's window over both tables costs more")


def soon_done(rows: Mapping[Side, float]) -> EngineChoice | None:
    """Spark, if it is soon done even where all rows have one key and it leaves them to one task.

    >>> soon_done({"l": 1000, "r": 1000}).engine, soon_done({"l": 1000, "r": 1e6})
    ('spark', None)
    """
    pairs = rows["l"] * rows["r"]
    if not UNSURE * SPARK.pair * pairs / 1e6 <= FIRST_S:
        return None
    return EngineChoice(
        "spark",
        f"{_believed(rows)}, are few, whatever their keys",
    )


def little_to_gain(
    rows: Mapping[Side, float], widths: Mapping[Side, float], cores: int, seconds: float
) -> EngineChoice | None:
    """thetajoin, if Spark could not save more than some seconds even if few rows shared a key.

    >>> rows, widths = {"l": 1e5, "r": 1e5}, {"l": 24, "r": 24}
    >>> little_to_gain(rows, widths, cores=2, seconds=FIRST_S).engine
    'thetajoin'
    """
    best = KeyEstimate(rows, pairs=0.0, hottest=0.0, matches=max(rows.values()))
    if not best.ours(widths, cores) - best.spark(widths, cores) <= seconds:
        return None
    seen = _believed(rows)
    return EngineChoice("thetajoin", f"{seen}: Spark could save little, and lose much")


def _believed(rows: Mapping[Side, float]) -> str:
    """Numbers of rows that nobody has counted: Spark divides sizes, which may be packed."""
    return f"{_number(rows['l'])} and {_number(rows['r'])} rows, as Spark reckons from sizes"


def rows_a_key(first: Int64, rows: float) -> float:
    """How many rows of a table share a row's key, on average over its rows.

    first: keys of its first rows. If rows stand by key there, this is too much rather than too few;
    and so it is where too few are seen to tell.

    >>> rows_a_key(np.array([1, 2, 1, 3]), 4), rows_a_key(np.array([1, 2, 3, 4]), 601)
    (1.5, 101.0)
    """
    seen = len(first)
    _, counts = np.unique(first, return_counts=True)
    equal = int((counts * (counts - 1)).sum())
    if seen >= rows:
        return 1 + equal / max(1, seen)
    return 1 + (rows - 1) * max(equal, 2) / max(1, seen * (seen - 1))


def clearly_spark(
    side: Side, share: float, rows: Mapping[Side, float], widths: Mapping[Side, float], cores: int
) -> EngineChoice | None:
    """Spark, if it is cheaper even with many more pairs than `share`, rows a key of a side, tells.

    Each row of the other side meets about that many, unless it has the frequent keys only.
    """
    pairs, total = share * rows[OTHER[side]], sum(rows.values())
    worst = KeyEstimate(rows, UNSURE * pairs, hottest=0.0, matches=0.0)
    if not worst.spark(widths, cores) <= worst.ours(widths, cores):
        return None
    name = "left" if side == "l" else "right"
    seen = f"about {_number(pairs)} pairs of {_number(total)} rows have equal keys"
    return EngineChoice("spark", f"{seen}, by the {name} side's first rows: few rows share a key")


def hottest_share(first: Int64) -> float:
    """Which share of a table's rows has the most frequent key, by keys of its first rows.

    >>> hottest_share(np.array([1, 2, 1, 3]))
    0.5
    """
    counts = np.unique(first, return_counts=True)[1]
    return float(counts.max(initial=1)) / max(1, len(first))


def _number(value: float) -> str:
    """A number as far as an estimate goes: two digits.

    >>> _number(1234567.0)
    '1,200,000'
    """
    return f"{float(f'{value:.2g}'):,.0f}"


def estimate_keys(
    compiled: CompiledJoin, samples: Mapping[Side, pa.RecordBatch], rows: Mapping[Side, float]
) -> KeyEstimate:
    """What samples of both sides say, with the number of rows that each side has."""
    scale = {side: rows[side] / max(1, samples[side].num_rows) for side in SIDES}
    counts = {
        side: np.unique(_keys(compiled, side, samples[side]), return_counts=True) for side in SIDES
    }
    _, left, right = np.intersect1d(counts["l"][0], counts["r"][0], return_indices=True)
    pairs = counts["l"][1][left] * counts["r"][1][right] * scale["l"] * scale["r"]
    _, matches = sample_matches(compiled, "l", dict(samples))
    return KeyEstimate(
        rows=rows,
        pairs=float(pairs.sum()),
        hottest=float(pairs.max(initial=0.0)),
        matches=float(matches.sum()) * scale["l"] * scale["r"],
    )


def _keys(compiled: CompiledJoin, side: Side, sample: pa.RecordBatch) -> Int64:
    """One number for each row's equal keys: equal where they are, and almost never elsewhere."""
    at = SIDES.index(side)
    part, equal = compiled.parts[0], equalities(compiled)[0]
    rows = make_batch(sample, side, (part,), []).parts[0]
    sight = Sight(part)
    columns = sight.columns(side, rows)
    return hash_columns([columns[sight.equal_column(side, pair[at])] for pair in equal])
