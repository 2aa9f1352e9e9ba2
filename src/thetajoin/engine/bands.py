"""Bands: intervals of stored keys at a distance from the probe's own."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.arrays import empty
from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.index.interval import Interval, shifted
from thetajoin.kernels.search import KEY_INF, KEY_NEG_INF, band_end
from thetajoin.predicate import Difference


@dataclass(frozen=True)
class Distance:
    """Stored integers in ``[probe + low, probe + high]``, in exact arithmetic."""

    low: int | None
    high: int | None

    def __and__(self, other: Distance) -> Distance:
        """Both at once, from the same probe key."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Distance(max(lows, default=None), min(highs, default=None))

    def interval(self, keys: Int64) -> Interval:
        """The interval around each probe key."""
        return self.around(keys, keys)

    def around(self, least: Int64, most: Int64) -> Interval:
        """What any probe key between two may ask for."""
        return shifted(least, most, self.low, self.high)


def whole_bounds(difference: Difference) -> tuple[int | None, int | None]:
    """An exact difference's bounds as inclusive integers in the keys' own unit."""

    def scaled(bound: object) -> int | None:
        if bound is None:
            return None
        if isinstance(bound, Decimal):
            return int(bound.scaleb(difference.type.scale))
        assert isinstance(bound, int)
        return bound

    low, high = scaled(difference.low), scaled(difference.high)
    low = low + 1 if low is not None and difference.low_strict else low
    return low, high - 1 if high is not None and difference.high_strict else high


@dataclass(frozen=True)
class FloatBand:
    """Stored doubles whose rounded difference from the probe lies between two bounds.

    `left` says that the probes are the left operand of the subtraction; `single` that it is done
    in float32; `nan` that a difference which is NaN satisfies it (as it is above every bound).
    """

    low: float | None
    low_strict: bool
    high: float | None
    high_strict: bool
    left: bool
    single: bool
    nan: bool

    @staticmethod
    def of(difference: Difference, *, left: bool) -> FloatBand:
        """From a difference over floats, for probes of one side."""
        low, high = (
            None if end is None else float(end)  # type: ignore[arg-type]
            for end in (difference.low, difference.high)
        )
        single = pa.types.is_float32(difference.type)
        strict = difference.low_strict, difference.high_strict
        return FloatBand(low, strict[0], high, strict[1], left, single, difference.nan)

    def interval(self, keys: Int64) -> Interval:
        """The interval of stored keys for each probe key; exact, also for infinities and NaN."""
        ends: dict[bool, Int64] = {}
        for below, bound, strict in (
            (False, self.low, self.low_strict),
            (True, self.high, self.high_strict),
        ):
            if bound is not None:
                end = empty(keys.size, np.int64)
                band_end(keys, bound, strict, below, self.left, self.single, end)
                ends[below == self.left] = end
        if keys.size and (keys.max() >= KEY_INF or keys.min() <= KEY_NEG_INF):
            odd = (keys >= KEY_INF) | (keys <= KEY_NEG_INF)
            self._settle_odd(keys, odd, ends)
        return Interval(ends.get(True), ends.get(False))

    def around(self, least: Int64, most: Int64) -> Interval:
        """What any probe key between two may ask for."""
        asked = Interval(self.interval(least).low, self.interval(most).high)
        # Infinities and NaN ask for something of their own.
        odd = (least <= KEY_NEG_INF) | (most >= KEY_INF)
        return Interval(
            None if asked.low is None else np.where(odd, INT64_MIN, asked.low),
            None if asked.high is None else np.where(odd, INT64_MAX, asked.high),
        )

    def _settle_odd(self, keys: Int64, odd: NDArray[np.bool_], ends: dict[bool, Int64]) -> None:
        """What a probe that is infinite or NaN asks for.

        Against an infinity, the difference is infinite for every stored number but the same
        infinity, where it is NaN; against NaN it is always NaN.
        """
        if self.low is not None and self.high is not None:
            ends[True][odd], ends[False][odd] = INT64_MAX, INT64_MIN
            return
        infinite = (keys == KEY_INF) | (keys == KEY_NEG_INF)
        positive = (keys == KEY_INF) == self.left
        satisfied = infinite & (positive == (self.high is None))
        ((upwards, end),) = ends.items()
        end[odd] = INT64_MIN if upwards else INT64_MAX
        if not self.nan:
            end[satisfied] = (keys + (1 if upwards else -1))[satisfied]
        missed = infinite & ~satisfied
        nothing = np.int64(INT64_MAX if upwards else INT64_MIN)
        end[missed] = keys[missed] if self.nan else nothing
