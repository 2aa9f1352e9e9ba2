"""The theta-join partitionings that the Prefap paper compares (Wu et al.), on one key a side.

- `rbm`: value ranges sampled from the sorted left stream, for both; all pairs of partitions are
  joined (Section 2.1).
- `obt`: equal numbers of sorted elements; all pairs (Section 2.2).
- `cfs`: equal spans of a stream's own values; partitions that the whole other stream cannot match
  are left out (Section 2.3).
- `ftj`: equal spans of a stream's own values, oversized ones split again; pairs that may match.
- `prefap`: after a pre-filter, both streams' spans together, oversized ones split again; pairs that
  may match.

Every step is a switch, so that each can be left out. A partition is given by the positions of its
elements; NULLs are not among the keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.errors import OptionError
from thetajoin.spark.tables.engine import SWITCHES

Keys = NDArray[Any]
Index = NDArray[np.intp]
OPERATORS = ("<", "<=", ">", ">=")


@dataclass(frozen=True)
class Partitioning:
    """Which steps a partitioning takes; `p` is the number of partitions of a stream.

    boundaries: "sampled" (of the sorted left stream), "counted" (equal sizes) or "spanned".
    pre_filter: Algorithm 1. amalgamate: Algorithm 2. split_oversized: Algorithm 3, lines 2 to 9.
    stream_filter: leave out partitions that the whole other stream cannot match.
    partition_filter: Algorithm 3, lines 11 to 23.
    """

    boundaries: str
    p: int = 10
    pre_filter: bool = False
    amalgamate: bool = False
    split_oversized: bool = False
    stream_filter: bool = False
    partition_filter: bool = False


NAMED = {
    "rbm": Partitioning("sampled"),
    "obt": Partitioning("counted"),
    "cfs": Partitioning("spanned", stream_filter=True),
    "ftj": Partitioning("spanned", split_oversized=True, partition_filter=True),
    "prefap": Partitioning(
        "spanned", pre_filter=True, amalgamate=True, split_oversized=True, partition_filter=True
    ),
}


def find_partitioning(name: str, p: Any = 10, **switches: Any) -> Partitioning:
    """A partitioning by its name, with steps switched on or off.

    >>> find_partitioning("prefap", pre_filter=False).pre_filter
    False
    """
    if name not in NAMED:
        known = ", ".join(NAMED)
        raise OptionError(f"partitioning={name!r} is not known: use default, {known}")
    if isinstance(p, bool) or not isinstance(p, int) or p < 1:
        raise OptionError(f"p={p!r}: must be a whole number of at least 1")
    for switch, value in switches.items():
        if switch not in SWITCHES or not isinstance(value, bool):
            raise OptionError(f"{switch}={value!r}: known are {', '.join(SWITCHES)}, true or false")
    return replace(NAMED[name], p=p, **switches)


@dataclass(frozen=True)
class Partitions:
    """A stream cut up: which partition each element is in (-1: left out), and their extremes."""

    of: Index
    low: Keys
    high: Keys

    @property
    def sizes(self) -> Index:
        """Elements in each partition."""
        return np.bincount(self.of[self.of >= 0], minlength=len(self.low))

    @staticmethod
    def by(keys: Keys, kept: Index, labels: Index) -> Partitions:
        """From a label for each kept element; labels without elements vanish."""
        of = np.full(len(keys), -1, np.intp)
        _, dense = np.unique(labels, return_inverse=True)
        of[kept] = dense
        count = int(dense.max()) + 1 if len(dense) else 0
        order = np.argsort(dense, kind="stable")
        starts = np.searchsorted(dense[order], np.arange(count))
        values = keys[kept][order]
        if not count:
            return Partitions(of, values, values)
        return Partitions(
            of, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        )


@dataclass(frozen=True)
class Partitioned:
    """Both streams' partitions, and which pairs of them are joined: ``pairs[i, j]``."""

    left: Partitions
    right: Partitions
    pairs: NDArray[np.bool_]

    @property
    def cartesian_products(self) -> int:
        """Pairs of elements that are compared: the paper's main measure."""
        return int(self.left.sizes @ self.pairs @ self.right.sizes)


def partition(left: Keys, right: Keys, op: str, how: Partitioning) -> Partitioned:
    """Cut up two streams for ``left op right``; O(n log n)."""
    if op not in OPERATORS:
        raise OptionError(f"the paper's partitionings take one of < <= > >=, not {op!r}")
    kept = [np.arange(len(left)), np.arange(len(right))]
    if how.pre_filter and len(left) and len(right):
        kept = [
            np.flatnonzero(may_match(left, left, _least(right), _most(right), op)),
            np.flatnonzero(may_match(_least(left), _most(left), right, right, op)),
        ]
    streams = [left[kept[0]], right[kept[1]]]
    cuts = _boundaries(streams, how)
    sides = []
    for keys, rows, values, bounds in zip((left, right), kept, streams, cuts, strict=True):
        if how.boundaries == "counted":
            ranks = np.empty(len(values), np.intp)
            ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
            labels = ranks * how.p // max(1, len(values))
        else:
            labels = np.searchsorted(bounds, values, side="right")
        made = Partitions.by(keys, rows, labels)
        sides.append(_split(made, keys, len(keys)) if how.split_oversized else made)
    first, second = sides
    pairs = np.ones((len(first.low), len(second.low)), np.bool_)
    if how.stream_filter and pairs.size:
        pairs &= may_match(first.low, first.high, second.low.min(), second.high.max(), op)[:, None]
        pairs &= may_match(first.low.min(), first.high.max(), second.low, second.high, op)[None, :]
    if how.partition_filter:
        ends = first.low[:, None], first.high[:, None], second.low[None, :], second.high[None, :]
        pairs &= may_match(*ends, op)
    return Partitioned(first, second, pairs)


def _least(keys: Keys) -> Keys:
    return keys.min(keepdims=True)  # type: ignore[no-any-return]


def _most(keys: Keys) -> Keys:
    return keys.max(keepdims=True)  # type: ignore[no-any-return]


def may_match(
    low: Keys, high: Keys, other_low: Keys, other_high: Keys, op: str
) -> NDArray[np.bool_]:
    """Whether ranges of values hold a pair for which ``left op right`` (lines 13 to 19)."""
    if op == ">":
        return high > other_low
    if op == ">=":
        return high >= other_low
    return low < other_high if op == "<" else low <= other_high


def _boundaries(streams: list[Keys], how: Partitioning) -> list[Keys]:
    """Where each stream is cut: a partition holds values from one boundary up to the next."""
    if how.boundaries == "sampled":
        values = np.sort(streams[0])
        at = np.arange(1, how.p) * len(values) // how.p
        return [values[at] if len(values) else values] * 2
    cuts = []
    for values in streams:
        if not len(values):
            cuts.append(values)
            continue
        low, high = values.min(), values.max()
        # Equation 3. The first and the last boundary matter once they cut the other stream.
        spans = low + (float(high) - float(low)) / how.p * np.arange(how.p)
        spans = spans.astype(np.float64)
        cuts.append(np.append(spans, high) if how.amalgamate else spans[1:])
    if how.amalgamate:
        # Algorithm 2, line 5
        cuts = [np.unique(np.concatenate([c.astype(np.float64) for c in cuts]))] * 2
    return cuts


def _split(made: Partitions, keys: Keys, window: int) -> Partitions:
    """Split partitions above the average size again into equal spans (Algorithm 3, lines 2 to 9).

    The paper rounds the span up to a whole number, for its integer data; here spans are exact. A
    partition of one repeated value has no span to split and stays as it is.
    """
    if not len(made.low):
        return made
    average = window / len(made.low)
    pieces = np.maximum(np.ceil(made.sizes / average), 1)
    span = (made.high.astype(np.float64) - made.low) / pieces
    kept = np.flatnonzero(made.of >= 0)
    of = made.of[kept]
    above = keys[kept] - made.low[of].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        piece = np.where(span[of] > 0, above / span[of], 0)
    piece = np.minimum(piece, pieces[of] - 1).astype(np.intp)
    labels = of * int(pieces.max()) + piece
    return Partitions.by(keys, kept, labels)


def cuts_of(made: Partitioned) -> tuple[Keys, Keys]:
    """Where each stream is cut, for elements that were not there: all but the first beginnings."""
    return np.unique(made.left.low)[1:], np.unique(made.right.low)[1:]
