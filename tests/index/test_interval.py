"""Intervals of keys against exact arithmetic, at the ends of 64 bits above all."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pyarrow as pa
import pytest

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, encode
from thetajoin.index.interval import (
    BytesInterval,
    Dictionary,
    Interval,
    dictionary_of,
    interval_around,
    interval_of,
    shift_interval,
)
from thetajoin.kernels import threads

KEYS = [INT64_MIN, INT64_MIN + 1, -2, -1, 0, 1, 2, INT64_MAX - 1, INT64_MAX]
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
WHOLE = 2**64
STEPS = [0, 1, -1, 3, INT64_MAX, INT64_MIN, INT64_MAX + 1, INT64_MIN - 1]
STEPS += [WHOLE - 1, 1 - WHOLE, WHOLE, -WHOLE, WHOLE + 1, -WHOLE - 1, 2**70, -(2**70)]


@pytest.mark.parametrize("rows", [0, 1, 200, 1000])
def test_dictionary_on_several_threads(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LEAST_ITEMS", 64)
    words = np.random.default_rng(rows).integers(0, 90, rows + 3)
    strings = encode(pa.array([f"word {word}" for word in words]).slice(3))
    assert isinstance(strings, BytesKey)
    expected, expected_ranks = strings.dictionary()
    with threads.use_threads(3) as mapper:
        distinct, ranks = dictionary_of(strings, mapper)
    assert distinct.to_arrow().equals(expected.to_arrow())
    assert ranks.tolist() == expected_ranks.tolist()


def asked(interval: Interval, row: int) -> list[int]:
    """The keys that an interval asks for."""
    low = INT64_MIN if interval.low is None else int(interval.low[row])
    high = INT64_MAX if interval.high is None else int(interval.high[row])
    return [key for key in KEYS if low <= key <= high]


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_at_the_ends_of_64_bits(op: str) -> None:
    for keys in (KEYS, KEYS[1:-1]):
        found = interval_of(op, np.array(keys))
        for row, key in enumerate(keys):
            assert asked(found, row) == [s for s in KEYS if OPERATORS[op](key, s)]


@pytest.mark.parametrize("op", OPERATORS)
def test_around_asks_for_what_some_key_between_asks_for(op: str) -> None:
    for least, most in itertools.combinations_with_replacement(KEYS, 2):
        found = interval_around(op, np.array([least]), np.array([most]))
        between = [key for key in KEYS if least <= key <= most]
        wanted = [s for s in KEYS if any(OPERATORS[op](key, s) for key in between)]
        assert asked(found, 0) == wanted


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="like"):
        interval_of("like", np.array([1]))


@pytest.mark.parametrize("low", [None, *STEPS])
def test_shifted_is_exact_whatever_the_steps(low: int | None) -> None:
    for high in (None, *STEPS):
        # Keys that go past an end, and only such that do not: both ways are taken.
        for keys in (KEYS, [0], [INT64_MAX], [INT64_MIN]):
            given = np.array(keys)
            found = shift_interval(given, given, low, high)
            for row, key in enumerate(keys):
                wanted = [
                    s
                    for s in KEYS
                    if (low is None or s >= key + low) and (high is None or s <= key + high)
                ]
                assert asked(found, row) == wanted, (key, low, high)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ((1, 9), (3, 7), (3, 7)),
        ((1, 5), (3, 7), (3, 5)),
        ((3, 7), (1, 5), (3, 5)),
        ((1, None), (3, None), (3, None)),
        ((None, 9), (None, 7), (None, 7)),
        ((4, None), (None, 7), (4, 7)),
        ((None, None), (4, 7), (4, 7)),
    ],
)
def test_both_intervals_at_once(
    one: tuple[int | None, ...], other: tuple[int | None, ...], both: tuple[int | None, ...]
) -> None:
    def interval(ends: tuple[int | None, ...]) -> Interval:
        low, high = (None if end is None else np.array([end]) for end in ends)
        return Interval(low, high)

    found = interval(one) & interval(other)
    ends = tuple(None if end is None else int(end[0]) for end in (found.low, found.high))
    assert ends == both


def test_strings_between_two_others() -> None:
    def strings(*values: str) -> BytesKey:
        found = encode(pa.array(values))
        assert isinstance(found, BytesKey)
        return found

    stored = ["a", "b", "c", "d", "e"]
    lowest = BytesInterval((("<=", strings("b", "bb")),))
    highest = BytesInterval(((">", strings("d", "dd")),))
    found = (lowest & highest).against(Dictionary.of(strings(*stored)))
    # Ranks are even, what lies between two of them is odd.
    ranks = range(0, 2 * len(stored), 2)
    assert found.low is not None
    assert found.high is not None
    rows = zip(found.low, found.high, strict=True)
    kept = [[stored[r // 2] for r in ranks if low <= r <= high] for low, high in rows]
    assert kept == [["b", "c"], ["c", "d"]]
    taken = (lowest & highest).take(np.array([1])).against(Dictionary.of(strings(*stored)))
    assert taken.low is not None
    assert taken.low.tolist() == found.low[1:].tolist()
