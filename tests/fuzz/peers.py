"""Second opinions: DuckDB on single joins, and where it is known to mean something else."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from typing import Any

from fuzz.cases import Case
from fuzz.expected import Ids, expected
from fuzz.nodes import Node

# What DuckDB is not asked, and why: there it is known to differ from Spark.
LEFT_OUT = {
    "cast": "it rounds a float to the nearest integer, Spark cuts it off",
    "try_cast": "it rounds a float to the nearest integer, Spark cuts it off",
    "/": "a division by zero is NULL there, and an error in Spark",
    "%": "a division by zero is NULL there, and an error in Spark",
    "div": "it writes // for it",
    "<=>": "it writes IS NOT DISTINCT FROM for it",
    "floor": "of a double it is a double there, and a BIGINT in Spark",
    "ceil": "of a double it is a double there, and a BIGINT in Spark",
    "sqrt": "below zero it is an error there, and NaN in Spark",
    "sign": "it is a TINYINT there, and a double in Spark",
    "substring": "a start of 0 lies before the first character there",
    "datediff": "it takes a unit first",
    "date_add": "it takes an interval",
    "date_trunc": "of a date it is a date there",
    "date": "DATE - DATE is a number of days there, and an interval in Spark",
    "span": "its intervals have months and days apart, and Spark's here have not",
    "timestamp": "it casts units to microseconds, which overflow at the extremes",
    "clock": "it has microseconds only",
    "isnan": "of NULL it is NULL there, and false in Spark",
    "concat": "it passes over a NULL, which in Spark makes the whole NULL",
    "decimal": "it compares decimals of more than 38 digits together as doubles",
}
UNKNOWN = ("float16", "view", "dictionary")  # Arrow types that it does not read
CALLS = ("join", "join_batches", "stream", "sql")
HERE = importlib.util.find_spec("duckdb") is not None


def can_answer(case: Case) -> bool:
    """Whether DuckDB is installed and means the same by the case."""
    if not HERE or case.call not in CALLS or case.aggs or case.window is not None:
        return False
    columns = [case.tables[side].column(c) for side in case.tables for c in _named(case, side)]
    if any(word in column.code for column in columns for word in UNKNOWN):
        return False
    return all(n.op not in LEFT_OUT and n.kind.name not in LEFT_OUT for n in case.on.walk())


def disagreement(case: Case) -> str:
    """How DuckDB's rows differ from the naive join's; empty where they do not."""
    import duckdb

    want = expected(case)
    if want.undecided:
        return ""
    with duckdb.connect(config={"threads": 1}) as connection:
        for side, table in case.tables.items():
            connection.register(side, table.arrow().select(_named(case, side)))
        try:
            pairs = connection.execute(
                f"SELECT l.lid, r.rid FROM l JOIN r ON {duckdb_sql(case.on)}"
            ).fetchall()
        except duckdb.Error as error:
            if want.notes.may_fail or "out of range" in str(error) or "verflow" in str(error):
                return ""
            return f"DuckDB: {error}"
    got = _with_how(case, pairs)
    if case.limit is not None:
        got = Counter(sorted(got.elements())[: case.limit])
    if got == want.rows:
        return ""
    without, more = (sorted(rows, key=str)[:6] for rows in (want.rows - got, got - want.rows))
    return f"DuckDB has not {without}\nand has {more}"


def duckdb_sql(on: Node) -> str:
    """The condition in DuckDB's words."""
    text = re.sub(r"(?<=\d)D\b", "::DOUBLE", on.sql())
    text = re.sub(r"(?<=\d)L\b", "::BIGINT", text)
    text = re.sub(r"X'([0-9A-F]*)'", lambda m: f"unhex('{m[1]}')", text)
    return text.replace("STARTSWITH(", "STARTS_WITH(").replace("ENDSWITH(", "ENDS_WITH(")


def _named(case: Case, side: str) -> list[str]:
    named = {n.value[1] for n in case.on.walk() if n.op == "col" and n.value[0] == side}
    return [case.tables[side].id, *sorted(named)]


def _with_how(case: Case, pairs: list[tuple[int, int]]) -> Counter[Ids]:
    """Outer, semi and anti joins from the pairs: its own ones on inequalities have been wrong."""
    left, right = ({pair[at] for pair in pairs} for at in (0, 1))
    sizes = [range(table.size) for table in case.tables.values()]
    alone: list[Ids] = [(l, None) for l in sizes[0] if l not in left]
    others: list[Ids] = [(None, r) for r in sizes[1] if r not in right]
    if case.how == "semi":
        return Counter((l,) for l in left)
    if case.how == "anti":
        return Counter((l,) for l in sizes[0] if l not in left)
    rows: list[Any] = list(pairs)
    rows += alone if case.how in ("left", "full") else []
    return Counter(rows + (others if case.how in ("right", "full") else []))
