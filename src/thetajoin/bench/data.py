"""Seeded tables with a known number of matches a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def correlated(rows: int, window: int, matches: float, seed: int, *, first: int = 0) -> pa.Table:
    """Rows ``(id, a, b)`` of which ``l.a < r.a AND l.b > r.b`` holds for about `matches` a row.

    `a` is uniform and `b` follows it with noise of width s, as a rack's power and its cooling do.
    Each predicate alone keeps half the window; both keep ``window * s / 6`` rows.
    """
    random = np.random.default_rng(seed)
    a = random.random(rows)
    b = a + random.random(rows) * (6.0 * matches / window)
    return pa.table({"id": np.arange(first, first + rows), "a": a, "b": b})


def uniform(rows: int, seed: int) -> pa.Table:
    """Rows ``(id, x)`` with `x` uniform between 0 and 1."""
    random = np.random.default_rng(seed)
    return pa.table({"id": np.arange(rows), "x": random.random(rows)})
