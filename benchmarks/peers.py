"""Other engines on the same tables, each called as its users would call it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from benchmarks.harness import TooSlowError

Q1 = "l.a < r.a AND l.b > r.b"
# A query that takes longer is stopped: nobody would wait for it beside what the others take.
LIMIT_S = 60


def list_installed(*names: str) -> list[str]:
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

    def query(self, query: str) -> pa.Table:
        """What a query over stored tables gives, as Arrow."""
        import duckdb

        timer = threading.Timer(LIMIT_S, self._connection.interrupt)
        timer.start()
        try:
            return self._connection.sql(query).to_arrow_table()
        except duckdb.InterruptException as error:
            raise TooSlowError(f"no result in {LIMIT_S} s") from error
        finally:
            timer.cancel()

    def plan(self, query: str) -> str:
        """The physical plan, as JSON."""
        told = self._connection.sql(f"EXPLAIN (FORMAT json) {query}")
        return str(told.fetchall()[-1][-1])

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
        self._session.query(f"SET max_threads = {threads}, max_execution_time = {LIMIT_S}")

    def store(self, name: str, table: pa.Table) -> None:
        """A table in memory of ClickHouse's own."""
        columns = ", ".join(f"{field.name} {_clickhouse(field.type)}" for field in table.schema)
        self._session.query("CREATE DATABASE IF NOT EXISTS bench")
        self._session.query(f"DROP TABLE IF EXISTS bench.{name}")
        self._session.query(f"CREATE TABLE bench.{name} ({columns}) ENGINE = Memory")
        arriving = table
        self._session.query(f"INSERT INTO bench.{name} SELECT * FROM Python(arriving)")
        del arriving

    def query(self, query: str) -> pa.Table:
        """What a query over stored tables gives, as Arrow."""
        try:
            return self._session.query(query, "ArrowTable")
        except RuntimeError as error:
            if "TIMEOUT_EXCEEDED" not in str(error):
                raise
            raise TooSlowError(f"no result in {LIMIT_S} s") from error

    def version(self) -> str:
        """ClickHouse's version."""
        return str(self._session.query("SELECT version()", "TabSeparated")).strip()

    def plan(self, query: str) -> str:
        """The steps of the plan, with the algorithms of joins."""
        return str(self._session.query(f"EXPLAIN actions = 1 {query}", "TabSeparatedRaw"))

    def join(self, left: str, right: str, on: str) -> int:
        """Rows of the join."""
        query = f"SELECT * FROM bench.{left} AS l JOIN bench.{right} AS r ON {on}"
        return int(self._session.query(query, "ArrowTable").num_rows)

    def scalar(self, query: str) -> int:
        """The one number that a query gives."""
        return int(str(self._session.query(query, "TabSeparated")).strip())


def _clickhouse(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "Int64"
    return "Float64" if pa.types.is_floating(kind) else "String"


class DataFusion:
    """DataFusion over tables in memory; results come back as Arrow.

    Its operator for one inequality is off by default, and on here; it has none for two, nor for
    as-of joins.
    """

    def __init__(self, threads: int) -> None:
        from datafusion import SessionConfig, SessionContext

        config = SessionConfig().with_target_partitions(threads)
        config = config.set("datafusion.optimizer.enable_piecewise_merge_join", "true")
        self._session: Any = SessionContext(config)
        self._threads = threads

    def store(self, name: str, table: pa.Table) -> None:
        """A table in memory, in as many parts as there are threads."""
        rows = -(-table.num_rows // self._threads) or 1
        parts = [table.slice(at, rows).to_batches() for at in range(0, table.num_rows or 1, rows)]
        self._session.register_record_batches(name, parts)

    def query(self, query: str) -> pa.Table:
        """What a query over stored tables gives, as Arrow."""
        return self._session.sql(query).to_arrow_table()

    def plan(self, query: str) -> str:
        """The physical plan."""
        told = self._session.sql(f"EXPLAIN {query}").to_pydict()
        return str(dict(zip(told["plan_type"], told["plan"], strict=True))["physical_plan"])


def pandas_module() -> Any:
    """pandas, imported when it is measured."""
    import pandas

    return pandas


def join_runs(
    threads: int,
    left: pa.Table,
    right: pa.Table,
    on: str,
    predicates: Callable[[Any, Any], list[Any]],
) -> dict[str, Callable[[], int]]:
    """The same join by every peer that is installed, ready to be timed."""
    runs: dict[str, Callable[[], int]] = {}
    present = list_installed("duckdb", "polars", "chdb")
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
