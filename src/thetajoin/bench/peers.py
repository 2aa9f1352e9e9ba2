"""Other engines on the same tables, each called as its users would call it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Q1 = "l.a < r.a AND l.b > r.b"
# The Python of an environment with polars-bio, which wants an older Arrow than the other peers.
POLARS_BIO = "THETAJOIN_POLARS_BIO_PYTHON"


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

    def query(self, query: str) -> pa.Table:
        """What a query over stored tables gives, as Arrow."""
        return self._connection.sql(query).to_arrow_table()

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
        columns = ", ".join(f"{field.name} {_clickhouse(field.type)}" for field in table.schema)
        self._session.query("CREATE DATABASE IF NOT EXISTS bench")
        self._session.query(f"DROP TABLE IF EXISTS bench.{name}")
        self._session.query(f"CREATE TABLE bench.{name} ({columns}) ENGINE = Memory")
        arriving = table
        self._session.query(f"INSERT INTO bench.{name} SELECT * FROM Python(arriving)")
        del arriving

    def query(self, query: str) -> pa.Table:
        """What a query over stored tables gives, as Arrow."""
        return self._session.query(query, "ArrowTable")

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


class PolarsBio:
    """polars-bio in a process of its own, which keeps the tables and computes when it is called.

    `left` and `right` name the columns of chromosome, start and end of half-open intervals.
    """

    def __init__(
        self, operation: str, tables: tuple[pa.Table, pa.Table], left: str, right: str, threads: int
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="thetajoin-bench-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, table in zip(("left", "right"), tables, strict=True):
            pq.write_table(table, folder / f"{name}.parquet")
        call = {"operation": operation, "threads": threads}
        call |= {"left": left.split(), "right": right.split()}
        (folder / "call.json").write_text(json.dumps(call))
        script = Path(__file__).with_name("polars_bio_peer.py")
        # -P: the modules beside the script are not to be found by its imports.
        self._process = subprocess.Popen(
            [str(polars_bio_python()), "-P", str(script), str(folder)],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("w"),
            text=True,
        )
        atexit.register(self._process.kill)
        self._folder = folder
        self._answer()

    def __call__(self) -> int:
        """Compute the result and drop it; its number of rows."""
        return self._ask("run")

    def result(self) -> pa.Table:
        """The result, by way of a file; right columns by their own names where these are free.

        The number of overlaps is `n`.
        """
        self._ask("save")
        found = pq.read_table(self._folder / "result.parquet")
        free = {name.removesuffix("_right") for name in found.column_names}
        free -= {name for name in found.column_names if not name.endswith("_right")}
        short = {f"{name}_right": name for name in free} | {"count": "n"}
        return found.rename_columns([short.get(name, name) for name in found.column_names])

    def _ask(self, word: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            told = (self._folder / "log").read_text().strip().splitlines() or ["no message"]
            raise RuntimeError(f"polars-bio failed: {told[-1]}")
        return line


def polars_bio_python() -> str | None:
    """The Python that has polars-bio: this one, or that of an environment of its own."""
    return sys.executable if installed("polars_bio") else os.environ.get(POLARS_BIO)


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
