"""A band over floats is exactly what evaluating the subtraction for every pair gives."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, encode
from thetajoin.engine.parts import FloatBand
from thetajoin.kernels.search import KEY_INF, KEY_NEG_INF

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
    check_band(FloatBand(low, strict[0], high, strict[1], left, single, nan), probes, stored)


def keys_of(band: FloatBand, probes, stored):
    """Both sides' keys as the engine makes them for a band."""
    low_side = "right" if band.high is None else "left"  # whose NaN is put lowest
    probing, stored_side = ("left", "right") if band.left else ("right", "left")
    return (
        encode(pa.array(probes), nan_low=probing == low_side),
        encode(pa.array(stored), nan_low=stored_side == low_side),
    )


def check_band(band: FloatBand, probes, stored) -> None:
    asking, keys = keys_of(band, probes, stored)
    interval = band.interval(asking)
    kind = np.float32 if band.single else np.float64
    strict = band.low_strict, band.high_strict
    for i, p in enumerate(probes):
        for j, s in enumerate(stored):
            with np.errstate(all="ignore"):
                difference = float(kind(p) - kind(s) if band.left else kind(s) - kind(p))
            expected = within(difference, band.low, band.high, strict, band.nan)
            got = (interval.low is None or interval.low[i] <= keys[j]) and (
                interval.high is None or keys[j] <= interval.high[i]
            )
            assert got == expected, (p, s, difference)


ODD = [math.inf, -math.inf, math.nan]
SPECIAL = np.array([*ODD, 0.0, -0.0, 1.5, -1.5, 3e38, -3e38, 1e-45])
ENDS = (None, 0.0, 1.5, -1.5)
BANDS = [
    FloatBand(low, low_strict, high, high_strict, left, single, nan)
    for low, high in itertools.product(ENDS, ENDS)
    if low is not None or high is not None
    for low_strict, high_strict, left, single in itertools.product((False, True), repeat=4)
    for nan in ((False, True) if low is None or high is None else (False,))
]


@pytest.mark.parametrize("left", [False, True])
def test_infinities_nan_and_zeros_exactly(left) -> None:
    for band in BANDS:
        if band.left == left:
            special = SPECIAL if band.nan else SPECIAL[~np.isnan(SPECIAL)]
            check_band(band, special, special)
            for at in range(len(ODD)):  # alone, as no other probe makes it look
                check_band(band, special[at : at + 1], special)


def test_no_probes_ask_for_nothing() -> None:
    for band in BANDS[::7]:
        found = band.interval(np.zeros(0, np.int64))
        assert all(end is None or not len(end) for end in (found.low, found.high))


def test_around_covers_every_probe_between_and_no_more_than_it_must() -> None:
    for band in BANDS[::3]:
        special = SPECIAL if band.nan else SPECIAL[~np.isnan(SPECIAL)]
        probes, _ = keys_of(band, special, special)
        probes = np.sort(probes)
        asked = band.interval(probes)
        for i, j in itertools.combinations_with_replacement(range(len(probes)), 2):
            found = band.around(probes[i : i + 1], probes[j : j + 1])
            assert (found.low is None, found.high is None) == (
                asked.low is None,
                asked.high is None,
            )
            odd = probes[i] <= KEY_NEG_INF or probes[j] >= KEY_INF
            if found.low is not None:
                assert found.low[0] == (INT64_MIN if odd else asked.low[i])
            if found.high is not None:
                assert found.high[0] == (INT64_MAX if odd else asked.high[j])
