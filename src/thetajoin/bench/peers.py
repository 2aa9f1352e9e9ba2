"""Other engines on the same tables, each called as its users would call it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

Q1 = "l.a < r.a AND l.b > r.b"


def installed(*names: str) -> list[str]:
    """Those of the peers that can be imported here."""
    return [name for name in names if find_spec(name) is not None]


class DuckDB:
    """DuckDB with the tables registered; results come back as Arrow."""

    def __init__(self, threads: int) -> None:
        import duckdb

        self._connection = duckdb.connect(config={"threads": threads})

    def store(self, name: str, table: pa.Table) -> None:
        """A table of DuckDB's own: what a user would keep a window in."""
        self._connection.register("arriving", table)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM arriving")
        self._connection.unregister("arriving")

    def join(self, left: pa.Table | str, right: pa.Table | str, on: str) -> int:
        """Rows of the join."""
        names = []
        for alias, table in (("l", left), ("r", right)):
            if isinstance(table, str):
                names.append(table)
            else:
                self._connection.register(f"given_{alias}", table)
                names.append(f"given_{alias}")
        query = f"SELECT * FROM {names[0]} l JOIN {names[1]} r ON {on}"
        result = self._connection.sql(query).to_arrow_table()
        return int(result.num_rows)


class Polars:
    """Polars' join_where on frames made from the same columns."""

    def __init__(self) -> None:
        import polars

        self._pl: Any = polars

    def frame(self, table: pa.Table) -> Any:
        """A frame without a copy."""
        return self._pl.from_arrow(table)

    def join(self, left: Any, right: Any, predicates: Callable[[Any, Any], list[Any]]) -> int:
        """Rows of the join; `predicates` gets functions that name a left and a right column."""
        pl = self._pl
        conditions = predicates(pl.col, lambda name: pl.col(f"{name}_right"))
        return int(left.join_where(right, *conditions).height)


class ChDB:
    """ClickHouse in this process, reading the Arrow tables in place."""

    def __init__(self, threads: int) -> None:
        from chdb import session

        self._session = session.Session()
        self._session.query(f"SET max_threads = {threads}")

    def store(self, name: str, table: pa.Table) -> None:
        """A table in memory of ClickHouse's own."""
        columns = ", ".join(
            f"{field.name} {'Int64' if pa.types.is_integer(field.type) else 'Float64'}"
            for field in table.schema
        )
        self._session.query("CREATE DATABASE IF NOT EXISTS bench")
        self._session.query(f"DROP TABLE IF EXISTS bench.{name}")
        self._session.query(f"CREATE TABLE bench.{name} ({columns}) ENGINE = Memory")
        arriving = table
        self._session.query(f"INSERT INTO bench.{name} SELECT * FROM Python(arriving)")
        del arriving

    def join(self, left: str, right: str, on: str) -> int:
        """Rows of the join."""
        query = f"SELECT * FROM bench.{left} AS l JOIN bench.{right} AS r ON {on}"
        return int(self._session.query(query, "ArrowTable").num_rows)

    def scalar(self, query: str) -> int:
        """The one number that a query gives."""
        return int(str(self._session.query(query, "TabSeparated")).strip())


def join_runs(
    threads: int,
    left: pa.Table,
    right: pa.Table,
    on: str,
    predicates: Callable[[Any, Any], list[Any]],
) -> dict[str, Callable[[], int]]:
    """The same join by every peer that is installed, ready to be timed."""
    runs: dict[str, Callable[[], int]] = {}
    present = installed("duckdb", "polars", "chdb")
    if "duckdb" in present:
        duck = DuckDB(threads)
        runs["duckdb"] = lambda: duck.join(left, right, on)
    if "polars" in present:
        polars = Polars()
        frames = polars.frame(left), polars.frame(right)
        runs["polars"] = lambda: polars.join(*frames, predicates)
    if "chdb" in present:
        chdb = ChDB(threads)
        chdb.store("l", left)
        chdb.store("r", right)
        runs["chdb"] = lambda: chdb.join("l", "r", on)
    return runs
