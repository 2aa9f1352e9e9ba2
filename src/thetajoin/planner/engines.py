"""Whose join of two tables on Spark costs less: thetajoin's, or Spark's own on an equality.

Spark's own join brings rows with equal keys together inside the JVM and tests the rest of the
condition on every two of them. thetajoin sends all rows to Python, and then follows the matches
alone. So Spark wins where equal keys are rare, and loses where many rows share a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from thetajoin.batch.keys import Int64, mixed
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import make_batch
from thetajoin.planner.cells import sample_matches
from thetajoin.planner.facets import Sight
from thetajoin.planner.route_keys import equalities

Engine = Literal["auto", "thetajoin", "spark"]
ENGINES: tuple[Engine, ...] = ("auto", "thetajoin", "spark")

# Core-microseconds of a row, of a pair with equal keys, and of a match: from the processor time of
# joins of 1,000,000 x 1,000,000 rows of three columns in Parquet files, with 3e7 and 3e8 pairs of
# equal keys, and none or 2e7 matches, into Spark's noop sink on local[2] with Spark 4.3. Another
# machine has others, but much less differs how they relate, and only that decides.
SPARK_ROW, SPARK_PAIR, SPARK_MATCH = 1.0, 0.005, 0.02
# Ours with 0.4 for the drawing of rows that leads to it.
OUR_ROW, OUR_MATCH = 2.0, 0.12
# So many times the pairs that first rows and Spark's idea of a table's size tell may there be.
UNSURE = 4
# Seconds of a task that are not worth a look at the rows: that is a Spark job of its own.
SOON_S = 0.1


@dataclass(frozen=True)
class KeyEstimate:
    """What samples tell of a join with an equality.

    rows: of both sides. pairs: with equal keys. hottest: those of the most frequent key, which
    Spark leaves to one task. matches: pairs that satisfy the whole condition.
    """

    rows: float
    pairs: float
    hottest: float
    matches: float

    def spark(self, cores: int) -> float:
        """Seconds by Spark's own join."""
        total = SPARK_ROW * self.rows + SPARK_PAIR * self.pairs + SPARK_MATCH * self.matches
        return max(total / cores, SPARK_PAIR * self.hottest) / 1e6

    def ours(self, cores: int) -> float:
        """Seconds by thetajoin's, which divides the rows of one key too."""
        return (OUR_ROW * self.rows + OUR_MATCH * self.matches) / cores / 1e6


@dataclass(frozen=True)
class EngineChoice:
    """Which engine joins, and why."""

    engine: Literal["thetajoin", "spark"]
    reason: str

    def __str__(self) -> str:
        return f"{'Spark' if self.engine == 'spark' else 'thetajoin'}: {self.reason}"


def has_equality(compiled: CompiledJoin) -> bool:
    """Whether two rows that match have an equal key, whichever alternative they match by."""
    return bool(equalities(compiled)[0])


def choose_engine(estimate: KeyEstimate, cores: int) -> EngineChoice:
    """The cheaper of both by estimates.

    >>> choose_engine(KeyEstimate(rows=6e6, pairs=5e7, hottest=1e3, matches=5e6), 2).engine
    'spark'
    >>> choose_engine(KeyEstimate(rows=2e6, pairs=1e9, hottest=1e6, matches=2e6), 2).engine
    'thetajoin'
    """
    seen = (
        f"about {_number(estimate.pairs)} pairs of {_number(estimate.rows)} rows have equal keys, "
        f"{_number(estimate.matches)} match"
    )
    if estimate.spark(cores) <= estimate.ours(cores):
        many = SPARK_PAIR * estimate.pairs > (OUR_ROW - SPARK_ROW) * estimate.rows
        why = "what shares a key matches" if many else "few rows share a key"
        return EngineChoice("spark", f"{seen}: {why}")
    if estimate.hottest > estimate.pairs / cores:
        return EngineChoice("thetajoin", f"{seen}: one key has most, and Spark leaves it to a task")
    return EngineChoice("thetajoin", f"{seen}: many rows share a key")


def soon_done(rows: Mapping[Side, float]) -> EngineChoice | None:
    """Spark, if it is soon done even where all rows have one key and it leaves them to one task.

    >>> soon_done({"l": 1000, "r": 1000}).engine, soon_done({"l": 1000, "r": 1e6})
    ('spark', None)
    """
    pairs = rows["l"] * rows["r"]
    if not UNSURE * SPARK_PAIR * pairs / 1e6 <= SOON_S:
        return None
    return EngineChoice(
        "spark",
        f"about {_number(rows['l'])} and {_number(rows['r'])} rows are few, whatever their keys",
    )


def rows_a_key(first: Int64, rows: float) -> float:
    """How many of a table's rows have the key of one of them, on average over its rows.

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
    side: Side, share: float, rows: Mapping[Side, float], cores: int
) -> EngineChoice | None:
    """Spark, if it is cheaper even with many more pairs than `share`, rows a key of a side, tells.

    Each row of the other side meets about that many, unless it has the frequent keys only.
    """
    pairs, total = share * rows[OTHER[side]], sum(rows.values())
    worst = KeyEstimate(total, UNSURE * pairs, hottest=0.0, matches=0.0)
    if not worst.spark(cores) <= worst.ours(cores):
        return None
    name = "left" if side == "l" else "right"
    seen = f"about {_number(pairs)} pairs of {_number(total)} rows have equal keys"
    return EngineChoice("spark", f"{seen}, by the {name} side's first rows: few rows share a key")


def _number(value: float) -> str:
    """A number as far as an estimate goes: two digits.

    >>> _number(1234567.0)
    '1,200,000'
    """
    return f"{float(f'{value:.2g}'):,.0f}"


def estimate_keys(
    compiled: CompiledJoin, samples: Mapping[Side, pa.RecordBatch], rows: Mapping[Side, float]
) -> KeyEstimate:
    """What samples of both sides, of so many rows each, tell."""
    scale = {side: rows[side] / max(1, samples[side].num_rows) for side in SIDES}
    counts = {
        side: np.unique(_keys(compiled, side, samples[side]), return_counts=True) for side in SIDES
    }
    _, left, right = np.intersect1d(counts["l"][0], counts["r"][0], return_indices=True)
    pairs = counts["l"][1][left] * counts["r"][1][right] * scale["l"] * scale["r"]
    _, matches = sample_matches(compiled, "l", dict(samples))
    return KeyEstimate(
        rows=sum(rows.values()),
        pairs=float(pairs.sum()),
        hottest=float(pairs.max(initial=0.0)),
        matches=float(matches.sum()) * scale["l"] * scale["r"],
    )


def _keys(compiled: CompiledJoin, side: Side, sample: pa.RecordBatch) -> Int64:
    """Rows' equal keys as one number each; equal where the keys are, as good as only there."""
    at = SIDES.index(side)
    part, equal = compiled.parts[0], equalities(compiled)[0]
    rows = make_batch(sample, side, (part,), []).parts[0]
    sight = Sight(part)
    columns = sight.columns(side, rows)
    return mixed([columns[sight.equal_column(side, pair[at])] for pair in equal])
