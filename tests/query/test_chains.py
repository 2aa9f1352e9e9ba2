"""Chains of joins of every kind with conditions in ON and WHERE, against a naive evaluator.

DuckDB is asked for a second opinion where it is installed; its SEMI and ANTI joins on inequalities
are known to be wrong at times, so chains with those are left to the naive evaluator alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from strategies import examples, nullable_ints

ALIASES = "abcd"
WORDS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}
SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64(), "v": pa.int64()})
Rows = dict[str, dict[str, Any] | None]


@dataclass(frozen=True)
class Check:
    """A condition as text, and its value for rows by alias: true, false or None."""

    sql: str
    value: Any
    about: frozenset[str]


def value_of(rows: Rows, name: str) -> Any:
    alias, column = name.split(".")
    row = rows[alias]
    return None if row is None else row[column]


def compared(left: str, op: str, right: str | int) -> Check:
    def value(rows: Rows) -> bool | None:
        other = value_of(rows, right) if isinstance(right, str) else right
        return naive.compare(value_of(rows, left), op, other)

    about = {left[0]} | ({right[0]} if isinstance(right, str) else set())
    return Check(f"{left} {op} {right}", value, frozenset(about))


def missing(name: str, negated: bool) -> Check:
    def value(rows: Rows) -> bool:
        return (value_of(rows, name) is None) != negated

    return Check(f"{name} IS {'NOT ' if negated else ''}NULL", value, frozenset(name[0]))


def filled(name: str, number: int) -> Check:
    def value(rows: Rows) -> bool | None:
        found = value_of(rows, name)
        return naive.compare(number if found is None else found, ">=", 0)

    return Check(f"coalesce({name}, {number}) >= 0", value, frozenset(name[0]))


def either(first: Check, second: Check) -> Check:
    pred = naive.any_of(
        lambda rows, _: first.value(rows),
        lambda rows, _: second.value(rows),
    )
    return Check(
        f"({first.sql} OR {second.sql})",
        lambda rows: pred(rows, {}),
        first.about | second.about,
    )


# Strategies are made once: making them takes longer than drawing from them.
@cache
def columns(aliases: str) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(aliases), st.sampled_from("kv")).map(".".join)


OPS = st.sampled_from(naive.OPERATORS)


@cache
def single(aliases: str) -> st.SearchStrategy[Check]:
    name = columns(aliases)
    return st.one_of(
        st.builds(compared, name, OPS, st.integers(-1, 2)),
        st.builds(missing, name, st.booleans()),
        st.builds(filled, name, st.sampled_from([-1, 0])),
        st.builds(compared, name, OPS, name),
    )


@cache
def crossing(before: str, alias: str) -> st.SearchStrategy[list[Check]]:
    both = st.builds(compared, columns(before), OPS, columns(alias))
    more = st.lists(single(before + alias), max_size=1)
    return st.tuples(both, more).map(lambda drawn: [drawn[0], *drawn[1]])


@cache
def wheres(aliases: str) -> st.SearchStrategy[list[Check]]:
    one = single(aliases)
    return st.lists(one | st.builds(either, one, one), max_size=3)


@dataclass(frozen=True)
class Chain:
    """Joins from left to right, conditions and tables."""

    tables: dict[str, list[dict[str, Any]]]
    hows: list[str]
    ons: list[list[Check]]
    where: list[Check]

    @property
    def seen(self) -> str:
        """Aliases that SELECT and WHERE may name."""
        return seen(self.hows)

    @property
    def sql(self) -> str:
        text = "FROM a"
        for alias, how, on in zip(ALIASES[1:], self.hows, self.ons, strict=False):
            conditions = " AND ".join(test.sql for test in on)
            text += f" {WORDS[how]} {alias} ON {conditions}"
        if self.where:
            text += " WHERE " + " AND ".join(test.sql for test in self.where)
        return f"SELECT {', '.join(f'{x}.id AS {x}' for x in self.seen)} {text}"


def seen(hows: list[str]) -> str:
    return "a" + "".join(
        alias for alias, how in zip(ALIASES[1:], hows, strict=False) if how not in ("semi", "anti")
    )


ROWS = st.lists(st.tuples(nullable_ints, nullable_ints), max_size=5)


@st.composite
def chains(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(WORDS)) -> Chain:
    hows = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    ons = [draw(crossing(seen(hows[:at]), ALIASES[at + 1])) for at, _ in enumerate(hows)]
    tables = {
        alias: [{"id": i, "k": k, "v": v} for i, (k, v) in enumerate(draw(ROWS))]
        for alias in ALIASES[: len(hows) + 1]
    }
    return Chain(tables, hows, ons, draw(wheres(seen(hows))))


def evaluated(chain: Chain) -> Counter[tuple[Any, ...]]:
    """The chain's rows as SQL defines them, one nested loop after another."""
    found: list[Rows] = [{"a": row} for row in chain.tables["a"]]
    for alias, how, on in zip(ALIASES[1:], chain.hows, chain.ons, strict=False):
        made: list[Rows] = []
        matched: set[int] = set()
        for rows in found:
            hits = [
                (at, row)
                for at, row in enumerate(chain.tables[alias])
                if all(test.value({**rows, alias: row}) is True for test in on)
            ]
            matched |= {at for at, _ in hits}
            if how in ("semi", "anti"):
                made += [rows] if bool(hits) == (how == "semi") else []
                continue
            made += [{**rows, alias: row} for _, row in hits]
            if not hits and how in ("left", "full"):
                made.append({**rows, alias: None})
        if how in ("right", "full"):
            none: Rows = dict.fromkeys(seen(chain.hows[: ALIASES.index(alias) - 1]))
            made += [
                {**none, alias: row}
                for at, row in enumerate(chain.tables[alias])
                if at not in matched
            ]
        found = made
    kept = [rows for rows in found if all(test.value(rows) is True for test in chain.where)]
    return Counter(
        tuple(None if rows[x] is None else rows[x]["id"] for x in chain.seen) for rows in kept
    )


def run(chain: Chain) -> Counter[tuple[Any, ...]]:
    tables = {x: pa.Table.from_pylist(rows, SCHEMA) for x, rows in chain.tables.items()}
    got = tj.sql(chain.sql, **tables)
    return Counter(tuple(row.values()) for row in got.to_pylist())


@examples(400)
@given(chains())
def test_chains_against_the_naive_evaluator(chain):
    assert run(chain) == evaluated(chain), chain.sql


@examples(120)
@given(chains(("inner", "left", "right", "full")))
def test_chains_against_duckdb(chain):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    with duckdb.connect() as connection:
        for alias, rows in chain.tables.items():
            connection.register(alias, pa.Table.from_pylist(rows, SCHEMA))
        want = Counter(connection.execute(chain.sql).fetchall())
    assert run(chain) == want, chain.sql


T = {x: pa.table({"k": k}) for x, k in (("a", [0, 1]), ("b", [1, 2]), ("c", [2, 3]))}


def rows(query: str) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(row.values()) for row in tj.sql(query, **T).to_pylist()),
        key=lambda row: [(v is not None, v or 0) for v in row],
    )


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("a JOIN b ON a.k < b.k RIGHT JOIN c ON b.k < c.k WHERE a.k > 0", [(1, 2, 3)]),
        ("a JOIN b ON a.k < b.k FULL JOIN c ON b.k < c.k WHERE a.k > 0", [(1, 2, 3)]),
        ("a RIGHT JOIN b ON a.k > b.k LEFT JOIN c ON b.k > c.k WHERE a.k IS NULL AND b.k < 2",
         [(None, 1, None)]),
        ("a LEFT JOIN b ON a.k > b.k JOIN c ON a.k < c.k WHERE b.k IS NULL AND a.k = 1 AND c.k = 2",
         [(1, None, 2)]),
    ],
)  # fmt: skip
def test_where_is_not_applied_below_a_join_that_makes_nulls(query, want):
    assert rows(f"SELECT a.k, b.k, c.k FROM {query}") == want


def test_where_after_one_outer_join():
    assert rows("SELECT a.k, b.k FROM a LEFT JOIN b ON a.k > b.k WHERE a.k = 1") == [(1, None)]
    assert rows("SELECT a.k, b.k FROM a LEFT JOIN b ON a.k < b.k WHERE b.k > 1") == [(0, 2), (1, 2)]
    assert rows("SELECT a.k, b.k FROM a FULL JOIN b ON a.k >= b.k WHERE a.k IS NULL") == [(None, 2)]


def test_columns_of_a_semi_join_are_not_seen_later():
    assert rows("SELECT k FROM a LEFT SEMI JOIN b ON a.k < b.k AND b.k < 2") == [(0,)]
    query = "SELECT a.k, c.k FROM a LEFT ANTI JOIN b ON a.k = b.k JOIN c ON a.k < c.k"
    assert rows(query) == [(0, 2), (0, 3)]
    for clause in ("SELECT b.k FROM {}", "SELECT a.k FROM {} WHERE b.k > 0"):
        with pytest.raises(tj.ThetaJoinError, match="'b' gives no columns"):
            rows(clause.format("a LEFT SEMI JOIN b ON a.k < b.k"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a JOIN b ON a.k < c.k JOIN c ON a.k < c.k", "'c' is joined later"),
        ("a RIGHT SEMI JOIN b ON a.k < b.k", "'a' gives no columns"),
    ],
)
def test_mistakes(query, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        rows(f"SELECT a.k FROM {query}")
    assert "\n" not in str(caught.value)
