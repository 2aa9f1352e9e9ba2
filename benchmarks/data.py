"""Seeded tables with a known number of matches a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def independent(rows: int, window: int, matches: float, seed: int, *, left: bool) -> pa.Table:
    """Rows ``(a, b)`` of random doubles of which Q1 holds for about `matches` a row.

    Both columns are uniform, the sides shifted so that their ranges overlap by s: each predicate
    alone keeps ``s**2 / 2`` of the window, both keep the product.
    """
    random = np.random.default_rng(seed)
    overlap = (2.0 * (matches / window) ** 0.5) ** 0.5
    shift = 0.0 if left else 1.0 - overlap
    return pa.table({"a": random.random(rows) - shift, "b": random.random(rows) + shift})


def uniform(rows: int, seed: int) -> pa.Table:
    """Rows ``(id, x)`` with `x` uniform between 0 and 1."""
    random = np.random.default_rng(seed)
    return pa.table({"id": np.arange(rows), "x": random.random(rows)})
