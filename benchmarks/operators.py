"""The operators that a plan names, in each engine's way to print one."""

from __future__ import annotations

import re
from collections.abc import Iterable

DUCKDB = re.compile(r'"name": "(\w*(?:JOIN|CROSS_PRODUCT|WINDOW)\w*)')
DATAFUSION = re.compile(r"^\s*(\w*(?:Join|Window)\w*)", re.MULTILINE)
# Steps of ClickHouse, of which a hash join tells its algorithm in a line of its own.
CLICKHOUSE = re.compile(r"\bIEJoin\b|(?:asof \| )?Algorithm: \w+(?:\(\w+\))?")
POLARS = re.compile(r"^\s*((?:[A-Z_-]+ )*JOIN):?", re.MULTILINE)


def duckdb_operators(plan: str) -> str:
    """Joins and windows of DuckDB's physical plan as JSON, from the top."""
    return _once(DUCKDB.findall(plan))


def datafusion_operators(plan: str) -> str:
    """Joins and windows of DataFusion's physical plan."""
    return _once(DATAFUSION.findall(plan))


def chdb_operators(plan: str) -> str:
    """Joins of ClickHouse, by their algorithm."""
    found = CLICKHOUSE.findall(plan)
    return _once(words.replace("| Algorithm: ", "").replace("Algorithm: ", "") for words in found)


def polars_operators(plan: str) -> str:
    """Joins of Polars."""
    return _once(word for word in POLARS.findall(plan) if not word.startswith("END"))


def _once(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))
