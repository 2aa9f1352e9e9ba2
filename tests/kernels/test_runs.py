"""Runs of equal keys, looked up in either kind of table, are those that a search finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.kernels import runs
from thetajoin.kernels.runs import Dense, Hashed, build_table, look_up, rises_in_runs, same_in_runs

LIMITS = np.iinfo(np.int64)
keys = st.one_of(
    st.integers(-6, 6),
    st.integers(LIMITS.min, LIMITS.max),
    st.sampled_from([LIMITS.min, LIMITS.min + 1, LIMITS.max - 1, LIMITS.max]),
)


def check(stored: np.ndarray, asked: np.ndarray) -> None:
    starts, ends = look_up(build_table(stored), asked)
    first, last = (np.searchsorted(stored, asked, side=side) for side in ("left", "right"))
    assert (ends - starts).tolist() == (last - first).tolist()
    found = first < last
    assert starts[found].tolist() == first[found].tolist()


@given(st.lists(keys, min_size=1, max_size=60), st.lists(keys, max_size=60), st.booleans())
def test_a_run_is_where_a_search_finds_it(stored: list[int], asked: list[int], dense: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "DENSE_ENTRIES", 4 if dense else 0)
        check(np.sort(np.array(stored, np.int64)), np.array([*asked, *stored], np.int64))


@pytest.mark.parametrize("base", [LIMITS.min, -3, LIMITS.max - 9])
def test_close_keys_number_the_entries(base: int) -> None:
    stored = base + np.array([0, 0, 2, 3, 3, 3, 9])
    assert isinstance(build_table(stored), Dense)
    check(stored, np.array([*range(base, base + 10), LIMITS.min, LIMITS.max, 0, -1]))


def test_keys_that_collide_are_told_apart() -> None:
    """All of these hash to the last entry of their table, so that the search goes around it."""
    many = np.random.default_rng(1).integers(LIMITS.min, LIMITS.max, 4000)
    size = 20
    shift = 64 - (size.bit_length() + 1)
    last = (1 << (64 - shift)) - 1
    alike = [key for key in many if int(runs._entry(key, np.uint64(shift))) == last]
    assert len(alike) > 2 * size
    stored = np.sort(np.repeat(np.array(alike[:size]), 2))
    table = build_table(stored)
    assert isinstance(table, Hashed)
    assert int(table.shift) == shift
    check(stored, np.array(alike))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_columns_inside_runs(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    run = np.array([row[0] for row in rows], np.int64)
    column = np.array([row[1] for row in rows], np.int64)
    groups = [column[run == key].tolist() for key in set(run.tolist())]
    assert rises_in_runs(column, run) == all(group == sorted(group) for group in groups)
    assert same_in_runs(column, run) == all(len(set(group)) == 1 for group in groups)
    whole = column.tolist() == sorted(column.tolist())
    assert rises_in_runs(column, np.zeros(0, np.int64)) == whole
