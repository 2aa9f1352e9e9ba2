"""Seeded tables for the joins people write, with about the matches a row of the real thing.

`scale` shrinks the rows together with what they are spread over, so matches a row stay the same.
No two columns of a pair of tables share a name, but for the keys that are compared by equality and
the time of an as-of join.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

HOUR = 3_600_000
# Megabases of the human chromosomes 1 to 22, X and Y.
CHROMOSOMES = (
    *(249, 242, 198, 190, 182, 171, 159, 145, 138, 134, 135, 133, 114, 107, 102, 90, 83, 80),
    *(59, 64, 47, 51, 156, 57),
)


class Tables(NamedTuple):
    """Both sides of a join."""

    left: pa.Table
    right: pa.Table


def _number(rows: int, scale: float) -> int:
    return max(2, int(rows * scale))


def scd2(scale: float) -> Tables:
    """Facts, and the versions of what they refer to: ten a key, each valid until the next."""
    random = np.random.default_rng(11)
    rows, keys, versions, span = _number(5_000_000, scale), _number(100_000, scale), 10, 10**9
    # The first version begins after the first facts, so that a tenth of them has none.
    bounds = np.sort(random.integers(0, span, (keys, versions)), axis=1)
    until = np.concatenate([bounds[:, 1:], np.full((keys, 1), span)], axis=1)
    order = random.permutation(keys * versions)
    left = {
        "id": np.arange(rows),
        "k": random.integers(0, keys, rows),
        "ts": random.integers(0, span, rows),
        "amount": random.random(rows),
    }
    right = {
        "k": np.repeat(np.arange(keys), versions)[order],
        "valid_from": bounds.ravel()[order],
        "valid_to": until.ravel()[order],
        "price": random.random(keys * versions),
    }
    return Tables(pa.table(left), pa.table(right))


def _intervals(rows: int, length: float, scale: float, seed: int) -> tuple[pa.Array, ...]:
    """Names of chromosomes, starts and ends, spread evenly over a genome."""
    random = np.random.default_rng(seed)
    sizes = np.array(CHROMOSOMES) * 1e6 * scale
    chosen = random.choice(len(sizes), rows, p=sizes / sizes.sum())
    start = (random.random(rows) * sizes[chosen]).astype(np.int64)
    end = start + 1 + random.exponential(length, rows).astype(np.int64)
    names = pa.array([f"chr{name}" for name in (*range(1, 23), "X", "Y")])
    return names.take(pa.array(chosen)), pa.array(start), pa.array(end)


def genome(scale: float) -> Tables:
    """Intervals on chromosomes, about one overlap for each of the left ones."""
    rows, others = _number(1_200_000, scale), _number(2_300_000, scale)
    chrom, start, stop = _intervals(rows, 1000, scale, 21)
    left = pa.table({"id": np.arange(rows), "chrom": chrom, "start": start, "stop": stop})
    chrom, start, stop = _intervals(others, 450, scale, 22)
    right = pa.table({"rid": np.arange(others), "chrom": chrom, "r_start": start, "r_stop": stop})
    return Tables(left, right)


def ranges(scale: float) -> Tables:
    """Points, and disjoint ranges that hold about half of them."""
    random = np.random.default_rng(31)
    rows, number = _number(5_000_000, scale), _number(500_000, scale)
    ends = np.cumsum(1 + random.exponential(1000, 2 * number).astype(np.int64))
    order = random.permutation(number)
    left = {"id": np.arange(rows), "x": random.integers(0, ends[-1], rows)}
    right = {"rid": np.arange(number), "low": ends[::2][order], "high": ends[1::2][order]}
    return Tables(pa.table(left), pa.table(right))


def attribution(scale: float, rows: int = 2_000_000) -> Tables:
    """Purchases and clicks of users, of whom a few do much more than the rest (Zipf)."""
    random = np.random.default_rng(41)
    rows, users, span = _number(rows, scale), _number(rows // 20, scale), 30 * 24 * HOUR
    weights = np.cumsum(np.arange(1, users + 1) ** -0.775)
    names = random.permutation(users)

    def events(name: str, value: str) -> pa.Table:
        drawn = np.searchsorted(weights, random.random(rows) * weights[-1], side="right")
        return pa.table(
            {
                name: np.arange(rows),
                "user": names[drawn],
                f"{name}_ts": random.integers(0, span, rows),
                value: random.random(rows),
            }
        )

    return Tables(events("purchase", "amount"), events("click", "cost"))


def overlapping(scale: float) -> Tables:
    """Intervals without a key, about three overlaps each."""
    random = np.random.default_rng(51)
    rows = _number(500_000, scale)

    def side(name: str, start: str, stop: str) -> pa.Table:
        begins = random.integers(0, 1000 * rows, rows)
        stops = begins + 1 + random.exponential(1500, rows).astype(np.int64)
        return pa.table({name: np.arange(rows), start: begins, stop: stops})

    return Tables(side("id", "start", "stop"), side("rid", "r_start", "r_stop"))


def trades(scale: float, rows: int = 5_000_000, symbols: int = 1000) -> Tables:
    """Trades and quotes of some symbols, neither in order; no two quotes of one instant."""
    random = np.random.default_rng(61)
    rows = _number(rows, scale)
    symbols = min(symbols, _number(1000, min(1.0, 10 * scale)))
    names = pa.array([f"SYM{number:04d}" for number in range(symbols)])

    def symbol() -> pa.Array:
        return names.take(pa.array(random.integers(0, symbols, rows)))

    left = {
        "id": np.arange(rows),
        "symbol": symbol(),
        "ts": random.integers(0, 2 * rows, rows),
        "most": random.random(rows),
    }
    right = {
        "symbol": symbol(),
        "ts": 2 * random.permutation(rows),
        "quote": np.arange(rows),
        "price": random.random(rows),
    }
    return Tables(pa.table(left), pa.table(right))
