"""A band over floats is exactly what evaluating the subtraction for every pair gives."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.batch.keys import encode
from thetajoin.engine.bands import FloatBand

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-2, 2),
    st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 1.0, 1.1, 5e-324, 1e308, -1e308, 1e16, 0.5]),
)


def within(x: float, low, high, strict: tuple[bool, bool], nan: bool) -> bool:
    if math.isnan(x):
        return nan
    above = low is None or (x > low if strict[0] else x >= low)
    return above and (high is None or (x < high if strict[1] else x <= high))


@pytest.mark.parametrize("single", [False, True])
@given(
    probes=st.lists(NUMBERS, min_size=1, max_size=12),
    stored=st.lists(NUMBERS, min_size=1, max_size=12),
    low=st.none() | st.floats(-3, 3) | st.sampled_from([0.1, -0.1]),
    high=st.none() | st.floats(-3, 3) | st.sampled_from([0.1, 0.0]),
    strict=st.tuples(st.booleans(), st.booleans()),
    left=st.booleans(),
    nan=st.booleans(),
)
def test_band_is_exact(single, probes, stored, low, high, strict, left, nan) -> None:
    if low is None and high is None:
        low = 0.25
    nan = nan and (low is None or high is None)
    kind = np.float32 if single else np.float64
    with np.errstate(all="ignore"):
        probes, stored = (np.array(x, kind).astype(np.float64) for x in (probes, stored))
        # Neighbours of the edges are where rounding decides.
        edges = [p + s * b for p in probes for b in (low, high) if b is not None for s in (1, -1)]
        near = np.array([np.nextafter(kind(e), kind(d)) for e in edges for d in (-9e9, 0, 9e9)])
    stored = np.concatenate([stored, near.astype(np.float64)])
    if not nan:  # the engine drops NaN where it cannot match
        probes, stored = probes[~np.isnan(probes)], stored[~np.isnan(stored)]
    band = FloatBand(low, strict[0], high, strict[1], left, single, nan)
    low_side = "right" if high is None else "left"  # whose NaN is put lowest
    probing, stored_side = ("left", "right") if left else ("right", "left")
    interval = band.interval(encode(pa.array(probes), nan_low=probing == low_side))
    keys = encode(pa.array(stored), nan_low=stored_side == low_side)
    for i, p in enumerate(probes):
        for j, s in enumerate(stored):
            with np.errstate(all="ignore"):
                difference = float(kind(p) - kind(s) if left else kind(s) - kind(p))
            expected = within(difference, low, high, strict, nan)
            got = (interval.low is None or interval.low[i] <= keys[j]) and (
                interval.high is None or keys[j] <= interval.high[i]
            )
            assert got == expected, (p, s, difference)
